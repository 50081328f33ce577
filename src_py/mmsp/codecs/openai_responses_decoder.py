"""The answer of a Responses server, event by event.

Every output item has a number, `output_index`, by which its events are told apart; servers that leave it
out give each item an id. An item's `done` event is the only one that holds its sealed reasoning, and
may come when the next item has been announced: so an announcement waits until something of the item
arrives. What the deltas left out (some servers send none) is taken from the finished item.

The items of built-in tools (search, code, MCP) are none of ours: they ride in the fidelity of the item
that follows, since the API wants them back between the reasoning they belong to.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import msgspec

from ..dialects.responses import ResponsesDialect
from ..errors import StreamProtocolError
from ..grammar import Assembler
from ..types import FinishReason
from .forgiving import EventReader, whole_characters
from .http_error import Complaint, complaint
from .wire_decoder import WireDecoder, object_in, plain_or_none

__all__ = ["BESIDE", "ResponsesDecoder"]

BESIDE = "beside"  # in fidelity: the built-in tools' items that came before the item

_SEALED = ("encrypted_content", "signature", "format")


class Item(msgspec.Struct, gc=False):
    type: str | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    phase: str | None = None
    content: Any = None
    summary: Any = None
    encrypted_content: str | None = None
    signature: str | None = None
    format: str | None = None


class InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class Response(msgspec.Struct, gc=False):
    status: str | None = None
    usage: Usage | None = None
    output: list[Item] | None = None
    incomplete_details: Incomplete | None = None
    error: Any = None


class Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    item: Item | None = None
    response: Response | None = None
    arguments: str | None = None
    text: str | None = None
    refusal: str | None = None
    error: Any = None


_ANSWERS = EventReader(Response)


@dataclass(slots=True, eq=False)
class _Output:
    """An output item. `id` is ours; `begun` once the assembler has heard of it."""

    id: int
    item: Item
    begun: bool = False
    content: bool = False
    done: bool = False


class ResponsesDecoder(WireDecoder[Event]):
    """Tells `assembler` what a Responses server says. `terminal` is set by the event that ends it."""

    events = EventReader(Event)
    grows = frozenset({"delta"})

    def __init__(self, assembler: Assembler, dialect: ResponsesDialect, *, client: str) -> None:
        super().__init__(assembler, client=client)
        self._dialect = dialect
        self._outputs: dict[Hashable, _Output] = {}
        self._count = 0
        self._beside: list[Any] = []  # built-in tools' items that no item has taken yet

    def whole(self, body: bytes) -> None:
        """A 200 answer that is no stream: a whole response, or what went wrong instead."""
        answer = plain_or_none(body)
        if isinstance(answer, dict) and isinstance(answer.get("output"), list):
            self._end(_ANSWERS.forgive(answer, self._mend), answer)
            return
        self._complain(answer)
        raise self._unreadable("neither a stream nor a response", body)

    # ---- events

    def _event(self, event: str, read: Event, data: bytes) -> None:
        if read.type == "response.output_text.delta":
            if read.delta:
                self._assembler.text(self._known(read, "message").id, read.delta)
        else:
            self._other(read.type or event, read, data)

    def _text_of(self, answer: dict[str, Any]) -> Hashable:
        number = answer.get("output_index")
        return (number if isinstance(number, int) else None, str(answer.get("type")))

    def _other(self, kind: str, read: Event, data: bytes) -> None:
        match kind:
            case "response.reasoning_text.delta":
                self._thought(read)
            case "response.reasoning_summary_text.delta":
                if self._dialect.reads_summaries:
                    self._thought(read)
            case "response.function_call_arguments.delta":
                self._arguments(read)
            case "response.function_call_arguments.done":
                if not self._dialect.calls_come_whole and (text := read.arguments):
                    self._complete_call(self._known(read, "function_call"), text)
            case "response.refusal.delta":
                if read.delta:
                    self._assembler.text(self._known(read, "message").id, read.delta)
            case "response.output_item.added":
                self._added(read)
            case "response.output_item.done":
                self._done(read, data)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(read.response or Response(), plain_or_none(data))
            case "error":
                raise self._reported(data)
            case _ if read.error is not None:
                raise self._reported(data)
            case _:
                if not kind.startswith(_SKIPPED):
                    self._assembler.unknown(kind or self._shown(data))

    def _thought(self, read: Event) -> None:
        if read.delta:
            output = self._known(read, "reasoning")
            output.content = True
            self._assembler.thinking(output.id, read.delta)

    def _arguments(self, read: Event) -> None:
        if read.delta and not self._dialect.calls_come_whole:
            output = self._known(read, "function_call")
            output.content = True
            self._assembler.tool_arguments(output.id, read.delta)

    def _added(self, read: Event) -> None:
        item = read.item
        if item is not None and item.type in _OURS:
            key = _key(read)
            if (before := self._outputs.get(key)) is not None and before.item.type == item.type:
                return  # said twice
            self._make(key, item)
            if not self._reasoning_is_open():
                self._begin_waiting()

    def _done(self, read: Event, data: bytes) -> None:
        item = read.item
        if item is None:
            return
        if item.type not in _OURS:
            self._set_beside(data)
            return
        output = self._outputs.get(_key(read))
        if output is None or output.item.type != item.type:
            output = self._unfinished(item.type) if read.output_index is None else None
        self._complete(output or self._make(_key(read), item), item)
        self._begin_waiting()

    def _complete(self, output: _Output, item: Item) -> None:
        """The finished item: what of it has not been said yet, and its end."""
        if output.done:
            return
        output.done = True
        match item.type:
            case "message":
                self._complete_message(output, item)
            case "reasoning":
                self._complete_reasoning(output, item)
            case _:
                output.item = _merged(output.item, item)
                self._complete_call(output, _as_text(item.arguments))
        self._assembler.end_item(output.id)

    def _complete_message(self, output: _Output, item: Item) -> None:
        text = "" if output.begun else _texts(item.content, "text", "refusal")
        if text:
            self._begin(output)
            self._assembler.text(output.id, text)

    def _complete_reasoning(self, output: _Output, item: Item) -> None:
        if not output.content:
            text = _texts(item.content, "text")
            if self._dialect.reads_summaries:
                text = _texts(item.summary, "text") or text
            self._assembler.thinking(output.id, text)
        self._assembler.thinking(output.id, "", self._seal(item))

    def _complete_call(self, output: _Output, text: str) -> None:
        """Arguments that came in no delta."""
        self._begin(output)
        if text and not output.content:
            output.content = True
            self._assembler.tool_arguments(output.id, text)

    def _seal(self, item: Item) -> dict[str, Any] | None:
        """What the provider needs back with a reasoning item."""
        if not self._dialect.keeps_reasoning:
            return None
        channel = "summary" if item.summary else "content" if item.content else None
        fields = {"channel": channel, **{name: getattr(item, name) for name in _SEALED}}
        return {k: v for k, v in fields.items() if v is not None} | self._rest() or None

    def _end(self, response: Response, answer: Any) -> None:
        """The last event. What came in no event of its own stands in its output."""
        if response.status == "failed" or response.error:
            raise self._failed(answer)
        if not self._assembler.content:
            for item in response.output or ():
                if item.type in _OURS:
                    self._complete(self._make(object(), item), item)
        for output in list(self._outputs.values()):
            self._begin(output)
        if self._beside:
            self._count += 1
            self._assembler.text(self._count, "", self._rest())
        self._usage(response.usage)
        why = response.incomplete_details
        self._assembler.finish(_finish(response.status, why.reason if why else None))
        self.terminal = True

    def _usage(self, usage: Usage | None) -> None:
        if usage is None:
            return
        read, wrote = usage.input_tokens_details, usage.output_tokens_details
        cached = read.cached_tokens if read else None
        thoughts = wrote.reasoning_tokens if wrote else None
        prompt, response = usage.input_tokens, usage.output_tokens
        self._assembler.usage(
            cached=cached,
            prompt=None if prompt is None else prompt - (cached or 0),
            thoughts=thoughts,
            response=None if response is None else response - (thoughts or 0),
        )

    # ---- output items

    def _known(self, read: Event, kind: str) -> _Output:
        """The begun output item of an event, made up if it was never announced."""
        output = self._outputs.get(_key(read))
        if output is None or output.item.type != kind:
            if kind == "function_call":
                raise StreamProtocolError(
                    "arguments came for a tool call that never began", client=self._client
                )
            output = self._make(_key(read), Item(type=kind))
        if not output.begun:
            self._begin(output)
        return output

    def _make(self, key: Hashable, item: Item) -> _Output:
        self._count += 1
        output = self._outputs[key] = _Output(self._count, item)
        return output

    def _unfinished(self, kind: str | None) -> _Output | None:
        """The first item of that kind that is not done, where ids change on the way."""
        open_ones = (it for it in self._outputs.values() if it.item.type == kind and not it.done)
        return next(open_ones, None)

    def _reasoning_is_open(self) -> bool:
        """Whether a reasoning item has been thought and not been sealed."""
        return any(each.content and not each.done for each in self._thoughts())

    def _thoughts(self) -> list[_Output]:
        return [each for each in self._outputs.values() if each.item.type == "reasoning"]

    def _begin_waiting(self) -> None:
        for output in list(self._outputs.values()):
            if not output.begun:
                self._begin(output)

    def _begin(self, output: _Output) -> None:
        """Tell the assembler of an item that begins with something to say."""
        if output.begun:
            return
        item = output.item
        if item.type == "function_call":
            if self._dialect.calls_come_whole and not output.done:
                return
            call_id = item.call_id or item.id or ""
            self._assembler.tool_call(output.id, item.name or "", call_id, self._rest() or None)
        elif item.type == "message":
            phase = {"phase": item.phase} if item.phase and self._dialect.keeps_reasoning else {}
            if fidelity := phase | self._rest():
                self._assembler.text(output.id, "", fidelity)
        output.begun = True

    def _set_beside(self, data: bytes) -> None:
        item = object_in(data, "item")
        if self._dialect.keeps_reasoning and item.get("type") in _BUILT_IN:
            self._beside.append(item)

    def _rest(self) -> dict[str, Any]:
        """The fidelity that holds the built-in tools' items nobody has taken."""
        taken, self._beside = self._beside, []
        return {BESIDE: taken} if taken else {}

    # ---- what does not fit

    def _failed(self, answer: Any) -> Exception:
        response = answer.get("response", answer) if isinstance(answer, dict) else None
        found = complaint(response) or Complaint("")
        return self._failure(found)


