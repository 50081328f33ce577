"""The answer of a Messages server, event by event.

    message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop

A block is known by its index until another begins there; gateways leave out starts, stops and event
names, so the data's own `type` decides and what is missing is made up. What stands in a start already
is kept. The blocks of server-side tools (search, code execution, MCP) are none of our items: they are
put together and ride in the fidelity of the item that follows, since the API wants them back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..dialects.messages import MessagesDialect
from ..errors import StreamProtocolError
from ..grammar import Assembler
from ..types import FinishReason
from .forgiving import EventReader
from .wire_decoder import WireDecoder, kept, less, object_in, plain_or_none, said_arguments

__all__ = ["REDACTED", "MessagesDecoder"]

REDACTED = "_REDACTED_THINKING"  # the text of thinking that came sealed

_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_call",
    "refusal": "content_filter",
}


class Delta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    content: Any = None  # of a compaction
    stop_reason: str | None = None


class Block(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw | None = None


class OutputDetails(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class Message(msgspec.Struct, gc=False):
    usage: Usage | None = None
    content: list[Block] | None = None
    stop_reason: str | None = None


class Event(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: Delta | None = None
    content_block: Block | None = None
    message: Message | None = None
    usage: Usage | None = None
    error: Any = None


_ANSWERS = EventReader(Message)


@dataclass(slots=True, eq=False)
class _Open:
    """A block on its way. `id` is ours, `input` what the start said of a call's arguments."""

    id: int
    kind: str
    input: str = ""
    aside: dict[str, Any] | None = None  # a server-side block as it stands
    pieces: list[str] = field(default_factory=list)  # of that block's input


