"""`Call`: one stoppable piece of work: how it ends, what it leaves, how its reader waits.

A call has one HTTP exchange at a time (`HttpCall` runs them) and can be ended at any instant, from any
thread. The rules:

- **One ending.** A call ends once: finished, aborted, closed, cancelled or failed. Whoever wants to end it
  offers an `Ending`; a single atomic `setdefault` says whose was first, and every other offer is void.
- **First the socket, then the rest.** The winner of a stop releases the claim and shuts the socket by
  system calls before it returns. What touches the loop (waking the reader, cancelling the opening task)
  is sent there with `call_soon_threadsafe`, always, whichever thread it is.
- **No lost stop.** The call publishes an exchange *before* it looks for an ending, a stop ends the call
  *before* it looks for an exchange: one of the two sees the other.
- **The reader is woken, not cancelled.** A read waits on a future of its own. So a `CancelledError` that
  comes out of that wait is always the caller's.
- **One timer.** It holds the call weakly and is armed for the earliest deadline; a deadline that moved
  away is noticed when the timer fires.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from .abort_signal import AbortError, AbortSignal
from .connector import Connector
from .ending import Claim, Ending, Outcome
from .errors import MMSPError
from .transport import Exchange

__all__ = ["Call", "leave"]

_TURNS = 1000  # of the loop; a connection is gone after two or three


class Call:
    """See the module's docstring for its rules."""

    def __init__(self, connector: Connector, signal: AbortSignal | None) -> None:
        self._connector = connector
        self._signal = signal
        self._endings: dict[str, Ending] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exchange: Exchange | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._total_at: float | None = None
        self._limit: tuple[float, MMSPError] | None = None  # of the work at hand, with its error
        self._wake_at: float | None = None
        self._sent_at = 0.0
        self._claims: list[Claim] = []

    # stopping

    def abort(self, reason: Any = None) -> None:
        """Stop now, from any thread: the provider's connection is shut when this returns."""
        if self.signal_cut(reason):
            self.signal_settle()

    def signal_cut(self, reason: Any) -> bool:
        """The part of an abort that cannot wait (`abort_signal.Listener`)."""
        if not self._end(Ending(Outcome.ABORTED, AbortError(reason), reason=reason, drains=True)):
            return False
        self._cut()
        return True

    def signal_settle(self) -> None:
        """The part of an abort that needs the loop (`abort_signal.Listener`)."""
        self._on_loop(self._settle)

    def _end(self, ending: Ending) -> bool:
        """Offer an ending; True when it is the one that counts."""
        if self._endings.setdefault("ending", ending) is not ending:
            return False
        if ending.outcome is not Outcome.FINISHED:  # a finished call has yet to record its turn
            self._let_go()
        return True

    def _let_go(self) -> None:
        """Release the claim and the signal."""
        with contextlib.suppress(IndexError):
            self._claims.pop().free()
        if self._signal is not None:
            self._signal._forget(self)

    def _hold(self, claim: Claim) -> bool:
        """Take `claim` for as long as this call lives; False when another call has it.

        A stop that lands in here frees it: either the stop finds it written down, or this finds the stop.
        """
        if not claim.take():
            return False
        self._claims.append(claim)
        if self._endings:
            self._let_go()
        return True

    def _cut(self) -> None:
        exchange = self._exchange
        if exchange is not None:
            exchange.cut()

    def _on_loop(self, work: Callable[[], None]) -> None:
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(work)
            except RuntimeError:
                pass  # the loop was closed: nothing of ours is left on it

    def _settle(self) -> None:
        """On the loop, after the end: leave nothing behind and wake whoever reads."""
        leave(self._exchange, self._timer)
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _gone(self) -> None:
        """Wait until nothing of this call is on the network: two or three turns of the loop after its end.

        It does not wait for whoever ended the call to come round to `_settle`: that may be a thread that
        has a thousand calls to end.
        """
        if not self._is_gone():
            self._settle_soon()
            on_its_loop = self._loop is asyncio.get_running_loop()
            for _ in range(_TURNS if on_its_loop else 0):
                await asyncio.sleep(0)
                if self._is_gone():
                    break

    def _is_gone(self) -> bool:
        return self._exchange is None or self._exchange.gone

    # waiting

    async def _wait(self, wake_at: float | None) -> None:
        """Until something happens, or the loop's clock shows `wake_at`.

        A cancelled wait ends the call: the reader is going away.
        """
        loop = self._loop
        assert loop is not None
        waiter = self._waiter = loop.create_future()
        if self._exchange is not None:
            self._exchange.waiter = waiter
        self._wake_at = wake_at
        self._arm()
        try:
            await waiter
        except asyncio.CancelledError:
            self._stop(Ending(Outcome.CANCELLED))
            raise
        finally:
            self._waiter = None
            self._wake_at = None

    def _stop(self, ending: Ending) -> bool:
        """End the call, from any thread: the connection is shut when this returns."""
        won = self._end(ending)
        if won:
            self._cut()
            self._settle_soon()
        return won

    def _settle_soon(self) -> None:
        """Settle, at once on the call's own loop, and there in any case."""
        if self._loop is None or self._loop is _running_loop():
            self._settle()
        else:
            self._on_loop(self._settle)

    def _arm(self) -> None:
        """Have the timer fire no later than the earliest deadline."""
        limit = None if self._limit is None else self._limit[0]
        deadlines = [at for at in (self._wake_at, self._total_at, limit) if at is not None]
        due = min(deadlines, default=None)
        if due is None or self._loop is None or self._endings:
            return
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        me: weakref.ref[Call] = weakref.ref(self)
        self._timer = self._loop.call_at(due, _tick, me)

    def _on_timer(self) -> None:
        assert self._loop is not None
        self._timer = None
        now = self._loop.time()
        if self._total_at is not None and now >= self._total_at:
            error = self._connector.timed_out("total")
            self._stop(Ending(Outcome.FAILED, error, drains=True))
        elif self._limit is not None and now >= self._limit[0]:
            self._stop(Ending(Outcome.FAILED, self._limit[1]))
        elif self._wake_at is not None and now >= self._wake_at:
            self._wake()
        else:
            self._arm()

    def _enter(self) -> None:
        """The first step of the first read: from here on a stop has something to stop."""
        self._loop = asyncio.get_running_loop()
        if self._signal is not None:
            self._signal._listen(self)
            if self._endings:  # a stop that came meanwhile has nothing more to forget
                self._signal._forget(self)
        if self._connector.timeouts.total is not None:
            self._total_at = self._loop.time() + self._connector.timeouts.total
            self._arm()


def leave(exchange: Exchange | None, timer: asyncio.TimerHandle | None) -> None:
    """On the loop: leave nothing of a call behind, which itself may be gone already."""
    if timer is not None:
        timer.cancel()
    if exchange is not None:
        exchange.abandon()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # on a thread without one
        return None


def _tick(reference: weakref.ref[Call]) -> None:
    call = reference()
    if call is not None:
        call._on_timer()
