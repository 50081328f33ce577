"""`HttpCall`: a call that sends requests: attempts, retries, time-outs, one exchange at a time.

`_open` brings an answer to its beginning and leaves the body to the reader; `fetch` reads the whole of it.
Nothing is tried again once a byte of an answer has come.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from .call import Call
from .codecs.http_error import http_error
from .connector import Authorization
from .ending import Ending, Outcome
from .errors import (
    IncompleteStreamError,
    MMSPError,
    StreamAbortedError,
    StreamProtocolError,
    UpstreamConnectionError,
    UpstreamError,
    UpstreamTimeoutError,
)
from .request import HttpRequest
from .transport import Exchange, Pool, Route, TransportError

__all__ = ["CallOverError", "Fetched", "HttpCall"]

T = TypeVar("T")

_ERROR_BODY_WAIT = 5.0  # s, for the rest of an error's body


class CallOverError(Exception):
    """The call has ended while it fetched. Never leaves this package: the ending has its own error."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A whole answer; header names in lower case."""

    headers: dict[str, str]
    body: bytes


class HttpCall(Call):
    """The base of `Stream`, and by itself whatever else is asked of a provider."""

    _answering = False  # what the exchange brings is the answer, and nothing fetched for it

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do `work`, which fetches, and nothing else. Raises what ended the call, if that was not it."""
        self._enter()
        try:
            result = await self._unless_over(work)
        except MMSPError as error:
            self._connector.mask(error)
            self._stop(Ending(Outcome.FAILED, error))
            result = None
        finally:
            self._stop(
                Ending(Outcome.CANCELLED)
            )  # whatever else came out of it leaves nothing open
        ending = self._endings["ending"]
        if ending.outcome is not Outcome.FINISHED:
            await self._raise(ending)
        assert result is not None
        return result

    async def _unless_over(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result of `work`, after the call has finished; None when it was ended before that."""
        if self._endings:
            return None
        try:
            result = await work()
        except CallOverError:
            return None
        if self._end(Ending(Outcome.FINISHED)):
            self._let_go()
            self._settle()
        return result

    async def _raise(self, ending: Ending) -> NoReturn:
        await self._gone()
        try:
            raise ending.error or asyncio.CancelledError
        finally:
            ending.error = None
            del ending  # its error's traceback holds this frame

    def close_now(self) -> None:
        """End it, from any thread: the connection is shut when this returns, and who waits gets
        `StreamAbortedError`."""
        error = StreamAbortedError(
            "The client was closed before its call was over.", client=self._connector.client
        )
        self._stop(Ending(Outcome.CLOSED, error))

    async def aclose(self) -> None:
        """`close_now`, until nothing of the call is on the network."""
        self.close_now()
        await self._gone()

    async def fetch(
        self,
        request: HttpRequest,
        *,
        route: Route | None = None,
        limit: int | None = None,
    ) -> Fetched:
        """The whole answer to `request`, at most `limit` bytes of it (`Limits.answer_bytes`).

        Raises what `_open` raises, `IncompleteStreamError` for a body that was cut, `StreamProtocolError`
        for one that is too long or unreadable, and `CallOverError` when the call has ended meanwhile.
        """
        exchange = await self._open(request, route)
        if exchange is None:
            raise CallOverError
        return await self._fetched(exchange, limit)

    async def ask(self, request: HttpRequest) -> Fetched:
        """As `fetch`, for a request to the client's own provider: with what authorizes it."""
        exchange = await self._ask(request)
        if exchange is None:
            raise CallOverError
        return await self._fetched(exchange)

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready()`; it is looked at after each `wake_soon`. Raises `CallOverError`."""
        while not ready():
            if self._endings:
                raise CallOverError
            await self._wait(None)

    def wake_soon(self) -> None:
        """Have `until` look again; from any thread."""
        self._on_loop(self._wake)

    @property
    def headers(self) -> dict[str, str]:
        """Those of the last answer, names in lower case."""
        return {} if self._exchange is None else dict(self._exchange.headers)

    @contextlib.contextmanager
    def limited(self, seconds: float, error: MMSPError) -> Generator[None]:
        """What is fetched inside may take so long; then the call fails with `error`."""
        assert self._loop is not None
        self._limit = (self._loop.time() + seconds, error)
        self._arm()
        try:
            yield
        finally:
            self._limit = None

    async def _fetched(self, exchange: Exchange, limit: int | None = None) -> Fetched:
        body = await self._whole(exchange, limit or self._connector.limits.answer_bytes)
        return Fetched(dict(exchange.headers), body)

    async def _whole(self, exchange: Exchange, limit: int) -> bytes:
        assert self._loop is not None
        idle = self._connector.timeouts.idle
        body = bytearray()
        came_at = self._loop.time()
        while not self._endings:
            if data := exchange.take():
                body += data
                came_at = self._loop.time()
            elif exchange.ended:
                return bytes(body)
            elif exchange.failure is not None:
                raise self._cut_off(exchange.failure)
            elif idle is not None and self._loop.time() >= came_at + idle:
                raise self._connector.timed_out("idle")
            else:
                await self._wait(None if idle is None else came_at + idle)
            if len(body) > limit:
                exchange.abandon()
                raise StreamProtocolError(
                    f"The answer is longer than {limit:,} bytes.", client=self._connector.client
                )
        raise CallOverError

    def _cut_off(self, failure: TransportError) -> MMSPError:
        client = self._connector.client
        if not failure.retryable:
            return StreamProtocolError(f"The answer cannot be read: {failure}.", client=client)
        return IncompleteStreamError(
            f"The answer was cut: {failure}. Trying again makes sense.", client=client
        )

    async def _ask(self, request: HttpRequest) -> Exchange | None:
        """`_open` for a request to the client's own provider, whose wire has its word for a refusal."""
        try:
            return await self._ask_authorized(request)
        except UpstreamError as error:
            raise self._connector.refusal(error) from None

    async def _ask_authorized(self, request: HttpRequest) -> Exchange | None:
        """A 401 is no failure yet where something else can be shown."""
        authorization = self._connector.authorization
        if authorization is None:
            return await self._open_answer(request)
        shown = await self._authorized(request, authorization)
        try:
            return await self._open_answer(shown)
        except UpstreamError as error:
            if error.status != 401 or shown is request or not authorization.refused(shown):
                raise
        return await self._open_answer(await self._authorized(request, authorization))

    async def _authorized(self, request: HttpRequest, authorization: Authorization) -> HttpRequest:
        self._answering = False  # nor is what comes now
        return await authorization.authorized(self, request)

    async def _open_answer(self, request: HttpRequest) -> Exchange | None:
        self._answering = True
        return await self._open(request)

    async def _open(self, request: HttpRequest, route: Route | None = None) -> Exchange | None:
        """Send `request` until an answer begins; None when the call has ended meanwhile.

        Tries again what may be tried again. Raises `UpstreamError`, `UpstreamConnectionError` or
        `UpstreamTimeoutError`.
        """
        attempt = 0
        while True:
            try:
                return await self._attempt(request, route)
            except (UpstreamError, UpstreamConnectionError, UpstreamTimeoutError) as error:
                answered = self._exchange is not None and self._exchange.answered
                wait = self._connector.wait_before_retry(error, attempt, answered=answered)
                if wait is None or self._endings:
                    raise
            attempt += 1
            await self._sleep(wait)

    async def _attempt(self, request: HttpRequest, route: Route | None) -> Exchange | None:
        assert self._loop is not None
        exchange = self._begin(request, route, fresh=False)
        connect_by = _after(self._loop, self._connector.timeouts.connect)
        while not self._endings:
            failure = exchange.failure
            if 200 <= exchange.status < 300:
                return exchange  # whatever has happened since: what arrived comes first
            if exchange.status:
                await self._refused(exchange, own=route is None)
            elif failure is None:
                await self._wait(self._check(exchange, connect_by))
            elif exchange.reused and not exchange.answered:
                # a kept connection that had died: another in its place, with a time of its own
                exchange = self._begin(request, route, fresh=True)
                connect_by = _after(self._loop, self._connector.timeouts.connect)
            else:
                raise self._connector.connection_error(failure)
        return None

    def _begin(self, request: HttpRequest, route: Route | None, *, fresh: bool) -> Exchange:
        assert self._loop is not None
        connector = self._connector
        try:
            route = route or connector.route(request.url)
            exchange = Exchange(Pool.current(), route, request, connector.limits)
        except TransportError as failure:
            raise self._connector.connection_error(failure) from None
        self._exchange = exchange
        if self._endings:
            exchange.cut()
        else:
            self._sent_at = 0.0
            exchange.begin(fresh=fresh)
        return exchange

    def _check(self, exchange: Exchange, connect_by: float | None) -> float | None:
        """When to look again while no head has come; raises when a time-out is over."""
        assert self._loop is not None
        now = self._loop.time()
        if exchange.connecting:
            if connect_by is not None and now >= connect_by:
                exchange.abandon()
                raise self._connector.timed_out("connect")
            return connect_by
        return self._check_first_event(now)

    def _check_first_event(self, now: float) -> float | None:
        limit = self._connector.timeouts.first_event
        if limit is None:
            return None
        self._sent_at = self._sent_at or now  # an answer may begin before anybody saw it sent
        if now >= self._sent_at + limit:
            raise self._connector.timed_out("first_event")
        return self._sent_at + limit

    async def _refused(self, exchange: Exchange, *, own: bool) -> None:
        """Raise the `UpstreamError` of an answer that is not a 2xx; `own` if the endpoint gave it."""
        assert self._loop is not None
        limit = self._connector.limits.error_body_bytes
        body = bytearray()
        until = self._loop.time() + _ERROR_BODY_WAIT
        while not self._endings:
            body += exchange.take()
            if (
                len(body) >= limit
                or exchange.ended
                or exchange.failure is not None
                or self._loop.time() >= until
            ):
                exchange.abandon()
                raise http_error(
                    exchange.status,
                    exchange.headers,
                    bytes(body[:limit]),
                    client=self._connector.client,
                    now=time.time(),
                    secrets=self._connector.secrets,
                    advice=self._connector.advice(exchange.status) if own else "",
                )
            await self._wait(until)

    async def _sleep(self, seconds: float) -> None:
        assert self._loop is not None
        until = self._loop.time() + seconds
        while not self._endings and self._loop.time() < until:
            await self._wait(until)


def _after(loop: asyncio.AbstractEventLoop, seconds: float | None) -> float | None:
    return None if seconds is None else loop.time() + seconds
