"""`create_server_app`: the models of a table over HTTP, as an ASGI app to run or to mount anywhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from .config import ModelRow, ServerConfig, read_table
from .door import Door
from .metrics import Metrics
from .relay import Pace
from .routes import ROUTES, refuse_unknown
from .running import Running, Streams
from .table import Table

if TYPE_CHECKING:
    from .remote import Remote

__all__ = ["ServerApp", "Settings", "create_server_app"]

_DELETED = "a DELETE of its id"
_SHUT = "its server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a server works, whatever it serves.

    - `max_streams`, `max_streams_per_key`: at the same time, in one process; None is no limit.
    - `allow_origins`: web pages that may call it ("*" for all).
    - `redis`: the URL of a Redis or Valkey that all processes share, to stop streams of one another.
    - `workers`: how many processes there are.
    - `body_limit`: bytes of a request.
    - `debug`: a fault of the server is shown to the caller, with its traceback.
    """

    max_streams: int | None = None
    max_streams_per_key: int | None = None
    allow_origins: tuple[str, ...] = ()
    redis: str | None = field(default=None, repr=False)  # it may hold a password
    workers: int = 1
    pace: Pace = field(default_factory=Pace)
    body_limit: int = 50 * 1024 * 1024
    since: float | None = None
    debug: bool = False


class ServerApp:
    """The ASGI app of a server. It needs no lifespan events, so it can be mounted below any other."""

    def __init__(self, config: ServerConfig, settings: Settings) -> None:
        self.settings = settings
        self.table = Table(config)
        self.streams = Streams(settings.max_streams, settings.max_streams_per_key)
        self.metrics = Metrics(settings.since)
        self.created = int(self.metrics.since)
        self.is_closing = False
        self.remote = self._remote()
        self._app = self._build()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def abort_all(self, reason: Any = None) -> None:
        """End every stream now: the providers' connections are closed when this returns, and each caller
        gets an error event `StreamAbortedError` with `reason`.
        """
        self.streams.end_all(reason, _SHUT)

    def end(self, running: Running, reason: Any) -> None:
        """End one stream, for somebody who may."""
        running.end(reason, _DELETED)

    def replace_table(self, config: ServerConfig) -> None:
        """Serve another table from now on; running streams stay. Raises `ValueError`, and keeps the old."""
        self.table = Table(config)

    async def aclose(self) -> None:
        """End every stream and leave Redis."""
        self.is_closing = True
        self.abort_all("server shutting down")
        if self.remote is not None:
            await self.remote.aclose()

    def _remote(self) -> Remote | None:
        if self.settings.redis is None:
            return None
        from .remote import Remote  # redis is needed by those alone who name one

        return Remote(self.settings.redis, self.streams, self.end)

    def _build(self) -> ASGIApp:
        middleware = [Middleware(Door, server=self)]
        if self.settings.allow_origins:
            middleware.insert(
                0,
                Middleware(
                    CORSMiddleware,
                    allow_origins=list(self.settings.allow_origins),
                    allow_methods=["GET", "POST", "DELETE"],
                    allow_headers=["Authorization", "Content-Type", "mmsp-stream-id"],
                    expose_headers=["mmsp-stream-id", "Retry-After"],
                ),
            )
        app = Starlette(
            routes=ROUTES,
            middleware=middleware,
            exception_handlers=refuse_unknown,
            debug=self.settings.debug,
        )
        app.router.redirect_slashes = False  # what has no route is told, not sent elsewhere
        app.state.server = self
        return app


def create_server_app(
    models: Sequence[Mapping[str, Any] | ModelRow],
    api_keys: Sequence[str] = (),
    **settings: Any,
) -> ServerApp:
    """The ASGI app that serves `models` (rows as in a config file, taken literally) to the holders of
    `api_keys`, or to everybody without any. `settings` are those of `Settings`.

    Raises `ValueError` for a bad table, with the row.
    """
    settings.setdefault("since", time.time())
    return ServerApp(read_table(models, api_keys), Settings(**settings))
