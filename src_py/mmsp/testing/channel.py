"""One accepted TCP socket with the TLS layers on it: bytes in, bytes out, and how the far side
ended it.

The end is read from the socket's own state as epoll reports it (RDHUP, HUP, ERR), so it is seen
also while nothing is being read, and over TLS no alert is needed. The kernel keeps FIN and RST
apart: a reset of an open connection leaves ECONNRESET on the socket, a reset that follows a FIN
leaves EPIPE.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
import struct
import time
from typing import Protocol

from .loop import Loop
from .records import ConnectionRecord, Ended
from .tls import TlsLayer

RESET_AT_CLOSE = struct.pack("ii", 1, 0)
MOST_DRAINED = 256
SIGNS_OF_THE_END = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class ChannelOwner(Protocol):
    def received(self, data: bytes) -> None:
        """Bytes came out of the top layer."""

    def drained(self) -> None:
        """What had been waiting to be written has been handed to the kernel."""

    def broken(self, fault: str) -> None:
        """A layer cannot read what came."""

    def ended(self) -> None:
        """The socket is closed, whoever began it."""


class Channel:
    def __init__(
        self,
        sock: socket.socket,
        loop: Loop,
        owner: ChannelOwner,
        record: ConnectionRecord,
        *,
        read_size: int,
        ignore_eof: bool,
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._loop = loop
        self._owner = owner
        self._record = record
        self._read_size = read_size
        self._ignore_eof = ignore_eof
        self._layers: list[TlsLayer] = []
        self._outbox = bytearray()
        self._watched = select.EPOLLIN | select.EPOLLRDHUP
        self.far_side_gone = False
        loop.watch(sock, self._watched, self._on_events)

    @property
    def writing(self) -> bool:
        """Whether bytes wait for room in the kernel."""
        return bool(self._outbox)

    def start_tls(self, context: ssl.SSLContext, first: bytes) -> None:
        """Put a TLS layer on top; `first` are bytes already received for it."""
        self._layers.append(TlsLayer(context))
        self._hand_up(self._unwrap(len(self._layers) - 1, first))

    def send(self, plain: bytes) -> None:
        if not self.far_side_gone:
            self._write(self._wrapped(plain, self._layers))

    def stop_reading(self) -> None:
        """Leave what comes in the kernel; the far side's end is still seen, because epoll reports
        it unread.
        """
        self._watch(self._watched & ~select.EPOLLIN)

    def close(self, *, reset: bool = False) -> None:
        """End the connection from here, with a FIN or a RST. Bytes not yet handed to the kernel
        are dropped.
        """
        if reset:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        else:
            self._drain()  # closing a socket that holds unread bytes would reset it
        self._record.end(None, time.monotonic_ns())
        self._release()

    def _on_events(self, events: int) -> None:
        if events & SIGNS_OF_THE_END:
            self._on_end(events)
        elif events & select.EPOLLIN:
            self._read()
        if events & select.EPOLLOUT and self._outbox:
            self._flush()

    def _on_end(self, events: int) -> None:
        error = 0
        if events & (select.EPOLLHUP | select.EPOLLERR):
            error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        half_closed = self._ignore_eof and not events & (select.EPOLLHUP | select.EPOLLERR)
        self.far_side_gone = not half_closed
        if events & select.EPOLLIN and self._watched & select.EPOLLIN:
            while self._read():
                pass
        if half_closed:
            self._record.end("fin", self._loop.polled_ns)
            self._watch(self._watched & ~(select.EPOLLIN | select.EPOLLRDHUP))
        else:
            self._far_side_ended(error, self._loop.polled_ns)

    def _far_side_ended(self, error: int, seen_ns: int) -> None:
        if self._released:
            return
        how: Ended = "fin" if error in (0, errno.EPIPE) else "rst"
        self._record.end(how, seen_ns)
        if error:
            self._record.reset_ns = seen_ns
        self._release()

    def _read(self) -> bool:
        """Read once; false when there was nothing, or the connection ended on it."""
        if self._released:
            return False
        try:
            raw = self._sock.recv(self._read_size)
        except OSError:  # nothing there, or an end that epoll will report
            return False
        self._record.bytes_received += len(raw)
        data = raw
        for depth in range(len(self._layers)):
            data = self._unwrap(depth, data)
        self._hand_up(data)
        return bool(raw)

    def _hand_up(self, data: bytes) -> None:
        if data and not self._released:
            self._owner.received(data)

    def _unwrap(self, depth: int, data: bytes) -> bytes:
        layer = self._layers[depth]
        plain, reply = layer.unwrap(data)
        if reply and not self.far_side_gone:
            self._write(self._wrapped(reply, self._layers[:depth]))
        if layer.fault and not self._released:
            self._owner.broken(layer.fault)
        return plain

    @staticmethod
    def _wrapped(data: bytes, layers: list[TlsLayer]) -> bytes:
        for layer in reversed(layers):
            data = layer.wrap(data)
        return data

    def _write(self, raw: bytes) -> None:
        idle = not self._outbox
        self._outbox += raw
        if idle:
            self._push()

    def _flush(self) -> None:
        self._push()
        if not self._outbox and not self._released:
            self._owner.drained()

    def _push(self) -> None:
        try:
            sent = self._sock.send(self._outbox)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.far_side_gone = True
            self._far_side_ended(error.errno or errno.ECONNRESET, time.monotonic_ns())
            return
        self._record.bytes_sent += sent
        del self._outbox[:sent]
        wanted = select.EPOLLOUT if self._outbox else 0
        self._watch(self._watched & ~select.EPOLLOUT | wanted)

    def _watch(self, events: int) -> None:
        if events != self._watched:
            self._watched = events
            self._loop.rewatch(self._sock, events)

    def _drain(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            for _ in range(MOST_DRAINED):
                if not self._sock.recv(65536):
                    break

    @property
    def _released(self) -> bool:
        return self._sock.fileno() < 0

    def _release(self) -> None:
        self.far_side_gone = True
        self._outbox.clear()
        self._loop.unwatch(self._sock)
        self._sock.close()
        self._owner.ended()
