"""`Endpoint`: where a vendor is reached and how it wants to be shown the key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Endpoint", "Grant", "bearer", "is_account", "unshown"]

Headers = tuple[tuple[str, str], ...]


def bearer(key: str) -> Headers:
    """`Authorization: Bearer <key>`, or nothing without a key."""
    return (("Authorization", f"Bearer {key}"),) if key else ()


def unshown(key: str) -> Headers:
    """Nothing: the key itself is never sent, only what is made of it."""
    return ()


def is_account(key: str) -> bool:
    """Whether a key is that of a service account: the text of a JSON file."""
    return key.lstrip().startswith("{")


@dataclass(frozen=True, slots=True)
class Grant:
    """How a service account's key becomes a token: what the assertion that it signs says, and how long
    before its end (in seconds) a token is renewed.
    """

    audience: str
    scope: str
    lifetime: int = 3600
    renew_before: float = 225.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One vendor's door.

    `key_variable` and `url_variable` name the environment's variables. An `open_server` is one that
    people run themselves: it takes a call without a key, and then is shown `placeholder_key`.
    Where the vendor knows service accounts, `accounts` is the door that opens to their keys, by a
    `grant`; or `refuses_accounts` says why their keys are not taken here.
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
    accounts: Endpoint | None = None
    grant: Grant | None = None
    own_headers: Mapping[str, str] = field(default_factory=dict)
    header_lines: str = ""

    def for_key(self, key: str) -> Endpoint:
        """The door that `key` opens, by its kind."""
        return self.accounts if self.accounts is not None and is_account(key) else self
