"""Running a server on uvicorn. The signals are ours: uvicorn would tell the app of its end when it is too
late to tell the callers.

    SIGTERM, SIGINT   1. nobody new is let in; running streams have `grace` seconds to end
                      2. every stream is aborted, and its caller told with an event
                      3. uvicorn ends
                      A second signal skips the grace, a third one the rest.
    SIGHUP            the table is read anew; if it is good, it replaces the old one
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TextIO

import uvicorn

from .app import ServerApp
from .config import ServerConfig
from .table import Table

__all__ = ["HOST", "PORT", "Listening", "announce_server", "start_server"]

HOST = "127.0.0.1"
PORT = 25752

_log = logging.getLogger("mmsp.server")

_BACKLOG = 2048
_FAREWELL = 5.0  # s in which callers may take the event that ends their stream
_CLOSING = 1  # s that uvicorn gives to connections after that
_REASON = "server shutting down"

Reload = Callable[[], ServerConfig]


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens, and with which certificate. Port 0 lets the system choose."""

    host: str = HOST
    port: int = PORT
    certfile: str | None = None
    keyfile: str | None = None

    def bind(self) -> socket.socket:
        """A listening socket. Raises `OSError`."""
        found = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        return socket.create_server((str(address[0]), self.port), family=family, backlog=_BACKLOG)

    def url(self, port: int) -> str:
        scheme = "http" if self.certfile is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}/v1"


def announce_server(table: Table, url: str, to: TextIO | None = None) -> None:
    """Print where the server is, what it serves, and whether it is open to everybody."""
    lines = [f"MMSP server at {url}", f"models: {', '.join(table.ids)}"]
    if table.keys.is_open:
        lines.append("open: it has no api_keys, so whoever reaches it may use it")
    print("\n".join(lines), file=to or sys.stdout, flush=True)


def start_server(
    app: ServerApp,
    host: str = HOST,
    port: int = PORT,
    *,
    certfile: str | None = None,
    keyfile: str | None = None,
    grace: float = 30.0,
    reload: Reload | None = None,
) -> None:
    """Serve `app` until a signal ends it, as told above; in the main thread of a program without a loop.

    `reload` gives the table anew for SIGHUP. Raises `OSError` where it cannot listen, and for files of the
    certificate that cannot be read.
    """
    listening = Listening(host, port, certfile, keyfile)
    with listening.bind() as listener:
        announce_server(app.table, listening.url(listener.getsockname()[1]))
        serve_on(listener, app, listening, grace=grace, reload=reload)


def serve_on(
    listener: socket.socket,
    app: ServerApp,
    listening: Listening,
    *,
    grace: float,
    reload: Reload | None = None,
    parent: int | None = None,
) -> None:
    """The same on a socket that listens. `parent` is a descriptor that is readable once there is nobody
    left to serve for."""
    raise_descriptor_limit()
    config = uvicorn.Config(
        app,
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_CLOSING,
        ssl_certfile=listening.certfile,
        ssl_keyfile=listening.keyfile,
    )
    config.load()  # a bad certificate is told before anybody is let in
    asyncio.run(Runner(config, app, grace, reload).run_until_stopped(listener, parent))


def raise_descriptor_limit() -> None:
    """The soft limit to the hard one: a stream needs two descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Runner(uvicorn.Server):
    """uvicorn that ends as the module says."""

    def __init__(
        self, config: uvicorn.Config, app: ServerApp, grace: float, reload: Reload | None
    ) -> None:
        super().__init__(config)
        self._served = app
        self._grace = grace
        self._reload = reload
        self._hurry = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None

    async def run_until_stopped(self, listener: socket.socket, parent: int | None) -> None:
        with self._signals(parent):
            await self.serve([listener])
        for task in (self._ending, self._reloading):
            if task is not None:
                await task

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """uvicorn's own way with signals, which is not ours."""
        yield

    @contextlib.contextmanager
    def _signals(self, parent: int | None) -> Generator[None]:
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {}
        if threading.current_thread() is threading.main_thread():
            handlers = {signal.SIGTERM: self.stop, signal.SIGHUP: self.reload}
            if parent is None:  # else the parent passes a Ctrl-C on, which all processes get
                handlers[signal.SIGINT] = self.stop
            else:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        if parent is not None:
            loop.add_reader(parent, self._orphaned, parent)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
            if parent is not None:
                loop.remove_reader(parent)

    # ---- the end

    def stop(self) -> None:
        """Begin the end, or hasten it."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        elif not self._hurry.is_set():
            self._hurry.set()
        else:
            self.force_exit = self.should_exit = True

    async def _end(self) -> None:
        app = self._served
        app.is_closing = True
        for server in self.servers:
            server.close()
        if len(app.streams):
            _log.info("shutting down: %d streams have %g s to end", len(app.streams), self._grace)
        await self._none_left(self._grace, self._hurry)
        app.abort_all(_REASON)
        await self._none_left(_FAREWELL, asyncio.Event())
        await app.aclose()
        self.should_exit = True

    async def _none_left(self, seconds: float, hurry: asyncio.Event) -> None:
        """Wait until no stream runs, or the time is over, or there is no time."""
        waiting: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._served.streams.none_left()),
            asyncio.ensure_future(hurry.wait()),
        ]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _orphaned(self, parent: int) -> None:
        asyncio.get_running_loop().remove_reader(parent)
        self._hurry.set()
        self.stop()

    # ---- another table

    def reload(self) -> None:
        if self._reload is not None and (self._reloading is None or self._reloading.done()):
            self._reloading = asyncio.ensure_future(self._replace(self._reload))

    async def _replace(self, reload: Reload) -> None:
        try:
            table = await asyncio.to_thread(lambda: Table(reload()))
        except (ValueError, OSError) as error:
            _log.error("the table stays as it was: %s", error)
        else:
            self._served.table = table
            _log.info("another table is served: %s", ", ".join(table.ids))
