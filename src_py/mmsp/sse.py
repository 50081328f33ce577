"""Server-sent events: an incremental parser of bytes, and a small writer.

An event is whole when its blank line has arrived, and leaves in that very call, whatever the line
ends are: LF, CR, CRLF or a mixture. How the bytes were cut never changes what comes out. Three
steps keep that simple:

    bytes ── byte order mark off, CR and CRLF turned into LF ── cut at blank lines ── fields of a block

After the first step a carriage return that ends a chunk has already ended its line; a line feed that
opens the next chunk is the rest of that same line end and is dropped. After the second, everything
left over is one unfinished block, kept as the pieces that arrived and joined once, so that an event
of any size costs time in proportion to its bytes.

Only `event` and `data` fields are read. A block without a `data` line is no event (comments,
`retry:`); one with an empty `data:` is an event whose data is empty, as the standard has it. Data
stays bytes: UTF-8 split between chunks, and line separators of Unicode, are nothing special.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["EventTooLargeError", "Parser", "comment", "encode"]

Event = tuple[str, bytes]

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")


class EventTooLargeError(ValueError):
    """An event is longer than `limit` bytes; `events` are those that were whole before it."""

    def __init__(self, limit: int, events: list[Event]) -> None:
        super().__init__(f"a server-sent event is longer than the limit of {limit} bytes")
        self.limit = limit
        self.events = events


class Parser:
    """Feed it the body as it arrives; each call returns the events that call completed.

    `limit` bounds one event, in bytes; a longer one raises `EventTooLargeError` as soon as that is
    known, and the parser is of no use afterwards.
    """

    def __init__(self, limit: int = 64 * 2**20) -> None:
        self.limit = limit
        self._block: list[bytes] = []  # the unfinished block, in pieces
        self._size = 0  # bytes in it
        self._carry = b""  # a line end that may turn out to be half of a blank line
        self._after_cr = False
        self._start: bytes | None = b""  # bytes that may still become a byte order mark

    @property
    def pending(self) -> int:
        """Bytes that wait for the rest of their event."""
        return self._size + len(self._carry) + len(self._start or b"")

    def feed(self, data: bytes) -> list[Event]:
        """The events, as (name or "", data), that `data` completes."""
        if self._start is not None:
            data = self._without_bom(data)
        if self._after_cr or b"\r" in data:
            data = self._with_line_feeds(data)
        if self._carry:
            data = self._carry + data
            self._carry = b""
        end = data.rfind(b"\n\n")
        if end < 0:
            self._keep(data, [])
            return []
        events = self._whole(data[:end])
        if len(data) > end + 2:
            self._keep(data[end + 2 :], events)
        return events

    def close(self) -> list[Event]:
        """The event that a clean end of the body completes: one that lacks only its blank line."""
        self._keep(self._start or b"", [])
        self._start = None
        self._carry = b""
        return _any_events([self._join(b"")])

    def _without_bom(self, data: bytes) -> bytes:
        start = (self._start or b"") + data
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _with_line_feeds(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = self._after_cr or data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _whole(self, data: bytes) -> list[Event]:
        """The events of whole blocks; the first of them may have begun earlier."""
        if self._block:
            data = self._join(data)
        if len(data) > self.limit:
            self._check(data.split(b"\n\n"))
        return _plain_events(data) or _named_events(data) or _any_events(data.split(b"\n\n"))

    def _keep(self, rest: bytes, events: list[Event]) -> None:
        if not self._block:
            rest = rest.lstrip(b"\n")
        if rest.endswith(b"\n"):
            rest, self._carry = rest[:-1], b"\n"
        if not rest:
            return
        self._block.append(rest)
        self._size += len(rest)
        if self._size > self.limit:
            raise EventTooLargeError(self.limit, events)

    def _join(self, end: bytes) -> bytes:
        self._block.append(end)
        block = b"".join(self._block)
        self._block.clear()
        self._size = 0
        return block

    def _check(self, blocks: list[bytes]) -> None:
        for number, block in enumerate(blocks):
            if len(block.strip(b"\n")) > self.limit:
                raise EventTooLargeError(self.limit, _any_events(blocks[:number]))


def _plain_events(data: bytes) -> list[Event]:
    """Blocks that are one `data: ` line each, the common case; [] if there is any other."""
    lines = data.split(b"\n")
    if any(lines[1::2]):
        return []
    lines = lines[::2]
    events = [("", line[6:]) for line in lines if line[:6] == b"data: "]
    return events if len(events) == len(lines) else []


def _named_events(data: bytes) -> list[Event]:
    """Blocks that are one `event: ` and one `data: ` line each; [] if there is any other."""
    lines = data.split(b"\n")
    if any(lines[2::3]):
        return []
    names = lines[::3]
    events = [
        (_name(name[7:]), line[6:])
        for name, line in zip(names, lines[1::3], strict=False)
        if name[:7] == b"event: " and line[:6] == b"data: "
    ]
    return events if len(events) == len(names) else []


def _any_events(blocks: list[bytes]) -> list[Event]:
    """The events of `blocks`, whatever their lines are."""
    events: list[Event] = []
    for block in blocks:
        name = b""
        data: list[bytes] = []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value[1:] if value[:1] == b" " else value)
            elif field == b"event":
                name = value.removeprefix(b" ")
        if data:
            events.append((_name(name), b"\n".join(data)))
    return events


@lru_cache(maxsize=256)
def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def encode(data: bytes | str, event: str = "") -> bytes:
    """One event on the wire. Line ends within `data` become those of the format, LF."""
    raw = data.encode() if isinstance(data, str) else data
    if b"\n" in raw or b"\r" in raw:
        raw = b"\ndata: ".join(_LINE_END.split(raw))
    if not event:
        return b"data: %b\n\n" % raw
    name = event.encode()
    if _LINE_END.search(name):
        raise ValueError("the name of a server-sent event holds a line break")
    return b"event: %b\ndata: %b\n\n" % (name, raw)


def comment(text: str) -> bytes:
    """A comment, which readers ignore: a sign of life."""
    return b": %b\n\n" % b"\n: ".join(_LINE_END.split(text.encode()))
