"""`Account`: what one request came to: its outcome, its times and its tokens; written down once."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from typing import Any

from .running import Running

__all__ = ["Account", "Outcome"]


class Outcome(enum.StrEnum):
    SUCCESS = "success"  # the `stop` was written
    FAILURE = "failure"  # the provider failed, or we
    DISCONNECT = "disconnect"  # the caller left
    ABORTED = "aborted"  # ended by name, or by the server's end


class Account:
    """Of one stream. `end` counts once; what is offered after it is void. Times are in seconds."""

    def __init__(
        self, running: Running, write_down: Callable[[Account], None], began: float
    ) -> None:
        self.running = running
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.usage: Any = None
        self.to_first_event: float | None = None
        self.total = 0.0
        self._began = began
        self._write_down = write_down

    def first_event(self) -> None:
        if self.to_first_event is None:
            self.to_first_event = time.perf_counter() - self._began

    def end(self, outcome: Outcome, error: BaseException | None = None) -> None:
        if self.outcome is None:
            self.outcome, self.error = outcome, error
            self.total = time.perf_counter() - self._began
            self._write_down(self)
