"""Reading an event of a wire: straight into its fields, or, where that fails, forgivingly.

`exact` goes from bytes into a `msgspec.Struct` of the few fields that are read, checks their types and
skips all the rest. What does not fit (a number for an id, an object for a list, half a character) is
read again by `forgive`, which takes what makes sense of anything that is JSON and leaves out the rest,
so that an imitator's oddity never ends a stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

__all__ = ["EventReader", "Mend", "integer_in", "plain", "whole_characters"]

T = TypeVar("T", bound=msgspec.Struct)

Mend = Callable[[str, str], str]
"""`mend(field, text)`: the text in whole characters."""

_Fit = Callable[[str, Any, Mend], Any]

_NOTHING: Any = object()  # what did not fit: the field keeps its default


class EventReader(Generic[T]):
    """Reads events into `kind`, every field of which has a default."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._fit = _fitting(inspect.type_info(kind))
        self.exact: Callable[[bytes], T] = msgspec.json.Decoder(kind).decode
        """Raises `ValueError` (or `RecursionError`) for what does not fit or is no JSON."""

    def forgive(self, answer: Any, mend: Mend) -> T:
        """What `answer`, plain JSON, has of the fields; texts pass through `mend`."""
        found = self._fit("", answer, mend)
        event: T = self._kind() if found is _NOTHING else found
        return event


def plain(data: bytes) -> Any:
    """`data` as plain JSON. Raises `ValueError` for what is none."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    except ValueError:
        pass
    try:
        # takes the half characters that JavaScript servers cut, and control characters as they are
        return json.loads(data, strict=False)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def whole_characters(text: str) -> str:
    """`text` with its halves of characters joined where they meet, and replaced where they do not."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ---- one fitting function a type, made once


def _fitting(kind: inspect.Type) -> _Fit:
    match kind:
        case inspect.StructType(fields=fields):
            return _object(kind.cls, {each.encode_name: _named(each) for each in fields})
        case inspect.ListType(item_type=item):
            return _list(_fitting(item))
        case inspect.UnionType(types=types):
            (one,) = (each for each in types if not isinstance(each, inspect.NoneType))
            return _fitting(one)
        case inspect.StrType():
            return _text
        case inspect.IntType():
            return _integer
        case inspect.RawType():
            return _raw
        case _:
            return _anything


def _named(field: inspect.Field) -> tuple[str, _Fit]:
    return field.name, _fitting(field.type)


def _object(kind: type, fits: dict[str, tuple[str, _Fit]]) -> _Fit:
    def fit(_: str, value: Any, mend: Mend) -> Any:
        if not isinstance(value, dict):
            return _NOTHING
        found = {
            name: fit(key, value[key], mend) for key, (name, fit) in fits.items() if key in value
        }
        return kind(**{name: part for name, part in found.items() if part is not _NOTHING})

    return fit


def _list(fit_item: _Fit) -> _Fit:
    def fit(field: str, value: Any, mend: Mend) -> Any:
        if not isinstance(value, list):
            return _NOTHING
        items = (fit_item(field, each, mend) for each in value)
        return [each for each in items if each is not _NOTHING]

    return fit


def _text(field: str, value: Any, mend: Mend) -> Any:
    """A text; an identifier or word, which some servers send as a number."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return _NOTHING
    return mend(field, str(value))


def _integer(field: str, value: Any, mend: Mend) -> Any:
    found = integer_in(value)
    return _NOTHING if found is None else found


def integer_in(value: Any) -> int | None:
    """The integer that `value` is, perhaps as a float or as digits; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _raw(field: str, value: Any, mend: Mend) -> Any:
    return msgspec.Raw(whole_characters(json.dumps(value, ensure_ascii=False)).encode())


def _anything(field: str, value: Any, mend: Mend) -> Any:
    return value
