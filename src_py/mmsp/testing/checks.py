"""What a script may say. A mistake in it is told where the script is made, with what was meant if that
can be guessed; without that it would show as a test that waits in vain.

A wrong kind is a `TypeError`, a wrong value a `ValueError`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable

__all__ = ["choice", "count", "field", "flag", "known", "name", "nearest", "seconds", "status"]

_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def known(word: object, words: Iterable[str], what: str) -> None:
    """`word` is one of `words`; `what` says what it would be then, such as "a step"."""
    words = list(words)
    if word in words:
        return
    near = nearest(word, words)
    meant = f"did you mean {near[0]!r}? There are" if near else "there are" if words else "there is"
    raise ValueError(f"{word!r} is not {what}: {meant} {', '.join(words) or 'none'}")


def nearest(word: object, words: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(str(word), list(words), 1)


def choice(argument: str, value: object, choices: Iterable[str]) -> None:
    known(value, choices, f"a value of {argument}")


def seconds(argument: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{argument} is {_shown(value)}: give a number of seconds")
    if not 0 <= value < math.inf:
        raise ValueError(f"{argument} is {value}: give a finite number of seconds, 0 or more")


def count(argument: str, value: object, least: int, most: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{argument} is {_shown(value)}: give a whole number")
    if not least <= value <= most:
        limits = f"{least} or more" if most == math.inf else f"{least} to {most}"
        raise ValueError(f"{argument} is {value}: give {limits}")


def status(value: object) -> None:
    """A final status; those that only announce one are `interim`."""
    count("status", value, 100, 599)
    if value in range(100, 200):
        raise ValueError(
            f"status is {value}, and an answer follows it: give it as interim=({value},)"
        )


def flag(argument: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{argument} is {_shown(value)}: give True or False")


def name(argument: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{argument} is {_shown(value)}: give a name, such as 'go on'")
    if not value:
        raise ValueError(f"{argument} is empty: give a name, such as 'go on'")


def field(field_name: object, value: object) -> None:
    """A field of an HTTP head."""
    if not isinstance(field_name, str) or not isinstance(value, str):
        raise TypeError(f"header {_shown(field_name)}: {_shown(value)}: give two texts")
    if not _FIELD_NAME.fullmatch(field_name):
        raise ValueError(f"{field_name!r} cannot be the name of a header")
    if any(sign in value for sign in "\r\n\0") or max(value, default="") > "\xff":
        raise ValueError(f"the value of header {field_name!r} must be latin-1 text on one line")


def _shown(value: object) -> str:
    return f"{value!r:.60}"
