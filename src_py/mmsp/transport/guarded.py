"""A socket that can be cut from any thread without ever hitting a stranger.

`cut`, `close`, `detach` and a change of owner exclude each other, so a cut never meets a descriptor
number that was closed and given to somebody else, nor a kept connection that has gone to another
exchange. The lock is re-entrant because a signal handler may run inside any of them, on its thread. A
forked child may have it locked for ever, by a thread that only its parent has; there it guards nothing.

A cut also keeps the interpreter's lock. `socket.shutdown` gives it up for the moment of the system call,
and beside a thread that computes gets it back 5 ms later: a thousand connections cut from a thread would
take seconds. The C function called through `ctypes.PyDLL` does not, and the call never blocks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable

__all__ = ["GuardedSocket"]

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def _find_shutdown() -> Callable[[socket.socket], None]:
    """How to shut a connection down both ways; what the system says to it does not matter."""
    try:
        import ctypes

        shutdown = ctypes.PyDLL(None).shutdown
    except (ImportError, OSError, TypeError, AttributeError):  # no such library, as on Windows
        return _shut_down
    shutdown.argtypes, shutdown.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return lambda sock: shutdown(sock.fileno(), socket.SHUT_RDWR)


def _shut_down(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_RDWR)


_shutdown = _find_shutdown()


class GuardedSocket(socket.socket):
    """A non-blocking TCP socket with an owner: the one exchange that may cut it."""

    def __init__(self, family: int, kind: int, proto: int, owner: object) -> None:
        super().__init__(family, kind, proto)
        self._guard = threading.RLock()
        self._owner: object | None = owner
        self._process = os.getpid()  # a forked child shares the connection, and may not end it
        self.setblocking(False)
        # an answer may be silent for minutes: keep middleboxes from forgetting the connection
        self.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def cut(self, owner: object) -> None:
        """End the connection by system calls, before returning: a FIN now, a reset when it is closed.

        The reset matters where a FIN would wait behind bytes the far side does not take. Does nothing
        unless `owner` still owns the socket.
        """
        if self._process != os.getpid():
            return
        with self._guard:
            if self._owner is not owner or self.fileno() == -1:
                return
            try:
                self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                _shutdown(self)
            except OSError:
                pass  # the far side was first

    def own(self, owner: object | None) -> None:
        with self._guard:
            self._owner = owner

    def close(self) -> None:
        with self._guard_here():
            super().close()

    def detach(self) -> int:  # takes the number away as closing does
        with self._guard_here():
            return super().detach()

    def _guard_here(self) -> contextlib.AbstractContextManager[object]:
        return self._guard if self._process == os.getpid() else contextlib.nullcontext()
