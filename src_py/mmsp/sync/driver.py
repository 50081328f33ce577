"""The driver: the event loop on which all calls of `mmsp.sync` run, in one daemon thread of the process.

A thread that wants something hands over an `Errand` and waits for it. The rules:

- **Any thread may be interrupted anywhere**, and what interrupts it may come back here: a signal handler
  that aborts, an object whose `__del__` closes. No lock is held that it could wait for: the one around the
  start is re-entrant, and everything else is a single atomic step.
- **Signals are not for the driver.** Its thread blocks them, so that the kernel gives each to a thread that
  it can interrupt: the main thread, which runs the handlers, may be waiting for the driver.
- **Who waits can be interrupted**: waits are for locks, which signal handlers interrupt (`Errand.wait`).
- **A forked child has a driver of its own.** Nothing of its parent's is used there, nor closed: the loop's
  descriptors are shared.
- **Nobody waits for it at the end** of the interpreter, but what it has open is closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .errand import Errand

__all__ = ["Driver", "RefusedError", "current", "end", "stop"]

T = TypeVar("T")

_PATIENCE = 1.0  # s, at the end of the interpreter, for connections to be closed
_FAULTS = {"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGTRAP", "SIGSYS"}

_drivers: dict[str, Driver] = {}
_inherited: list[Driver] = []  # a parent's: collecting its loop would close what is shared
_over: list[bool] = []
_starting = threading.RLock()


class RefusedError(RuntimeError):
    """There is nobody who could do it, or not now: nothing has begun."""


class Driver:
    """A running loop. `is_here` is False in the children of the process that started it."""

    def __init__(self) -> None:
        self.is_here = True
        self._loop: asyncio.AbstractEventLoop | None = None  # made by the thread, and closed by it
        self._begun = threading.Event()
        self._end = asyncio.Event()
        self._stopped = False
        self._errands: set[Errand[Any]] = set()  # those under way: a loop holds its tasks weakly
        self._thread = threading.Thread(target=self._run, name="mmsp-sync", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._begun.wait()

    @property
    def is_this_thread(self) -> bool:
        return threading.get_ident() == self._thread.ident

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work()`, run on the loop."""
        errand = Errand(work)
        self.send(errand)
        errand.wait()
        return errand.result()

    def send(self, errand: Errand[Any]) -> None:
        """Have the work of `errand` begin on the loop.

        Raises `RefusedError` on the driver's own thread, which would wait for itself for ever, and after
        the end of the interpreter has begun.
        """
        if self.is_this_thread:
            raise RefusedError(
                "mmsp.sync was asked to wait on the thread that it reads on (in a callback of a signal, or "
                "in a __del__): do this on a thread of your own"
            )
        if not self._call(errand.begin, self._errands):
            raise _too_late()

    def stop(self, patience: float) -> None:
        """Close every connection and end the thread. Who waits for an errand waits on."""
        self._stopped = True
        if self._call(self._end.set):
            self._thread.join(patience)

    def _call(self, work: Callable[..., object], *args: object) -> bool:
        """Have `work` called on the loop; False when there is none, not yet or no more."""
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(work, *args)
        except RuntimeError:  # it is closed
            return False
        return self._loop is not None

    def _run(self) -> None:
        _block_signals()
        try:
            asyncio.run(self._until_the_end())
        finally:
            if _drivers.get("driver") is self:
                del _drivers["driver"]

    async def _until_the_end(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        if not self._stopped:  # looked at after the loop is there: a stop in between finds it
            await self._end.wait()


def current() -> Driver:
    """The driver of this process, started when first needed."""
    driver = _drivers.get("driver")
    return _start() if driver is None else driver


def _start() -> Driver:
    with _starting:
        if _over:
            raise _too_late()
        if "driver" in _drivers:
            return _drivers["driver"]
        driver = Driver()
        try:
            driver.start()  # before others can wait for it, a signal handler on this thread included
            return _drivers.setdefault("driver", driver)
        finally:
            if _drivers.get("driver") is not driver:  # interrupted, or a signal handler was quicker
                driver.stop(0)


def stop(patience: float = _PATIENCE) -> None:
    """End the driver, if there is one. The next call starts another."""
    driver = _drivers.pop("driver", None)
    if driver is not None:
        driver.stop(patience)


def _block_signals() -> None:
    if hasattr(signal, "pthread_sigmask"):
        faults = {getattr(signal, name) for name in _FAULTS if hasattr(signal, name)}
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)


def _too_late() -> RefusedError:
    return RefusedError("the interpreter is shutting down: mmsp.sync reads nothing any more")


def end() -> None:
    """`stop`, at the end of the interpreter: no further driver is started."""
    _over.append(True)
    stop()


def _after_fork() -> None:
    global _starting
    _starting = threading.RLock()
    driver = _drivers.pop("driver", None)
    if driver is not None:
        driver.is_here = False
        _inherited.append(driver)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
