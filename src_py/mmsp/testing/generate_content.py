"""Google's generateContent wire: pieces of a stream as bytes to `say`. Its streams just end."""

from __future__ import annotations

import json
from typing import Any

from .sse import event, words_of


def chunk(*parts: dict[str, Any], **fields: Any) -> bytes:
    """A chunk with these parts; `fields` are added to its candidate."""
    candidate: dict[str, Any] = {"index": 0, **fields}
    if parts:
        candidate["content"] = {"role": "model", "parts": list(parts)}
    return event({"candidates": [candidate], "modelVersion": "scripted"})


def text(piece: str, **fields: Any) -> bytes:
    return chunk({"text": piece, **fields})


def thinking(piece: str, **fields: Any) -> bytes:
    return chunk({"text": piece, "thought": True, **fields})


def tool_call(index: int, id: str, name: str, arguments: str = "{}") -> bytes:
    """A tool call, which comes whole."""
    return chunk({"functionCall": {"id": id, "name": name, "args": json.loads(arguments)}})


def finish(reason: str = "STOP") -> bytes:
    return chunk(finishReason=reason)


def usage(output_tokens: int = 5, input_tokens: int = 10) -> bytes:
    return event({"usageMetadata": _usage(input_tokens, output_tokens)})


def error(message: str, code: int = 503, status: str = "UNAVAILABLE") -> bytes:
    """A failure inside a stream that began with status 200."""
    return event({"error": {"code": code, "message": message, "status": status}})


def done() -> bytes:
    return b""


def answer(whole: str) -> list[bytes]:
    """A complete answer: one text event a word, finish reason, usage."""
    words = words_of(whole)
    return [*map(text, words), *ending(len(words))]


def deltas(count: int) -> list[bytes]:
    """So many text events, for measurements."""
    return [text(f"word{number} ") for number in range(count)]


def ending(words: int = 5) -> list[bytes]:
    """What follows the last text: finish reason and usage."""
    return [finish(), usage(words)]


def completion(whole: str) -> dict[str, Any]:
    """The same answer unstreamed, for `Answer.json`."""
    content = {"role": "model", "parts": [{"text": whole}]}
    return {
        "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
        "usageMetadata": _usage(10, len(whole.split())),
    }


def _usage(read: int, wrote: int) -> dict[str, Any]:
    return {
        "promptTokenCount": read,
        "candidatesTokenCount": wrote,
        "totalTokenCount": read + wrote,
    }
