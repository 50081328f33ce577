"""`Stream`: the events of one answer, and every way to stop it.

A stream is a call with a decoder, a queue and a commit. It reads no further than its caller: one frame
is decoded when the caller asks for what is in it, so what waits in a buffer decides nothing.

    made ──first read──▶ reading ──the wire ended well──▶ finished: the last `.done`, the `stop`
                            │
                            └─ aborted    what had arrived, then AbortError
                               closed     nothing more
                               cancelled  the task's own CancelledError
                               failed     what had arrived, then the error

After any of them: StopAsyncIteration. The ending is decided where it is handed over, by `Call._end`;
an abort that comes after it changes nothing, one that comes before it wins, however much of the answer
waits in a buffer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self, cast

from .abort_signal import AbortSignal
from .call import leave
from .codecs.base import Decoder
from .codecs.http_error import request_id
from .connector import Connector
from .ending import Ending, Outcome
from .errors import MMSPError
from .grammar import Assembler
from .http_call import CallOverError, HttpCall
from .masking import masked
from .plain import kind_of
from .reader import AnswerReader
from .request import HttpRequest
from .silence import Silence
from .trace import Trace, Writing, WrittenTrace, size_of
from .types import UniEvent, UniMessage, UsageMetadata

__all__ = ["Stream", "TextStream", "unix_milliseconds"]

_WRITTEN_ON_THE_LOOP = 1_000_000  # bytes; the trace of so many takes a few ms to write
_MOST_READY = 256  # events that are handed out together


class Stream(HttpCall, AsyncGenerator[UniEvent, None]):
    """An asynchronous generator of events, and an asynchronous context manager.

        async with client.streaming_response(messages) as stream:
            async for event in stream:
                ...

    Leaving the block closes the provider's connection. So does leaving the loop when nothing else holds
    the stream; a caller that keeps a stream it has left holds the provider's request (and, on a stateful
    call, the client) until it closes or aborts it.

    Reads may come from any task, one at a time; a cancelled read ends the stream. `abort` may be called
    from anywhere, also from another thread or a signal handler.
    """

    _started = False  # also of one whose making failed

    def __init__(
        self,
        connector: Connector,
        signal: AbortSignal | None,
        *,
        assembler: Assembler,
        decoder: Decoder,
        prepare: Callable[[Stream], Awaitable[Sequence[HttpRequest]]],
        commit: Callable[[UniMessage], None] | None = None,
    ) -> None:
        if not isinstance(connector, Connector):
            raise TypeError("a Stream is made by a client: client.streaming_response(messages)")
        super().__init__(connector, signal)
        self._reader = AnswerReader(
            client=connector.client, limits=connector.limits, assembler=assembler, decoder=decoder
        )
        self._out = self._reader.out
        self._decode = self._reader.decode
        self._prepare: Callable[[Stream], Awaitable[Sequence[HttpRequest]]] | None = prepare
        self._requests: list[HttpRequest] = []  # those still to be sent, the next one last
        self._owed = 0  # items, by the requests sent so far, where each input makes one
        self._commit = commit
        self._message: UniMessage | None = None
        self._stop_event: UniEvent | None = None
        self._trace: Trace | None = None  # what `prepare` wants to leave of this call
        self._size = 0
        self._busy = False
        self._now = 0
        self._silence = Silence(assembler)

    # what the caller sees

    @property
    def aborted(self) -> bool:
        """True once an abort has ended this stream."""
        ending = self._endings.get("ending")
        return ending is not None and ending.outcome is Outcome.ABORTED

    @property
    def reason(self) -> Any:
        """The reason of the abort that ended this stream, else None."""
        return self._endings["ending"].reason if self.aborted else None

    @property
    def outcome(self) -> str | None:
        """How the stream ended: finished, aborted, closed, cancelled or failed; None before."""
        ending = self._endings.get("ending")
        return None if ending is None else ending.outcome.value

    @property
    def usage(self) -> UsageMetadata | None:
        """The token counts the provider has reported so far; None before it reported any."""
        return self._reader.assembler.usage_metadata

    @property
    def request_id(self) -> str | None:
        """The provider's id of this request, once its answer has begun."""
        exchange = self._exchange if self._answering else None
        found = None if exchange is None else request_id(dict(exchange.headers))
        return cast("str | None", masked(found, self._connector.secrets))

    def text(self) -> TextStream:
        """The text alone: an asynchronous iterator of strings, which ends and stops as the stream does."""
        return TextStream(self)

    async def message(self) -> UniMessage:
        """Read to the end and return the assistant's whole message.

        Raises what the stream raises, and `RuntimeError` when it was closed or had ended otherwise.
        """
        async for _ in self:
            pass
        if self._message is None:
            raise RuntimeError(
                f"the stream was {self.outcome} before its message was whole: "
                "partial_message() is what had arrived"
            )
        return self._message

    def partial_message(self, *, tool_calls: bool = False) -> UniMessage | None:
        """What has arrived, as a message that can be sent back; None when nothing would be left.

        Text of finished and open items, signed thinking that text follows, images. Finished tool calls
        only with `tool_calls=True`: then their results are owed in the next message. After the `stop`
        the whole message. Never called by this library: keeping a part is the caller's decision.
        """
        if self._message is not None:
            return self._message
        message = self._reader.assembler.partial(tool_calls=tool_calls)
        if message is not None:
            message["created_at"] = self._now or unix_milliseconds()
        return cast("UniMessage | None", message)

    def __repr__(self) -> str:
        return f"<Stream of {self._connector.client}, {self.outcome or 'open'}>"

    # asynchronous generator

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UniEvent:
        if not self._endings and not self._busy:
            if not self._out:
                self._decode()
            if self._out:
                return self._event(self._out.popleft())
        return await self._next()

    async def next_ready(self) -> list[UniEvent]:
        """The next event and those ready behind it: at least one, at most 256.

        It waits for the next event as `anext` does, and raises what `anext` raises. With it come the
        events that are decoded without another look at the socket, in the same order; what ends the
        stream is raised by the call after them. For readers to whom each wake-up costs something: a
        server that writes, another thread.

        What an abort would still take back (pieces of further tool calls that the finish reason set
        free) comes alone, so that a caller who stops between two events of a list has not been handed
        more than by `anext`.
        """
        events = [await self.__anext__()]
        while len(events) < _MOST_READY and self._is_ready():
            events.append(self._event(self._out.popleft()))
        if len(events) < _MOST_READY and self._ended_well and not self._out:
            stop, self._stop_event = self._stop_event, None
            if stop is not None:
                events.append(stop)
        return events

    def _is_ready(self) -> bool:
        """Whether there is an item that may be handed out together with those before it."""
        ending, reader = self._endings.get("ending"), self._reader
        if ending is None:
            return bool(self._out or self._decode()) and not reader.assembler.may_take_back
        if ending.drains and ending.error is not None:
            reader.drain()
            return bool(self._out or (not reader.is_drained and self._decode()))
        return bool(self._out) and self._ended_well

    @property
    def _ended_well(self) -> bool:
        ending = self._endings.get("ending")
        return ending is not None and ending.outcome is Outcome.FINISHED

    async def asend(self, value: None) -> UniEvent:
        """`anext`; a stream takes no values."""
        if value is not None:
            raise TypeError("a stream takes no values: asend(None) only")
        return await self.__anext__()

    async def athrow(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> NoReturn:
        """Close the stream and raise what was given."""
        error = val if isinstance(val, BaseException) else typ
        kind = error if isinstance(error, type) else type(error)
        if not issubclass(kind, BaseException):
            raise TypeError(f"athrow takes an exception, not {kind_of(error)}")
        await self.aclose()
        if isinstance(error, type):
            error = error()
        raise error if tb is None else error.with_traceback(tb)

    async def aclose(self) -> None:
        """End the stream: the connection is closed and the claim released; nothing more is delivered.

        A read that waits in another task ends as the stream does. After an abort it drops what is left,
        and the error.
        """
        self.close_now()
        if not self._busy:
            await self._gone()

    def close_now(self) -> None:
        """The part of `aclose` that does not wait: the connection is shut when this returns."""
        self._stop(Ending(Outcome.CLOSED))
        self._drop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # on whatever thread the collector runs: a system call now, the rest on the loop
        if self._started and self._end(Ending(Outcome.CLOSED)):
            exchange, timer = self._exchange, self._timer
            if exchange is not None:
                exchange.cut()
            self._on_loop(lambda: leave(exchange, timer))

    # one read

    async def _next(self) -> UniEvent:
        if self._busy:
            raise RuntimeError("another task is reading this stream; it takes one read at a time")
        if self._loop not in (None, asyncio.get_running_loop()) and not self._endings:
            raise RuntimeError("this stream was begun on another event loop: read it there")
        self._busy = True
        try:
            return await self._read()
        except (MMSPError, asyncio.CancelledError, StopAsyncIteration):
            raise  # what a stream ends with
        except BaseException:  # a fault of ours, or a Ctrl-C in our code: leave nothing open
            self._stop(Ending(Outcome.FAILED))
            raise
        finally:
            self._busy = False

    async def _read(self) -> UniEvent:
        if not self._started:
            await self._start()
        waited_since = 0.0
        while True:
            if self._endings:
                return await self._conclude()
            if self._out or self._decode():
                return self._event(self._out.popleft())
            if self._reader.failure is not None:
                self._fail(self._reader.failure)
            elif not self._receive():
                now = self._time()
                waited_since = waited_since or now
                if self._wire_is_over(now, waited_since):
                    await self._finish()
                else:
                    await self._wait_for_content(now, waited_since)

    async def _start(self) -> None:
        self._started = True
        if self._endings:
            return
        self._enter()
        if not self._endings:
            await self._send()

    async def _send(self) -> None:
        """Bring the answer to the next request to its beginning; prepare them before the first one."""
        prepare, self._prepare = self._prepare, None  # it may hold the whole request
        try:
            if prepare is not None:
                self._requests = [*reversed(await prepare(self))]
                self._size = sum(len(each.body) for each in self._requests)
            request = self._requests.pop()
            self._owed += request.owed
            await self._ask(request)
            self._reader.assembler.secrets = self._connector.secrets  # a token's among them
        except CallOverError:
            pass
        except MMSPError as error:
            self._fail(error)

    def _fail(self, error: MMSPError) -> None:
        """End with `error`, which `_conclude` hands out unless a stop was first."""
        self._connector.mask(error)
        self._stop(Ending(Outcome.FAILED, error))

    def _time(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def _receive(self) -> bool:
        """Take what the socket brought; False when there is nothing new."""
        exchange = self._exchange if self._answering else None
        data = exchange.take() if exchange is not None else b""
        if not data:
            return False
        self._now = unix_milliseconds()
        self._reader.receive(data)
        return True

    def _event(self, item: Any) -> UniEvent:
        return {
            "role": "assistant",
            "event_type": "delta",
            "content_items": [item],
            "usage_metadata": None,
            "finish_reason": None,
            "created_at": self._now,
        }

    # waiting, and the end of the wire

    async def _wait_for_content(self, now: float, waited_since: float) -> None:
        """Wait for the socket, under the time-out that counts at the moment."""
        wake_at = self._silence.end_at(waited_since)
        if wake_at is None:
            try:
                wake_at = self._content_deadline(now, waited_since)
            except MMSPError as error:
                self._fail(error)
                return
        await self._wait(wake_at)

    def _content_deadline(self, now: float, waited_since: float) -> float | None:
        if not self._reader.assembler.content:
            return self._check_first_event(now)
        idle = self._connector.timeouts.idle
        if idle is None:
            return None
        due = self._silence.too_long_at(now, waited_since, idle)
        if now >= due:
            raise self._connector.timed_out("idle")
        return due

    def _wire_is_over(self, now: float, waited_since: float) -> bool:
        exchange = self._exchange
        if exchange is None or exchange.ended or exchange.failure is not None:
            return True
        terminal = self._reader.decoder.terminal
        return self._silence.is_the_end(now, waited_since, terminal=terminal)

    async def _finish(self) -> None:
        """The wire is over: commit the turn, or say what is wrong with it."""
        exchange = self._exchange
        if exchange is not None and exchange.ended and self._reader.end():
            return
        try:
            closing = self._close_answer()
        except MMSPError as error:
            self._fail(error)
            return
        if closing is None:
            await self._send()
            return
        message = cast("UniMessage", self._reader.assembler.message())
        self._now = message["created_at"] = unix_milliseconds()
        written = await self._write_trace(message)
        if self._end(Ending(Outcome.FINISHED)):
            try:
                if written is not None:
                    written.publish()
                self._record(message)
            finally:
                self._let_go()
                self._settle()
            self._out.extend(closing)
        elif written is not None:
            written.discard()

    async def _write_trace(self, message: UniMessage) -> WrittenTrace | None:
        """The trace under temporary names; a large one is written off the loop, and a stop lets it go."""
        trace = self._trace
        if trace is None:
            return None
        if self._size + size_of(message) < _WRITTEN_ON_THE_LOOP:
            return trace.write(message)
        writing = Writing(trace, message, done=lambda: self._on_loop(self._wake))
        try:
            while not writing.is_done and not self._endings:
                await self._wait(None)
            return writing.take()
        finally:
            writing.leave()

    def _close_answer(self) -> list[Any] | None:
        """The closing items; None if the answer is whole, but the call has more requests."""
        failure = None if self._exchange is None else self._exchange.failure
        if failure is not None and not self._reader.decoder.terminal:
            raise self._reader.cut(str(failure), readable=failure.retryable)
        if self._owed and self._reader.answered:
            self._reader.check(self._owed)
            if self._requests:
                self._await_next_answer()
                return None
        return self._reader.complete()

    def _await_next_answer(self) -> None:
        if self._exchange is not None:
            self._exchange.abandon()  # what may still come of it is nothing
        self._reader.next_answer()
        self._silence.next_answer()

    def _record(self, message: UniMessage) -> None:
        """The commit: from here on nothing can take the turn back."""
        self._message = message
        if self._commit is not None:
            self._commit(message)
        self._stop_event = {
            "role": "assistant",
            "event_type": "stop",
            "content_items": [],
            "usage_metadata": message.get("usage_metadata"),
            "finish_reason": message.get("finish_reason"),
            "created_at": self._now,
        }

    # after the end

    async def _conclude(self) -> UniEvent:
        """What the ending leaves to hand out, then its error once, then StopAsyncIteration."""
        ending = self._endings["ending"]
        if ending.outcome is Outcome.FINISHED:
            if self._out:
                return self._event(self._out.popleft())
            if self._stop_event is not None:
                stop, self._stop_event = self._stop_event, None
                return stop
        elif ending.error is not None:
            if ending.drains and (item := await self._drain()) is not None:
                return self._event(item)
            await self._gone()
            error, ending.error = ending.error, None
            if error is not None:  # else closed meanwhile
                self._drop()
                try:
                    raise error
                finally:
                    del error, ending  # its traceback holds this frame
        raise StopAsyncIteration

    async def _drain(self) -> Any:
        """The next item of what had arrived, or None when that is all and the connection is gone."""
        self._reader.drain()
        for last_look in (False, True):
            while not self._out and not self._reader.is_drained:
                if not (self._decode() or self._receive()):
                    break
            if self._out:
                return self._out.popleft()
            if not last_look:
                await self._gone()  # what is read in these turns is delivered too
                if self._endings["ending"].error is None:
                    return None  # closed meanwhile
        return None

    def _drop(self) -> None:
        """Forget what was not handed out."""
        self._reader.drop()
        self._requests.clear()
        self._stop_event = None
        if self._endings:
            self._endings["ending"].error = None


class TextStream:
    """The text deltas of a `Stream`, as strings. Dropping it drops the stream."""

    def __init__(self, stream: Stream) -> None:
        if not isinstance(stream, Stream):
            raise TypeError("a TextStream is made by a stream: stream.text()")
        self._stream = stream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while True:
            event = await self._stream.__anext__()
            for item in event["content_items"]:
                if item["type"] == "text.delta" and item["text"]:
                    return item["text"]

    async def aclose(self) -> None:
        await self._stream.aclose()


def unix_milliseconds() -> int:
    return time.time_ns() // 1_000_000
