"""Rules for what a caller gives: each returns a copy of a good value and raises `Fault` for any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import urlsplit

from .plain import Fault, below, closest, finite, integer, key_text, kind_of, plain_copy, text

__all__ = [
    "Rule", "bytes_data", "filled", "flag", "form", "is_list", "json_object", "list_of",
    "nearest", "number", "one_of", "or_null", "url", "whole_number",
]  # fmt: skip

Rule = Callable[[Any], Any]


def bytes_data(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise Fault(f"is {kind_of(value)}; it is bytes (mmsp.loads reads base64)")
    return bytes(value)


def filled(value: Any) -> str:
    given = text(value)
    if not given:
        raise Fault("is empty")
    return given


def url(value: Any) -> str:
    given = text(value)
    if not given[:8].lower().startswith(("https://", "http://", "data:")):
        raise Fault("is no http(s):// or data: URL")
    if given[:5].lower() != "data:":
        _check_place(given)
    return given


def _check_place(url: str) -> None:
    """That an http(s) URL leads somewhere: providers would tell the same later, and in other words."""
    try:
        parts = urlsplit(url)
        leads = bool(parts.hostname) and parts.port != 0  # reading a port that is none raises
    except ValueError:
        leads = False
    if not leads:
        raise Fault("is a URL that names no host and port that exist")
    if not url.isprintable() or " " in url:
        raise Fault(
            "is a URL with a blank or a control character in it: write them as %20 and so on"
        )


def json_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Fault(f"is {kind_of(value)}; it is an object")
    return cast("dict[str, Any]", plain_copy(value))


def list_of(rule: Rule, what: str) -> Rule:
    def check(value: Any) -> list[Any]:
        if not is_list(value):
            raise Fault(f"is {kind_of(value)}; it is a list of {what}")
        return [below(at, rule, each) for at, each in enumerate(value)]

    return check


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Fault(f"is {kind_of(value)}; it is a number")
    if isinstance(value, int):
        return integer(value)
    return finite(value, "and not a finite number")


def whole_number(lowest: int | None = None) -> Rule:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Fault(f"is {kind_of(value)}; it is an integer")
        number = integer(value)
        if lowest is not None and number < lowest:
            raise Fault(f"is {number}; it is {lowest} or more")
        return number

    return check


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Fault(f"is {kind_of(value)}; it is true or false")
    return value


def one_of(*words: str) -> Rule:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            said = repr(value) if isinstance(value, str) else kind_of(value)
            raise Fault(f"is {said}; it is one of {', '.join(map(repr, words))}")
        return text(value)

    return check


def or_null(rule: Rule) -> Rule:
    return lambda value: None if value is None else rule(value)


def form(
    required: Mapping[str, Rule],
    optional: Mapping[str, Rule],
    advice: Mapping[str, str] = MappingProxyType({}),
) -> Rule:
    """An object with these keys and no others; optional ones may be null, which counts as absent.

    `advice` says what to do about keys that are often given and not taken.
    """

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Fault(f"is {kind_of(value)}; it is an object")
        checked: dict[str, Any] = {}
        for key, part in value.items():
            name = key_text(key)
            rule = required.get(name) or optional.get(name)
            if rule is None:
                known = (*required, *optional)
                told = f": {advice[name]}" if name in advice else nearest(name, known)
                raise Fault(f"has no field {name!r}{told}")
            if part is not None or name in required:
                checked[name] = below(name, rule, part)
        for key in required:
            if key not in checked:
                raise Fault("is missing", f".{key}")
        return checked

    return check


# ---- words


def is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def nearest(word: Any, known: Iterable[str]) -> str:
    """`: did you mean …?`, or what there is."""
    names = list(known)
    near = closest(str(word).lower(), names)
    return f": did you mean {near!r}?" if near is not None else f"; there are {', '.join(names)}"
