"""The Chat Completions wire: pieces of a stream as bytes to `say`.

Each function returns one whole event. Only facts of the protocol are written; what one vendor
adds is given by `chunk(delta, **fields)`.
"""

from __future__ import annotations

from typing import Any

from .sse import event, words_of

ENVELOPE = {
    "id": "chatcmpl-scripted",
    "object": "chat.completion.chunk",
    "created": 1760000000,
    "model": "scripted",
}


def chunk(delta: dict[str, Any], finish_reason: str | None = None, **fields: Any) -> bytes:
    """A chunk with that delta; `fields` are added to it or replace what it has."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return event({**ENVELOPE, "choices": [choice], **fields})


def role() -> bytes:
    """The empty first chunk many servers send."""
    return chunk({"role": "assistant", "content": ""})


def text(piece: str) -> bytes:
    return chunk({"content": piece})


def thinking(piece: str, field: str = "reasoning_content") -> bytes:
    """Reasoning text; vendors name its field "reasoning_content" or "reasoning"."""
    return chunk({field: piece})


def tool_call(index: int, id: str, name: str, arguments: str = "") -> bytes:
    """The beginning of a tool call, with the first piece of its arguments."""
    function = {"name": name, "arguments": arguments}
    call = {"index": index, "id": id, "type": "function", "function": function}
    return chunk({"tool_calls": [call]})


def arguments(index: int, piece: str) -> bytes:
    """A further piece of a tool call's arguments."""
    return chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


def finish(reason: str = "stop") -> bytes:
    return chunk({}, reason)


def usage(prompt: int = 10, completion: int = 5, cached: int = 0, reasoning: int = 0) -> bytes:
    """The last chunk, which has no choices. `prompt` includes `cached`, `completion` includes
    `reasoning`.
    """
    return event(
        {**ENVELOPE, "choices": [], "usage": _usage(prompt, completion, cached, reasoning)}
    )


def error(message: str, code: int | str = 500, type: str = "server_error") -> bytes:
    """A failure inside a stream that began with status 200."""
    return event({"error": {"message": message, "type": type, "code": code}})


def done() -> bytes:
    return event("[DONE]")


def answer(whole: str) -> list[bytes]:
    """A complete answer: one text event a word, finish reason, usage, end."""
    words = words_of(whole)
    return [*map(text, words), *ending(len(words))]


def deltas(count: int) -> list[bytes]:
    """So many text events, for measurements."""
    return [text(f"word{number} ") for number in range(count)]


def ending(words: int = 5) -> list[bytes]:
    """What follows the last text: finish reason, usage, end."""
    return [finish(), usage(completion=words), done()]


def completion(whole: str) -> dict[str, Any]:
    """The same answer unstreamed, for `Answer.json`."""
    message = {"role": "assistant", "content": whole}
    return {
        **ENVELOPE,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": _usage(10, len(whole.split()), 0, 0),
    }


def _usage(prompt: int, completion: int, cached: int, reasoning: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
