"""From a name to a connection that is ready for a request: resolve, dial, tunnel, TLS.

Each step names its phase on the exchange, so that a failure or a time-out can tell where it happened.
The whole runs in a task of the exchange's own, which is cancelled when the exchange is abandoned.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

import aiohappyeyeballs

from .addresses import is_public
from .connection import Connection, describe
from .failure import TransportError
from .tls import default_context

if TYPE_CHECKING:
    from .exchange import Exchange
    from .guarded import GuardedSocket

__all__ = ["Opening"]

_SECOND_ADDRESS_AFTER = 0.25  # s, RFC 8305
_NEVER = 7 * 86400.0  # asyncio insists on a handshake time-out; ours is the call's
_LONGEST_HEAD = 64 * 1024  # of a proxy's answer to CONNECT
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


class Opening:
    """The making of one connection for one exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._pool = exchange.pool
        self._route = exchange.route
        self._loop = exchange.pool.loop

    async def connect(self) -> Connection:
        """The connection, open and idle. Raises `TransportError`, and closes what it made when it fails."""
        connection = await self._dial()
        try:
            if self._route.proxy is not None:
                await self._through_proxy(connection)
            if self._route.scheme == "https":
                await self._start_tls(connection, self._route.host, self._context())
            self._open_transport(connection)  # it may be lost between two steps, which nobody tells
        except BaseException:
            connection.abandon()
            connection.close_own()  # a handshake that fails tells no connection_lost
            raise
        self._pool.register(connection)
        return connection

    def _open_transport(self, connection: Connection) -> asyncio.Transport:
        transport = connection.transport
        if transport is None or connection.is_lost or transport.is_closing():
            raise TransportError(self._exchange.phase, f"{describe(None)} at once")
        return transport

    async def _dial(self) -> Connection:
        host, port = self._route.first_hop
        self._exchange.phase = "resolve"
        try:
            addresses = await self._pool.resolve(host, port)
        except OSError as error:
            raise TransportError(
                "resolve", f"looking up {host} failed: {describe(error)}"
            ) from None
        if self._route.public_only:
            await self._refuse_private(addresses)
        self._exchange.phase = "connect"
        try:
            sock = await aiohappyeyeballs.start_connection(
                addresses,
                happy_eyeballs_delay=_SECOND_ADDRESS_AFTER,
                loop=self._loop,
                socket_factory=lambda info: self._exchange.new_socket(info[0], info[1], info[2]),
            )
        except (OSError, RuntimeError) as error:
            raise TransportError(
                "connect", f"connecting to {host}:{port} failed: {describe(error)}"
            ) from None
        connection = Connection(self._pool, self._route, cast("GuardedSocket", sock))
        given = sock
        if not isinstance(self._loop, asyncio.BaseEventLoop):
            # uvloop closes the number, not the socket: it gets one of its own, and ours stays guarded
            given = socket.socket(sock.family, sock.type, sock.proto, os.dup(sock.fileno()))
            given.setblocking(False)
            connection.has_own_socket = True
        try:
            await self._loop.create_connection(lambda: connection, sock=given)
        except BaseException as error:
            given.close()
            sock.close()
            if isinstance(error, OSError):
                raise TransportError(
                    "connect", f"connecting to {host}:{port} failed: {describe(error)}"
                ) from None
            raise
        return connection

    async def _refuse_private(self, addresses: list[Any]) -> None:
        """Raise if the destination is not on the public Internet.

        What is looked at here is what is connected to. A proxy looks the name up itself: then our own
        look-up is what can be looked at, if there is one.
        """
        host = self._route.host
        if self._route.proxy is not None:
            try:
                addresses = await self._pool.resolve(host, self._route.port)
            except OSError:
                return
        for *_, place in addresses:
            if not is_public(place[0]):
                raise TransportError(
                    "connect",
                    f"{host} is an address of a private network ({place[0]}): a client with "
                    "allow_private_image_urls=True takes it",
                    retryable=False,
                )

    def _context(self) -> ssl.SSLContext:
        return self._route.ssl_context or default_context()

    async def _start_tls(self, connection: Connection, host: str, context: ssl.SSLContext) -> None:
        self._exchange.phase = "tls"
        try:
            secure = await self._loop.start_tls(
                self._open_transport(connection),
                connection,
                context,
                server_hostname=host,
                ssl_handshake_timeout=_NEVER,
            )
        except ssl.SSLCertVerificationError as error:
            raise TransportError(
                "tls",
                f"the certificate of {host} was not accepted: {error.verify_message}. If it is "
                f"signed by an authority of your own, name its file in SSL_CERT_FILE or give ssl_context=…",
                retryable=False,
            ) from None
        except (OSError, ssl.SSLError) as error:
            raise TransportError(
                "tls", f"the TLS handshake with {host} failed: {describe(error)}"
            ) from None
        if secure is None:  # an aborted transport, on some versions
            raise TransportError(
                "tls", f"the TLS handshake with {host} failed: the connection is gone"
            )
        connection.transport = secure

    async def _through_proxy(self, connection: Connection) -> None:
        proxy = urlsplit(self._route.proxy or "")
        if proxy.scheme == "https":
            await self._start_tls(connection, proxy.hostname or "", default_context())
        self._exchange.phase = "proxy"
        if self._route.scheme == "https":
            transport = self._open_transport(connection)
            tunnel = _Tunnel(self._loop.create_future())
            transport.set_protocol(tunnel)
            transport.write(self._connect_request())
            await tunnel.opened

    def _connect_request(self) -> bytes:
        target = self._route.authority(with_port=True)
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if authorization := proxy_authorization(self._route.proxy):
            lines.append(f"Proxy-Authorization: {authorization}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class _Tunnel(asyncio.Protocol):
    """Reads a proxy's answer to CONNECT: `opened` is resolved by a 2xx, and else fails."""

    def __init__(self, opened: asyncio.Future[None]) -> None:
        self.opened = opened
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._settle(_verdict(self._head))
        elif len(self._head) > _LONGEST_HEAD:
            self._settle(_verdict(b""))

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle(TransportError("proxy", f"{describe(exc)} in answer to CONNECT"))

    def _settle(self, error: TransportError | None) -> None:
        if self.opened.done():
            return
        if error is None:
            self.opened.set_result(None)
        else:
            self.opened.set_exception(error)


def _verdict(head: bytes) -> TransportError | None:
    """What is wrong with a proxy's answer to CONNECT; None when the tunnel is open."""
    match = _STATUS.match(head)
    if match is None:
        return TransportError(
            "proxy", "the proxy's answer to CONNECT is no HTTP head", retryable=False
        )
    status = int(match[1])
    if 200 <= status < 300:
        return None
    return TransportError("proxy", f"the proxy refused CONNECT: {status}", retryable=status >= 500)


def proxy_authorization(proxy: str | None) -> str:
    """The Proxy-Authorization value for the user and password in a proxy's URL, or `""`."""
    parts = urlsplit(proxy or "")
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()
