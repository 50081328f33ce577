"""TLS for a scripted provider: certificates of a throw-away authority, and TLS without a socket.

The layer works on memory, so that the socket below stays ours to watch: FIN and RST are seen on
it, whatever the TLS stream says. It never sends a close_notify and never answers one.
"""

from __future__ import annotations

import functools
import os
import ssl
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import trustme

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@functools.cache
def authority() -> trustme.CA:
    """The certificate authority of this process; making one takes time, so there is one."""
    try:
        import trustme
    except ImportError as error:
        raise ImportError(
            "TLS needs the package trustme, which is not installed: install mmsp with its extra `testing`",
            name="trustme",
        ) from error
    return trustme.CA()


def write_ca_file() -> str:
    """A new temporary PEM file with the authority's certificate; return its path."""
    descriptor, path = tempfile.mkstemp(prefix="mmsp-testing-", suffix=".pem")
    with os.fdopen(descriptor, "wb") as file:
        file.write(authority().cert_pem.bytes())
    return path


@functools.cache
def client_context() -> ssl.SSLContext:
    """A context for clients that trusts the authority and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    return context


@functools.cache
def server_context(name: str) -> ssl.SSLContext:
    """A context that is `name`, or the host the client asks for by SNI."""
    context = _context_of(name)

    def by_sni(tls: ssl.SSLSocket | ssl.SSLObject, asked: str | None, _: ssl.SSLContext) -> None:
        if asked is not None and asked != name:
            tls.context = _context_of(asked)

    context.sni_callback = by_sni
    return context


@functools.cache
def _context_of(name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    names = dict.fromkeys((name, *LOCAL_NAMES) if name in LOCAL_NAMES else (name,))
    authority().issue_cert(*names).configure_cert(context)
    context.set_alpn_protocols(["http/1.1"])
    # A ticket a client has not read would turn its FIN into a RST.
    context.num_tickets = 0
    return context


class TlsLayer:
    """The provider's end of one TLS stream, bytes in and bytes out."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._open = False
        self.fault: str | None = None

    def unwrap(self, raw: bytes) -> tuple[bytes, bytes]:
        """What `raw` says, and what TLS itself wants sent in reply. After a `fault` it says
        nothing more.
        """
        self._incoming.write(raw)
        pieces: list[bytes] = []
        try:
            if not self._open:
                self._tls.do_handshake()
                self._open = True
            while piece := self._tls.read(65536):
                pieces.append(piece)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        except ssl.SSLError as error:
            self.fault = f"not TLS: {error}"
        return b"".join(pieces), self._outgoing.read()

    def wrap(self, plain: bytes) -> bytes:
        view = memoryview(plain)
        while view:
            view = view[self._tls.write(view) :]
        return self._outgoing.read()
