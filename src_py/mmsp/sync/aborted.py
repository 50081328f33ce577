"""`Aborted`: what a stop raises in a program without an event loop."""

from __future__ import annotations

from typing import Any

__all__ = ["Aborted"]


class Aborted(Exception):
    """A stop made through this stream or its signal; `reason` is the object that was given to `abort`.

    What `mmsp.AbortError` is to asyncio, as an `Exception`: a `CancelledError` means nothing to a thread,
    and would pass every `except Exception` on its way out of it.
    """

    def __init__(self, reason: Any = None) -> None:
        super().__init__(*(() if reason is None else (reason,)))

    @property
    def reason(self) -> Any:
        return self.args[0] if self.args else None
