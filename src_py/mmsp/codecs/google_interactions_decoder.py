"""The answer of Interactions, event by event.

    interaction.created  (step.start step.delta* step.stop)*  interaction.completed  done

A step is known by its index. It may change what it says (text, a picture, text again): each such run is
an item. A signature comes in an event of its own and belongs to the item that the step ended with.
The steps of built-in tools are none of our items, and ride in the fidelity of the item that follows.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..grammar import Assembler
from ..types import FinishReason
from .forgiving import EventReader
from .google_generate_content_decoder import embeddings
from .wire_decoder import WireDecoder, kept, less, object_in, plain_or_none, said_arguments

__all__ = ["InteractionsDecoder"]


_PICTURE = "image/jpeg"  # when no mime type is given

_FINISH: dict[str, FinishReason] = {
    "completed": "stop",
    "incomplete": "length",
    "requires_action": "tool_call",
}


class Media(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    data: str | None = None
    mime_type: str | None = None


class Delta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    signature: str | None = None
    arguments: str | None = None
    content: Media | None = None
    data: str | None = None
    mime_type: str | None = None
    sample_rate: int | None = None
    channels: int | None = None


class Step(msgspec.Struct, gc=False):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    arguments: msgspec.Raw | None = None
    signature: str | None = None
    summary: list[Media] | None = None
    content: list[Media] | None = None


class Usage(msgspec.Struct, gc=False):
    total_input_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_thought_tokens: int | None = None
    total_output_tokens: int | None = None


class Interaction(msgspec.Struct, gc=False):
    status: str | None = None
    usage: Usage | None = None
    steps: list[Step] | None = None
    outputs: list[Step] | None = None


class Event(msgspec.Struct, gc=False):
    event_type: str | None = None
    index: int | None = None
    step: Step | None = None
    delta: Delta | None = None
    interaction: Interaction | None = None
    error: Any = None


_ANSWERS = EventReader(Interaction)


class InteractionsDecoder(WireDecoder[Event]):
    """Tells `assembler` what Interactions says. `terminal` is set by its last event."""

    events = EventReader(Event)
    grows = frozenset({"text", "arguments"})

    def __init__(self, assembler: Assembler, *, client: str) -> None:
        super().__init__(assembler, client=client)
        self._steps = 0
        self._ids: dict[int, int] = {}  # of the steps under way, by index
        self._last: dict[int, tuple[Any, str]] = {}  # what each step said last: its item and kind
        self._aside: dict[int, dict[str, Any]] = {}

    def whole(self, body: bytes) -> None:
        """A 200 answer that is no stream: a whole interaction, or what went wrong instead."""
        answer = plain_or_none(body)
        self._complain(answer)
        if embeddings(self._assembler, answer, client=self._client):
            self.terminal = True
            return
        if not isinstance(answer, dict) or not ({"steps", "outputs"} & answer.keys()):
            raise self._unreadable("neither a stream nor an interaction", body)
        interaction = _ANSWERS.forgive(answer, self._mend)
        raw = answer.get("steps") or answer.get("outputs") or []
        for index, step in enumerate(interaction.steps or interaction.outputs or ()):
            self._start(index, step, raw[index] if index < len(raw) else {})
            self._stop(index)
        self._end(interaction)

    # ---- events

    def _event(self, event: str, read: Event, data: bytes) -> None:
        kind = read.event_type or event
        if kind == "step.delta" and read.delta is not None:
            self._delta(read.index or 0, read.delta)
        else:
            self._other(kind, read, data)

    def _other(self, kind: str, read: Event, data: bytes) -> None:
        match kind:
            case "step.start":
                if read.step is not None:
                    raw = object_in(data, "step") if read.step.type not in _OURS else {}
                    self._start(read.index or 0, read.step, raw)
            case "step.stop":
                self._stop(read.index or 0)
            case "interaction.completed":
                self._end(read.interaction or Interaction())
            case "error":
                if read.error:  # without, it is a gateway's heartbeat
                    raise self._reported(data)
            case _ if read.error:
                raise self._reported(data)
            case "interaction.created" | "interaction.status_update" | "step.delta":
                pass
            case _:
                self._assembler.unknown(kind or self._shown(data))

    def _start(self, index: int, step: Step, raw: dict[str, Any]) -> None:
        self._stop(index)
        self._steps += 1
        id = self._ids[index] = self._steps
        match step.type:
            case "function_call":
                name = step.name or ""
                self._assembler.tool_call(id, name, step.id or name, self._taken())
                self._last[index] = (id, "call")
                if arguments := said_arguments(step.arguments):
                    self._assembler.tool_arguments(id, arguments)
            case "thought" | "model_output" | None:
                for media in step.summary or ():
                    self._summary(index, media)
                for media in step.content or ():
                    self._said(index, media)
            case kind:
                self._assembler.unknown(kind)
                if raw and kind != "user_input":
                    self._aside[index] = raw
        if step.signature:
            self._sign(index, step.signature)

    def _delta(self, index: int, delta: Delta) -> None:
        if index not in self._ids:
            self._steps += 1
            self._ids[index] = self._steps
        match delta.type:
            case "text":
                if delta.text:
                    id = self._item(index, "text")
                    self._assembler.text(id, delta.text, self._taken())
            case "arguments_delta":
                if delta.arguments:
                    self._assembler.tool_arguments(self._ids[index], delta.arguments)
            case "thought_summary":
                if delta.content is not None:
                    self._summary(index, delta.content)
            case "thought_signature":
                if delta.signature:
                    self._sign(index, delta.signature)
            case "image" | "audio":
                self._media(index, delta)
            case kind:
                self._assembler.unknown(str(kind))

    def _summary(self, index: int, content: Media) -> None:
        """A piece of thinking, in words or as a picture."""
        if content.text:
            id = self._item(index, "thinking")
            self._assembler.thinking(id, content.text, self._taken())
        elif content.data:
            id = self._item(index, "inline_thinking")
            mime_type = content.mime_type or _PICTURE
            self._assembler.inline_thinking(id, self._bytes(content.data), mime_type, self._taken())

    def _said(self, index: int, content: Media) -> None:
        """A piece of output that stands in a step's start, or in a whole interaction."""
        if content.text:
            id = self._item(index, "text")
            self._assembler.text(id, content.text, self._taken())
        elif content.data:
            delta = Delta(type=content.type, data=content.data, mime_type=content.mime_type)
            self._media(index, delta)

    def _media(self, index: int, delta: Delta) -> None:
        mime_type = delta.mime_type or _PICTURE
        if delta.sample_rate is not None:
            mime_type += f"; rate={delta.sample_rate}"
        if delta.channels is not None:
            mime_type += f"; channels={delta.channels}"
        id = self._item(index, "inline_data")
        self._assembler.inline_data(id, self._bytes(delta.data or ""), mime_type, self._taken())

    def _sign(self, index: int, signature: str) -> None:
        """A signature belongs to what the step said last; a step that said nothing is a thought."""
        fields = {"signature": signature, **self._rest()}
        id, kind = self._last.get(index, (self._ids.get(index, 0), "thinking"))
        if index not in self._last or kind == "thinking":
            self._assembler.thinking(self._item(index, "thinking"), "", fields)
        else:
            self._assembler.fidelity(id, fields)

    def _stop(self, index: int) -> None:
        if (raw := self._aside.pop(index, None)) is not None:
            self._beside += kept(raw)
        if index in self._last:
            self._assembler.end_item(self._last.pop(index)[0], whole=False)
        self._ids.pop(index, None)

    def _end(self, interaction: Interaction) -> None:
        # what the wire did not end is for the assembler to judge
        for raw in self._aside.values():
            self._beside += kept(raw)
        self._aside.clear()
        if self._beside:  # a turn that paused after them
            self._steps += 1
            self._assembler.text(self._steps, "", self._taken())
        usage = interaction.usage
        if usage is not None:
            cached = usage.total_cached_tokens
            self._assembler.usage(
                cached=cached,
                prompt=less(usage.total_input_tokens, cached),
                thoughts=usage.total_thought_tokens,
                response=usage.total_output_tokens,
            )
        word = interaction.status or ""
        self._assembler.finish(_FINISH.get(word, "unknown"), word=word)
        self.terminal = True

    # ---- items

    def _item(self, index: int, kind: str) -> Any:
        """The id of the step's item of that kind; a change of kind begins another."""
        last = self._last.get(index)
        if last is None or last[1] != kind:
            self._steps += 1
            last = self._last[index] = (self._steps, kind)
        return last[0]


_OURS = frozenset({"function_call", "thought", "model_output", None})
