"""How a call ends, and the claim it gives back: pure facts, changed in single atomic steps."""

from __future__ import annotations

import enum
from typing import Any

__all__ = ["Claim", "Ending", "Outcome"]


class Outcome(enum.Enum):
    FINISHED = "finished"
    ABORTED = "aborted"
    CLOSED = "closed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Ending:
    """How a call ended. `error` is what the caller is still owed, once; what had arrived goes before it
    where the ending came from outside the reader (`drains`)."""

    __slots__ = ("drains", "error", "outcome", "reason")

    def __init__(
        self,
        outcome: Outcome,
        error: BaseException | None = None,
        *,
        reason: Any = None,
        drains: bool = False,
    ) -> None:
        self.outcome = outcome
        self.error = error
        self.reason = reason
        self.drains = drains


class Claim:
    """The right of one stateful call to its client. Taken and freed in single atomic steps."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free = [None]

    def take(self) -> bool:
        try:
            self._free.pop()
        except IndexError:
            return False
        return True

    def free(self) -> None:
        """Only for who has taken it, once."""
        self._free.append(None)
