"""`Exchange`: one HTTP request and its answer, which any thread can cut in any phase.

The rule: from the moment a socket is made until the answer is whole, this exchange owns it, and `cut`
shuts it by system calls before it returns. `cut` sets a flag *before* it looks for sockets; whoever makes
a socket writes it down *before* looking at the flag. So a cut that lands while a connection is being
made or handed over is seen by one side or the other, never forgotten.

Everything else (cancelling the opening task, closing the transport) is `abandon`, on the loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..settings import Limits
from .coding import Inflater
from .connect import Opening
from .connection import describe
from .failure import TransportError
from .guarded import GuardedSocket

if TYPE_CHECKING:
    from ..request import HttpRequest
    from .connection import Connection
    from .pool import Pool, Route

__all__ = ["Exchange"]

_HIGH_WATER = 64 * 1024


class Exchange:
    """One request on its way over `route`.

    The answer so far: `status` (0 before the head), `headers` (lower-case names), the body through
    `take`, then `ended` or `failure`. `waiter` is a future that is resolved when any of it changes.
    """

    def __init__(self, pool: Pool, route: Route, request: HttpRequest, limits: Limits) -> None:
        self.pool = pool
        self.route = route
        self.limits = limits
        self.phase = "resolve"
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.failure: TransportError | None = None
        self.answered = False
        self.reused = False
        self.waiter: asyncio.Future[None] | None = None
        self.is_cut = False
        self._request = request
        self._sockets: list[GuardedSocket] = []
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._all_came = False
        self._inflater: Inflater | None = None
        self._resting = False

    # what its call does

    def begin(self, *, fresh: bool = False) -> None:
        """Send the request, over a kept connection if there is one and `fresh` is false."""
        kept = None if fresh else self.pool.take(self.route)
        if kept is not None:
            self.reused = True
            self._sockets.append(kept.sock)
            kept.sock.own(self)
            self._serve(kept)
        else:
            self._opening = self.pool.loop.create_task(Opening(self).connect())
            self._opening.add_done_callback(self._opened)

    @property
    def ended(self) -> bool:
        """The answer is whole, and there is nothing more to take than `take` now gives."""
        return self._all_came and (self._inflater is None or not self._inflater.pending)

    @property
    def connecting(self) -> bool:
        return self._opening is not None

    @property
    def gone(self) -> bool:
        """Nothing of this exchange is on the network any more."""
        return self._connection is None and self._opening is None

    def take(self) -> bytes:
        """All of the body that has arrived and was not taken yet, `b""` when there is none."""
        inflater = self._inflater
        if inflater is None:
            return self._arrived()
        piece = self._unfold()
        if piece or inflater.pending:
            return piece
        if data := self._arrived():
            return self._inflate(data) or self._unfold()
        if self._all_came and not inflater.whole:
            self._spoil(TransportError("body", "the encoded answer has no end"))
        return b""

    def _arrived(self) -> bytes:
        chunks = self._chunks
        if not chunks:
            return b""
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._chunks = []
        self._size = 0
        if self._connection is not None and not self.is_cut:
            self._connection.resume()
        return data

    def cut(self) -> None:
        """Shut whatever socket serves this exchange. From any thread, in any phase."""
        self.is_cut = True
        for sock in tuple(self._sockets):
            sock.cut(self)

    def abandon(self) -> None:
        """What a cut leaves to do on the loop."""
        self.cut()
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.abandon()

    def wake(self) -> None:
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def new_socket(self, family: int, kind: int, proto: int) -> GuardedSocket:
        """A socket for this exchange alone; refused once it was cut."""
        sock = GuardedSocket(family, kind, proto, self)
        self._sockets.append(sock)
        if self.is_cut:
            sock.close()
            raise OSError("cut while connecting")
        return sock

    # what its connection tells it

    def head(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.status = status
        self.headers = headers
        self.phase = "body"
        try:
            self._inflater = Inflater.for_coding(dict(headers).get("content-encoding", ""))
        except TransportError as failure:
            self.fail(failure)

    def data(self, body: bytes) -> bool:
        """Take a piece of the body; True when so much waits that reading should pause."""
        if self.failure is not None:
            return False
        self._chunks.append(body)
        self._size += len(body)
        return self._size > _HIGH_WATER

    def end(self) -> None:
        if self.failure is None:
            self._all_came = True

    def fail(self, failure: TransportError) -> None:
        if self.failure is None and not self._all_came:
            self.failure = failure

    def fail_lost(self, error: Exception | None) -> None:
        if self.phase == "head" and self._connection is not None and self._connection.is_blocked:
            self.phase = "send"
        where = {"head": "before an answer came", "send": "while the request was being sent"}
        self.fail(
            TransportError(
                self.phase, f"{describe(error)} {where.get(self.phase, 'inside the answer')}"
            )
        )

    def let_go(self, sock: GuardedSocket) -> None:
        """The answer is whole: from here on a cut means nothing to the connection."""
        sock.own(None)
        self._sockets.clear()
        self._connection = None

    def disconnected(self) -> None:
        self._connection = None
        self.wake()

    def _unfold(self) -> bytes:
        """More of what has arrived, before more is let in: a little can unfold to very much.

        One piece in a turn of the loop, so that others have theirs, until the exchange is over. A
        piece may be empty, as a member of gzip may, and more may follow it.
        """
        assert self._inflater is not None
        piece = b""
        while self._inflater.pending and not piece:
            if self._resting and self.failure is None and not self.is_cut:
                break
            self._resting = True
            self.pool.loop.call_soon(self._go_on)
            piece = self._inflate(b"")
        return piece

    def _go_on(self) -> None:
        self._resting = False
        self.wake()

    def _inflate(self, data: bytes) -> bytes:
        assert self._inflater is not None
        try:
            return self._inflater.decode(data)
        except TransportError as failure:
            self._spoil(failure)
            return b""

    def _spoil(self, failure: TransportError) -> None:
        """Fail also when all bytes have come: what they mean is broken."""
        self._all_came = False
        self.fail(failure)

    # opening

    def _opened(self, task: asyncio.Task[Connection]) -> None:
        self._opening = None
        if task.cancelled():
            self.fail(TransportError(self.phase, "stopped while connecting"))
        elif (error := task.exception()) is not None:
            self.fail(
                error
                if isinstance(error, TransportError)
                else TransportError(self.phase, describe(error), retryable=False)
            )
        else:
            self._serve(task.result())
        self.wake()

    def _serve(self, connection: Connection) -> None:
        self.phase = "head"
        if connection.is_lost:  # in the very turn that handed it over
            self.fail_lost(None)
            return
        self._connection = connection
        if self.is_cut:
            connection.exchange = self
            connection.abandon()
        else:
            connection.serve(self, self.route.serialize(self._request))
