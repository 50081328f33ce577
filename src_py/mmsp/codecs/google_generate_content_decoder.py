"""The answer of generateContent, chunk by chunk. Only the first candidate counts.

The wire has no end of its own, and says why it ended on any chunk, often on every one: the reason is
noted and the stream read on to its end. A signature ends the item it stands on. Calls come whole, and
some without an id: those get their name for one.

The parts of code execution are none of our items: they ride in the fidelity of the item that follows,
since the API wants them back.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ..grammar import Assembler
from ..types import FinishReason
from .forgiving import EventReader, plain
from .openai_embedding import vector
from .wire_decoder import WireDecoder, count_in, kept, less, plain_or_none

__all__ = ["GenerateContentDecoder", "embeddings"]

_UNKNOWN_MIME = "application/octet-stream"

_FINISH: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
            "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
        ),
        "content_filter",
    ),
}  # fmt: skip


class Call(msgspec.Struct, gc=False):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw | None = None


class Blob(msgspec.Struct, gc=False, rename="camel"):
    mime_type: str | None = None
    data: str | None = None


class Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: Call | None = None
    inline_data: Blob | None = None
    executable_code: Any = None
    code_execution_result: Any = None


class Content(msgspec.Struct, gc=False):
    parts: list[Part] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    index: int | None = None
    content: Content | None = None
    finish_reason: str | None = None


class Usage(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    thoughts_token_count: int | None = None
    candidates_token_count: int | None = None


class Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None


class Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: Usage | None = None
    prompt_feedback: Feedback | None = None
    error: Any = None


class GenerateContentDecoder(WireDecoder[Chunk]):
    """Tells `assembler` what generateContent says. Never `terminal`."""

    events = EventReader(Chunk)
    grows = frozenset({"text"})

    def __init__(self, assembler: Assembler, *, client: str) -> None:
        super().__init__(assembler, client=client)
        self._signed = 0  # counts the items that a signature has ended
        self._calls: dict[str, int] = {}  # by name, of those that came without an id
        self._count = 0
        self._took_beside = False  # the open item's fidelity is fixed already

    def whole(self, body: bytes) -> None:
        """A 200 answer that is no stream of events: one chunk, or a list of them."""
        answer = plain_or_none(body)
        self._complain(answer)
        if embeddings(self._assembler, answer, client=self._client):
            self.terminal = True
            return
        chunks = answer if isinstance(answer, list) else [answer]
        for each in chunks:
            if not isinstance(each, dict) or not ({"candidates", "promptFeedback"} & each.keys()):
                raise self._unreadable("neither a stream nor an answer of the model", body)
            try:
                self._event("", self._forgiven(each), json.dumps(each).encode())
            except RecursionError:
                raise self._unreadable("JSON nested too deeply", body) from None

    # ---- a chunk

    def _event(self, event: str, read: Chunk, data: bytes) -> None:
        if read.error is not None or event == "error":
            raise self._reported(data)
        self._chunk(read, data)

    def _chunk(self, chunk: Chunk, data: bytes) -> None:
        for candidate in chunk.candidates or ():
            if not candidate.index:
                self._candidate(candidate, data)
                break
        if chunk.usage_metadata is not None:
            self._usage(chunk.usage_metadata)
        blocked = chunk.prompt_feedback and chunk.prompt_feedback.block_reason
        if blocked and not chunk.candidates:
            self._assembler.finish("content_filter", ends_items=False, word=blocked)

    def _candidate(self, candidate: Candidate, data: bytes) -> None:
        content = candidate.content
        if content is not None and content.parts:
            for number, part in enumerate(content.parts):
                self._part(part, number, data)
        if word := candidate.finish_reason:
            self._assembler.finish(_FINISH.get(word, "unknown"), ends_items=False, word=word)

    def _part(self, part: Part, number: int, data: bytes) -> None:
        if part.thought_signature and self._took_beside:
            self._next_item()
        if part.text is not None:
            self._text(part)
        elif part.function_call is not None:
            self._call(part.function_call, self._fidelity(part))
        elif part.inline_data is not None:
            self._data(part, part.inline_data)
        elif part.executable_code is not None or part.code_execution_result is not None:
            if (raw := _part_of(data, number)) is not None:
                self._beside += kept(raw)
                self._next_item()  # what follows stands behind it when it is sent back
        elif part.thought_signature:
            self._assembler.text(("text", self._signed), "", self._fidelity(part))
        else:
            self._assembler.unknown(self._shown(data))
        if part.thought_signature:
            self._next_item()

    def _next_item(self) -> None:
        self._signed += 1
        self._took_beside = False

    def _text(self, part: Part) -> None:
        text = part.text or ""
        if not text and not part.thought_signature:
            return
        if part.thought:
            self._assembler.thinking(("thought", self._signed), text, self._fidelity(part))
        else:
            self._assembler.text(("text", self._signed), text, self._fidelity(part))

    def _data(self, part: Part, blob: Blob) -> None:
        data = self._bytes(blob.data or "")
        mime_type = blob.mime_type or _UNKNOWN_MIME
        say = self._assembler.inline_thinking if part.thought else self._assembler.inline_data
        say(("data", self._signed), data, mime_type, self._fidelity(part))

    def _call(self, call: Call, fidelity: dict[str, Any] | None) -> None:
        name = call.name or ""
        self._count += 1
        arguments = bytes(call.args).decode() if call.args is not None else ""
        if arguments == "null":
            arguments = ""
        self._assembler.tool_call(
            self._count, name, call.id or self._id_for(name), fidelity, arguments=arguments
        )
        self._assembler.end_item(self._count)

    def _id_for(self, name: str) -> str:
        """A call's name, numbered from the second on."""
        number = self._calls[name] = self._calls.get(name, 0) + 1
        return name if number == 1 else f"{name}_{number}"

    def _fidelity(self, part: Part) -> dict[str, Any] | None:
        if not (part.thought_signature or self._beside):
            return None
        signed = {"signature": part.thought_signature} if part.thought_signature else {}
        beside = self._rest()
        if beside:
            self._took_beside = True
        return {**signed, **beside}

    def _usage(self, usage: Usage) -> None:
        if usage.prompt_token_count is None:  # Vertex AI sends objects without counts
            return
        cached = usage.cached_content_token_count
        self._assembler.usage(
            cached=cached,
            prompt=less(usage.prompt_token_count, cached),
            thoughts=usage.thoughts_token_count,
            response=usage.candidates_token_count,
        )


def embeddings(assembler: Assembler, answer: Any, *, client: str) -> bool:
    """Tell the vectors of an answer that holds a list of them, or one, and has no events; False if it
    is another answer.
    """
    if not isinstance(answer, dict):
        return False
    found = answer.get("embeddings")
    if isinstance(answer.get("embedding"), dict):
        found = [answer["embedding"]]
    if not isinstance(found, list):
        return False
    for place, each in enumerate(found):
        values = each.get("values") if isinstance(each, dict) else None
        assembler.embedding(place, vector(values, client=client))
    usage = answer.get("usageMetadata")
    assembler.usage(prompt=count_in(usage, "promptTokenCount"))
    assembler.finish("stop")
    return True


def _part_of(data: bytes, number: int) -> Any:
    """The part as it came, with all that is not read; None where the chunk is not as documented."""
    try:
        candidates = plain(data)["candidates"]
        first = next(each for each in candidates if not each.get("index"))
        return first["content"]["parts"][number]
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return None
