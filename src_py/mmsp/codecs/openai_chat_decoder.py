"""The answer of a Chat Completions server, chunk by chunk.

Each chunk is read in one order: thinking, text, tool calls, refusal, why it ended, what it cost.
Only the first choice counts. Thinking comes in one of four places, and `reasoning_field` in its
fidelity says which, so that it can go back there.

Tool calls are told apart by `index`. Servers disagree on the rest, so a piece begins another call
only where it must: at an index, or under an id, not seen before; at a known index with a name and
another id; without ids, with another name, or after arguments that were complete. A call that is
said again in full is the same call.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..dialects.chat import ChatDialect
from ..grammar import Assembler
from .openai_chat_chunk import (
    CallPiece,
    Choice,
    Chunk,
    Delta,
    Detail,
    Part,
    Usage,
    as_chunk,
    decode,
    forgive,
)
from .wire_decoder import WireDecoder, less, plain_or_none

__all__ = ["THINKING_PARTS", "ChatDecoder"]

THINKING_PARTS = "content"  # the `reasoning_field` of thinking that came as typed parts of content

# One object each for the whole stream: that it is the same again is then seen at a glance.
_IN_REASONING_CONTENT = {"reasoning_field": "reasoning_content"}
_IN_REASONING = {"reasoning_field": "reasoning"}
_IN_PARTS = {"reasoning_field": THINKING_PARTS}


@dataclass(slots=True)
class _Call:
    id: int  # ours
    name: str
    call_id: str


class ChatDecoder(WireDecoder[Chunk]):
    """Tells `assembler` what a Chat Completions server says. `terminal` is set by its end mark."""

    def __init__(self, assembler: Assembler, dialect: ChatDialect, *, client: str) -> None:
        super().__init__(assembler, client=client, exact=decode)
        self._dialect = dialect
        self._signed: dict[str, str] | None = None  # the last signature of `reasoning_details`
        self._block = 0  # counts what those signatures end
        self._calls: list[_Call] = []
        self._named: dict[str, int] = {}  # calls that came without an id, by their tool's name
        self._by_index: dict[int | None, _Call] = {}  # never of None
        self._by_id: dict[str, _Call] = {}

    def whole(self, body: bytes) -> None:
        """A 200 answer that is no stream: a whole completion, or what went wrong instead."""
        answer = plain_or_none(body)
        self._complain(answer)
        if not isinstance(answer, dict) or "choices" not in answer:
            raise self._unreadable("neither a stream nor a completion", body)
        try:
            completion = self._forgiven(as_chunk(answer))
        except RecursionError:
            raise self._unreadable("JSON nested too deeply", body) from None
        self._event("", completion, body)
        self.terminal = True

    # ---- a chunk

    def _event(self, event: str, read: Chunk, data: bytes) -> None:
        if event == "error":
            raise self._reported(data)
        self._read(read)
        if read.error or (not read.choices and read.usage is None):
            self._complain(plain_or_none(data))

    def _end_mark(self) -> None:
        self.terminal = True

    def _forgiven(self, answer: dict[str, Any]) -> Chunk:
        return forgive(answer, self._mend)

    def _mend(self, name: Hashable, text: str, of: Hashable = None) -> str:
        """Every text of a chunk grows, and each call's arguments by themselves."""
        return self._joined((of, name), text)

    def _read(self, chunk: Chunk) -> None:
        usage = chunk.usage
        if usage is None and chunk.x_groq is not None:
            usage = chunk.x_groq.usage
        if usage is not None:
            self._usage(usage)
        choices = chunk.choices
        if choices and not chunk.error:
            choice: Choice | None = choices[0]
            if choice is not None and choice.index:
                choice = next((each for each in choices if not each.index), None)
            if choice is not None:
                self._choice(choice)

    def _choice(self, choice: Choice) -> None:
        if choice.delta is not None:
            self._delta(choice.delta)
        elif choice.message is not None and not self._assembler.content:
            self._delta(choice.message)
        if choice.finish_reason:
            words = self._dialect.finish_words
            self._assembler.finish(words.get(choice.finish_reason, "unknown"))

    def _delta(self, delta: Delta) -> None:
        say = self._assembler
        if delta.reasoning_details and self._dialect.reasoning_details:
            for block in delta.reasoning_details:
                self._detail(block)
        elif delta.reasoning_content:
            where = None if delta.reasoning else _IN_REASONING_CONTENT
            say.thinking("reasoning_content", delta.reasoning_content, where)
        elif delta.reasoning:
            say.thinking("reasoning", delta.reasoning, _IN_REASONING)
        if delta.content:
            if isinstance(delta.content, str):
                say.text("content", delta.content)
            else:
                self._parts(delta.content)
        if delta.tool_calls:
            for piece in delta.tool_calls:
                known = self._by_index.get(piece.index)
                if known is None or piece.function is None or piece.function.name:
                    self._call(piece)
                elif piece.function.arguments:  # nothing but that: nearly all pieces
                    say.tool_arguments(known.id, piece.function.arguments)
        if delta.refusal:
            say.text("refusal", delta.refusal)

    def _parts(self, parts: Sequence[Part | str]) -> None:
        """Content as a list: text and thinking; parts of other types say nothing."""
        for part in parts:
            if isinstance(part, str):
                self._assembler.text("content", part)
            elif part.type == "thinking":
                self._assembler.thinking("content", part.thought, _IN_PARTS)
            else:
                self._assembler.text("content", part.text or "")

    def _detail(self, block: Detail) -> None:
        """A block of hidden or mirrored reasoning; a signature ends what it signs."""
        text = block.summary or block.text or ""
        signature = self._signature(block)
        if signature == self._signed:
            signature = None
        self._assembler.thinking(("reasoning_details", self._block), text, signature)
        if signature:
            self._signed = signature
            self._block += 1

    def _signature(self, block: Detail) -> dict[str, str] | None:
        if block.type == "reasoning.encrypted" and block.data:
            fields = {"encrypted_content": block.data}
        elif block.signature:
            fields = {"reasoning_signature": block.signature}
        else:
            return None
        if block.format:
            fields["format"] = block.format
        if block.id:
            fields["reasoning_id"] = block.id
        return fields

    def _usage(self, usage: Usage) -> None:
        read, wrote = usage.prompt_tokens_details, usage.completion_tokens_details
        cached = read.cached_tokens if read else None
        thoughts = wrote.reasoning_tokens if wrote else None
        self._assembler.usage(
            cached=cached,
            prompt=less(usage.prompt_tokens, cached),
            thoughts=thoughts,
            response=less(usage.completion_tokens, thoughts),
        )

    # ---- tool calls

    def _call(self, piece: CallPiece) -> None:
        function = piece.function
        name = (function and function.name) or ""
        arguments = (function and function.arguments) or ""
        call = self._known(piece, name, arguments)
        if call is None:
            if not (name or piece.id or arguments):
                return
            self._begin(piece, name, arguments)
        elif arguments and not (name and self._is_whole(call, arguments)):
            self._assembler.tool_arguments(call.id, arguments)

    def _known(self, piece: CallPiece, name: str, arguments: str) -> _Call | None:
        """The call that the piece goes on with, None if it begins another."""
        if piece.index is None and not piece.id:
            call = self._calls[-1] if self._calls else None
        else:
            call = None if piece.index is None else self._by_index.get(piece.index)
        if call is None:
            return self._known_by_id(piece, name, arguments)
        if not name or piece.id == call.call_id:
            return call
        if piece.id or name != call.name or self._follows_whole(call, arguments):
            return None
        return call

    def _known_by_id(self, piece: CallPiece, name: str, arguments: str) -> _Call | None:
        call = self._by_id.get(piece.id or "")
        if call is None or not name:
            return call
        same = name == call.name and (piece.index is None or self._is_whole(call, arguments))
        return call if same else None

    def _follows_whole(self, call: _Call, arguments: str) -> bool:
        """Whether arguments begin anew after those of `call` were complete."""
        if not arguments.startswith("{"):
            return False
        before = self._assembler.arguments_of(call.id) or ""
        return before != arguments and _is_object(before)

    def _is_whole(self, call: _Call, arguments: str) -> bool:
        """Whether `arguments` are complete and what the call has already."""
        return (
            arguments.startswith("{")
            and arguments.endswith("}")
            and arguments == self._assembler.arguments_of(call.id)
            and _is_object(arguments)
        )

    def _begin(self, piece: CallPiece, name: str, arguments: str) -> None:
        if piece.index is not None and (replaced := self._by_index.get(piece.index)):
            self._assembler.end_item(replaced.id)
        call = _Call(len(self._calls), name, piece.id or self._id_for(name))
        self._assembler.tool_call(call.id, call.name, call.call_id, arguments=arguments)
        self._calls.append(call)
        if piece.index is not None:
            self._by_index[piece.index] = call
        self._by_id[call.call_id] = call

    def _id_for(self, name: str) -> str:
        """An id for a call that came without: its tool's name, numbered from the second on."""
        if not (name and self._dialect.names_calls):
            return ""
        number = self._named[name] = self._named.get(name, 0) + 1
        return name if number == 1 else f"{name}_{number}"


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (ValueError, RecursionError):
        return False
