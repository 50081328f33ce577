"""What a caller asks: the body of `POST /v1/stream`, read and checked.

{"model": "<server_model_id>", "messages": [Message, …], "config": {…} or null}
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from ...errors import WireFormatError
from ...plain import kind_of
from ...stream import Stream
from ...wire import from_wire
from .keys import OPEN
from .refusal import Refusal, invalid, not_found
from .table import Served, Table

__all__ = ["CallerLeftError", "Question", "read_body"]

_NO_OWNER = "open"  # the traces' folder of a server without keys


_PATIENCE = 30.0  # s


class CallerLeftError(Exception):
    """The caller hung up before its request was whole."""


async def read_body(request: Request, limit: int, patience: float = _PATIENCE) -> bytes:
    """The body. Raises `Refusal` (413, or 408 after so many seconds without a byte) and
    `CallerLeftError`; what is refused is not read to its end.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        pieces = request.stream()
        while True:
            async with asyncio.timeout(patience):
                piece = await anext(pieces, None)
            if piece is None:
                return bytes(body)
            body += piece
            if len(body) > limit:
                raise _too_large(limit)
    except ClientDisconnect:
        raise CallerLeftError from None
    except TimeoutError:
        told = f"nothing of the body came for {patience:g} s"
        raise Refusal(408, "RequestTimeoutError", told, {"Connection": "close"}) from None


def _too_large(limit: int) -> Refusal:
    return invalid(f"the body is larger than {limit:,} bytes", status=413)


@dataclass(frozen=True, slots=True)
class Question:
    """A request for an answer of a model that is served."""

    served: Served
    messages: list[Any]
    config: dict[str, Any] | None

    @classmethod
    def read(cls, body: bytes, content_type: str, table: Table, owner: str) -> Question:
        """Raises `Refusal`, with the path of what is wrong."""
        asked = _object(body, content_type)
        model, messages, config = (asked.get(name) for name in ("model", "messages", "config"))
        if not isinstance(model, str) or not model:
            raise invalid(
                f"model is {kind_of(model)}; it is the id of a model, from GET /v1/models"
            )
        if not isinstance(messages, list):
            raise invalid(f"messages is {kind_of(messages)}; it is a list of messages")
        if not isinstance(config, dict | None):
            raise invalid(f"config is {kind_of(config)}; it is an object or null")
        served = table.get(model)
        if served is None:
            raise not_found(f"no model {model!r:.200} is served here: GET /v1/models lists them")
        return cls(served, _messages(messages), _allowed(config, served, owner))

    def ask(self) -> Stream:
        """The stream of the answer, not begun. Raises what is wrong with messages and config."""
        config: Any = self.config
        return self.served.client.streaming_response(self.messages, config)


def _object(body: bytes, content_type: str) -> dict[str, Any]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise invalid("the body is JSON, and its Content-Type must say so: application/json")
    try:
        asked = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is no JSON: {error}") from None
    if not isinstance(asked, dict):
        raise invalid(f"the body is {kind_of(asked)}; it is an object with model and messages")
    return asked


def _messages(messages: list[Any]) -> list[Any]:
    try:
        read: list[Any] = from_wire(messages)
    except WireFormatError as error:
        raise invalid("messages" + str(error).removeprefix("$")) from None
    return read


def _allowed(config: dict[str, Any] | None, served: Served, owner: str) -> dict[str, Any] | None:
    """The config without what this row does not allow; a caller's traces have a folder of its own."""
    if config is None:
        return None
    allow = served.row.allow
    if config.get("extra_body") is not None and "extra_body" not in allow:
        raise invalid("config.extra_body is not allowed for this model")
    trace_id = config.get("trace_id")
    if trace_id is not None and "trace_id" not in allow:
        return {name: value for name, value in config.items() if name != "trace_id"}
    if isinstance(trace_id, str) and served.client.traces:
        return config | {"trace_id": f"{_folder(owner)}/{trace_id}"}
    return config


def _folder(owner: str) -> str:
    return _NO_OWNER if owner == OPEN else owner[:16]
