"""What a client is made with: checked when it is made, so that no call fails for it later.

No error shows a key, a header's value or a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from .plain import Fault, argument_shown, exact, text
from .request import Target, shown_url

__all__ = [
    "checked_base",
    "checked_flag",
    "checked_key",
    "checked_kind",
    "checked_model",
    "checked_retries",
    "checked_target",
    "checked_text",
    "missing_version",
]

Headers = tuple[tuple[str, str], ...]
T = TypeVar("T")

_URL = re.compile(r"\s*https?://", re.IGNORECASE)
_VERSION = re.compile(r"/v\d\w*(?=/|$)")
_NEVER_A_BASE = re.compile(r"/chat/completions$|(/models/[^/]+)?:\w+(Content|Contents)$")


def checked_model(model: Any) -> str:
    """Raises `ValueError`."""
    if not isinstance(model, str) or not model.strip():
        raise ValueError(f"model is the id of a model, not {argument_shown(model)}")
    return _sendable("model", model)


def checked_text(name: str, value: Any) -> str | None:
    """A string or nothing. Raises `TypeError`, and `ValueError` for half a character."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} is a string, not {type(value).__name__}")
    return _sendable(name, value)


def checked_kind(name: str, value: Any, kind: type[T], what: str) -> T | None:
    """An object of `kind` or nothing; `what` says how to make one. Raises `TypeError`."""
    if value is None or isinstance(value, kind):
        return value
    raise TypeError(f"{name} is {what}, not {argument_shown(value)}")


def checked_flag(name: str, value: Any) -> bool:
    """Raises `TypeError`: the word "false" is true to Python."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is True or False, not {argument_shown(value)}")
    return value


def checked_retries(number: Any) -> int:
    """Raises `ValueError`."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(
            f"max_retries is a number of further attempts, 0 or more, not {argument_shown(number)}"
        )
    return number


def checked_key(key: str, *, client: str) -> str:
    """Raises `ValueError` for what is a URL and no key."""
    if _URL.match(key):
        raise ValueError(
            f"{client}: api_key is a URL: give it as base_url=…, and the key as api_key=…"
        )
    return key


def checked_base(base_url: str, paths: Sequence[str], *, client: str) -> str:
    """Raises `ValueError` for a URL that ends with the place below it that requests go to: one of `paths`,
    or what is never anything else."""
    parts = _split(base_url, client)
    path = parts.path.rstrip("/")
    found = _NEVER_A_BASE.search(path)
    end = found[0] if found else next((each for each in paths if path.endswith(each)), "")
    if end:
        base = shown_url(parts._replace(path=path.removesuffix(end)).geturl())
        raise ValueError(
            f"{client}: base_url ends with {end}, which the client adds itself: write base_url={base!r}"
        )
    return base_url


def missing_version(base_url: str, default_url: str) -> str:
    """The version at the end of `default_url`'s path, as "/v1", if `base_url` has none."""
    usual = _VERSION.search(urlsplit(default_url).path)
    return usual[0] if usual and not _VERSION.search(urlsplit(base_url).path) else ""


def checked_target(base_url: str, own: Headers, default_headers: Any, *, client: str) -> Target:
    """Where requests go and what they carry. Raises `ValueError` or `TypeError`."""
    if _split(base_url, client).username is not None:
        raise ValueError(
            f"{client}: base_url may not hold a user and password: give api_key=…, or "
            'default_headers={"Authorization": …}'
        )
    target = Target(base_url, own, _headers(default_headers))
    try:
        target.request("GET", "/")
    except ValueError as error:
        raise ValueError(
            f"{client}: api_key, base_url or default_headers cannot be sent: {error}"
        ) from None
    return target


def _headers(given: Any) -> Headers:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise TypeError(f"default_headers is a mapping of strings, not {type(given).__name__}")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(
                f"default_headers[{argument_shown(name)}] is no string: names and values are strings"
            )
    return tuple((exact(name), exact(value)) for name, value in given.items())


def _split(base_url: str, client: str) -> SplitResult:
    _sendable("base_url", base_url)
    try:
        return urlsplit(base_url)
    except ValueError:
        raise ValueError(f"{client}: base_url is no URL: write it as https://host/v1") from None


def _sendable(name: str, value: str) -> str:
    try:
        return text(value)
    except Fault as fault:
        raise ValueError(f"{name} {fault.problem}") from None
