"""The answer of a Messages server, event by event.

    message_start  (content_block_start content_block_delta* content_block_stop)*  message_delta  message_stop

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
from .forgiving import EventReader, plain, whole_characters
from .halves import Halves
from .http_error import Complaint, complaint, stream_error

__all__ = ["BESIDE", "REDACTED", "MessagesDecoder"]

REDACTED = "_REDACTED_THINKING"  # the text of thinking that came sealed
BESIDE = "beside"  # in fidelity: the server-side blocks that came before the item

_SHOWN = 200  # characters of an answer that cannot be read

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


_EVENTS = EventReader(Event)
_read = _EVENTS.exact
_ANSWERS = EventReader(Message)


@dataclass(slots=True, eq=False)
class _Open:
    """A block on its way. `id` is ours, `input` what the start said of a call's arguments."""

    id: int
    kind: str
    input: str = ""
    aside: dict[str, Any] | None = None  # a server-side block as it stands
    pieces: list[str] = field(default_factory=list)  # of that block's input


class MessagesDecoder:
    """Tells `assembler` what a Messages server says. `terminal` is set by `message_stop`."""

    def __init__(self, assembler: Assembler, dialect: MessagesDialect, *, client: str) -> None:
        self.terminal = False
        self._assembler = assembler
        self._input_usage_at_end = dialect.input_usage_at_end
        self._client = client
        self._halves = Halves()
        self._open: dict[int, _Open] = {}
        self._blocks = 0
        self._beside: list[dict[str, Any]] = []  # server-side blocks that no item has taken yet

    def feed(self, event: str, data: bytes) -> None:
        """One event of the stream. Raises `ProviderStreamError`, `StreamProtocolError`."""
        if self.terminal:
            return
        try:
            read = _read(data)
        except (ValueError, RecursionError):
            if (found := self._odd(event, data)) is None:
                return
            read = found
        if read.type == "content_block_delta" and read.delta is not None:
            self._delta(read.index or 0, read.delta, data)
        else:
            self._other(event, read, data)

    def whole(self, body: bytes) -> None:
        """A 200 answer that is no stream: a whole message, or what went wrong instead."""
        try:
            answer = plain(body)
        except ValueError:
            answer = None
        if (found := complaint(answer)) is not None:
            raise stream_error(found, client=self._client)
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

    def _other(self, event: str, read: Event, data: bytes) -> None:
        match read.type or event:
            case "content_block_start":
                if read.content_block is not None:
                    raw = _content_block(data) if _is_aside(read.content_block.type) else {}
                    self._start(read.index or 0, read.content_block, raw)
            case "content_block_stop":
                self._stop(read.index or 0)
            case "message_start":
                if read.message is not None:
                    self._message(read.message)
            case "message_delta":
                self._end(read.delta and read.delta.stop_reason, read.usage)
            case "message_stop":
                self._stop_all()
                self.terminal = True
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
                opened.input = _arguments(block.input)
            case kind if _is_aside(kind):
                opened.aside = raw
            case kind:
                say.unknown(kind)

    def _delta(self, index: int, delta: Delta, data: bytes) -> None:
        opened = self._open.get(index) or self._made_up(index, delta)
        say = self._assembler
        if opened.aside is not None:
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
            self._beside.append(_with_input(opened.aside, "".join(opened.pieces)))
            return
        if opened.input:
            self._assembler.tool_arguments(opened.id, opened.input)
        self._assembler.end_item(opened.id)

    def _stop_all(self) -> None:
        for index in list(self._open):
            self._stop(index)
        if self._beside:  # a turn that paused after them
            self._blocks += 1
            self._assembler.text(self._blocks, "", self._taken())

    def _end(self, reason: str | None, usage: Usage | None) -> None:
        if reason:
            self._stop_all()
            self._assembler.finish(_FINISH.get(reason, "unknown"))
        if usage is None:
            return
        if self._input_usage_at_end and usage.input_tokens is not None:
            self._input(usage)
        details = usage.output_tokens_details
        thoughts = details.thinking_tokens if details else None
        made = usage.output_tokens
        self._assembler.usage(
            thoughts=thoughts, response=None if made is None else made - (thoughts or 0)
        )

    def _input(self, usage: Usage | None) -> None:
        if usage is not None:
            prompt = usage.input_tokens
            if prompt is not None:
                prompt += usage.cache_creation_input_tokens or 0
            self._assembler.usage(cached=usage.cache_read_input_tokens, prompt=prompt)

    # ---- server-side blocks

    def _taken(self) -> dict[str, Any] | None:
        return self._rest() or None

    def _rest(self) -> dict[str, Any]:
        """The fidelity that holds the server-side blocks nobody has taken."""
        taken, self._beside = self._beside, []
        return {BESIDE: taken} if taken else {}

    # ---- what does not fit

    def _odd(self, event: str, data: bytes) -> Event | None:
        """Data that is no event as documented: an end mark, a heartbeat, or an imitator's form."""
        text = data.strip()
        if text.startswith(b"[DONE]"):
            self._stop_all()
            self.terminal = True
            return None
        if not text or text.startswith(b":"):
            return None
        try:
            answer = plain(data)
        except ValueError:
            if event == "error":
                raise stream_error(Complaint(_shown(data)), client=self._client) from None
            raise self._unreadable("no JSON", data) from None
        if not isinstance(answer, dict):
            return None
        index = answer.get("index")
        return _EVENTS.forgive(answer, lambda name, text: self._mend(name, text, index))

    def _mend(self, name: str, text: str, index: Any = None) -> str:
        grows = name in ("text", "thinking", "partial_json")
        return self._halves.mend((index, name), text) if grows else whole_characters(text)

    def _unknown(self, event: str, read: Event, data: bytes) -> None:
        """An event of no known type: a failure in whatever form, or something new."""
        if event == "error" or read.type == "error" or read.error is not None:
            answer = _plain_or_none(data)
            found = complaint(answer) or complaint({"error": answer}) or Complaint("")
            raise stream_error(found, client=self._client)
        self._assembler.unknown(read.type or event or _shown(data))

    def _unreadable(self, what: str, data: bytes) -> StreamProtocolError:
        shown = repr(_shown(data)) if data else "it is empty"
        return StreamProtocolError(f"the provider's answer is {what}: {shown}", client=self._client)


