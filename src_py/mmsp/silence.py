"""`Silence`: how long an answer has been silent, and what that means.

Before its finish it counts as a time-out (`Timeouts.idle`). After the wire's own end event, the end of the
body is waited for, so that the connection can be used again. After a finish reason on a wire that says no
more, so much silence is the end.

Times are the loop's clock, in seconds. Silence counts only while somebody waits: `waited_since`.
"""

from __future__ import annotations

from .grammar import Assembler

__all__ = ["Silence"]

_LINGER = 2.0  # s, for the end of the body after the terminal event
_QUIET = 10.0  # s of waiting without content or usage, after a finish reason and no terminal event


class Silence:
    """Of one answer, which `assembler` puts together."""

    __slots__ = ("_assembler", "_content", "_content_at", "_last", "_last_at", "_terminal_at")

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._content = 0
        self._content_at = 0.0
        self._last: object = None
        self._last_at = 0.0
        self._terminal_at: float | None = None

    def next_answer(self) -> None:
        """What comes from here on answers another request."""
        self._terminal_at = None

    def too_long_at(self, now: float, waited_since: float, idle: float) -> float:
        """When it will have been `idle` seconds without content."""
        if (content := self._assembler.content) != self._content:
            self._content, self._content_at = content, now
        return max(self._content_at, waited_since) + idle

    def is_the_end(self, now: float, waited_since: float, *, terminal: bool) -> bool:
        """Whether there is nothing more to wait for; `terminal` once the wire has said its last."""
        if terminal:
            self._terminal_at = self._terminal_at or now
        elif self._assembler.finish_reason is None:
            return False
        else:
            said = self._assembler.content, self._assembler.usage_metadata
            if said != self._last:
                self._last, self._last_at = said, now
        end_at = self.end_at(waited_since)
        return end_at is not None and now >= end_at

    def end_at(self, waited_since: float) -> float | None:
        """When it will be the end, by what was seen so far; None while the answer goes on."""
        if self._terminal_at is not None:
            return self._terminal_at + _LINGER
        if self._assembler.finish_reason is not None:
            return max(self._last_at, waited_since) + _QUIET
        return None