class MessagesDecoder(WireDecoder[Event]):
    """Tells `assembler` what a Messages server says. `terminal` is set by `message_stop`."""

    events = EventReader(Event)
    grows = frozenset({"text", "thinking", "partial_json"})

    def __init__(self, assembler: Assembler, dialect: MessagesDialect, *, client: str) -> None:
        super().__init__(assembler, client=client)
        self._input_usage_at_end = dialect.input_usage_at_end
        self._open: dict[int, _Open] = {}
        self._blocks = 0

    def whole(self, body: bytes) -> None:
        """A 200 answer that is no stream: a whole message, or what went wrong instead."""
        answer = plain_or_none(body)
        self._complain(answer)
        if not isinstance(answer, dict) or not isinstance(answer.get("content"), list):
            raise self._unreadable("neither a stream nor a message", body)
        message = _ANSWERS.forgive(answer, self._mend)
        for index, (block, raw) in enumerate(
            zip(message.content or (), _objects(answer["content"]), strict=False)
        ):
            self._start(index, block, raw)
            self._stop(index)
        self._input(message.usage)
        self._end(message.stop_reason, message.usage)
        self.terminal = True

    # ---- events

    def _event(self, event: str, read: Event, data: bytes) -> None:
        if read.type == "content_block_delta" and read.delta is not None:
            self._delta(read.index or 0, read.delta)
        else:
            self._other(event, read, data)

    def _end_mark(self) -> None:
        self._stop_all()
        self.terminal = True

    def _other(self, event: str, read: Event, data: bytes) -> None:
        match read.type or event:
            case "content_block_start":
                if (block := read.content_block) is not None:
                    raw = object_in(data, "content_block") if _is_aside(block.type) else {}
                    self._start(read.index or 0, block, raw)
            case "content_block_stop":
                self._stop(read.index or 0)
            case "message_start":
                if read.message is not None:
                    self._message(read.message)
            case "message_delta":
                self._end(read.delta.stop_reason if read.delta else None, read.usage)
            case "message_stop":
                self._end_mark()
            case "ping" | "content_block_delta":
                pass
            case _:
                self._unknown(event, read, data)

    def _message(self, message: Message) -> None:
        """The start. A turn that a tool's program made, with no model at work, is all in here."""
        self._input(message.usage)
        for index, block in enumerate(message.content or ()):
            self._start(index, block, {})
        self._end(message.stop_reason, None)

    def _start(self, index: int, block: Block, raw: dict[str, Any]) -> None:
        if index in self._open:
            self._stop(index)  # a gateway that ends no blocks
        self._blocks += 1
        opened = self._open[index] = _Open(self._blocks, block.type or "text")
        say = self._assembler
        match opened.kind:
            case "text":
                if block.text or self._beside:
                    say.text(opened.id, block.text or "", self._taken())
            case "thinking":
                if block.thinking:
                    say.thinking(opened.id, block.thinking)
                if block.signature:
                    self._sign(opened, block.signature)
            case "redacted_thinking":
                say.thinking(opened.id, REDACTED, {"signature": block.data or "", **self._rest()})
            case "tool_use":
                say.tool_call(opened.id, block.name or "", block.id or "", self._taken())
                opened.input = said_arguments(block.input)
            case kind if _is_aside(kind):
                opened.aside = raw
            case "fallback":  # another model goes on; what it says follows
                pass
            case kind:
                say.unknown(kind)

    def _delta(self, index: int, delta: Delta) -> None:
        opened = self._open.get(index) or self._made_up(index, delta)
        say = self._assembler
        if opened.aside is not None:
            if isinstance(delta.content, str):  # the summary of a compaction
                opened.aside = {**opened.aside, "content": delta.content}
            opened.pieces.append(delta.partial_json or "")
        elif delta.text is not None:
            say.text(opened.id, delta.text)
        elif delta.thinking is not None:
            say.thinking(opened.id, delta.thinking)
        elif delta.partial_json is not None:
            if delta.partial_json:
                opened.input = ""  # a start that said the same before
            say.tool_arguments(opened.id, delta.partial_json)
        elif delta.signature is not None:
            if delta.signature:
                self._sign(opened, delta.signature)
        elif delta.type not in _IGNORED_DELTAS:
            say.unknown(str(delta.type))

    def _made_up(self, index: int, delta: Delta) -> _Open:
        """The block of a delta whose start never came."""
        kind = "text" if delta.text is not None else "thinking"
        if delta.partial_json is not None:
            raise StreamProtocolError(
                "arguments came for a tool call that never began", client=self._client
            )
        self._start(index, Block(type=kind), {})
        return self._open[index]

    def _sign(self, opened: _Open, signature: str) -> None:
        self._assembler.thinking(opened.id, "", {"signature": signature, **self._rest()})

    def _stop(self, index: int) -> None:
        opened = self._open.pop(index, None)
        if opened is None:
            return
        if opened.aside is not None:
            self._set_aside(opened)
            return
        if opened.input:
            self._assembler.tool_arguments(opened.id, opened.input)
        self._assembler.end_item(opened.id, whole=False)  # max_tokens ends the block it cuts

    def _set_aside(self, opened: _Open) -> None:
        assert opened.aside is not None
        self._beside += kept(_with_input(opened.aside, "".join(opened.pieces)))

    def _stop_all(self) -> None:
        """The turn is over. What the wire did not end is for the assembler to judge."""
        for index in list(self._open):
            opened = self._open.pop(index)
            if opened.aside is not None:
                self._set_aside(opened)
            elif opened.input:
                self._assembler.tool_arguments(opened.id, opened.input)
        if self._beside:  # a turn that paused after them
            self._blocks += 1
            self._assembler.text(self._blocks, "", self._taken())

    def _end(self, reason: str | None, usage: Usage | None) -> None:
        if reason:
            self._stop_all()
            self._assembler.finish(_FINISH.get(reason, "unknown"))
        if usage is None:
            return
        if self._input_usage_at_end:
            self._input(usage)
        details = usage.output_tokens_details
        thoughts = details.thinking_tokens if details else None
        self._assembler.usage(thoughts=thoughts, response=less(usage.output_tokens, thoughts))

    def _input(self, usage: Usage | None) -> None:
        if usage is not None:
            prompt = usage.input_tokens
            if prompt is not None:
                prompt += usage.cache_creation_input_tokens or 0
            self._assembler.usage(cached=usage.cache_read_input_tokens, prompt=prompt)

    def _unknown(self, event: str, read: Event, data: bytes) -> None:
        """An event of no known type: a failure in whatever form, or something new."""
        if event == "error" or read.type == "error" or read.error is not None:
            raise self._reported(data)
        self._assembler.unknown(read.type or event or self._shown(data))


_IGNORED_DELTAS = frozenset({"citations_delta", "compaction_delta", None})
_ASIDE = frozenset({"server_tool_use", "mcp_tool_use", "container_upload", "compaction"})


def _is_aside(kind: str | None) -> bool:
    """Whether a block is a server-side tool's: its use or its result."""
    return kind is not None and (kind in _ASIDE or kind.endswith("_tool_result"))


def _with_input(block: dict[str, Any], text: str) -> dict[str, Any]:
    """The block with the input that came in pieces; pieces that were cut leave it as it began."""
    if text:
        try:
            return {**block, "input": msgspec.json.decode(text)}
        except (ValueError, RecursionError):
            pass
    return block


def _objects(values: list[Any]) -> list[dict[str, Any]]:
    return [each for each in values if isinstance(each, dict)]
