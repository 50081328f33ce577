"""What several measurements need: clients of a scripted provider, ways to stop, statistics.

Providers run in processes of their own; what a stop did to a connection is what the provider saw
on its socket, by its own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import statistics
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

from mmsp import AutoLLMClient, UniMessage
from mmsp.testing import Answer, ProviderProcess, chat, say

__all__ = [
    "QUESTION",
    "WAYS",
    "Stop",
    "Ways",
    "client_of",
    "compute",
    "environment",
    "in_chunks",
    "median",
    "milliseconds",
    "now_ns",
    "percentile",
    "question",
    "raise_descriptor_limit",
    "run",
]

T = TypeVar("T")
Stop = Callable[[], None]

now_ns = time.monotonic_ns
median = statistics.median

EVENTS_IN_A_WRITE = 64


def question(text: str = "Say something.") -> list[UniMessage]:
    return [{"role": "user", "content_items": [{"type": "text.done", "text": text}]}]


QUESTION = question()


@contextlib.contextmanager
def environment(**changes: str | None) -> Iterator[None]:
    """The process's environment with `changes` and without proxies; None removes a variable."""
    before = dict(os.environ)
    for name in before:
        if name.lower().endswith("_proxy"):
            del os.environ[name]
    for name, value in changes.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def client_of(
    provider: ProviderProcess,
    *,
    base_url: str | None = None,
    proxy: str | None = None,
    client_type: str = "openai-chat",
) -> AutoLLMClient:
    """A client that trusts `provider` and reaches it directly, or through `proxy`."""
    url = base_url or provider.base_url
    context = provider.ssl_context if url.startswith("https:") else None
    with environment(HTTP_PROXY=proxy, HTTPS_PROXY=proxy):
        return AutoLLMClient(
            "scripted",
            client_type=client_type,
            api_key="scripted",
            base_url=url,
            ssl_context=context,
        )


def in_chunks(events: Sequence[bytes], *, in_a_write: int = EVENTS_IN_A_WRITE) -> Answer:
    """An answer with each event in an HTTP chunk of its own, as servers send them, many to a write."""
    writes = [
        b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events[start:][:in_a_write])
        for start in range(0, len(events), in_a_write)
    ]
    return Answer(
        *map(say, [*writes, b"0\r\n\r\n"]),
        framing="close",  # which leaves the framing to us
        headers={"transfer-encoding": "chunked"},
    )


def text_answer(count: int) -> Answer:
    """A whole answer of `count` text deltas."""
    return in_chunks([*chat.deltas(count), *chat.ending(count)])


def run(work: Coroutine[Any, Any, T], *, uvloop: bool = False) -> T:
    """`asyncio.run`, on either kind of loop."""
    with asyncio.Runner(loop_factory=_loop_factory(uvloop)) as runner:
        return runner.run(work)


def _loop_factory(uvloop: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if not uvloop:
        return None
    import uvloop as library

    return library.new_event_loop


def raise_descriptor_limit() -> None:
    """The soft limit to the hard one; providers started afterwards inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# ---- ways to stop


@dataclass
class Ways:
    """The ways to call a stop; each returns the time just before the call.

    A context manager, used in the main thread, where signal handlers run. `free_at` is when the loop's
    thread was free again after it was last blocked.
    """

    free_at: int | None = None
    _workers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "rig"))
    _handled: Stop | None = None
    _before: Any = None

    def __enter__(self) -> Ways:
        self._before = signal.signal(signal.SIGUSR1, self._handle)
        for _ in range(4):  # threads begin and end with the rig, not in a measurement
            self._workers.submit(time.sleep, 0.01)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGUSR1, self._before)
        self._workers.shutdown()

    async def elsewhere(self, work: Callable[[], T]) -> T:
        """Run blocking `work` in a thread of the rig."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)

    async def from_the_loop(self, stop: Stop) -> int:
        return _timed(stop)

    async def from_a_thread(self, stop: Stop) -> int:
        return await self.elsewhere(lambda: _timed(stop))

    async def from_a_signal_handler(self, stop: Stop) -> int:
        begun = asyncio.get_running_loop().create_future()

        def handled() -> None:
            at = _timed(stop)
            begun.get_loop().call_soon_threadsafe(begun.set_result, at)

        self._handled = handled
        await self.elsewhere(_send_signal)
        return int(await begun)

    async def while_the_loop_sleeps(self, stop: Stop) -> int:
        """From a thread, while the loop's thread is inside `time.sleep`."""
        return await self.while_blocked(stop, lambda: time.sleep(0.006))

    async def while_the_loop_computes(self, stop: Stop) -> int:
        """From a thread, while the loop's thread runs Python code and gives the interpreter up
        only when it must."""
        return await self.while_blocked(stop, lambda: compute(0.015))

    async def while_blocked(self, stop: Stop, block: Stop) -> int:
        """From a thread that gets its turn only when `block` holds the loop's thread."""
        blocked = threading.Event()

        def soon() -> int:
            blocked.wait()
            return _timed(stop)

        timed = self._workers.submit(soon)
        blocked.set()
        block()
        self.free_at = now_ns()
        return await asyncio.wrap_future(timed)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        handled, self._handled = self._handled, None
        if handled is not None:
            handled()


WAYS: dict[str, Callable[[Ways, Stop], Coroutine[Any, Any, int]]] = {
    "the loop": Ways.from_the_loop,
    "a thread": Ways.from_a_thread,
    "a signal handler": Ways.from_a_signal_handler,
    "a thread, the loop in sleep()": Ways.while_the_loop_sleeps,
    "a thread, the loop computing": Ways.while_the_loop_computes,
}


def _timed(stop: Stop) -> int:
    at = now_ns()
    stop()
    return at


def _send_signal() -> None:
    thread = threading.main_thread().ident
    assert thread is not None
    signal.pthread_kill(thread, signal.SIGUSR1)


def compute(seconds: float) -> None:
    """Run Python code for so long, without ever giving the interpreter up by oneself."""
    until = now_ns() + int(seconds * 1e9)
    while now_ns() < until:
        pass


# ---- statistics


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def milliseconds(since_ns: int, until_ns: int) -> float:
    return (until_ns - since_ns) / 1e6
