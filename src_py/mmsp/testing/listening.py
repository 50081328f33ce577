"""Listening, and connects that are never accepted.

A listening socket whose queue is full drops each further SYN, so a connect to it stays in
SYN_SENT until its caller gives up. Such a connect never reaches the provider; only the kernel's
table knows of it.
"""

from __future__ import annotations

import select
import socket
from pathlib import Path

BACKLOG = 4096
SMALL_RECEIVE_BUFFER = 4096
SYN_SENT = "02"
LONGEST_HANDSHAKE = 0.05
MOST_FILLERS = 16


def listen(host: str, *, accepting: bool, small_buffer: bool) -> socket.socket:
    """Listen on a free port of the loopback interface, of IPv6 if `host` is such an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setblocking(False)
    if small_buffer:  # before any handshake, in which the window is promised
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_RECEIVE_BUFFER)
    listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    listener.listen(BACKLOG if accepting else 0)
    return listener


def fill_queue(listener: socket.socket) -> list[socket.socket]:
    """Connect to `listener` until a connect stays pending; return the sockets that fill the
    queue.
    """
    fillers: list[socket.socket] = []
    for _ in range(MOST_FILLERS):
        sock = socket.socket(listener.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.connect_ex(listener.getsockname())
        if not select.select([], [sock], [], LONGEST_HANDSHAKE)[1]:
            sock.close()
            return fillers
        fillers.append(sock)
    for sock in fillers:
        sock.close()
    raise RuntimeError("this kernel's queue of connections cannot be filled")


def pending_connects(port: int) -> int:
    """How many connects to `port` of this machine wait for an answer to their SYN."""
    tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    rows = [
        row.split() for table in tables if table.exists() for row in table.read_text().splitlines()
    ]
    return sum(row[3] == SYN_SENT and row[2].endswith(f":{port:04X}") for row in rows)
