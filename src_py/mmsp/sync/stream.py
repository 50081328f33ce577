"""`Stream` for threads: the events of one answer, handed over from the driver's loop, and how to stop them.

The events come in lists (`mmsp.Stream.next_ready`), one for each wait, and a list is asked for when the
one before has been read. So nothing is read ahead: a slow reader slows the provider, and whether an answer
is recorded is decided when its end is handed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from ..ending import Ending, Outcome
from ..errors import MMSPError
from ..stream import Stream as Core
from ..types import UniEvent, UniMessage, UsageMetadata
from .aborted import Aborted
from .driver import Driver, RefusedError, current
from .errand import Errand

__all__ = ["Stream", "TextStream"]


class Stream(Iterator[UniEvent]):
    """An iterator of events, and a context manager.

        with client.streaming_response(messages) as stream:
            for event in stream:
                ...

    Leaving the block closes the provider's connection. So does leaving the loop when nothing else holds the
    stream, and what a signal handler raises into a read that waits, a `KeyboardInterrupt` above all, which
    comes out as it is. An abort raises `mmsp.sync.Aborted`, after what had arrived.

    Reads may come from any thread, one at a time. `abort` and `close` may be called from anywhere, also in
    a signal handler and while another thread reads. After a fork the stream is its parent's to read.
    """

    def __init__(self, core: Core) -> None:
        if not isinstance(core, Core):
            raise TypeError("a Stream is made by a client: client.streaming_response(messages)")
        self._core = core
        self._events: deque[UniEvent] = deque()  # handed over and not read yet
        self._driver: Driver | None = None
        self._readers: dict[str, Errand[Any]] = {}  # the one of the moment; changed in single steps
        self._closed = False

    # what the caller sees

    @property
    def aborted(self) -> bool:
        """True once an abort has ended this stream."""
        return self._core.aborted

    @property
    def reason(self) -> Any:
        """The reason of the abort that ended this stream, else None."""
        return self._core.reason

    @property
    def outcome(self) -> str | None:
        """How the stream ended: finished, aborted, closed, cancelled (a handler interrupted its read)
        or failed; None before."""
        return self._core.outcome

    @property
    def usage(self) -> UsageMetadata | None:
        """The token counts the provider has reported so far; None before it reported any."""
        return self._core.usage

    @property
    def request_id(self) -> str | None:
        """The provider's id of this request, once its answer has begun."""
        return self._core.request_id

    def text(self) -> TextStream:
        """The text alone: an iterator of strings, which ends and stops as the stream does."""
        return TextStream(self)

    def message(self) -> UniMessage:
        """Read to the end and return the assistant's whole message.

        Raises what the stream raises, and `RuntimeError` when it was closed or had ended otherwise.
        """
        errand = Errand(self._rest)
        self._read(errand)
        return errand.result()

    def partial_message(self, *, tool_calls: bool = False) -> UniMessage | None:
        """What has arrived, as a message that can be sent back; None when nothing would be left.

        Text of finished and open items, signed thinking that text follows, images. Finished tool calls
        only with `tool_calls=True`: then their results are owed in the next message. After the `stop`
        the whole message. Never called by this library: keeping a part is the caller's decision.
        """
        driver = self._driver
        if driver is None or not driver.is_here or driver.is_this_thread or not self._readers:
            return self._core.partial_message(tool_calls=tool_calls)

        async def partial() -> UniMessage | None:  # between two steps of the read
            return self._core.partial_message(tool_calls=tool_calls)

        return driver.do(partial)

    def __repr__(self) -> str:
        return repr(self._core)

    # iterator

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> UniEvent:
        if self._driver is not None and self._driver.is_here:
            try:
                return self._events.popleft()
            except IndexError:
                pass
        return self._next()

    def next_ready(self) -> list[UniEvent]:
        """The next event and those ready behind it: at least one, at most 256.

        It waits for the next event as `next` does, raises what `next` raises, and may take turns with it.
        For who passes the events on, as a view does: one write for all of them.
        """
        events = [next(self)]
        try:
            while True:
                events.append(self._events.popleft())
        except IndexError:
            return events

    def abort(self, reason: Any = None) -> None:
        """Stop now, from any thread: the provider's connection is shut when this returns."""
        self._core.abort(reason)

    def close(self) -> None:
        """End the stream, from any thread: the provider's connection is shut when this returns, the claim
        released, and nothing more is delivered.

        A read that waits in another thread ends as the stream does. After an abort it drops what is left,
        and the error.
        """
        self._end(Outcome.CLOSED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # one read

    def _next(self) -> UniEvent:
        while not self._is_closed():
            errand = Errand(self._fill)
            self._read(errand)
            try:
                errand.result()
            except StopAsyncIteration:
                break
            except (Aborted, MMSPError):
                if self._is_closed():  # meanwhile
                    break
                raise
            try:
                return self._events.popleft()
            except IndexError:
                pass  # another thread was quicker, or closed
        raise StopIteration

    async def _fill(self) -> None:
        """On the loop, so that what interrupts the reader loses nothing."""
        self._events.extend(await self._core.next_ready())
        if self._is_closed():  # meanwhile
            self._events.clear()

    async def _rest(self) -> UniMessage:
        self._events.clear()
        return await self._core.message()

    def _read(self, errand: Errand[Any]) -> None:
        """Have `errand` done, which reads. What a signal handler raises meanwhile ends the stream."""
        try:
            if self._readers.setdefault("reader", errand) is not errand:
                raise RefusedError(
                    "another thread is reading this stream; it takes one read at a time"
                )
            self._place().send(errand)
            errand.wait()
        except RefusedError:
            raise
        except BaseException:
            self._end(Outcome.CANCELLED)
            raise
        finally:
            if self._readers.get("reader") is errand:
                del self._readers["reader"]

    def _place(self) -> Driver:
        driver = self._driver
        if driver is None:
            driver = self._driver = current()
        elif not driver.is_here:
            raise RefusedError(
                "this stream was begun before a fork, by the parent of this process: read it there"
            )
        return driver

    def _is_closed(self) -> bool:
        return self._closed

    def _end(self, outcome: Outcome) -> None:
        """Nothing more is delivered; in this order, since another thread may be taking what came."""
        self._closed = True
        self._core._stop(Ending(outcome))
        self._core._endings["ending"].error = None  # of an abort before
        self._events.clear()


class TextStream(Iterator[str]):
    """The text deltas of a `Stream`, as strings. Dropping it drops the stream."""

    def __init__(self, stream: Stream) -> None:
        if not isinstance(stream, Stream):
            raise TypeError("a TextStream is made by a stream: stream.text()")
        self._stream = stream

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        while True:
            event = next(self._stream)
            for item in event["content_items"]:
                if item["type"] == "text.delta" and item["text"]:
                    return item["text"]

    def close(self) -> None:
        self._stream.close()
