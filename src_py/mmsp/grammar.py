"""The grammar of an answer: which item begins, continues and is done.

    stream := delta_event* stop_event
    items  := group*                    one item per delta event, in order
    group  := K.delta+ K.done           K a row of `items.KINDS`

A decoder tells the `Assembler` what it saw on its wire, in its wire's own ids; the assembler alone
makes items of it. Its rules:

1. **One item is open at a time.** What has the open item's kind and id continues it; anything else
   begins a new item, and the old one's `.done` goes out just before the new one's first delta. The
   last item's `.done` waits for `complete`: until the wire has ended well nothing looks finished.
2. **A `.done` is its first delta** with the growing field replaced by the join of all pieces (a
   call's arguments: parsed), plus the fidelity.
3. **An end on the wire** (`end_item`, `finish`) closes the item to further deltas and no more. The
   same id after it begins an item of its own, except for arguments, which then belong to nothing.
4. **Parallel calls wait their turn.** While a call is open, another call's pieces are held back, and
   go out as one delta when the open call is over: ended, followed by another kind, or finished.
5. **Fidelity once.** At most one delta of a group carries it and the `.done` repeats it. The same
   again is dropped, a second one that differs is an error.
6. **Nothing empty goes out**, except a call's first delta, which names it, and fidelity, which may
   travel alone on an empty delta.
7. **Whole pictures**: what is whole in one piece (`Kind.whole`, and pictures among inline data) is an
   item of its own each time.

After an abort the assembler is told to `drain`: what had arrived still makes deltas, but a finish
only says that it is `over`.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import msgspec

from .errors import (
    EmptyResponseError,
    IncompleteStreamError,
    StreamProtocolError,
    ToolCallArgumentParseError,
    UnknownEventError,
    preview,
)
from .items import KINDS, Fidelity, Group, Item, Kind
from .masking import masked
from .partial import is_picture, kept_of
from .plain import copied, is_too_deep
from .types import FinishReason, UsageMetadata

__all__ = ["Assembler"]

_TEXT = KINDS["text"]
_THINKING = KINDS["thinking"]
_TOOL_CALL = KINDS["tool_call"]
_INLINE_DATA = KINDS["inline_data"]
_INLINE_THINKING = KINDS["inline_thinking"]
_EMBEDDING = KINDS["embedding"]

_NOTHING: Any = object()  # an id that no item has


@dataclass(slots=True)
class _Usage:
    cached: int | None = None
    prompt: int | None = None
    thoughts: int | None = None
    response: int | None = None

    def plus(self, other: _Usage) -> _Usage:
        """The sums of the counts; one that only one of both has is as it is."""
        pairs = [(getattr(self, each), getattr(other, each)) for each in self.__slots__]
        return _Usage(*(b if a is None else a if b is None else a + b for a, b in pairs))

    def metadata(self) -> UsageMetadata:
        return {
            "cached_tokens": self.cached,
            "prompt_tokens": self.prompt,
            "thoughts_tokens": self.thoughts,
            "response_tokens": self.response,
        }


class Assembler:
    """Makes items of what a decoder saw; one per answer.

    `client` names the client in errors; `wire` and `host` mark the fidelity that is made here;
    `strict` makes unknown events errors. `secrets` are what no error about the answer may show.

    `origin` is that mark; a decoder whose fidelity comes marked empties it. `out` holds the items ready
    to be handed over, oldest first. `content` grows with every call that
    brought content, so that a reader can tell an answer that goes on from a mere sign of life.
    """

    def __init__(
        self,
        *,
        client: str,
        wire: str = "",
        host: str = "",
        strict: bool = False,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self.secrets = secrets
        self.wire = wire
        self.out: deque[Item] = deque()
        self.content = 0
        self.over = False
        self._client = client
        self.origin: Fidelity = {"wire": wire, "host": host} if wire else {}
        self._strict = strict
        self._draining = False
        self._reason: FinishReason | None = None
        self._word = ""
        self._finished = False
        self._after_finish: Item | None = None  # the first item that went out after the finish
        self._usage: _Usage | None = None
        self._used_before: _Usage | None = None  # by the answers before this one
        self._calls = False
        self._done: list[Item] = []
        self._arguments: dict[Hashable, str] = {}  # of finished calls
        self._held: dict[Hashable, Group] = {}
        self._group: Group | None = None
        # The three hot paths compare with the id below that is the open item's, if it can continue.
        self._text: Hashable = _NOTHING
        self._thinking: Hashable = _NOTHING
        self._call: Hashable = _NOTHING
        self._given: Fidelity | None = None
        self._write: Callable[[Any], Any] = io.StringIO().write
        self._send = self.out.append

    # ---- what a decoder saw

    def text(self, id: Hashable, piece: str, fidelity: Fidelity | None = None) -> None:
        """A piece of the answer's text."""
        if id == self._text and (fidelity is None or fidelity is self._given):
            if piece:
                self.content += 1
                self._write(piece)
                self._send({"type": "text.delta", "text": piece})
            return
        self._piece(_TEXT, id, {"type": "text.delta", "text": piece}, fidelity)

    def thinking(self, id: Hashable, piece: str, fidelity: Fidelity | None = None) -> None:
        """A piece of the model's thinking in words."""
        if id == self._thinking and (fidelity is None or fidelity is self._given):
            if piece:
                self.content += 1
                self._write(piece)
                self._send({"type": "thinking.delta", "thinking": piece})
            return
        self._piece(_THINKING, id, {"type": "thinking.delta", "thinking": piece}, fidelity)

    def tool_call(
        self,
        id: Hashable,
        name: str,
        call_id: str,
        fidelity: Fidelity | None = None,
        *,
        arguments: str = "",
    ) -> None:
        """A call begins, perhaps with `arguments`. Said again while it is open or held, it goes on."""
        if self.over:
            return
        if not name or not call_id:
            missing = "a name" if not name else "an id"
            raise self._broken(f"a tool call began without {missing}")
        first = {"type": "tool_call.delta", "name": name, "arguments": "", "tool_call_id": call_id}
        known = self._find_call(id)
        if known is None:
            self._begin_call(Group(_TOOL_CALL, id, first, io.StringIO()), fidelity, arguments)
            return
        if known.first != first:
            raise self._broken(f"a tool call began twice, as {known.first['name']!r} and {name!r}")
        if fidelity:
            self.fidelity(id, fidelity)
        self.tool_arguments(id, arguments)

    def tool_arguments(self, id: Hashable, piece: str) -> None:
        """A piece of a call's arguments, as JSON text."""
        if id == self._call:
            if piece:
                self.content += 1
                self._write(piece)
                self._send(
                    {"type": "tool_call.delta", "name": "", "arguments": piece, "tool_call_id": ""}
                )
            return
        if self.over or not piece:
            return
        held = self._held.get(id)
        if held is None or held.ended:
            raise self._broken("arguments came for a tool call that is not open")
        self.content += 1
        held.pieces.write(piece)

    def inline_data(
        self, id: Hashable, data: bytes, mime_type: str, fidelity: Fidelity | None = None
    ) -> None:
        """A picture, whole, or a piece of sound."""
        first = {"type": "inline_data.delta", "data": data, "mime_type": mime_type}
        self._piece(_INLINE_DATA, id, first, fidelity)

    def inline_thinking(
        self, id: Hashable, data: bytes, mime_type: str, fidelity: Fidelity | None = None
    ) -> None:
        """A picture of the model's thinking, whole."""
        first = {"type": "inline_thinking.delta", "data": data, "mime_type": mime_type}
        self._piece(_INLINE_THINKING, id, first, fidelity)

    def embedding(
        self, id: Hashable, values: list[float], fidelity: Fidelity | None = None
    ) -> None:
        """One embedding, whole."""
        first = {"type": "embedding.delta", "embedding": values}
        self._piece(_EMBEDDING, id, first, fidelity)

    def fidelity(self, id: Hashable, fields: Fidelity) -> None:
        """What the provider needs back with an item that is open or held."""
        if self.over or not fields:
            return
        group = self._open(id) or self._held.get(id)
        if group is None:
            raise self._broken("a signature came for an item that is not open")
        self.content += 1
        self._attach(group, fields)

    def end_item(self, id: Hashable, *, whole: bool = True) -> None:
        """The wire ended the item; ids it never opened are ignored.

        `whole` is false where that tells nothing of a call's arguments: some wires end an item also when
        the length limit cut it. Then a finish "length" right behind the call means that it was cut, also
        where what came of it happens to be JSON.
        """
        if self.over:
            return
        group = self._open(id) or self._held.get(id)
        if group is None:
            return
        group.ended, group.ended_on_wire = True, whole
        if group is self._group:
            self._close_to_deltas()
            self._release()

    def usage(
        self,
        *,
        cached: int | None = None,
        prompt: int | None = None,
        thoughts: int | None = None,
        response: int | None = None,
    ) -> None:
        """Token counts, as far as this report has them; for each the last one reported counts.

        A count below nothing is none: there are servers whose parts are more than the whole.
        """
        if self.over or (cached is prompt is thoughts is response is None):
            return
        last = self._usage or _Usage()
        self._usage = _Usage(
            last.cached if cached is None else max(0, cached),
            last.prompt if prompt is None else max(0, prompt),
            last.thoughts if thoughts is None else max(0, thoughts),
            last.response if response is None else max(0, response),
        )

    def finish(self, reason: FinishReason, *, ends_items: bool = True, word: str = "") -> None:
        """The turn ended; the last reason reported counts. `word` is the provider's own for it.

        Without `ends_items` it only notes the reason, for wires that put one on every frame: what comes
        after it is part of the answer all the same.
        """
        if self.over:
            return
        if self._draining:
            if ends_items:
                self._stop_here()
            return
        self.content += 1
        self._reason = reason
        self._word = preview(masked(word, self.secrets))
        if ends_items:
            self._finished = True
            self._end_all()

    def unknown(self, event: str) -> None:
        """An event that the decoder does not know: skipped, or an error when `strict`."""
        if self._strict:
            shown = preview(masked(event, self.secrets))
            raise UnknownEventError(
                f"the provider sent an event that is not known: {shown} (without MMSP_DEBUG it is skipped)",
                client=self._client,
                event=shown,
            )

    def arguments_of(self, id: Hashable) -> str | None:
        """The argument text of a call as far as it has come; None if there is no such call."""
        group = self._group
        if group is None or group.kind is not _TOOL_CALL or group.id != id:
            group = self._held.get(id)
        if group is not None:
            text: str = group.pieces.getvalue()
            return text
        return self._arguments.get(id)

    def joined(self, id: Hashable) -> Any:
        """The growing field of the open item as far as it has come; None if `id` is not the open one."""
        group = self._group
        return group.pieces.getvalue() if group is not None and group.id == id else None

    # ---- for the stream

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the turn ended, None until that was reported; a turn that ends to call tools says so."""
        return "tool_call" if self._reason == "stop" and self._calls else self._reason

    @property
    def usage_metadata(self) -> UsageMetadata | None:
        """Token counts reported so far, None until there were any."""
        used = self._used()
        return used.metadata() if used else None

    @property
    def items(self) -> int:
        """How many items there are so far, the open one among them."""
        return len(self._done) + (self._group is not None)

    def next_answer(self) -> None:
        """The answer was whole, but the turn goes on in the answer to a further request."""
        self._used_before, self._usage = self._used(), None
        self._reason, self._word = None, ""
        self._finished, self._after_finish = False, None

    @property
    def may_take_back(self) -> bool:
        """Whether the finish has set items free that `drain` takes back from `out`."""
        return self._after_finish is not None

    def drain(self) -> None:
        """After an abort: what came before the finish still goes out, a finish only ends it.

        Items in `out` that a finish had already released are taken back, so that it makes no
        difference whether the finish was decoded a moment before the abort or after it.
        """
        if self._draining:
            return
        self._draining = True
        if not self._finished:
            return
        if self._after_finish is not None:
            while self.out and self.out.pop() is not self._after_finish:
                pass
        self._stop_here()

    def complete(self, *, terminal: bool) -> list[Item]:
        """The wire ended well; `terminal` says whether by its own end event.

        Returns the closing items. Raises `IncompleteStreamError`, `ToolCallArgumentParseError` or
        `EmptyResponseError`, looked for in this order.
        """
        if self._reason is None:
            if not terminal or not self.content or self._call is not _NOTHING:
                raise self.incomplete()
            self._reason = "unknown"
        kept = len(self.out)
        self._end_all()
        self._finish_group(cut=self._reason == "length")
        if all(KINDS[item["type"].removesuffix(".done")].thought for item in self._done):
            what = (
                "the answer holds nothing but thinking: sent back, it would be refused"
                if self._done
                else f"the provider answered nothing (finish reason: {self._said_reason()})"
            )
            raise EmptyResponseError(
                f"{what}. Trying again makes sense",
                client=self._client,
                finish_reason=self.finish_reason,
                usage_metadata=self.usage_metadata,
            )
        closing = list(self.out)[kept:]
        for _ in closing:
            self.out.pop()
        return closing

    def message(self) -> Item:
        """The assistant message, whole after `complete`."""
        return self._message(self._done, self.finish_reason)

    def partial(self, *, tool_calls: bool = False) -> Item | None:
        """The assistant message of what has arrived, fit to be sent back; None if nothing is kept."""
        items = list(self._done)
        group = self._group
        if group is not None and group.kind is not _TOOL_CALL:
            items.append(group.done())
        kept = kept_of(items, tool_calls=tool_calls)
        return self._message(kept, "unknown") if kept else None

    # ---- the interpreter

    def _piece(self, kind: Kind, id: Hashable, first: Item, fidelity: Fidelity | None) -> None:
        """A piece of any kind but calls: it continues the open item or begins one."""
        piece = first[kind.grows]
        if self.over or not (piece or fidelity or kind is _EMBEDDING):
            return
        self.content += 1
        group = self._open(id)
        if group is not None and not piece and kind is not _EMBEDDING:
            self._attach(group, fidelity or {})
        elif group is not None and _continues(group, kind, first):
            item = group.delta(piece)
            if fidelity and self._mark(group, fidelity):
                item["fidelity"] = copied(group.fidelity)
            self._write(piece)
            self._send(item)
        else:
            group = Group(kind, id, {**first, kind.grows: type(piece)()}, kind.pieces())
            if fidelity:
                self._mark(group, fidelity)
            self._release(everything=True)
            self._begin(group, piece)

    def _begin_call(self, group: Group, fidelity: Fidelity | None, arguments: str) -> None:
        """A call goes out, or is held back while another one is open."""
        self.content += 1
        self._calls = True
        if fidelity:
            self._mark(group, fidelity)
        if self._call is _NOTHING:
            self._begin(group, arguments)
        else:
            group.pieces.write(arguments)
            self._held[group.id] = group

    def _begin(self, group: Group, piece: Any) -> None:
        """The open item is over, `group` is the open one, and its first delta goes out."""
        self._finish_group()
        self._group = group
        if piece:
            group.pieces.write(piece)
        self._write = group.pieces.write
        self._given = group.given
        self._text = group.id if group.kind is _TEXT else _NOTHING
        self._thinking = group.id if group.kind is _THINKING else _NOTHING
        self._call = group.id if group.kind is _TOOL_CALL else _NOTHING
        item = {**group.first, group.kind.grows: piece}
        if group.fidelity is not None:
            item["fidelity"] = copied(group.fidelity)
        self._send(item)
        self._note(item)

    def _finish_group(self, *, cut: bool = False) -> None:
        """The open item's `.done` goes out; a call that was `cut` short has none."""
        group = self._group
        if group is None:
            return
        item = group.done()
        if group.kind is _TOOL_CALL:
            text = item["arguments"]
            if cut and not group.ended_on_wire:
                raise self._bad_arguments(item, "were cut off by the length limit")
            item["arguments"] = self._parsed(item)
            self._arguments[group.id] = text
        self._group = None
        self._close_to_deltas()
        self._done.append(item)
        sent = copied(item)
        self._send(sent)
        self._note(sent)

    def _parsed(self, call: Item) -> dict[str, Any]:
        text = call["arguments"]
        try:
            arguments = msgspec.json.decode(text) if text else {}
        except (ValueError, RecursionError):
            raise self._bad_arguments(call, "are not JSON") from None
        if is_too_deep(arguments):  # it could neither be saved nor sent back
            raise self._bad_arguments(call, "are nested too deeply")
        if not isinstance(arguments, dict):
            raise self._bad_arguments(call, "are not a JSON object")
        return arguments

    def _release(self, *, everything: bool = False) -> None:
        """The held calls whose turn it is go out, each in one delta, up to one that goes on."""
        while self._held and (everything or self._call is _NOTHING):
            group = self._held.pop(next(iter(self._held)))
            pieces, group.pieces = group.pieces.getvalue(), io.StringIO()
            self._begin(group, pieces)
            if group.ended:
                self._close_to_deltas()

    def _end_all(self) -> None:
        """No item takes further deltas."""
        self._release(everything=True)
        if self._group is not None:
            self._group.ended = True
        self._close_to_deltas()

    def _close_to_deltas(self) -> None:
        self._text = self._thinking = self._call = _NOTHING

    def _stop_here(self) -> None:
        self.over = True
        self._held.clear()
        self._close_to_deltas()

    def _note(self, item: Item) -> None:
        if self._finished and self._after_finish is None:
            self._after_finish = item

    def _open(self, id: Hashable) -> Group | None:
        """The open item, if `id` is its id and it takes further deltas."""
        group = self._group
        return group if group is not None and group.id == id and not group.ended else None

    def _find_call(self, id: Hashable) -> Group | None:
        """The call `id`, open or held, if it takes further deltas."""
        group = self._open(id) if id == self._call else self._held.get(id)
        if group is not None and group.ended:
            raise self._broken("a tool call began again before its turn had come")
        return group

    # ---- fidelity

    def _mark(self, group: Group, fields: Fidelity) -> bool:
        """`fields` become the group's fidelity; False if they are that already."""
        if group.given is not None:
            if group.given == fields:
                return False
            raise self._broken(f"a {group.kind.name} item came with two different signatures")
        group.given = fields
        group.fidelity = {**fields, **self.origin}
        if group is self._group:
            self._given = fields
        return True

    def _attach(self, group: Group, fields: Fidelity) -> None:
        if self._mark(group, fields) and group is self._group:
            item = group.delta(type(group.first[group.kind.grows])())
            item["fidelity"] = copied(group.fidelity)
            self._send(item)

    # ---- messages and errors

    def _used(self) -> _Usage | None:
        if self._usage is None or self._used_before is None:
            return self._usage or self._used_before
        return self._used_before.plus(self._usage)

    def _message(self, items: list[Item], reason: FinishReason | None) -> Item:
        return {
            "role": "assistant",
            "content_items": [copied(item) for item in items],
            "usage_metadata": (self._used() or _Usage()).metadata(),
            "finish_reason": reason,
        }

    def _broken(self, what: str) -> StreamProtocolError:
        return StreamProtocolError(
            f"the provider broke its own protocol: {what}", client=self._client
        )

    def incomplete(self) -> IncompleteStreamError:
        """The error for an answer that ended here."""
        missing = ("finish_reason",) if self._used() else ("finish_reason", "usage_metadata")
        names = " and ".join(name.replace("_metadata", "").replace("_", " ") for name in missing)
        return IncompleteStreamError(
            f"the answer ended before it was whole: no {names} came. Trying again makes sense",
            client=self._client,
            missing=missing,
            finish_reason=self.finish_reason,
            usage_metadata=self.usage_metadata,
        )

    def _said_reason(self) -> str:
        return f"{self.finish_reason}, {self._word}" if self._word else str(self.finish_reason)

    def _bad_arguments(self, call: Item, what: str) -> ToolCallArgumentParseError:
        text = call["arguments"]
        shown = preview(masked(text, self.secrets))
        return ToolCallArgumentParseError(
            f"the arguments of the model's call of {call['name']!r} {what}: {shown}",
            client=self._client,
            tool_name=call["name"],
            tool_call_id=call["tool_call_id"],
            raw_arguments_length=len(text),
            raw_arguments_preview=shown,
        )


def _continues(group: Group, kind: Kind, first: Item) -> bool:
    """Whether a piece of `kind` with the open item's id goes on with it."""
    if group.kind is not kind or kind.whole:
        return False
    mime_type = first.get("mime_type", "")
    return mime_type == group.first.get("mime_type", "") and not is_picture(mime_type)
