"""`Runner`: one process's server, from its sockets to its end.

It owns the signals, because uvicorn tells an app of its end only when all answers are over, and these are
streams. The end has three steps:

1. The listeners close, `/readyz` and new requests on kept connections get 503. Streams have `grace`
   seconds; a second signal ends that time.
2. Every stream is aborted: the providers' connections close in that instant, the callers get an error
   event and `[DONE]`.
3. Connections close as their answers are written; what callers have not read after 5 s is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Generator, Sequence

import uvicorn

from ...abort_signal import AbortSignal
from .app import ServerApp
from .config import ServerConfig
from .options import Options
from .protocol import OneAtATime

__all__ = ["Runner", "on_signals", "when_aborted"]

_log = logging.getLogger("mmsp.server")

_REASON = "server shutting down"
_SLOW = 5.0  # s that callers have to read the end of their streams
_KEPT = 75.0  # s that an idle connection is kept: longer than proxies keep theirs


class Runner:
    """Serves `app` on listening sockets until `stop` is called. Not thread-safe."""

    def __init__(
        self, app: ServerApp, listeners: Sequence[socket.socket], options: Options
    ) -> None:
        self._app = app
        self._listeners = list(listeners)
        self._grace = options.grace
        self._stopped = asyncio.Event()
        self._hurried = asyncio.Event()
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                http=OneAtATime,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=int(_KEPT),
                timeout_graceful_shutdown=int(2 * _SLOW),
                ssl_certfile=options.certfile,
                ssl_keyfile=options.keyfile,
            )
        )

    async def run(self) -> None:
        """Until the server has ended; nothing of it is left then."""
        if self._app.remote is not None:
            self._app.remote.ledger.begin()
        serving = asyncio.ensure_future(self._server.serve(self._listeners))
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await self._server.up.wait()
            await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                await self._end_streams()
                self._server.should_exit = True
                await self._last_words(serving)
            await serving
        finally:
            stopped.cancel()
            await self._app.aclose()

    def stop(self) -> None:
        """Begin the end; called again, without grace."""
        if self._stopped.is_set():
            self.hurry()
        self._stopped.set()

    def stop_once(self) -> None:
        """Begin the end; called again, the same end."""
        self._stopped.set()

    def hurry(self) -> None:
        """End now, without grace."""
        self._stopped.set()
        self._hurried.set()

    def replace_table(self, load: Callable[[], ServerConfig]) -> None:
        """Serve what `load` returns; where it is bad that is logged, and the old table stays."""
        try:
            self._app.replace_table(load())
        except (ValueError, OSError) as error:
            _log.error("the table stays as it was: %s", error)
        else:
            _log.info("serving a new table: %s", ", ".join(self._app.table.ids))

    # ---- the end

    async def _end_streams(self) -> None:
        _log.info("shutting down; %d streams are running", len(self._app.streams))
        self._app.is_closing = True
        await self._server.close_listeners(self._listeners)
        await self._give_grace()
        if len(self._app.streams):
            _log.info("ending %d streams", len(self._app.streams))
        self._app.abort_all(_REASON)

    async def _give_grace(self) -> None:
        none_left = asyncio.ensure_future(self._app.streams.none_left())
        hurried = asyncio.ensure_future(self._hurried.wait())
        await asyncio.wait(
            (none_left, hurried), timeout=self._grace, return_when=asyncio.FIRST_COMPLETED
        )
        none_left.cancel()
        hurried.cancel()

    async def _last_words(self, serving: asyncio.Future[None]) -> None:
        """Wait for the callers who read; the others lose their connection, which ends their streams."""
        await asyncio.wait((serving,), timeout=_SLOW)
        if not serving.done():
            self._server.drop_connections()


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, and with two of its parts to call alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.up.set()

    async def close_listeners(self, listeners: Sequence[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for server in self.servers:
            for each in server.sockets:
                loop.remove_reader(each.fileno())
        await asyncio.sleep(0)  # what was accepted has a task, which needs an open server
        for server in self.servers:
            server.close()
        for each in listeners:
            each.close()

    def drop_connections(self) -> None:
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()


@contextlib.contextmanager
def on_signals(handlers: dict[signal.Signals, Callable[[], object]]) -> Generator[None]:
    """Have signals call functions on the running loop, if it is the main thread's."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.getsignal(each) for each in handlers}
    for each, handler in handlers.items():
        loop.add_signal_handler(each, handler)
    try:
        yield
    finally:
        for each, handler_before in before.items():
            loop.remove_signal_handler(each)
            signal.signal(each, handler_before)


@contextlib.contextmanager
def when_aborted(switch: AbortSignal | None, handler: Callable[[], object]) -> Generator[None]:
    """Call `handler` on the running loop when `switch` is thrown, on whatever thread."""
    if switch is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def call() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is over anyway
            loop.call_soon_threadsafe(handler)

    unsubscribe = switch.on_abort(call)
    try:
        yield
    finally:
        unsubscribe()
