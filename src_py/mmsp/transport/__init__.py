"""HTTP/1.1 on sockets that are ours: an `Exchange` can be cut from any thread, in every phase, at once.

    pool.py        Route, Pool: the connections of one event loop
    exchange.py    Exchange: one request and its answer; cut()
    connect.py     resolve, dial, CONNECT, TLS
    connection.py  the asyncio protocol around httptools
    guarded.py     the socket whose close() and cut() exclude each other
    addresses.py coding.py failure.py proxies.py tls.py

Why not a client library: docs/decisions/. No redirect is followed, no cookie kept, no netrc read.
"""

from .exchange import Exchange
from .failure import TransportError
from .pool import Pool, Route
from .proxies import Proxies
from .tls import checked_context, without_identity

__all__ = [
    "Exchange",
    "Pool",
    "Proxies",
    "Route",
    "TransportError",
    "checked_context",
    "without_identity",
]
