"""Plain data, the stuff of messages: copies of it, and what is wrong with what is none.

Plain is what JSON has a form for. Bytes are not: they stand only in the `data` of inline items. What is
made from a plain type (a `StrEnum`, an `IntEnum`, a `defaultdict`) counts as what it is made from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

__all__ = [
    "Fault",
    "argument_shown",
    "below",
    "closest",
    "copied",
    "exact",
    "finite",
    "integer",
    "is_too_deep",
    "key_text",
    "kind_of",
    "plain_copy",
    "text",
]

_MOST_BITS = 13_000  # Python itself writes 4,300 digits at most
_LONGEST_PATH = 200  # characters
_MOST_SHOWN = 64  # bits or characters of an argument
_DEEPEST = 200  # levels of nesting; JSON readers begin to differ at a few hundred


class Fault(Exception):
    """What is wrong with a value, and where: `path` grows on the way up. Never leaves this package."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path

    def below(self, step: str | int) -> Self:
        """The same fault, seen from one level higher. A path that is too long is cut at its end."""
        self.path = (f"[{step}]" if isinstance(step, int) else f".{step}") + self.path
        if len(self.path) > _LONGEST_PATH:
            self.path = self.path[:_LONGEST_PATH] + "…"
        return self


def copied(value: Any) -> Any:
    """`value`, known to be good, with containers of its own; strings and bytes are shared."""
    if isinstance(value, dict | Mapping):  # dict first: the general question is slow
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [copied(part) for part in value]
    return value


def plain_copy(value: Any, depth: int = 0) -> Any:
    """The same of what a caller gave. Raises `Fault` for what JSON has no form for."""
    if isinstance(value, str):
        return text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, float):
        return finite(value, "which JSON has no form for")
    if depth > _DEEPEST:
        raise Fault("is nested too deeply, or holds itself")
    if isinstance(value, dict | Mapping):
        return {
            (name := key_text(key)): below(name, plain_copy, part, depth + 1)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [below(at, plain_copy, part, depth + 1) for at, part in enumerate(value)]
    raise Fault(f"is {kind_of(value)}, which JSON has no form for")


def is_too_deep(value: Any, depth: int = 0) -> bool:
    """Whether plain data is nested deeper than `plain_copy` takes it."""
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return depth > _DEEPEST or any(is_too_deep(part, depth + 1) for part in parts)


def integer(value: int) -> int:
    """`value` if it can be written out. Raises `Fault` where it has thousands of digits."""
    if value.bit_length() > _MOST_BITS:
        raise Fault("is an integer of thousands of digits: send it as a string")
    return value if type(value) is int else int.__pos__(value)


def finite(value: float, otherwise: str) -> float:
    """`value` if it is neither infinite nor NaN. Raises `Fault`."""
    if not math.isfinite(value):
        raise Fault(f"is {value}, {otherwise}")
    return value if type(value) is float else float.__pos__(value)


def text(value: Any) -> str:
    """`value` if it is text that can be sent. Raises `Fault`."""
    if not isinstance(value, str):
        raise Fault(f"is {kind_of(value)}; it is a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Fault(
                "holds half a character (a lone surrogate), which no text can carry: "
                "decode it with errors='replace'"
            ) from None
    return exact(value)


def exact(word: str) -> str:
    """The string itself of what may be more than one, as a member of an enum is."""
    return word if type(word) is str else str.__str__(word)


def kind_of(value: Any) -> str:
    """What a value is, with its article, for errors; never the value itself."""
    name = "null" if value is None else type(value).__name__
    return name if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def argument_shown(value: Any) -> str:
    """An argument, for errors: itself where it is a short number or word, else what kind it is."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return str(int(value)) if value.bit_length() <= _MOST_SHOWN else "so large an integer"
    if isinstance(value, str):
        return ascii(value) if len(value) <= _MOST_SHOWN else "so long a string"
    return kind_of(value)


def below(step: str | int, convert: Callable[..., Any], *given: Any) -> Any:
    """`convert(*given)`; a fault in it is one of what stands at `step`."""
    try:
        return convert(*given)
    except Fault as fault:
        raise fault.below(step) from None


def key_text(key: Any) -> str:
    """`key` if it is an object's. Raises `Fault`."""
    if not isinstance(key, str):
        raise Fault(f"has {kind_of(key)} for a key; keys are strings")
    return text(key)


def closest(word: str, known: Iterable[str], *, likeness: float = 0.5) -> str | None:
    """The one of `known` that was perhaps meant by `word`."""
    import difflib  # for errors alone, and takes its time

    return next(iter(difflib.get_close_matches(word, list(known), 1, likeness)), None)
