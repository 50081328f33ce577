"""`Relay`: one answer on its way from a provider to a caller, as an event stream.

Two tasks: one passes events on, the other listens for the caller's leaving, from the first moment to the
last, whatever the first one waits for. When the caller leaves, the provider's connection is cut in that
same turn of the loop.

The head goes out with the first event (200), with an error (its status), or after 10 s of silence: then
an error can only be an event. Events that are ready together leave in one write. Silence is filled with
comments by a timer; no read is cancelled for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from ...abort_signal import AbortError
from ...codecs.error_wire import error_to_wire
from ...errors import MMSPError, StreamAbortedError
from .account import Account, Outcome
from .refusal import error_response
from .running import Running

__all__ = ["Pace", "Relay"]

_log = logging.getLogger("mmsp.server")

_HEAD = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx: pass it on as it comes
}
_ALIVE = b": keep-alive\n\n"
_DONE = b"data: [DONE]\n\n"
_ENCODER = msgspec.json.Encoder()


class Pace(msgspec.Struct, frozen=True):
    """Seconds: of silence until the head goes out by itself, and until a comment follows; and without a
    byte of a request's body.
    """

    head: float = 10.0
    keep_alive: float = 15.0
    body: float = 30.0


class Relay:
    """See the module's docstring."""

    def __init__(
        self, running: Running, account: Account, headers: Mapping[str, str], pace: Pace
    ) -> None:
        self._running = running
        self._stream = running.stream
        self._account = account
        self._headers = dict(headers)
        self._pace = pace
        self._begun = False
        self._writing = asyncio.Lock()
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._alive: asyncio.Task[None] | None = None
        self._buffer = bytearray()

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the answer is over or the caller is gone; then nothing of it is left."""
        self._scope, self._send = scope, send
        passing = asyncio.ensure_future(self._pass_on())
        leaving = asyncio.ensure_future(self._listen(receive))
        self._keep_time()
        try:
            await asyncio.wait((passing, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._caller_left()  # void if the answer is over
            await self._end(passing, leaving)

    async def _end(self, *tasks: asyncio.Task[None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        left = [*tasks, *([self._alive] if self._alive is not None else [])]
        for task in left:
            task.cancel()
        for result in await asyncio.gather(*left, return_exceptions=True):
            if isinstance(result, Exception):
                _log.error("stream %s: a fault of the server", self._running.id, exc_info=result)
        await self._stream.aclose()

    # ---- the caller

    async def _listen(self, receive: Receive) -> None:
        while True:
            if (await receive())["type"] == "http.disconnect":
                break
            await asyncio.sleep(0)  # there are servers that repeat the end of the request
        self._caller_left()

    def _caller_left(self) -> None:
        self._account.end(Outcome.DISCONNECT)
        self._stream.close_now()

    # ---- the answer

    async def _pass_on(self) -> None:
        while True:
            try:
                events = await self._stream.next_ready()
            except StopAsyncIteration:  # the caller is gone
                return
            except (MMSPError, AbortError) as error:
                await self._fail(self._told(error))
                return
            except Exception as error:
                _log.exception("stream %s: a fault of the server", self._running.id)
                await self._fail(error)
                return
            over = events[-1]["event_type"] == "stop"
            if over:
                self._account.usage = events[-1]["usage_metadata"]
            await self._write(self._encoded(events, over), over)
            self._account.first_event()
            if over:
                self._account.end(Outcome.SUCCESS)
                return

    def _encoded(self, events: list[Any], over: bool) -> bytes:
        buffer, encode_into = self._buffer, _ENCODER.encode_into
        buffer.clear()
        for event in events:
            buffer += b"data: "
            encode_into(event, buffer, -1)
            buffer += b"\n\n"
        if over:
            buffer += _DONE
        return bytes(buffer)

    def _told(self, error: BaseException) -> BaseException:
        """The error as the caller is told: an abort here was never its own."""
        if not isinstance(error, AbortError):
            return error
        by = self._running.ended_by or "this server"
        return StreamAbortedError(
            f"The stream was ended by {by}.",
            client=self._running.served.client_name,
            reason=error.reason,
        )

    async def _fail(self, error: BaseException) -> None:
        aborted = isinstance(error, StreamAbortedError) and self._running.ended_by is not None
        self._account.end(Outcome.ABORTED if aborted else Outcome.FAILURE, error)
        said = error if isinstance(error, MMSPError) else _Fault()
        async with self._writing:
            if self._begun:
                event = b"data: " + _ENCODER.encode({"error": error_to_wire(said)}) + b"\n\n"
                await self._body(event + _DONE, over=True)
            else:
                self._begun = True
                answer = error_response(said, self._headers)
                await answer(self._scope, self._never, self._send)

    async def _never(self) -> Any:
        raise AssertionError("an answer that is sent needs no request")

    # ---- writing

    async def _write(self, body: bytes, over: bool = False) -> None:
        async with self._writing:
            if not self._begun:
                self._begun = True
                await self._send(
                    {
                        "type": "http.response.start",
                        "status": 200,
                        "headers": [
                            (name.encode(), value.encode())
                            for name, value in (_HEAD | self._headers).items()
                        ],
                    }
                )
            await self._body(body, over)

    async def _body(self, body: bytes, over: bool) -> None:
        message = {"type": "http.response.body", "body": body, "more_body": not over}
        try:
            await self._send(message)
        except OSError:  # how ASGI 2.4 tells that the caller is gone
            self._caller_left()
        self._written_at = asyncio.get_running_loop().time()

    def _keep_time(self) -> None:
        """Say that the stream is alive when nothing was said for long enough; look again in time."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._written_at = self._written_at or now
        pause = self._pace.keep_alive if self._begun else self._pace.head
        due = self._written_at + pause
        if now >= due:
            due = now + self._pace.keep_alive
            if not self._writing.locked():
                self._alive = loop.create_task(self._write(_ALIVE))
        self._timer = loop.call_at(due, self._keep_time)


class _Fault(Exception):
    """What callers are told of a fault of ours; the log has it."""

    def __init__(self) -> None:
        super().__init__("the server failed; its log says why")
