"""The streams that run in this process: who has how many, and stopping them by name."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...stream import Stream
from .refusal import conflict, too_many
from .table import Served

__all__ = ["Running", "Streams", "new_id"]


def new_id() -> str:
    """128 random bits: nobody guesses it, which is what protects the streams of an open server."""
    return secrets.token_hex(16)


class Running:
    """One caller's stream. `ended_by` tells that somebody else than the caller ended it."""

    def __init__(self, id: str, owner: str, served: Served, stream: Stream) -> None:
        self.id = id
        self.owner = owner
        self.served = served
        self.stream = stream
        self.created = int(time.time())
        self.ended_by: str | None = None

    def end(self, reason: Any, by: str) -> None:
        """Abort the provider's work now; the caller's stream ends with an error event."""
        if self.ended_by is None:
            self.ended_by = by
            self.stream.abort(reason)

    def shown(self) -> dict[str, Any]:
        return {"id": self.id, "model": self.served.id, "created": self.created}


class Streams:
    """All of them, within limits; None is no limit."""

    def __init__(self, limit: int | None = None, limit_per_key: int | None = None) -> None:
        self._limit = limit
        self._limit_per_key = limit_per_key
        self._running: dict[str, Running] = {}
        self._of: Counter[str] = Counter()
        self._none_left = asyncio.Event()
        self._none_left.set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._running.values()))

    def check(self, id: str, owner: str) -> None:
        """Raise the `Refusal` for a stream that may not begin: one too many, or an id that is taken."""
        if id in self._running:
            raise conflict(f"a stream with the id {id} is running")
        if self._limit is not None and len(self) >= self._limit:
            raise too_many(f"{self._limit} streams are running, and more may not")
        if self._limit_per_key is not None and self._of[owner] >= self._limit_per_key:
            raise too_many(f"this key has {self._limit_per_key} streams running, and may no more")

    def add(self, running: Running) -> None:
        self._running[running.id] = running
        self._of[running.owner] += 1
        self._none_left.clear()

    def remove(self, running: Running) -> None:
        if self._running.pop(running.id, None) is not None:
            self._of[running.owner] -= 1
            if not self._of[running.owner]:
                del self._of[running.owner]
            if not self._running:
                self._none_left.set()

    def find(self, id: str, owner: str) -> Running | None:
        """The stream with this id, if it is this owner's."""
        running = self._running.get(id)
        return running if running is not None and running.owner == owner else None

    def of(self, owner: str) -> list[Running]:
        return [each for each in self if each.owner == owner]

    def end_all(self, reason: Any, by: str) -> None:
        for each in self:
            each.end(reason, by)

    async def none_left(self) -> None:
        """Wait until no stream runs."""
        await self._none_left.wait()
