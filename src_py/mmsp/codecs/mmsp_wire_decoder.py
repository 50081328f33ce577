"""The answer of an MMSP server: one public event after the other, then `[DONE]`.

    data: {"event_type": "delta", "content_items": [item], …}      item: a delta, or a finished one
    data: {"event_type": "stop", "usage_metadata": …, "finish_reason": …}
    data: {"error": {"type", "message", …}}

The pieces go through the assembler as those of every wire do, which makes the finished items anew: what
the server says of a finished item has to equal that. Fidelity is the provider's and its mark too, so it
is kept as it comes. The `stop` is the end; an end without it is a stream that was cut.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import MMSPError, StreamProtocolError
from ..grammar import Assembler
from ..items import Fidelity
from ..plain import Fault, plain_copy
from .error_wire import error_from_wire
from .forgiving import EventReader
from .mmsp_wire_event import DELTAS, FINISH, Event, Item, is_said_by, mended
from .openai_embedding import vector
from .wire_decoder import WireDecoder, plain_or_none

__all__ = ["MMSPDecoder"]


class MMSPDecoder(WireDecoder[Event]):
    """Tells `assembler` what an MMSP server says. `terminal` is set by the `stop`."""

    events = EventReader(Event)
    grows = frozenset({"text", "thinking", "arguments"})

    def __init__(self, assembler: Assembler, *, client: str) -> None:
        super().__init__(assembler, client=client)
        assembler.origin = {}  # what comes is marked by the client that the server asked with
        self._id = 0
        self._open: str | None = None  # the type of the deltas that go on with the open item
        self._call = ("", "")  # the open call's name and id

    def whole(self, body: bytes) -> None:
        """A 200 answer that is no stream: a whole message, or what went wrong instead."""
        try:
            self._read_whole(plain_or_none(body), body)
        except RecursionError:
            raise self._unreadable("JSON nested too deeply", body) from None

    def _read_whole(self, answer: Any, body: bytes) -> None:
        if isinstance(answer, dict) and isinstance(answer.get("content_items"), list):
            message = self._forgiven(answer)
            self._items(message)
            self._stop(message)
            return
        said = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(said, dict):
            error = self._told(said)
            if type(error).__name__ == said.get("type"):
                raise error
        self._complain(answer)
        raise self._unreadable("neither a stream nor a message", body)

    # ---- events

    def _event(self, event: str, read: Event, data: bytes) -> None:
        self._items(read)
        if read.event_type != "delta":
            self._other(event, read, data)

    def _end_mark(self) -> None:
        raise self._assembler.incomplete()  # what comes after a `stop` is not read

    def _other(self, event: str, read: Event, data: bytes) -> None:
        if read.error is not None:
            raise self._told(read.error)
        if read.event_type == "stop":
            self._stop(read)
        elif event == "error":
            raise self._reported(data)
        else:
            self._complain(plain_or_none(data))
            self._assembler.unknown(read.event_type or event or self._shown(data))

    def _stop(self, read: Event) -> None:
        if (usage := read.usage_metadata) is not None:
            self._assembler.usage(
                cached=usage.cached_tokens,
                prompt=usage.prompt_tokens,
                thoughts=usage.thoughts_tokens,
                response=usage.response_tokens,
            )
        if word := read.finish_reason:
            self._assembler.finish(FINISH.get(word, "unknown"), word=word)
        self.terminal = True

    def _told(self, said: Any) -> MMSPError:
        return error_from_wire(said, client=self._client, secrets=self._assembler.secrets)

    # ---- items

    def _items(self, read: Event) -> None:
        for item in read.content_items or ():
            kind = item.type
            if kind == "text.delta":  # by far the most frequent: `_piece`, written out
                if kind != self._open:
                    self._next(kind)
                fidelity = None if item.fidelity is None else self._sealed(item)
                self._assembler.text(self._id, item.text or "", fidelity)
            elif kind == "tool_call.delta":
                self._call_piece(kind, item)
            elif kind in DELTAS:
                self._piece(kind, item)
            else:
                self._finished(kind or "", item)

    def _next(self, kind: str | None) -> None:
        self._id += 1
        self._open = kind

    def _piece(self, kind: str, item: Item) -> None:
        """A delta of any kind but calls: it goes on with the open item, or begins one."""
        if kind != self._open:
            self._next(kind)
        self._say(kind, item)

    def _say(self, kind: str, item: Item) -> None:
        fidelity = None if item.fidelity is None else self._sealed(item)
        say = self._assembler
        match kind:
            case "text.delta":
                say.text(self._id, item.text or "", fidelity)
            case "thinking.delta":
                say.thinking(self._id, item.thinking or "", fidelity)
            case "inline_data.delta":
                say.inline_data(self._id, self._data(item), item.mime_type or "", fidelity)
            case "inline_thinking.delta":
                say.inline_thinking(self._id, self._data(item), item.mime_type or "", fidelity)
            case _:
                say.embedding(self._id, vector(item.embedding, client=self._client), fidelity)

    def _call_piece(self, kind: str, item: Item) -> None:
        text = item.arguments
        if not isinstance(text, str):
            text = "" if text is None else msgspec.json.encode(text).decode()
        if kind != self._open or item.name or item.tool_call_id:
            named = (item.name or "", item.tool_call_id or "")
            if kind != self._open or named != self._call:
                self._begin_call(named, item, text)
                return
        self._assembler.tool_arguments(self._id, text)
        if item.fidelity is not None:
            self._assembler.fidelity(self._id, self._sealed(item) or {})

    def _begin_call(self, named: tuple[str, str], item: Item, text: str) -> None:
        self._assembler.end_item(self._id)  # groups never interleave
        self._next("tool_call.delta")
        self._call = named
        fidelity = None if item.fidelity is None else self._sealed(item)
        self._assembler.tool_call(self._id, *named, fidelity, arguments=text)

    # ---- finished items

    def _finished(self, kind: str, item: Item) -> None:
        """A finished item: it equals what its pieces made, or it has had none and is its own."""
        delta = f"{kind.removesuffix('.done')}.delta"
        if not kind.endswith(".done") or delta not in DELTAS:
            self._assembler.unknown(kind)
            return
        made = self._assembler.joined(self._id) if delta == self._open else None
        if made is None:
            self._open = None
            (self._call_piece if delta == "tool_call.delta" else self._piece)(delta, item)
        else:
            self._check(delta, item, made)
        self._assembler.end_item(self._id)
        self._open = None

    def _check(self, delta: str, item: Item, made: Any) -> None:
        if not self._is_same(delta, item, made):
            kind = delta.removesuffix(".delta")
            raise self._broken(f"a finished {kind} item differs from its pieces")
        if item.fidelity is not None:
            self._assembler.fidelity(self._id, self._sealed(item) or {})

    def _is_same(self, delta: str, item: Item, made: Any) -> bool:
        said: Any
        match delta:
            case "text.delta":
                said = item.text
            case "thinking.delta":
                said = item.thinking
            case "tool_call.delta":
                named = (item.name or "", item.tool_call_id or "")
                return named == self._call and is_said_by(made, item.arguments)
            case "embedding.delta":
                said = vector(item.embedding, client=self._client)
            case _:
                said = self._data(item)
        return bool(said == made)

    # ---- what an item holds

    def _data(self, item: Item) -> bytes:
        return self._bytes(item.data or "")

    def _sealed(self, item: Item) -> Fidelity | None:
        """The item's fidelity, if it can be saved and sent back."""
        if not isinstance(item.fidelity, dict):
            return None
        try:
            fields: Fidelity = plain_copy(item.fidelity)
        except Fault as fault:
            raise self._broken(f"an item's fidelity {fault.problem}") from None
        return fields

    def _forgiven(self, answer: dict[str, Any]) -> Event:
        read = super()._forgiven(answer)
        for item in read.content_items or ():
            text = item.arguments
            item.arguments = (
                self._mend("arguments", text) if isinstance(text, str) else mended(text)
            )
            item.fidelity = mended(item.fidelity)
        return read

    def _broken(self, what: str) -> StreamProtocolError:
        return StreamProtocolError(
            f"the server broke its own protocol: {what}", client=self._client
        )
