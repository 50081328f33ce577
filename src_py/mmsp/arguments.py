"""What a client is made with: checked when it is made, so that no call fails for it later.

No error shows a key, a header's value or a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from .request import Target

__all__ = ["checked_model", "checked_retries", "checked_target", "checked_text"]

Headers = tuple[tuple[str, str], ...]


def checked_model(model: Any) -> str:
    if not isinstance(model, str) or not model.strip():
        raise ValueError(f"model is the id of a model, not {model!r}")
    return model


def checked_text(name: str, value: Any) -> str | None:
    """A string or nothing. Raises `TypeError`."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is a string, not {type(value).__name__}")
    return value


def checked_retries(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(f"max_retries is a number of further attempts, 0 or more, not {number!r}")
    return number


def checked_target(base_url: str, own: Headers, default_headers: Any, *, client: str) -> Target:
    """Where requests go and what they carry. Raises `ValueError` or `TypeError`."""
    try:
        username = urlsplit(base_url).username
    except ValueError:
        raise ValueError(f"{client}: base_url is no URL") from None
    if username is not None:
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
            raise TypeError(f"default_headers[{name!r}] is no string: names and values are strings")
    return tuple(given.items())
