"""`Timeouts` and `Limits`: how long to wait and how much to take. All values settable, all checked."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields

from .plain import argument_shown

__all__ = ["Limits", "Timeouts"]

_MIB = 2**20
_LARGEST = sys.float_info.max


def _check(settings: Timeouts | Limits) -> None:
    for each in fields(settings):
        value = getattr(settings, each.name)
        if value is None and isinstance(settings, Timeouts):
            continue
        shown = argument_shown(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"{each.name} must be a number above 0, not {shown}")
        if isinstance(each.default, int) and not isinstance(value, int):
            raise ValueError(f"{each.name} must be a whole number, not {shown}")
        if value > _LARGEST and not isinstance(value, float):  # infinity is for ever
            raise ValueError(f"{each.name} must be a number that a float can hold, not {shown}")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; None means no limit.

    - `connect`: from looking up the name to the end of the TLS handshake, for each attempt.
    - `first_event`: from the sending of an attempt to its first content.
    - `idle`: between two contents while a read waits; it does not run while the caller is busy.
    - `total`: from the first read to the `stop`, everything included, also while the caller is busy.

    Content is what brings the answer forward; pings and comments do not count.
    """

    connect: float | None = 10.0
    first_event: float | None = 600.0
    idle: float | None = 600.0
    total: float | None = None

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that is taken from a provider: bytes, seconds for waits, and numbers for what is counted."""

    event_bytes: int = 64 * _MIB
    error_body_bytes: int = 64 * 1024
    answer_bytes: int = 64 * _MIB
    head_bytes: int = 64 * 1024
    retry_wait: float = 60.0
    list_pages: int = 1000
    image_bytes: int = 20_000_000
    image_seconds: float = 30.0
    image_redirects: int = 5

    def __post_init__(self) -> None:
        _check(self)
