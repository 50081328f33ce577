"""Errors as JSON objects, and back as the class they were.

    {"type": <class name>, "message": <text>, <field>: …}

Every class of `mmsp.errors` has a row below: its fields in the order in which they are written. What has
no row (a fault of the server, a refusal of its own) is written with its integer `status` if it has one,
and comes back as `UpstreamError`. What JSON has no form for is written as text, so that an error can
always be told; a traceback never is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from .. import errors
from ..errors import MMSPError, UpstreamError
from ..masking import masked
from ..types import FinishReason, UsageMetadata
from .forgiving import whole_characters
from .http_error import is_retryable

__all__ = ["error_from_wire", "error_to_wire"]

Json = dict[str, Any]
_Read = Callable[[Any], Any]

_DEEPEST = 100  # levels; readers of JSON begin to differ at a few hundred
_MOST_BITS = 13_000  # of an integer; Python itself writes 4,300 digits at most
_LONGEST = {"message": 8192, "reason": 4096, "error": 32_768}  # bytes; together within any limit
_NO_REASON = "the server reported a failure and gave no reason"
_LEFT_OUT: Any = object()  # the field keeps its class's default
_FINISH_REASONS = get_args(FinishReason)


def error_to_wire(error: BaseException) -> Json:
    """`error` as an object that JSON can hold, its documented fields in their order, null where None."""
    told: Json = {"type": type(error).__name__, "message": _text_of(error)}
    fields = _FIELDS.get(type(error))
    if fields is None:
        status = _status_of(error)
        told |= {} if status is None else {"status": status}
    else:
        told |= {name: _plain(getattr(error, name, None)) for name in fields}
    return told | {
        name: _short(told[name], most) for name, most in _LONGEST.items() if name in told
    }


def error_from_wire(
    said: Any, *, client: str, status: int | None = None, secrets: tuple[str, ...] = ()
) -> MMSPError:
    """The error that `said` tells of: what `error_to_wire` made, or anything else that is JSON.

    It is of the class it was, with the fields it had; a field of another type than the class's is left
    out. Of a class that has no row it is an `UpstreamError` of `client`, with the HTTP `status`.
    `secrets` are masked in all of it.
    """
    said = masked(_plain(said), secrets)
    kind = _KINDS.get(_word(said.get("type"))) if isinstance(said, dict) else None
    if kind is None:
        return _unknown(said, client, status)
    fields = {name: read(said.get(name)) for name, read in _FIELDS[kind].items()}
    if "client" in fields:
        fields["client"] = fields["client"] or client
    if kind is UpstreamError and "status" not in said:
        fields["status"] = status
    given = {name: value for name, value in fields.items() if value is not _LEFT_OUT}
    message = said.get("message")
    error: MMSPError = kind(message if isinstance(message, str) else kind.__name__, **given)
    return error


def _unknown(said: Any, client: str, status: int | None) -> UpstreamError:
    """What the server says of itself, or what is no error object at all."""
    answer = said if isinstance(said, dict) else {"message": said}
    error_type = _word(answer.get("type")) or None
    if status is None:
        status = _integer_or_none(answer.get("status"))
    return UpstreamError(
        _word(answer.get("message")) or error_type or _NO_REASON,
        client=client,
        status=status,
        error_type=error_type,
        retryable=status is not None and is_retryable(status),
        error=said,
    )


# ---- what JSON can hold


def _text_of(error: BaseException) -> str:
    """What `error` says. The name of a class of others stands for no words; ours say what they say."""
    try:
        text = whole_characters(str(error))
    except Exception:  # somebody else's `__str__`
        text = ""
    return text or ("" if type(error) in _FIELDS else type(error).__name__)


def _status_of(error: BaseException) -> int | None:
    for name in ("status", "status_code"):
        try:
            found = getattr(error, name, None)
        except Exception:  # somebody else's property
            continue
        if isinstance(found, int) and not isinstance(found, bool):
            return int(found)
    return None


def _plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON can hold it, in containers of its own."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return whole_characters(str.__str__(value))
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _MOST_BITS else "so large an integer"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return None if depth > _DEEPEST else _container(value, depth + 1)
    return _words(value)


def _container(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return {_words(key): _plain(part, depth) for key, part in value.items()}
    return [_plain(part, depth) for part in value]


def _words(value: Any) -> str:
    """Anything in words."""
    if isinstance(value, BaseException):
        return _text_of(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    try:
        return whole_characters(str(value))
    except Exception:  # somebody else's `__str__`
        return type(value).__name__


def _short(value: Any, most: int) -> Any:
    """`value`, or the beginning of its text where it is longer than `most` bytes."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    data = text.encode()
    return value if len(data) <= most else data[:most].decode(errors="ignore")


# ---- what a field is read as; what does not fit is left out


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _word_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: Any) -> int:
    return _integer_or_none(value) or 0


def _integer_or_none(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float:
    return _number_or_none(value) or 0.0


def _number_or_none(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _flag(value: Any) -> Any:
    return value if isinstance(value, bool) else _LEFT_OUT


def _code(value: Any) -> int | str | None:
    return _word_or_none(value) if isinstance(value, str) else _integer_or_none(value)


def _words_in(value: Any) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _finish_reason(value: Any) -> FinishReason | None:
    found: FinishReason | None = value if value in _FINISH_REASONS else None
    return found


def _usage(value: Any) -> UsageMetadata | None:
    if not isinstance(value, dict):
        return None
    return {
        "cached_tokens": _integer_or_none(value.get("cached_tokens")),
        "prompt_tokens": _integer_or_none(value.get("prompt_tokens")),
        "thoughts_tokens": _integer_or_none(value.get("thoughts_tokens")),
        "response_tokens": _integer_or_none(value.get("response_tokens")),
    }


def _anything(value: Any) -> Any:
    return value


_CLIENT: dict[str, _Read] = {"client": _word}
_END: dict[str, _Read] = {"finish_reason": _finish_reason, "usage_metadata": _usage}

_FIELDS: dict[type[BaseException], dict[str, _Read]] = {
    errors.RoutingError: {"model": _word, "client_type": _word_or_none},
    errors.WireFormatError: {"path": _word},
    errors.ApiKeyRequiredError: {
        **_CLIENT,
        "client_type": _word,
        "api_key_env": _word,
        "base_url_env": _word,
        "base_url": _word_or_none,
    },
    errors.InvalidMessageError: {
        **_CLIENT,
        "item_type": _word_or_none,
        "message_index": _integer_or_none,
    },
    errors.UnsupportedParameterError: {**_CLIENT, "parameter": _word},
    errors.UnsupportedContentError: {**_CLIENT, "item_type": _word},
    errors.UnsupportedOperationError: {**_CLIENT, "operation": _word},
    errors.ConcurrentCallError: _CLIENT,
    errors.UpstreamError: {
        **_CLIENT,
        "status": _integer_or_none,
        "error_type": _word_or_none,
        "request_id": _word_or_none,
        "retry_after": _number_or_none,
        "retryable": _flag,
        "error": _anything,
    },
    errors.UpstreamConnectionError: {**_CLIENT, "phase": _word, "retryable": _flag},
    errors.UpstreamTimeoutError: {
        **_CLIENT,
        "phase": _word,
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
        "tool_name": _word,
        "tool_call_id": _word,
        "raw_arguments_length": _integer,
        "raw_arguments_preview": _word,
    },
    errors.StreamProtocolError: _CLIENT,
    errors.UnknownEventError: {**_CLIENT, "event": _word},
    errors.StreamAbortedError: {**_CLIENT, "reason": _anything},
}

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in _FIELDS}
