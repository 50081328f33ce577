"""The answer of a Responses server, event by event.

Every output item has a number, `output_index`, by which its events are told apart; servers that leave it
out give each item an id. An item's `done` event is the only one that holds its sealed reasoning, and
may come when the next item has been announced: so an announcement waits until something of the item
arrives, and a seal that comes later still waits until nothing is cut in two by it. What the deltas left
out (some servers send none) is taken from the finished item.

The items of built-in tools (search, code, MCP) are none of ours: they ride in the fidelity of the item
that follows, since the API wants them back between the reasoning they belong to.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from ..dialects.responses import ResponsesDialect
from ..errors import StreamProtocolError
from ..grammar import Assembler
from .forgiving import EventReader, whole_characters
from .http_error import Complaint, complaint
from .openai_responses_event import (
    BUILT_IN,
    OURS,
    SEALED,
    SKIPPED,
    Event,
    Item,
    Response,
    Usage,
    as_text,
    finish_of,
    is_same,
    key_of,
    merged,
    texts,
)
from .wire_decoder import WireDecoder, kept, less, object_in, plain_or_none

__all__ = ["ResponsesDecoder"]

_ANSWERS = EventReader(Response)
_ITEMS = EventReader(Item)


@dataclass(slots=True, eq=False)
class _Output:
    """An output item. `id` is ours; `begun` once the assembler may hear of it, `content` once it has."""

    id: int
    item: Item
    begun: bool = False
    content: bool = False
    done: bool = False

    @property
    def is_open_call(self) -> bool:
        return self.begun and not self.done and self.item.type == "function_call"


class ResponsesDecoder(WireDecoder[Event]):
    """Tells `assembler` what a Responses server says. `terminal` is set by the event that ends it."""

    events = EventReader(Event)
    grows = frozenset({"delta"})

    def __init__(self, assembler: Assembler, dialect: ResponsesDialect, *, client: str) -> None:
        super().__init__(assembler, client=client)
        self._dialect = dialect
        self._outputs: dict[Hashable, _Output] = {}
        self._last: _Output | None = None  # the item that the assembler heard of last
        self._count = 0
        self._late: list[tuple[int, str, dict[str, Any] | None]] = []  # thinking after its time

    def whole(self, body: bytes) -> None:
        """A 200 answer that is no stream: a whole response, or what went wrong instead."""
        answer = plain_or_none(body)
        if isinstance(answer, dict) and isinstance(answer.get("output"), list):
            try:
                self._end("", _ANSWERS.forgive(answer, self._mend), answer)
            except RecursionError:  # pragma: no cover - writers give up first on some Pythons only
                raise self._unreadable("JSON nested too deeply", body) from None
            return
        self._complain(answer)
        raise self._unreadable("neither a stream nor a response", body)

    # ---- events

    def _event(self, event: str, read: Event, data: bytes) -> None:
        if read.type == "response.output_text.delta":
            self._said(read)
        else:
            self._other(event, read.type or event, read, data)

    def _text_of(self, answer: dict[str, Any]) -> Hashable:
        places = (answer.get("output_index"), answer.get("item_id"))
        place = next((each for each in places if isinstance(each, int | str)), None)
        return (place, str(answer.get("type")))

    def _other(self, event: str, kind: str, read: Event, data: bytes) -> None:
        match kind:
            case "response.refusal.delta" | "response.output_text.delta":
                self._said(read)
            case "response.reasoning_text.delta":
                self._thought(read)
            case "response.reasoning_summary_text.delta":
                if self._dialect.reads_summaries:
                    self._thought(read)
            case "response.function_call_arguments.delta":
                self._arguments(read)
            case "response.function_call_arguments.done":
                self._arguments_at_once(read)
            case "response.output_item.added":
                self._added(read)
            case "response.output_item.done":
                self._done(read, data)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(kind, read.response or Response(), plain_or_none(data))
            case _ if "error" in (kind, event) or read.error is not None:
                raise self._reported(data)
            case _:
                if not kind.startswith(SKIPPED):
                    self._assembler.unknown(kind or self._shown(data))

    def _said(self, read: Event) -> None:
        if read.delta:
            output = self._known(read, "message")
            output.content = True
            self._assembler.text(output.id, read.delta)

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

    def _arguments_at_once(self, read: Event) -> None:
        """Arguments in one piece, of a call whose item may say them once more."""
        output = self._outputs.get(key_of(read))
        is_call = output is not None and output.item.type == "function_call"
        if output is not None and is_call and not self._dialect.calls_come_whole:
            self._complete_call(output, read.arguments or "")

    def _added(self, read: Event) -> None:
        item = read.item
        if item is None or item.type not in OURS:
            return
        before = self._outputs.get(key_of(read))
        if before is not None and is_same(before.item, item) and (item.own_id or not before.done):
            return  # said twice
        self._make(key_of(read), item)
        self._begin_waiting()

    def _done(self, read: Event, data: bytes) -> None:
        item = read.item
        if item is None:
            return
        if item.type not in OURS:
            self._keep_beside(object_in(data, "item"))
            return
        output = self._outputs.get(key_of(read))
        if output is None or output.item.type != item.type:
            output = self._unfinished(item.type) if read.output_index is None else None
        elif output.done and not is_same(output.item, item):
            output = None
        self._complete(output or self._make(key_of(read), item), item)
        self._begin_waiting()

    # ---- the end of an item

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
                output.item = merged(output.item, item)
                self._complete_call(output, as_text(item.arguments))
        self._assembler.end_item(output.id, whole=item.status != "incomplete")
        if not any(each.begun and not each.done for each in self._outputs.values()):
            self._say_late()

    def _complete_message(self, output: _Output, item: Item) -> None:
        text = "" if output.content else texts(item.content, "text", "refusal")
        self._begin(output)
        if text:
            output.content = True
            self._assembler.text(output.id, text)

    def _complete_reasoning(self, output: _Output, item: Item) -> None:
        text = "" if output.content else self._thinking_in(item)
        seal = self._seal(item)
        if self._is_late(output):
            self._late.append((output.id, text, seal))
        else:
            self._think(output.id, text, seal)

    def _is_late(self, output: _Output) -> bool:
        """Whether an item that came after this reasoning is open and must not be cut in two."""
        last = self._last
        if last is None or last.done or last.item.type == "reasoning":
            return False
        return output.id < last.id or last.item.type == "function_call"

    def _complete_call(self, output: _Output, text: str) -> None:
        """Arguments that came in no delta."""
        self._begin(output)
        if text and not output.content:
            output.content = True
            self._assembler.tool_arguments(output.id, text)

    def _thinking_in(self, item: Item) -> str:
        summary = texts(item.summary, "text") if self._dialect.reads_summaries else ""
        return summary or texts(item.content, "text")

    def _think(self, id: int, text: str, seal: dict[str, Any] | None) -> None:
        self._assembler.thinking(id, text)
        self._assembler.thinking(id, "", seal)

    def _say_late(self) -> None:
        """Seals that came while the item after their own was open, now that none is."""
        late, self._late = self._late, []
        for each in late:
            self._think(*each)

    def _seal(self, item: Item) -> dict[str, Any] | None:
        """What the provider needs back with a reasoning item."""
        if not self._dialect.keeps_reasoning:
            return None
        channel = "summary" if item.summary else None
        if self._dialect.sealed_is_summary and channel is None and item.content:
            channel = "content"
        fields = {"channel": channel, **{name: getattr(item, name) for name in SEALED}}
        return {k: v for k, v in fields.items() if v is not None} | self._rest() or None

    # ---- the end of the answer

    def _end(self, kind: str, response: Response, answer: Any) -> None:
        """The last event. What came in no event of its own stands in its output."""
        status = response.status or kind.rpartition(".")[2]
        self._usage(response.usage)
        if "failed" in (status, kind.rpartition(".")[2]) or response.error:
            raise self._failed(answer)
        if not self._assembler.content:
            self._read_output(_response_in(answer))
        self._end_items(whole=status != "incomplete")
        why = response.incomplete_details
        reason = why.reason if why else None
        self._assembler.finish(finish_of(status, reason), word=reason or status)
        self.terminal = True

    def _read_output(self, response: dict[str, Any]) -> None:
        self._outputs.clear()
        self._beside.clear()
        output = response.get("output")
        for raw in output if isinstance(output, list) else ():
            item = _ITEMS.forgive(raw, lambda _, text: whole_characters(text))
            if item.type in OURS:
                self._complete(self._make(object(), item), item)
            elif isinstance(raw, dict):
                self._keep_beside(raw)

    def _end_items(self, *, whole: bool) -> None:
        """What still waits is told. Nothing may follow a call that was cut, for it would look whole."""
        for output in list(self._outputs.values()):
            if whole and output.is_open_call:
                self._assembler.end_item(output.id)
        for output in list(self._outputs.values()):
            if output.item.type == "function_call" or not self._is_cut(whole):
                self._begin(output)
        if self._is_cut(whole):
            return
        self._say_late()
        if self._beside:
            self._count += 1
            self._assembler.text(self._count, "", self._rest())

    def _is_cut(self, whole: bool) -> bool:
        return not whole and any(each.is_open_call for each in self._outputs.values())

    def _usage(self, usage: Usage | None) -> None:
        if usage is None:
            return
        read, wrote = usage.input_tokens_details, usage.output_tokens_details
        cached = read.cached_tokens if read else None
        thoughts = wrote.reasoning_tokens if wrote else None
        self._assembler.usage(
            cached=cached,
            prompt=less(usage.input_tokens, cached),
            thoughts=thoughts,
            response=less(usage.output_tokens, thoughts),
        )

    def _failed(self, answer: Any) -> Exception:
        found = complaint(_response_in(answer)) or complaint(answer) or Complaint("")
        return self._failure(found)

    # ---- output items

    def _known(self, read: Event, kind: str) -> _Output:
        """The begun output item of an event, made up if it was never announced."""
        output = self._outputs.get(key_of(read))
        if output is None or output.item.type != kind:
            if kind == "function_call":
                output = self._unfinished(kind) if read.output_index is None else None
                if output is None:
                    raise StreamProtocolError(
                        "arguments came for a tool call that never began", client=self._client
                    )
            else:
                output = self._make(key_of(read), Item(type=kind, id=read.item_id))
        if not output.begun:
            self._begin(output)
        self._last = output
        return output

    def _make(self, key: Hashable, item: Item) -> _Output:
        self._count += 1
        if (before := self._outputs.pop(key, None)) is not None:
            self._outputs[object()] = before  # the server counts from the start again
        output = self._outputs[key] = _Output(self._count, item)
        return output

    def _unfinished(self, kind: str | None) -> _Output | None:
        """The first item of that kind that is not done, where ids change on the way."""
        open_ones = (it for it in self._outputs.values() if it.item.type == kind and not it.done)
        return next(open_ones, None)

    def _begin_waiting(self) -> None:
        """What was announced begins, unless reasoning before it has yet to be sealed."""
        for output in list(self._outputs.values()):
            if output.item.type == "reasoning" and not output.done:
                return
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
            self._assembler.tool_call(output.id, item.name or "", call_id, self._taken())
            self._last = output
        elif item.type == "message" and (fidelity := self._phase(item) | self._rest()):
            self._assembler.text(output.id, "", fidelity)
            self._last = output
        output.begun = True

    def _phase(self, item: Item) -> dict[str, Any]:
        is_kept = item.phase or (self._dialect.keeps_empty_phase and item.phase is not None)
        return {"phase": item.phase} if is_kept and self._dialect.keeps_reasoning else {}

    # ---- built-in tools' items

    def _keep_beside(self, item: dict[str, Any]) -> None:
        kind = item.get("type")
        if self._dialect.keeps_reasoning and isinstance(kind, str) and kind in BUILT_IN:
            self._beside += kept(item)


def _response_in(answer: Any) -> dict[str, Any]:
    """The response of a last event, or the whole answer that is one."""
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if not isinstance(answer, dict):
        return {}
    response = answer.get("response", answer)
    return response if isinstance(response, dict) else {}
