"""Waiting for what a provider sees, from threads and from asyncio, without sleeping.

The provider's thread rings the bell after each turn of its loop. Whoever waits looks again at
each ring, in its own thread or on its own event loop, so a predicate never runs in the provider's
thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from . import checks

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Bell:
    """Wakes everybody who waits for a change."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._sleepers: list[Callable[[], None]] = []
        self._failure: BaseException | None = None

    def ring(self) -> None:
        with self._condition:
            self._condition.notify_all()
            sleepers, self._sleepers = self._sleepers, []
        for wake in sleepers:
            wake()

    def fail(self, failure: BaseException) -> None:
        """Nothing will change any more, because the provider's thread broke: every wait raises."""
        self._failure = failure
        self.ring()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise RuntimeError("the scripted provider's thread broke") from self._failure

    def wait(self, ready: Callable[[], T], timeout: float, told: Callable[[], str]) -> T:
        """Block until `ready()` is true and return it; `told()` is the message of the
        TimeoutError.
        """
        checks.seconds("timeout", timeout)
        deadline = time.monotonic() + timeout
        with self._condition:
            while not (found := ready()):
                self.raise_failure()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"not within {timeout} s: {told()}")
                self._condition.wait(left)
        return found

    async def until(self, ready: Callable[[], T], timeout: float, told: Callable[[], str]) -> T:
        """The same for asyncio; no thread of an executor is used."""
        import asyncio

        checks.seconds("timeout", timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not (found := ready()):
                    self.raise_failure()
                    ring = self._next_ring(asyncio.get_running_loop())
                    if not ready():  # a ring before `_next_ring` is not missed
                        await ring
                return found
        raise TimeoutError(f"not within {timeout} s: {told()}")

    def _next_ring(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        ring = loop.create_future()

        def settle() -> None:
            if not ring.done():
                ring.set_result(None)

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # that loop was closed meanwhile
                loop.call_soon_threadsafe(settle)

        with self._condition:
            self._sleepers.append(wake)
        return ring
