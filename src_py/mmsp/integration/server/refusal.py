"""What a caller is told that gets no stream: a status and a JSON object, in one form for all routes.

    {"error": {"type": "NotFoundError", "message": "…"}}

`Refusal` is the server's own; errors of the library keep their class and fields (`mmsp.codecs.error_wire`)
and get the status that fits who is at fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from ...codecs.error_wire import error_to_wire
from ...errors import (
    InvalidMessageError,
    MMSPError,
    RoutingError,
    StreamAbortedError,
    UnsupportedContentError,
    UnsupportedOperationError,
    UnsupportedParameterError,
    UpstreamError,
    UpstreamTimeoutError,
    WireFormatError,
)

__all__ = [
    "Refusal",
    "conflict",
    "error_response",
    "invalid",
    "not_found",
    "too_many",
    "unreachable",
]

_CALLERS_FAULT = (
    InvalidMessageError,
    RoutingError,
    UnsupportedContentError,
    UnsupportedOperationError,
    UnsupportedParameterError,
    WireFormatError,
)
# A provider's answers that mean the same to our caller; its word on our key is none on the caller's.
_SAME = frozenset({400, 404, 408, 409, 413, 415, 422, 429, 503, 504, 529})


class Refusal(Exception):
    """Raised by a route for what it does not do; answered with `response()`."""

    def __init__(
        self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.headers = dict(headers or {})

    def response(self) -> Response:
        said = {"type": self.kind, "message": str(self)}
        return _json(self.status, {"error": said}, self.headers)


def invalid(message: str, status: int = 400) -> Refusal:
    return Refusal(status, "InvalidRequestError", message)


def not_found(message: str) -> Refusal:
    return Refusal(404, "NotFoundError", message)


def conflict(message: str) -> Refusal:
    return Refusal(409, "ConflictError", message, {"x-should-retry": "false"})


def too_many(message: str) -> Refusal:
    return Refusal(429, "TooManyStreamsError", message, {"Retry-After": "1"})


def unreachable(why: str) -> Refusal:
    return Refusal(503, "UnreachableError", f"the stream could not be stopped: {why}")


def error_response(error: BaseException, headers: Mapping[str, str]) -> Response:
    """The answer for an error before the first event.

    The server has tried again as often as it makes sense: `x-should-retry` keeps a chain of servers from
    multiplying the attempts.
    """
    headers = {**headers, "x-should-retry": "false"}
    wait = getattr(error, "retry_after", None)
    if wait is not None and math.isfinite(wait):
        headers["Retry-After"] = str(math.ceil(wait))
    return _json(_status(error), {"error": error_to_wire(error)}, headers)


def _status(error: BaseException) -> int:
    if isinstance(error, _CALLERS_FAULT):
        return 400
    if isinstance(error, UpstreamError):
        return error.status if error.status in _SAME else 502
    if isinstance(error, UpstreamTimeoutError):
        return 504
    if isinstance(error, StreamAbortedError):
        return 503
    return 502 if isinstance(error, MMSPError) else 500


def _json(status: int, value: Any, headers: Mapping[str, str]) -> Response:
    return Response(
        msgspec.json.encode(value), status, dict(headers), media_type="application/json"
    )
