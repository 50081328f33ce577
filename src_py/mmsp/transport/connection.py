"""One TCP connection that speaks HTTP/1.1, for one exchange after another.

httptools does the parsing. The connection hands what it reads to the exchange it serves and, once an
answer is whole, lets go of the exchange *before* it offers itself to the pool: an exchange can then no
longer cut a socket that serves somebody else.

It holds its exchange, never the stream that reads the exchange; so a stream that its caller drops is
freed at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import TYPE_CHECKING, cast

import httptools

from .failure import TransportError

if TYPE_CHECKING:
    from .exchange import Exchange
    from .guarded import GuardedSocket
    from .pool import Pool, Route

__all__ = ["Connection"]

_CLOSED = "the far side closed the connection"


class Connection(asyncio.Protocol):
    """`transport` is the uppermost, TLS if there is any; `exchange` is there while it serves one."""

    def __init__(self, pool: Pool, route: Route, sock: GuardedSocket) -> None:
        self.pool = pool
        self.route = route
        self.sock = sock
        self.wire: asyncio.Transport | None = None  # the TCP one, below TLS
        self.is_lost = False
        self.exchange: Exchange | None = None
        self.transport: asyncio.Transport | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.is_blocked = False
        self.has_own_socket = False
        self._paused = False
        self._complete = False
        self._reusable = True
        self._until_eof = False
        self._advanced = False  # whether what is being parsed ended the head or added to the body
        self._bare = 0  # bytes that came since either
        self._headers: list[tuple[str, str]] = []

    # what the exchange and the pool do with it

    def serve(self, exchange: Exchange, payload: bytes) -> None:
        """Send a request; its answer goes to `exchange`."""
        assert self.transport is not None
        self.exchange = exchange
        self._complete = False
        self._bare = 0
        self.transport.write(payload)

    # Reading pauses below TLS: then nothing that was read waits inside asyncio, where an abort or an EOF
    # would lose it.

    def resume(self) -> None:
        if self._paused and self.wire is not None:
            self._paused = False
            self.wire.resume_reading()

    def pause(self) -> None:
        if not self._paused and self.wire is not None:
            self._paused = True
            self.wire.pause_reading()

    @property
    def is_sending(self) -> bool:
        """Whether bytes of the request wait for the kernel; TLS does not count those it has passed on."""
        layers = (self.transport, self.wire)
        return any(layer is not None and layer.get_write_buffer_size() > 0 for layer in layers)

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def abandon(self) -> None:
        """Close it for good, without waiting for the far side."""
        if self.transport is not None:
            self.transport.abort()

    def bury(self) -> None:
        """Close it on a loop that will not run again; nobody who waited for it is woken any more."""
        if self.exchange is not None:
            self.exchange.waiter = None
        self.abandon()

    def close_own(self) -> None:
        """Close our socket where the loop has one of its own."""
        if self.has_own_socket:
            self.sock.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclass of asyncio's
        self.transport = self.wire = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        self.is_blocked = True

    def resume_writing(self) -> None:
        self.is_blocked = False

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        was_complete = self._complete
        if exchange is None or was_complete:
            self._reusable = False  # nobody asked for this
            self.abandon()
            return
        exchange.answered = True
        self._advanced = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server switched to another protocol")
        except httptools.HttpParserError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, Exception):  # a Ctrl-C inside a callback
                self._fail("interrupted")
                raise cause from None
            if not self._complete:
                self._fail(f"the answer is not HTTP: {error}")
            self._reusable = False
        if self._complete:
            self._release()
        else:
            self._bare = 0 if self._advanced else self._bare + len(data)
            self._bound(self._bare)
        exchange.wake()

    def eof_received(self) -> None:
        exchange = self.exchange
        if exchange is not None and self._until_eof and not self._complete:
            exchange.end()

    def connection_lost(self, exc: Exception | None) -> None:
        exchange, self.exchange = self.exchange, None
        self.transport = self.wire = None
        self.is_lost = True
        self.close_own()
        self.pool.forget(self)
        if exchange is not None:
            exchange.fail_lost(exc)  # unless it has ended or failed already
            exchange.disconnected()

    # httptools; an exception raised here would lose its type, so none is

    def on_message_begin(self) -> None:
        if self._complete:
            self._reusable = False
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.exchange is not None and not self.exchange.status:  # else a trailer
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 100:
            self._fail(f"the answer is not HTTP: status {status}")
        if status < 200 or self.exchange is None or self._complete:
            return
        self._bound(sum(len(name) + len(value) + 4 for name, value in self._headers))
        self._advanced = True
        if self.exchange.failure is None:
            self._until_eof = not self._has_frame(status)
            self.exchange.head(status, self._headers)

    def on_body(self, body: bytes) -> None:
        self._advanced = True
        exchange = self.exchange
        if exchange is not None and not self._complete and exchange.data(body):
            self.pause()

    def on_message_complete(self) -> None:
        exchange = self.exchange
        if exchange is not None and exchange.status:  # not after a 1xx
            self._complete = True
            self._reusable = self._reusable and self._parser.should_keep_alive()  # only known here
            exchange.end()

    def _bound(self, size: int) -> None:
        """Fail when that many bytes came without one of the body: a head, or trailers, without end."""
        if self.exchange is not None and size > self.exchange.limits.head_bytes:
            what = "trailers" if self.exchange.status else "head"
            limit = self.exchange.limits.head_bytes
            self._fail(
                f"the {what} of the answer is longer than {limit:,} bytes (Limits.head_bytes)"
            )

    def _has_frame(self, status: int) -> bool:
        """Whether the end of the body is told by the head; else the connection's end tells it."""
        fields = dict(self._headers)
        coding = fields.get("transfer-encoding")
        if status in (204, 304):
            return True
        return "content-length" in fields if coding is None else "chunked" in coding.lower()

    def _fail(self, message: str) -> None:
        exchange = self.exchange
        self._reusable = False
        if exchange is not None and not self._complete:
            phase = "body" if exchange.status else "head"
            exchange.fail(TransportError(phase, message, retryable=False))
            self.abandon()

    def _release(self) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        exchange.let_go(self.sock)
        # a cut raises its flag before it touches a socket, so none that it reached is kept
        if self._reusable and not exchange.is_cut and self.is_open and not self.is_sending:
            self.resume()
            self.pool.give_back(self)
        else:
            self.abandon()


def describe(error: BaseException | None) -> str:
    """The reason a connection ended, in words."""
    if error is None:
        return _CLOSED
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError | socket.gaierror):
        if error.errno:
            return os.strerror(error.errno)  # asyncio puts words of its own there
        if isinstance(error, ConnectionError):
            return _CLOSED
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
