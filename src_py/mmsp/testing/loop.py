"""The one thread of a provider: epoll, timers and calls from other threads.

An event of a socket is stamped when epoll reports it (`polled_ns`), not when its turn comes among
the others of the same report; with thousands of connections closing together the difference is
what one wants to measure.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

MOST_EVENTS = 16384


class Loop:
    """Runs in the thread that calls `run`; only `call` and `stop` are for other threads."""

    def __init__(self, turned: Callable[[], None]) -> None:
        self.polled_ns = time.monotonic_ns()
        self._turned = turned
        self._epoll = select.epoll()
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_number = itertools.count()
        self._calls: deque[Callable[[], None]] = deque()
        self._lock = threading.RLock()
        self._running = True
        self._epoll.register(self._waker, select.EPOLLIN)

    def watch(self, sock: socket.socket, events: int, handler: Callable[[int], None]) -> None:
        self._handlers[sock.fileno()] = handler
        self._epoll.register(sock, events)

    def rewatch(self, sock: socket.socket, events: int) -> None:
        self._epoll.modify(sock, events)

    def unwatch(self, sock: socket.socket) -> None:
        del self._handlers[sock.fileno()]
        self._epoll.unregister(sock)

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        when = time.monotonic() + seconds
        heapq.heappush(self._timers, (when, next(self._timer_number), callback))

    def soon(self, callback: Callable[[], None]) -> None:
        """In the next turn, after the sockets have been looked at once more."""
        self._calls.append(callback)

    def call(self, callback: Callable[[], None]) -> None:
        """From any thread: run `callback` in the loop's thread; a loop that has ended does not."""
        with self._lock:
            if self._running:
                self._calls.append(callback)
                os.eventfd_write(self._waker, 1)

    def stop(self) -> None:
        self.call(self._end)

    def run(self) -> None:
        while self._running:
            self._turn()

    def close(self) -> None:
        """Let go of the descriptors; by the thread that ran the loop, when nothing is watched."""
        with self._lock:
            self._running = False
            self._calls.clear()
            self._timers.clear()
            os.close(self._waker)
            self._epoll.close()

    def _turn(self) -> None:
        reports = self._epoll.poll(self._patience(), MOST_EVENTS)
        self.polled_ns = time.monotonic_ns()
        for descriptor, events in reports:
            if descriptor == self._waker:
                os.eventfd_read(self._waker)
            elif handler := self._handlers.get(descriptor):
                handler(events)
        self._run_calls()
        self._run_timers()
        self._turned()

    def _patience(self) -> float:
        if self._calls:
            return 0
        if not self._timers:
            return -1
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _run_calls(self) -> None:
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _end(self) -> None:
        self._running = False
