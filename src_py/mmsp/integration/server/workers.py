"""Several processes that serve on the same sockets, and the parent that looks after them.

The parent serves nothing. It holds the sockets, replaces workers that die, and tells all of them what to
do over a pipe each: a table to serve, to stop, to hurry. Signals are no way to tell them: the terminal
sends a Ctrl-C to all processes and a service manager its SIGTERM, and a worker would take the parent's for
a second one. A pipe that ends says that the parent is gone; then a worker stops as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable, Generator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from ...abort_signal import AbortSignal
from .app import ServerApp
from .config import ServerConfig
from .listening import raise_descriptor_limit
from .log import set_up_log
from .options import Options
from .runner import Runner, on_signals, when_aborted
from .table import Table
from .totals import Totals, ignore_open_files, leave_totals

__all__ = ["Supervisor"]

_log = logging.getLogger("mmsp.server")

_SHORT_LIFE = 5.0  # s; who lives no longer is not replaced at once
_PAUSE = 1.0  # s
_LAST = 15.0  # s after the grace, until workers that do not end are killed

_OURS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Order = ServerConfig | str  # a table to serve, "stop" or "hurry"


class Supervisor:
    """The parent."""

    def __init__(
        self, config: ServerConfig, options: Options, listeners: list[socket.socket], totals: Totals
    ) -> None:
        self._config = config
        self._options = options
        self._listeners = listeners
        self._totals = totals
        self._pipes: set[Connection] = set()
        self._living: set[SpawnProcess] = set()
        self._stopped = asyncio.Event()
        self._hurried = asyncio.Event()

    async def run(self, load: Callable[[], ServerConfig], stop: AbortSignal | None) -> None:
        """Until it is told to stop and the last worker is gone."""
        handlers: dict[signal.Signals, Callable[[], object]] = {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGHUP: lambda: self._replace_table(load),
        }
        places = [asyncio.ensure_future(self._fill_place()) for _ in range(self._options.workers)]
        with on_signals(handlers), when_aborted(stop, self.stop):
            everyone = asyncio.gather(*places)
            try:
                await self._until_over(everyone)
            finally:
                for each in self._living:
                    each.kill()
            await everyone

    def stop(self) -> None:
        """Begin the end; called again, without grace."""
        if self._stopped.is_set():
            self._hurried.set()
        self._stopped.set()
        for each in self._listeners:
            each.close()
        self._tell("hurry" if self._hurried.is_set() else "stop")

    async def _until_over(self, everyone: asyncio.Future[list[None]]) -> None:
        stopped = asyncio.ensure_future(self._stopped.wait())
        hurried = asyncio.ensure_future(self._hurried.wait())
        await asyncio.wait((everyone, stopped), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(
            (everyone, hurried),
            timeout=self._options.grace + _LAST,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if self._hurried.is_set():
            await asyncio.wait((everyone,), timeout=_LAST)
        stopped.cancel()
        hurried.cancel()

    # ---- workers

    async def _fill_place(self) -> None:
        """Have a worker live, one after the other."""
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                await self._live()
            except OSError as error:  # no process or descriptor to be had: the others go on
                _log.error("a worker could not be started: %s", error)
            if time.monotonic() - began < _SHORT_LIFE and not self._stopped.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), _PAUSE)

    async def _live(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        work = (self._config, self._options, self._listeners, theirs, self._totals.take_lost())
        worker = multiprocessing.get_context("spawn").Process(target=_work, args=work)
        with ours:
            with theirs, _signals_held_back():
                worker.start()
            self._living.add(worker)
            self._pipes.add(ours)
            try:
                await _readable(worker.sentinel)
            finally:
                self._living.discard(worker)
                self._pipes.discard(ours)
        self._bury(worker)

    def _bury(self, worker: SpawnProcess) -> None:
        worker.join()
        pid, code = worker.pid, worker.exitcode
        worker.close()
        assert pid is not None
        self._totals.bury(pid)
        if not self._stopped.is_set():
            _log.error("the worker %d ended (exit code %s); another takes its place", pid, code)

    def _tell(self, order: Order) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):  # it is dying, and will be replaced
                pipe.send(order)

    def _replace_table(self, load: Callable[[], ServerConfig]) -> None:
        try:
            config = load()
            Table(config)
        except (ValueError, OSError) as error:
            _log.error("the table stays as it was: %s", error)
        else:
            self._config = config
            self._tell(config)


@contextlib.contextmanager
def _signals_held_back() -> Generator[None]:
    """For this process and for what it starts meanwhile: a new worker takes them when it can heed them."""
    resource_tracker.ensure_running()  # which it else does in `start`, and lets signals through
    signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    seen = asyncio.Event()
    loop.add_reader(descriptor, seen.set)
    try:
        await seen.wait()
    finally:
        loop.remove_reader(descriptor)


# ---- in a worker


def _work(
    config: ServerConfig,
    options: Options,
    listeners: list[socket.socket],
    orders: Connection,
    lost: dict[str, int],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ignore_open_files()
    if options.log_level is not None:
        set_up_log(options.log_level, as_json=options.log_json)
    raise_descriptor_limit()
    with orders:
        asyncio.run(_serve(config, options, listeners, orders, lost), debug=options.debug or None)
        if _is_orphan():
            leave_totals()


def _is_orphan() -> bool:
    parent = multiprocessing.parent_process()
    return parent is None or not parent.is_alive()


async def _serve(
    config: ServerConfig,
    options: Options,
    listeners: list[socket.socket],
    orders: Connection,
    lost: dict[str, int],
) -> None:
    app = ServerApp(config, options.settings)
    app.metrics.lost(lost)
    runner = Runner(app, listeners, options)
    loop = asyncio.get_running_loop()
    loop.add_reader(orders.fileno(), lambda: _obey(runner, orders))
    try:
        with on_signals({signal.SIGTERM: runner.stop_once}):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)
            await runner.run()
    finally:
        loop.remove_reader(orders.fileno())


def _obey(runner: Runner, orders: Connection) -> None:
    try:
        order: Order = orders.recv()
    except (EOFError, OSError):  # the parent is gone
        asyncio.get_running_loop().remove_reader(orders.fileno())
        runner.stop_once()
        return
    if isinstance(order, ServerConfig):
        runner.replace_table(lambda: order)
    elif order == "hurry":
        runner.hurry()
    else:
        runner.stop_once()
