"""`Endpoint`: where a vendor is reached and how it wants to be shown the key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Endpoint", "bearer"]

Headers = tuple[tuple[str, str], ...]


def bearer(key: str) -> Headers:
    """`Authorization: Bearer <key>`, or nothing without a key."""
    return (("Authorization", f"Bearer {key}"),) if key else ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One vendor's door.

    `key_variable` and `url_variable` name the environment's variables. An `open_server` is one that
    people run themselves: it takes a call without a key, and then is shown `placeholder_key`.
    Where the vendor knows service accounts, `refuses_accounts` says why their keys are not taken here.
    `own_headers` are variables whose values go out as headers (of that name), and `header_lines` one
    that holds whole lines; both only when no other URL than the default was given.
    """

    default_url: str
    key_variable: str
    url_variable: str
    auth: Callable[[str], Headers] = bearer
    open_server: bool = False
    placeholder_key: str = ""
    refuses_accounts: str = ""
    own_headers: Mapping[str, str] = field(default_factory=dict)
    header_lines: str = ""