_OURS = frozenset({"message", "reasoning", "function_call"})

# Items of built-in tools that the API takes back as it sent them. A drawn picture is left out for its size.
_BUILT_IN = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "mcp_approval_request",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
    }
)

# Everything else of the type definitions says again what is read elsewhere, or nothing we have.
_SKIPPED = (
    "response.audio",
    "response.code_interpreter_call",
    "response.compaction",
    "response.content_part.",
    "response.created",
    "response.custom_tool_call",
    "response.file_search_call",
    "response.image_generation_call",
    "response.in_progress",
    "response.mcp_",
    "response.output_text.",
    "response.queued",
    "response.reasoning_",
    "response.refusal.done",
    "response.shell_call",
    "response.steer",
    "response.web_search_call",
    "keepalive",
    "ping",
)


def _key(read: Event) -> Hashable:
    """By number, since one gateway changes the id with every delta; by id where there is no number."""
    if read.output_index is not None:
        return read.output_index
    return read.item_id or (read.item and (read.item.id or read.item.call_id)) or ""


def _finish(status: str | None, reason: str | None) -> FinishReason:
    if status == "incomplete":
        return "content_filter" if reason == "content_filter" else "length"
    return "stop" if status == "completed" else "unknown"


def _merged(announced: Item, done: Item) -> Item:
    """A call's name and id from wherever they came."""
    return Item(
        type=done.type,
        id=announced.id or done.id,
        call_id=announced.call_id or done.call_id,
        name=announced.name or done.name,
    )


def _as_text(arguments: Any) -> str:
    """Arguments as JSON text, which one server sends as an object."""
    if arguments is None or isinstance(arguments, str):
        return whole_characters(arguments or "")
    return msgspec.json.encode(arguments).decode()


def _texts(parts: Any, *names: str) -> str:
    """The texts of content or summary parts, joined."""
    if not isinstance(parts, list):
        return ""
    found = [part.get(name) for part in parts if isinstance(part, dict) for name in names]
    return "".join(whole_characters(each) for each in found if isinstance(each, str))
