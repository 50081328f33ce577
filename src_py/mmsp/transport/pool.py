"""The connections of one event loop: kept ones waiting for the next request, and the live ones.

Nobody closes a pool. It belongs to its loop, kept alive by an async generator that is suspended on that
loop: `shutdown_asyncgens()`, which `asyncio.run` and every runner call, ends the generator, and its
`finally` closes every connection. What is left of a loop that was closed, or forgotten, without it is
closed at the next look-up or when the interpreter ends.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from ..request import HttpRequest
from .connect import proxy_authorization
from .connection import Connection
from .proxies import Proxies

__all__ = ["Pool", "Route"]

_TURNS = 1000  # of the loop
_KEEP_IDLE = 15.0  # s
_MOST_IDLE = 100  # of one route: after a burst, what nobody will use is closed at once
_PORTS = {"http": 80, "https": 443}
_USER_AGENT = "mmsp"
_IN_PATH = "/%:@!$&'()*+,;=~"

_pools: dict[asyncio.AbstractEventLoop, Pool] = {}


@dataclass(frozen=True, slots=True)
class Route:
    """How a destination is reached; connections are shared between requests of one route."""

    scheme: str
    host: str
    port: int
    proxy: str | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = None
    public_only: bool = False  # whether the destination must have a public address

    @classmethod
    def to(
        cls,
        url: str,
        proxies: Proxies,
        ssl_context: ssl.SSLContext | None,
        *,
        public_only: bool = False,
    ) -> Route:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if not host.isascii():
            host = host.encode("idna").decode("ascii")
        port = parts.port or _PORTS[parts.scheme]
        context = ssl_context if parts.scheme == "https" else None
        proxy = proxies.find(parts.scheme, host, port)
        return cls(parts.scheme, host, port, proxy, context, public_only)

    @property
    def first_hop(self) -> tuple[str, int]:
        if self.proxy is None:
            return self.host, self.port
        parts = urlsplit(self.proxy)
        return parts.hostname or "", parts.port or _PORTS[parts.scheme]

    def authority(self, *, with_port: bool = False) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if with_port or self.port != _PORTS[self.scheme] else host

    def serialize(self, request: HttpRequest) -> bytes:
        """The request as HTTP/1.1 sends it on this route."""
        parts = urlsplit(request.url)
        target = quote(parts.path or "/", safe=_IN_PATH)
        if parts.query:
            target += "?" + quote(parts.query, safe=_IN_PATH + "?")
        headers = {name.lower(): (name, value) for name, value in request.headers}
        for framing in ("content-length", "transfer-encoding"):  # ours alone
            headers.pop(framing, None)
        own = [
            ("Host", self.authority()),
            ("User-Agent", _USER_AGENT),
            ("Accept-Encoding", "identity"),
        ]
        if request.body or request.method not in ("GET", "HEAD", "DELETE"):
            own.append(("Content-Length", str(len(request.body))))
        if self.proxy is not None and self.scheme == "http":
            target = f"http://{self.authority()}{target}"
            if authorization := proxy_authorization(self.proxy):
                own.append(("Proxy-Authorization", authorization))
        lines = [f"{request.method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in own if name.lower() not in headers]
        lines += [f"{name}: {value}" for name, value in headers.values()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body


class Pool:
    """The pool of `loop`; `Pool.current()` finds or makes the one of the running loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._idle: dict[Route, list[Connection]] = {}
        self._live: set[Connection] = set()
        self._lookups: dict[tuple[str, int], asyncio.Future[list[Any]]] = {}
        self._holder = self._hold()
        with contextlib.suppress(StopIteration):
            self._holder.__anext__().send(None)

    @classmethod
    def current(cls) -> Pool:
        loop = asyncio.get_running_loop()
        pool = _pools.get(loop)
        if pool is None:
            _bury(lambda other: other.is_closed())
            pool = _pools[loop] = cls(loop)
        return pool

    def take(self, route: Route) -> Connection | None:
        """The kept connection that was used last, or None."""
        kept = self._idle.get(route)
        while kept:
            connection = kept.pop()
            if connection.expiry is not None:
                connection.expiry.cancel()
            if connection.is_open:
                return connection
        return None

    def give_back(self, connection: Connection) -> None:
        connection.expiry = self.loop.call_later(_KEEP_IDLE, connection.abandon)
        kept = self._idle.setdefault(connection.route, [])
        kept.append(connection)
        if len(kept) > _MOST_IDLE:
            kept.pop(0).abandon()

    def register(self, connection: Connection) -> None:
        self._live.add(connection)

    def forget(self, connection: Connection) -> None:
        self._live.discard(connection)
        if connection.expiry is not None:
            connection.expiry.cancel()
        kept = self._idle.get(connection.route)
        if kept is not None:
            with contextlib.suppress(ValueError):
                kept.remove(connection)
            if not kept:
                del self._idle[connection.route]

    async def resolve(self, host: str, port: int) -> list[Any]:
        """The addresses of `host`, as `getaddrinfo` gives them; raises its `OSError`.

        Looked up in a daemon thread of its own, which a stop leaves behind: neither the loop nor the
        interpreter waits for it. Look-ups of one name that run at once are one.
        """
        for family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                socket.inet_pton(family, host)
                return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
        lookup = self._lookups.get((host, port))
        if lookup is None:
            lookup = self._lookups[host, port] = self.loop.create_future()
            lookup.add_done_callback(lambda done: self._lookups.pop((host, port), done).exception())
            work = (self.loop, lookup, host, port)
            thread = threading.Thread(target=_look_up, args=work, name="mmsp-resolve", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no more threads to be had
                _deliver(lookup, OSError(str(error)))
        return await asyncio.shield(lookup)

    async def _hold(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        _pools.pop(self.loop, None)
        for _ in range(_TURNS):  # each says connection_lost within two or three
            if not self._live:
                break
            for connection in list(self._live):
                connection.abandon()
            await asyncio.sleep(0)

    def bury(self) -> None:
        """Close the connections of a loop that will not run again.

        A transport of asyncio's closes its socket in a callback. This loop runs none any more, so they
        are run here. uvloop closes its sockets itself.
        """
        if not isinstance(self.loop, asyncio.BaseEventLoop):
            return
        vars(self.loop)["call_soon"] = _run_now
        try:
            for connection in list(self._live):
                connection.bury()
        finally:
            del vars(self.loop)["call_soon"]


def _run_now(callback: Callable[..., object], *args: Any, context: Any = None) -> None:
    callback(*args)


def _bury(is_dead: Callable[[asyncio.AbstractEventLoop], bool]) -> None:
    for loop in list(_pools):
        if is_dead(loop) and (pool := _pools.pop(loop, None)) is not None:
            pool.bury()


atexit.register(_bury, lambda loop: not loop.is_running())
if hasattr(os, "register_at_fork"):
    # a child shares its parent's sockets and its loop's epoll: it must not close through them
    os.register_at_fork(after_in_child=_pools.clear)


def _look_up(
    loop: asyncio.AbstractEventLoop, lookup: asyncio.Future[list[Any]], host: str, port: int
) -> None:
    result: Any
    try:
        result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        result = error if isinstance(error, OSError) else OSError(f"{host!r} is not a host name")
    except BaseException as error:  # whatever it was, somebody waits for the answer
        result = OSError(repr(error))
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(_deliver, lookup, result)


def _deliver(lookup: asyncio.Future[list[Any]], result: Any) -> None:
    if lookup.done():
        return
    if isinstance(result, OSError):
        lookup.set_exception(result)
    else:
        lookup.set_result(result)
