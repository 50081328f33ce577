"""The table behind `test_ends_on_the_wire.py`: everything a provider can do at the end of an answer.

A wire says in `ENDS` how it ends an answer; a case is made of that, so that it runs on every wire on
which it can occur. A client whose wire has no row fails the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

from mmsp import (
    EmptyResponseError,
    IncompleteStreamError,
    MMSPError,
    ProviderStreamError,
    StreamProtocolError,
    ToolCallArgumentParseError,
)
from mmsp.testing import (
    Step,
    chat,
    cut,
    generate_content,
    interactions,
    messages,
    mmsp_wire,
    reset,
    responses,
    stall,
)
from mmsp.testing.script import Framing

Kept = Literal["kept", "closed", "either"]


@dataclass(frozen=True)
class Ends:
    """How a wire ends an answer.

    `finish` says why it ended and is not yet the end; `done` is the event that is the end, None on a wire
    without one; `by_itself` that `done` may come without a reason. `length` and `called` end an answer by
    the length limit and for its tool calls.
    """

    wire: ModuleType
    finish: bytes | None
    done: bytes | None
    by_itself: bool
    length: bytes
    called: bytes
    arguments_in_pieces: bool = True
    names_first: bool = True  # a call is announced before its arguments
    interleaves: bool = True  # a call may begin while another one goes on

    def shown(self, *pieces: str) -> tuple[str, ...]:
        """The deltas of a call."""
        first = ("tool_call.delta ",) if self.names_first else ()
        return first + tuple(f"tool_call.delta {piece}" for piece in pieces)

    def texts(self, words: str = "abc") -> bytes:
        return b"".join(map(self.wire.text, words))

    def call(self, *pieces: str) -> bytes:
        began: bytes = self.wire.tool_call(0, "c1", "find", pieces[0])
        return began + b"".join(self.wire.arguments(0, piece) for piece in pieces[1:])

    @property
    def ending(self) -> bytes:
        return b"".join(self.wire.ending())

    @property
    def completion(self) -> dict[str, Any]:
        whole: dict[str, Any] = self.wire.completion("All is well")
        return whole


ENDS: dict[str, Ends] = {
    each.wire.__name__: each
    for each in (
        Ends(
            chat,
            finish=chat.finish(),
            done=chat.done(),
            by_itself=True,
            length=chat.finish("length") + chat.done(),
            called=chat.finish("tool_calls") + chat.done(),
            names_first=False,
        ),
        Ends(
            messages,
            finish=messages.finish(),
            done=messages.done(),
            by_itself=True,
            length=messages.finish("max_tokens") + messages.done(),
            called=messages.finish("tool_use") + messages.done(),
        ),
        Ends(
            responses,
            finish=None,
            done=responses.usage(),
            by_itself=False,
            length=responses.usage(status="incomplete"),
            called=responses.usage(),
        ),
        Ends(
            generate_content,
            finish=generate_content.finish(),
            done=None,
            by_itself=False,
            length=generate_content.finish("MAX_TOKENS"),
            called=generate_content.finish(),
            arguments_in_pieces=False,
            names_first=False,
        ),
        Ends(
            interactions,
            finish=None,
            done=interactions.usage(),
            by_itself=False,
            length=interactions.usage(status="incomplete"),
            called=interactions.usage(status="requires_action"),
        ),
        Ends(
            mmsp_wire,
            finish=None,
            done=mmsp_wire.usage(),
            by_itself=False,
            length=mmsp_wire.usage(finish_reason="length"),
            called=mmsp_wire.usage(finish_reason="tool_call"),
            names_first=False,
            interleaves=False,
        ),
    )
}


@dataclass(frozen=True)
class End:
    """One way in which an answer can end: its `body`, what is done behind it, and what must come of it.

    `error` is None for a turn that is complete; then `last` is its finish reason. `delivered` comes
    before either. `missing` is what an `IncompleteStreamError` names.
    """

    name: str
    body: bytes
    delivered: tuple[str, ...] = ()
    then: tuple[Step, ...] = ()
    error: type[MMSPError] | None = None
    said: str = ""
    missing: tuple[str, ...] | None = None
    last: str = "stop"
    framing: Framing = "chunked"
    content_type: str = "text/event-stream"
    connection: Kept = "either"
    quiet: float = 10.0
    linger: float = 2.0
    cuts: bool = field(default=True)  # whether the body may come in other pieces


BREAKS: tuple[tuple[str, tuple[Step, ...], Framing], ...] = (
    ("a FIN", (cut(),), "chunked"),
    ("a reset", (reset(),), "chunked"),
    ("a short body", (), "short"),
)
ABC = tuple(f"text.delta {letter}" for letter in "abc")
BOTH = ("finish_reason", "usage_metadata")


def ends_of(wire: ModuleType) -> list[End]:
    """All cases that can occur on a wire."""
    ends = ENDS[wire.__name__]
    parts: tuple[Callable[[Ends], Iterator[End]], ...] = (
        _whole, _without_terminal, _cut_streams, _cut_calls, _no_streams, _failures,
    )  # fmt: skip
    return [end for part in parts for end in part(ends)]


def _whole(ends: Ends) -> Iterator[End]:
    whole = ends.texts() + ends.ending
    done = (*ABC, "text.done abc")
    yield End("whole", whole, done, connection="kept")
    yield End("whole, with a length", whole, done, framing="length", connection="kept")
    yield End("whole, ended by the connection", whole, done, framing="close", connection="closed")
    yield End("whole, the last blank line missing", whole.rstrip(b"\n"), done, connection="kept")
    if ends.done is not None:
        for name, then, framing in BREAKS:
            yield End(
                f"the end event, then {name}",
                whole,
                done,
                then,
                framing=framing,
                connection="closed",
            )
        yield End(
            "the end event, and the body stays open",
            whole, done, (stall(),), connection="closed", linger=0.2,
        )  # fmt: skip
        yield End("what comes behind the end event is not read", whole + b"data: <html>\n\n", done)
    if ends.by_itself and ends.done is not None:
        yield End("the end event alone", ends.texts() + ends.done, done, last="unknown")


def _without_terminal(ends: Ends) -> Iterator[End]:
    if ends.finish is None:
        return
    done = (*ABC, "text.done abc")
    usage = ends.wire.usage()
    yield End("a finish reason, then EOF", ends.texts() + ends.finish, done, connection="kept")
    yield End("a finish reason and usage, then EOF", ends.texts() + ends.finish + usage, done)
    yield End(
        "a finish reason, then the end of the connection",
        ends.texts() + ends.finish, done, framing="close", connection="closed",
    )  # fmt: skip
    yield End(
        "a finish reason, then silence",
        ends.texts() + ends.finish, done, (stall(),), connection="closed", quiet=0.2,
    )  # fmt: skip
    for name, then, framing in BREAKS:
        yield End(
            f"a finish reason, then {name}",
            ends.texts() + ends.finish, ABC, then, IncompleteStreamError,
            missing=("usage_metadata",), framing=framing, connection="closed",
        )  # fmt: skip


def _cut_streams(ends: Ends) -> Iterator[End]:
    text = ends.texts()
    half = ends.wire.text("never seen")[:-9]
    for framing in ("chunked", "length", "close"):
        yield End(
            f"EOF after three deltas, {framing}", text, ABC, (), IncompleteStreamError,
            missing=BOTH, framing=framing,
            connection="closed" if framing == "close" else "kept",
        )  # fmt: skip
    yield End("EOF in an event", text + half, ABC, (), IncompleteStreamError, missing=BOTH)
    for name, then, framing in BREAKS:
        for where, body in (("after three deltas", text), ("in an event", text + half)):
            yield End(
                f"{name} {where}", body, ABC, then, IncompleteStreamError,
                missing=BOTH, framing=framing, connection="closed",
            )  # fmt: skip
    yield End(
        "a FIN in an event that lacks its blank line only",
        text + ends.wire.text("d").rstrip(b"\n"), ABC, (cut(),), IncompleteStreamError,
        missing=BOTH, connection="closed",
    )  # fmt: skip
    for name, then, framing in BREAKS:
        yield End(f"{name} before a byte", b"", (), then, IncompleteStreamError, framing=framing)


def _cut_calls(ends: Ends) -> Iterator[End]:
    pieces = ('{"q":', "1}") if ends.arguments_in_pieces else ('{"q": 1}',)
    call = ends.call(*pieces)
    shown = ends.shown(*pieces)
    ended = ends.called
    if ends.arguments_in_pieces:
        yield End("a call", call + ended, (*shown, "tool_call.done {'q': 1}"), last="tool_call")
    yield End("a call that parses, cut by EOF", call, shown, (), IncompleteStreamError)
    for name, then, framing in BREAKS:
        yield End(
            f"a call that parses, cut by {name}", call, shown, then, IncompleteStreamError,
            framing=framing, connection="closed",
        )  # fmt: skip
    if not ends.arguments_in_pieces:
        return
    for name, cut_pieces in (("that parses", ('{"q":', "1}")), ("in its middle", ('{"q":', "1"))):
        yield End(
            f"a call {name}, cut by the length limit",
            ends.call(*cut_pieces) + ends.length,
            ends.shown(*cut_pieces),
            (), ToolCallArgumentParseError, said="length limit",
        )  # fmt: skip
    if ends.by_itself and ends.done is not None:
        yield End(
            "a call and the end event, without a reason",
            call + ends.done, shown, (), IncompleteStreamError, missing=BOTH,
        )  # fmt: skip
    for arguments in ('{"q":', "[1]", '"q"', "q", '{"q":1}}'):
        yield End(
            f"a call with {arguments} for arguments", ends.call(arguments) + ended,
            ends.shown(arguments), (), ToolCallArgumentParseError, said=arguments,
        )  # fmt: skip


def _no_streams(ends: Ends) -> Iterator[End]:
    """A 200 that is not a stream."""
    page = b"<!doctype html><title>Bad gateway</title>"
    error = b'{"error":{"message":"Try later","type":"server_error","code":"busy"}}'
    for kind in ("application/json", "text/event-stream"):
        yield End(
            f"an error object as {kind}", error, (), (), ProviderStreamError, "Try later",
            content_type=kind, framing="length",
        )  # fmt: skip
        yield End(
            f"a page as {kind}", page, (), (), StreamProtocolError, "Bad gateway",
            content_type=kind, framing="length",
        )  # fmt: skip
        yield End(
            f"nothing as {kind}", b"", (), (), IncompleteStreamError, missing=BOTH,
            content_type=kind, framing="length",
        )  # fmt: skip
    yield End("nothing, chunked", b"", (), (), IncompleteStreamError, missing=BOTH)
    yield End("comments alone", b": one\n\n: two\n\n", (), (), IncompleteStreamError, missing=BOTH)
    yield End("blank lines alone", b"\n\n\r\n\r\n", (), (), IncompleteStreamError, missing=BOTH)
    yield End("another object", b'{"hello":"world"}', (), (), StreamProtocolError, "hello")
    yield End("half an object", b'{"choices":[', (), (), StreamProtocolError, "choices")


def _failures(ends: Ends) -> Iterator[End]:
    wire = ends.wire
    yield End(
        "an error event after three deltas", ends.texts() + wire.error("Too many"),
        ABC, (), ProviderStreamError, "Too many",
    )  # fmt: skip
    yield End(
        "an error event alone", wire.error("Too many"), (), (), ProviderStreamError, "Too many"
    )
    yield End(
        "an error event, and the body stays open", ends.texts() + wire.error("Too many"),
        ABC, (stall(),), ProviderStreamError, "Too many", connection="closed",
    )  # fmt: skip
    yield End(
        "no JSON after three deltas", ends.texts() + b"data: what is this\n\n", ABC, (stall(),),
        StreamProtocolError, "what is this", connection="closed",
    )  # fmt: skip
    yield End(
        "nothing but thinking", wire.thinking("hm") + ends.ending, ("thinking.delta hm",), (),
        EmptyResponseError,
    )  # fmt: skip
    yield End("no item at all", ends.ending, (), (), EmptyResponseError, "nothing")