_IGNORED_DELTAS = frozenset({"citations_delta", "compaction_delta", None})
_ASIDE = frozenset({"server_tool_use", "mcp_tool_use", "container_upload", "compaction"})


def _is_aside(kind: str | None) -> bool:
    """Whether a block is a server-side tool's: its use or its result."""
    return kind is not None and (kind in _ASIDE or kind.endswith("_tool_result"))


def _content_block(data: bytes) -> dict[str, Any]:
    block = plain(data).get("content_block")
    return block if isinstance(block, dict) else {}


def _with_input(block: dict[str, Any], text: str) -> dict[str, Any]:
    """The block with the input that came in pieces; pieces that were cut leave it as it began."""
    if text:
        try:
            return {**block, "input": msgspec.json.decode(text)}
        except (ValueError, RecursionError):
            pass
    return block


def _arguments(raw: msgspec.Raw | None) -> str:
    """A start's input as argument text; an empty object says nothing, the pieces are to come."""
    text = bytes(raw).decode().strip() if raw is not None else ""
    return "" if text in ("", "null") or text.replace(" ", "") == "{}" else text


def _objects(values: list[Any]) -> list[dict[str, Any]]:
    return [each for each in values if isinstance(each, dict)]


def _plain_or_none(data: bytes) -> Any:
    try:
        return plain(data)
    except ValueError:
        return None


def _shown(data: bytes) -> str:
    return data[: 4 * _SHOWN].decode("utf-8", "replace")[:_SHOWN]
