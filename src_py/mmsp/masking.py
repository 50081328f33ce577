"""What no error may show: which parts of a request are secret, and how they leave a provider's text.

The rule: mask first, cut afterwards. A key that is cut in two shows its beginning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote_plus, urlsplit

__all__ = ["also", "beginning", "masked", "secrets_in"]

_MASK = "***"
_SHOWN = 200  # characters of what cannot be read
_NAMES = re.compile(r"auth|cookie|credential|key|passw|secret|signature|token(?!s)", re.IGNORECASE)
_SCHEMES = re.compile(r"(basic|bearer|token) ", re.IGNORECASE)
_SHORTEST = 4  # characters; to mask a word like "on" would spoil texts and hide nothing

Headers = Iterable[tuple[str, str]]


def secrets_in(key: str, url: str, headers: Headers) -> tuple[str, ...]:
    """The key, and what looks like one in `headers` and `url`, longest first.

    Each in every form in which a provider may echo it: as it is, in JSON, in a URL.
    """
    found = {key} if key else set()
    for name, value in (*headers, *_in_url(url)):
        if _NAMES.search(name) or _SCHEMES.match(value):
            found.update(part for part in _parts(name, value) if len(part) >= _SHORTEST)
    return also((), found)


def also(secrets: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    """`secrets`, and those of `more` in every form."""
    forms = {*secrets, *(form for secret in more if secret for form in _forms(secret))}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def masked(value: Any, secrets: tuple[str, ...]) -> Any:
    """`value` with every secret in its strings replaced. What is nested too deeply is left out."""
    try:
        return _masked(value, secrets)
    except RecursionError:
        return None


def beginning(data: bytes, secrets: tuple[str, ...], length: int = _SHOWN) -> str:
    """The first `length` characters of what cannot be read, without the secrets in it."""
    longest = max(map(len, secrets), default=0)
    start = data[: 4 * (length + longest)].decode("utf-8", "replace")
    return _without_half(masked(start, secrets), secrets)[:length]


def _in_url(url: str) -> Iterator[tuple[str, str]]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return  # what is no URL is refused, and not shown
    yield "password", parts.password or ""
    for pair in parts.query.split("&"):
        name, _, value = pair.partition("=")
        yield name, value
        yield name, unquote_plus(value)


def _parts(name: str, value: str) -> Iterator[str]:
    """A header's value, and what of it is the secret itself."""
    yield value
    yield value.partition(" ")[2].strip()  # behind the scheme
    if "cookie" in name.lower():
        for pair in value.split(";"):
            yield pair.partition("=")[2].strip()


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1].replace("/", "\\/")  # as PHP writes it
    yield quote(secret, safe="")


def _without_half(text: str, secrets: tuple[str, ...]) -> str:
    """`text` without the beginning of a secret that it was cut in, here or on its way."""
    for secret in secrets:
        for size in range(len(secret) - 1, _SHORTEST - 1, -1):
            if text.endswith(secret[:size]):
                return text[:-size] + _MASK
    return text


def _masked(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        for secret in filter(None, secrets):
            value = value.replace(secret, _MASK)
        return value
    if isinstance(value, dict):
        return {_masked(key, secrets): _masked(part, secrets) for key, part in value.items()}
    if isinstance(value, list):
        return [_masked(part, secrets) for part in value]
    return value
