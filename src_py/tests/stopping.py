"""Short words for tests that stop a stream: the ways to do it, and what the caller then gets."""

from __future__ import annotations

import asyncio
import contextlib
import signal as os_signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest

from mmsp import AbortError, Stream
from mmsp.types import UniEvent
from tests.asking import shown
from tests.interruption_table import WAYS, Way

__all__ = ["LIMIT_NS", "STOPS", "Stopped", "abort_as", "stop"]

LIMIT_NS = 200_000_000  # from the stop until the provider's connection has closed
STOPS: tuple[Way, ...] = tuple(way for way in WAYS if way != "leave")  # with a read that waits


@dataclass
class Stopped:
    """What a stop left: when it was, what was delivered after it, and the error that ended it."""

    at_ns: int
    events: list[UniEvent] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def delivered(self) -> list[str]:
        return shown(self.events)


def abort_as(way: Way, abort: Callable[[], object]) -> int:
    """Call `abort` from where `way` says; the time of it in ns."""
    called: list[int] = []

    def call(*_: object) -> None:
        called.append(time.monotonic_ns())
        abort()

    if way == "abort from a thread":
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    elif way == "abort in a signal handler":
        with _handler(call):
            os_signal.raise_signal(os_signal.SIGUSR1)
    else:
        call()
    return called[0]


async def stop(
    stream: Stream,
    way: Way,
    reason: object = "why",
    *,
    waiting: bool = True,
    until: Awaitable[object] | None = None,
) -> Stopped:
    """Stop a stream as `way` says, while a read of it waits (and `until` has come) or not; then read
    it to its end.

    Looks at what belongs to the way: the error, that it comes once, and that nothing comes after it.
    """
    reading = await _waiting(stream, until) if waiting else None
    if way.startswith("abort"):
        stopped = Stopped(abort_as(way, lambda: stream.abort(reason)))
    else:
        stopped = Stopped(time.monotonic_ns())
        if way == "cancel" and reading is not None:
            reading.cancel()
        else:
            await stream.aclose()
    await _read_on(stream, reading, stopped)
    _check(stopped, way, reason, waiting=waiting)
    assert stream.aborted is way.startswith("abort")
    return stopped


async def _waiting(stream: Stream, until: Awaitable[object] | None) -> asyncio.Future[UniEvent]:
    """A read that waits; one that brings something meanwhile is followed by another."""
    reading = asyncio.ensure_future(anext(stream))
    if until is not None:
        await until
    rested = 0
    while rested < 5:  # turns, in which nothing came
        await asyncio.sleep(0.001)
        rested += 1
        if reading.done():
            reading.result()
            reading, rested = asyncio.ensure_future(anext(stream)), 0
    return reading


async def _read_on(
    stream: Stream, reading: asyncio.Future[UniEvent] | None, stopped: Stopped
) -> None:
    try:
        if reading is not None:
            stopped.events.append(await reading)
        async for event in stream:
            stopped.events.append(event)
    except (StopAsyncIteration, asyncio.CancelledError) as error:
        stopped.error = error
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


def _check(stopped: Stopped, way: Way, reason: object, *, waiting: bool) -> None:
    error = stopped.error
    if way.startswith("abort"):
        assert isinstance(error, AbortError)
        assert error.reason is reason
    elif way == "cancel" and waiting:
        assert type(error) is asyncio.CancelledError
    else:
        assert error is None or isinstance(error, StopAsyncIteration)
        assert stopped.events == []
    assert not any(line.startswith("stop ") for line in stopped.delivered)


@contextlib.contextmanager
def _handler(call: Callable[..., None]) -> Iterator[None]:
    before = os_signal.signal(os_signal.SIGUSR1, call)
    try:
        yield
    finally:
        os_signal.signal(os_signal.SIGUSR1, before)
