"""One daemon thread of the process that aborts signals when their time has come.

It needs no event loop and does not wait for a blocked one. A timer may be set or dropped in a signal
handler, or by the collector on any thread, in the middle of this very module; so there is no lock here:
timers stand in a dict, the thread is told by a `SimpleQueue`, whose `put` may interrupt itself, and one
atomic step of a dict says who starts the thread. It ends when it has had nothing to do for a while.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

__all__ = ["call_later", "pending"]

_LINGER = 0.1  # s without a timer until the thread ends
_LONGEST_WAIT = 3600.0  # s; what a lock can wait for has a limit
_SOME = 64  # dropped timers that may stay in the heap

_timers: dict[int, _Timer] = {}
_threads: dict[str, threading.Thread] = {}
_news: SimpleQueue[_Timer | None] = SimpleQueue()


class _Timer:
    """Calls `action` with the object, if it is still there, when the monotonic clock shows `due`."""

    __slots__ = ("action", "due", "target")

    def __init__(self, due: float, target: Any, action: Callable[[Any], None]) -> None:
        self.due = due
        self.action = action
        key = id(self)
        self.target = weakref.ref(target, lambda _: _drop(key))

    def __lt__(self, other: _Timer) -> bool:
        return self.due < other.due


def call_later(seconds: float, target: Any, action: Callable[[Any], None]) -> None:
    """Call `action(target)` after so many seconds, on the timer thread. `target` is held weakly, and
    the timer is gone when it is."""
    timer = _Timer(time.monotonic() + seconds, target, action)
    _timers[id(timer)] = timer
    _news.put(timer)
    _ensure_thread()


def pending() -> int:
    """How many timers are set."""
    return len(_timers)


def _drop(key: int) -> None:
    if _timers.pop(key, None) is not None and not _timers:
        _news.put(None)  # the thread has nothing more to wait for


def _ensure_thread() -> None:
    thread = threading.Thread(target=_run, name="mmsp-timer", daemon=True)
    if _threads.setdefault("timer", thread) is thread:
        try:
            thread.start()
        except BaseException:
            _threads.pop("timer", None)
            raise


def _run() -> None:
    heap: list[_Timer] = []
    while _take_news(heap):
        while heap and (id(heap[0]) not in _timers or heap[0].due <= time.monotonic()):
            _fire(heapq.heappop(heap))
        if len(heap) > 2 * len(_timers) + _SOME:
            heap = [timer for timer in heap if id(timer) in _timers]
            heapq.heapify(heap)
    _threads.pop("timer", None)
    if not _news.empty():  # put by somebody who saw this thread still there
        _ensure_thread()


def _take_news(heap: list[_Timer]) -> bool:
    """Wait for a new timer, or for the next one to be due; False when there is nothing to wait for."""
    wait = _LINGER
    if _timers and heap:
        wait = min(max(heap[0].due - time.monotonic(), 0.0), _LONGEST_WAIT)
    try:
        timer = _news.get(timeout=wait)
    except Empty:
        return bool(_timers)
    if timer is not None:
        heapq.heappush(heap, timer)
    return True


def _fire(timer: _Timer) -> None:
    if _timers.pop(id(timer), None) is not None and (target := timer.target()) is not None:
        timer.action(target)


def _after_fork() -> None:
    """In the child there is no thread, and a queue that the parent's may have left locked."""
    global _news
    _threads.clear()
    _news = SimpleQueue()
    for timer in list(_timers.values()):
        _news.put(timer)
    if _timers:
        _ensure_thread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
