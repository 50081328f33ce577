"""Errors as JSON objects, and back as the class they were.

    {"type": <class name>, "message": <text>, <field>: …}

Every class of `mmsp.errors` has its fields in `error_fields`. What has none (a fault of the server, a
refusal of its own) is written with its integer `status` if it has one, and comes back as `UpstreamError`.
What JSON has no form for is written as text, so that an error can always be told; a traceback never is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import MMSPError, UpstreamError
from ..masking import masked
from .error_fields import FIELDS, KINDS, LEFT_OUT, integer, word
from .forgiving import whole_characters
from .http_error import is_retryable

__all__ = ["error_from_wire", "error_to_wire"]

Json = dict[str, Any]

_DEEPEST = 100  # levels; readers of JSON begin to differ at a few hundred
_MOST_BITS = 13_000  # of an integer; Python itself writes 4,300 digits at most
_LONGEST = {"message": 8192, "reason": 4096, "error": 32_768}  # bytes; together within any limit
_NO_REASON = "the server reported a failure and gave no reason"


def error_to_wire(error: BaseException) -> Json:
    """`error` as an object that JSON can hold, its documented fields in their order, null where None."""
    told: Json = {"type": type(error).__name__, "message": _text_of(error)}
    fields = FIELDS.get(type(error))
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
    kind = KINDS.get(word(said.get("type"))) if isinstance(said, dict) else None
    if kind is None:
        return _unknown(said, client, status)
    fields = {name: read(said.get(name)) for name, read in FIELDS[kind].items()}
    if "client" in fields:
        fields["client"] = fields["client"] or client
    if kind is UpstreamError and "status" not in said:
        fields["status"] = status
    given = {name: value for name, value in fields.items() if value is not LEFT_OUT}
    message = said.get("message")
    error: MMSPError = kind(message if isinstance(message, str) else kind.__name__, **given)
    return error


def _unknown(said: Any, client: str, status: int | None) -> UpstreamError:
    """What the server says of itself, or what is no error object at all."""
    answer = said if isinstance(said, dict) else {"message": said}
    error_type = word(answer.get("type")) or None
    if status is None:
        status = integer(answer.get("status"))
    return UpstreamError(
        word(answer.get("message")) or error_type or _NO_REASON,
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
    return text or ("" if type(error) in FIELDS else type(error).__name__)


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
