"""`AnswerReader`: from the bytes of a body to the items of an answer, a frame at a time. Pure.

Frames are decoded when somebody asks for what is in them, never ahead: what only waits here decides
nothing, so the outcome of a call does not depend on how its bytes were cut.

A failure found in the bytes is kept in `failure` until everything before it has been taken from `out`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from .codecs.base import Decoder
from .codecs.marks import wrong_wire
from .errors import EmptyResponseError, IncompleteStreamError, MMSPError, StreamProtocolError
from .grammar import Assembler
from .settings import Limits
from .sse import EventTooLargeError, Parser

__all__ = ["AnswerReader"]

_NOT_A_STREAM = b'{["<'  # how JSON and HTML begin; no line of an event stream does
_NOTHING_READ = (IncompleteStreamError, EmptyResponseError, StreamProtocolError)
_BLANK = b"\xef\xbb\xbf \t\r\n"


class AnswerReader:
    """Reads one answer. `out` holds the items that are ready, oldest first.

    A body that is no event stream (a whole completion, an error, a page) is kept until its end and
    read then.
    """

    def __init__(
        self, *, client: str, limits: Limits, assembler: Assembler, decoder: Decoder
    ) -> None:
        self.assembler = assembler
        self.decoder = decoder
        self.out = assembler.out
        self.failure: MMSPError | None = None
        self._client = client
        self._limits = limits
        self._parser = Parser(limits.event_bytes)
        self._frames: deque[tuple[str, bytes]] = deque()
        self._whole: bytearray | None = None
        self._sniffed = False
        self._first = b""  # the data of the first event, or a whole answer

    def receive(self, data: bytes) -> None:
        """Take a piece of the body. After a failure it is dropped."""
        if self.failure is not None:
            return
        if not self._sniffed:
            self._sniff(data)
        if self._whole is not None:
            self._keep(self._whole, data)
            return
        try:
            self._frames.extend(self._parser.feed(data))
        except EventTooLargeError as error:
            self._frames.extend(error.events)
            self.failure = self._too_long("An event of the answer is", error.limit, "event_bytes")
        if not self._first:
            self._note_first(self._frames)

    def decode(self) -> bool:
        """Decode frames until one brings something to hand out; True when there is something."""
        frames, out, feed = self._frames, self.out, self.decoder.feed
        try:
            while frames and not out:
                feed(*frames.popleft())
        except Exception as error:
            self._fail(error)
            frames.clear()
        return bool(out)

    def end(self) -> bool:
        """The body has ended well: read what has no end mark of its own. True when there was some."""
        if self._whole is not None:
            body, self._whole = bytes(self._whole.lstrip(_BLANK)), bytearray()
            return bool(body) and self._read_whole(body)
        tail = self._parser.close()
        if not self._first:
            self._note_first(tail)
        try:
            for frame in tail:
                self.decoder.feed(*frame)
        except StreamProtocolError:
            pass  # half an event: what is missing is told by what did arrive
        except Exception as error:
            self._fail(error)
        return bool(tail)

    @property
    def answered(self) -> bool:
        """Whether the wire said that the answer is whole."""
        return self.decoder.terminal or self.assembler.finish_reason is not None

    def check(self, owed: int) -> None:
        """An answer is over: raise if the answers so far do not hold as many items as are owed, because
        then nobody could tell which item belongs to what.
        """
        if (found := self.assembler.items) != owed:
            raise StreamProtocolError(
                f"the provider sent {found} items for the {owed} that it was asked for",
                client=self._client,
            )

    def next_answer(self) -> None:
        """What is received from here on answers another request of the same call."""
        self.decoder.next_answer()
        self.assembler.next_answer()
        self._parser = Parser(self._limits.event_bytes)
        self._whole = None
        self._sniffed = False

    def complete(self) -> list[Any]:
        """The wire is over: the closing items. Raises what is wrong with the answer."""
        try:
            return self.assembler.complete(terminal=self.decoder.terminal)
        except Exception as error:
            self._fail(error)
            raise self.failure or error from None

    def cut(self, why: str, *, readable: bool) -> MMSPError:
        """The error for an answer whose connection failed before its end."""
        if not readable:
            return StreamProtocolError(f"The answer cannot be read: {why}.", client=self._client)
        reason, usage = self.assembler.finish_reason, self.assembler.usage_metadata
        seen = {"finish_reason": reason, "usage_metadata": usage}
        return IncompleteStreamError(
            f"The answer was cut: {why}. Trying again makes sense.",
            client=self._client,
            missing=tuple(name for name, value in seen.items() if value is None),
            finish_reason=reason,
            usage_metadata=usage,
        )

    def drain(self) -> None:
        """After a stop: what had arrived still makes deltas; the first finish or fault ends it."""
        self.assembler.drain()

    @property
    def is_drained(self) -> bool:
        failed = self.failure is not None and not self._frames
        return failed or self.assembler.over or self._whole is not None

    def drop(self) -> None:
        """Forget what was not taken."""
        self._frames.clear()
        self.out.clear()

    def _sniff(self, data: bytes) -> None:
        start = data.lstrip(_BLANK)[:1]
        if start:
            self._sniffed = True
            if start in _NOT_A_STREAM:
                self._whole = bytearray()

    def _note_first(self, frames: Iterable[tuple[str, bytes]]) -> None:
        self._first = next((data for _, data in frames if data[:1] == b"{"), b"")

    def _keep(self, whole: bytearray, data: bytes) -> None:
        whole += data
        if len(whole) > self._limits.answer_bytes:
            self.failure = self._too_long(
                "The answer is no event stream and", self._limits.answer_bytes, "answer_bytes"
            )

    def _read_whole(self, body: bytes) -> bool:
        self._first = body
        try:
            self.decoder.whole(body)
        except Exception as error:
            self._fail(error)
        return True

    def _fail(self, error: Exception) -> None:
        """Keep an error of ours as it is; what else a provider's bytes provoked is its fault."""
        if not isinstance(error, MMSPError):
            error = StreamProtocolError(
                f"The answer cannot be read: {type(error).__name__}.", client=self._client
            )
        if isinstance(error, _NOTHING_READ) and not self.assembler.content:
            said = wrong_wire(self._first, self.assembler.wire)
            error = error if said is None else StreamProtocolError(said, client=self._client)
        self.failure = error

    def _too_long(self, what: str, limit: int, name: str) -> StreamProtocolError:
        return StreamProtocolError(
            f"{what} longer than {limit:,} bytes (Limits.{name}).", client=self._client
        )
