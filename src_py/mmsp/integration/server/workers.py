"""Several processes that serve on one socket, and the parent that looks after them.

The parent serves nothing. It passes signals on, replaces workers that die, and holds the folder in which
they all count. Workers end when the parent is gone.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from typing import Any

__all__ = ["Supervisor"]

_log = logging.getLogger("mmsp.server")

_SHORT_LIFE = 2.0  # s; a worker that lives no longer is not replaced at once
_PAUSE = 1.0  # s
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Work = Callable[..., None]


class Supervisor:
    """Runs `work(parent, *arguments)` in `count` processes; `parent` is a descriptor that is readable once
    this process is gone. `may_reload` says whether a SIGHUP should reach the workers.
    """

    def __init__(
        self, count: int, work: Work, arguments: tuple[Any, ...], may_reload: Callable[[], bool]
    ) -> None:
        self._count = count
        self._work = work
        self._arguments = arguments
        self._may_reload = may_reload
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[SpawnProcess, float] = {}
        self._due: list[float] = []  # when workers are to be started
        self._stops = 0

    def run(self) -> None:
        """Until a signal has ended it and the last worker is gone."""
        with tempfile.TemporaryDirectory(prefix="mmsp-metrics-") as folder:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
            mailbox, signals = socket.socketpair()
            with mailbox, signals:
                signals.setblocking(False)
                mailbox.setblocking(False)
                signal.set_wakeup_fd(signals.fileno())
                for number in _PASSED_ON:
                    signal.signal(number, _noted)
                try:
                    self._look_after(mailbox)
                finally:
                    signal.set_wakeup_fd(-1)
                    del os.environ["PROMETHEUS_MULTIPROC_DIR"]

    def _look_after(self, mailbox: socket.socket) -> None:
        self._due = [0.0] * self._count
        while self._workers or not self._stops:
            self._start_due()
            sentinels = {worker.sentinel: worker for worker in self._workers}
            for ready in connection.wait([mailbox, *sentinels], timeout=self._until_due()):
                if ready is mailbox:
                    self._obey(mailbox.recv(64))
                elif isinstance(ready, int):
                    self._bury(sentinels[ready])

    # ---- workers

    def _start_due(self) -> None:
        now = time.monotonic()
        due = [at for at in self._due if at <= now and not self._stops]
        self._due = [at for at in self._due if at > now and not self._stops]
        for _ in due:
            worker = self._context.Process(target=_run, args=(self._work, self._arguments))
            worker.start()
            self._workers[worker] = now

    def _until_due(self) -> float | None:
        return max(0.0, min(self._due) - time.monotonic()) if self._due else None

    def _bury(self, worker: SpawnProcess) -> None:
        from prometheus_client.multiprocess import mark_process_dead

        lived = time.monotonic() - self._workers.pop(worker)
        worker.join()
        bury: Any = mark_process_dead  # it has no types
        bury(worker.pid)
        if not self._stops:
            _log.error(
                "worker %s ended by itself (%s): another takes its place",
                worker.pid,
                worker.exitcode,
            )
            pause = _PAUSE if lived < _SHORT_LIFE else 0.0
            self._due.append(time.monotonic() + pause)
        worker.close()

    # ---- signals

    def _obey(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGHUP:
                if self._may_reload():
                    self._send(signal.SIGHUP)
            elif number in _PASSED_ON:
                self._stops += 1
                self._send(signal.SIGTERM if self._stops < 3 else signal.SIGKILL)

    def _send(self, number: int) -> None:
        for worker in self._workers:
            if worker.pid is not None:
                os.kill(worker.pid, number)


def _noted(number: int, frame: object) -> None:
    """The number has been written to the mailbox."""


def _run(work: Work, arguments: tuple[Any, ...]) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    work(parent.sentinel, *arguments)
