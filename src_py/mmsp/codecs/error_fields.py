"""The fields of every class of `mmsp.errors`, in the order in which they are written, and how each is read.

What does not fit is read as what a class has without it, so that an error of another version, or of
somebody else, is an error all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from .. import errors
from ..types import FinishReason, UsageMetadata

__all__ = ["FIELDS", "KINDS", "LEFT_OUT", "integer", "word"]

_Read = Callable[[Any], Any]

LEFT_OUT: Any = object()  # the field keeps its class's default
_FINISH_REASONS = get_args(FinishReason)


def word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _word_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int:
    return integer(value) or 0


def integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float:
    return _number_or_none(value) or 0.0


def _number_or_none(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _flag(value: Any) -> Any:
    return value if isinstance(value, bool) else LEFT_OUT


def _code(value: Any) -> int | str | None:
    return _word_or_none(value) if isinstance(value, str) else integer(value)


def _words_in(value: Any) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _finish_reason(value: Any) -> FinishReason | None:
    found: FinishReason | None = value if value in _FINISH_REASONS else None
    return found


def _usage(value: Any) -> UsageMetadata | None:
    if not isinstance(value, dict):
        return None
    return {
        "cached_tokens": integer(value.get("cached_tokens")),
        "prompt_tokens": integer(value.get("prompt_tokens")),
        "thoughts_tokens": integer(value.get("thoughts_tokens")),
        "response_tokens": integer(value.get("response_tokens")),
    }


def _anything(value: Any) -> Any:
    return value


_CLIENT: dict[str, _Read] = {"client": word}
_END: dict[str, _Read] = {"finish_reason": _finish_reason, "usage_metadata": _usage}

FIELDS: dict[type[BaseException], dict[str, _Read]] = {
    errors.RoutingError: {"model": word, "client_type": _word_or_none},
    errors.WireFormatError: {"path": word},
    errors.ApiKeyRequiredError: {
        **_CLIENT,
        "client_type": word,
        "api_key_env": word,
        "base_url_env": word,
        "base_url": _word_or_none,
    },
    errors.InvalidMessageError: {
        **_CLIENT,
        "item_type": _word_or_none,
        "message_index": integer,
    },
    errors.UnsupportedParameterError: {**_CLIENT, "parameter": word},
    errors.UnsupportedContentError: {**_CLIENT, "item_type": word},
    errors.UnsupportedOperationError: {**_CLIENT, "operation": word},
    errors.ConcurrentCallError: _CLIENT,
    errors.UpstreamError: {
        **_CLIENT,
        "status": integer,
        "error_type": _word_or_none,
        "request_id": _word_or_none,
        "retry_after": _number_or_none,
        "retryable": _flag,
        "error": _anything,
    },
    errors.UpstreamConnectionError: {**_CLIENT, "phase": word, "retryable": _flag},
    errors.UpstreamTimeoutError: {
        **_CLIENT,
        "phase": word,
        "seconds": _number,
        "retryable": _flag,
    },
    errors.ProviderStreamError: {
        **_CLIENT,
        "code": _code,
        "error_type": _word_or_none,
        "retryable": _flag,
    },
    errors.IncompleteStreamError: {**_CLIENT, "missing": _words_in, **_END},
    errors.EmptyResponseError: {**_CLIENT, **_END},
    errors.ToolCallArgumentParseError: {
        **_CLIENT,
        "tool_name": word,
        "tool_call_id": word,
        "raw_arguments_length": _count,
        "raw_arguments_preview": word,
    },
    errors.StreamProtocolError: _CLIENT,
    errors.UnknownEventError: {**_CLIENT, "event": word},
    errors.StreamAbortedError: {**_CLIENT, "reason": _anything},
}

KINDS: dict[str, Any] = {kind.__name__: kind for kind in FIELDS}
