"""Anthropic's Messages wire: pieces of a stream as bytes to `say`.

Each function returns one or more whole events; blocks are told apart by their index.
"""

from __future__ import annotations

from typing import Any

from .sse import event, words_of


def start(input_tokens: int = 10, cached: int = 0) -> bytes:
    usage = {"input_tokens": input_tokens, "cache_read_input_tokens": cached, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "usage": usage,
    }
    return _event("message_start", message=message)


def block(index: int, kind: str, **fields: Any) -> bytes:
    """A content block begins."""
    return _event("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: int, kind: str, **fields: Any) -> bytes:
    return _event("content_block_delta", index=index, delta={"type": kind, **fields})


def block_stop(index: int = 0) -> bytes:
    return _event("content_block_stop", index=index)


def text(piece: str, index: int = 0) -> bytes:
    return delta(index, "text_delta", text=piece)


def thinking(piece: str, index: int = 0) -> bytes:
    return delta(index, "thinking_delta", thinking=piece)


def signature(sealed: str, index: int = 0) -> bytes:
    return delta(index, "signature_delta", signature=sealed)


def tool_call(index: int, id: str, name: str, arguments: str = "") -> bytes:
    """The beginning of a tool call, with the first piece of its arguments."""
    began = block(index, "tool_use", id=id, name=name, input={})
    return began + (_arguments(index, arguments) if arguments else b"")


def arguments(index: int, piece: str) -> bytes:
    return _arguments(index, piece)


def finish(reason: str = "end_turn") -> bytes:
    return _event("message_delta", delta={"stop_reason": reason, "stop_sequence": None})


def usage(output_tokens: int = 5) -> bytes:
    return _event("message_delta", delta={}, usage={"output_tokens": output_tokens})


def ping() -> bytes:
    return _event("ping")


def error(message: str, type: str = "overloaded_error") -> bytes:
    """A failure inside a stream that began with status 200."""
    return _event("error", error={"type": type, "message": message})


def done() -> bytes:
    return _event("message_stop")


def answer(whole: str) -> list[bytes]:
    """A complete answer: one text event a word, its end, finish reason, usage, end."""
    words = words_of(whole)
    opening = [start() + block(0, "text", text="")]
    return [*opening, *map(text, words), block_stop(), *ending(len(words))]


def deltas(count: int) -> list[bytes]:
    """So many text events, for measurements."""
    return [text(f"word{number} ") for number in range(count)]


def ending(words: int = 5) -> list[bytes]:
    """What follows the last text: finish reason, usage, end."""
    return [finish(), usage(words), done()]


def completion(whole: str) -> dict[str, Any]:
    """The same answer unstreamed, for `Answer.json`."""
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [{"type": "text", "text": whole}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": len(whole.split())},
    }


def _arguments(index: int, piece: str) -> bytes:
    return delta(index, "input_json_delta", partial_json=piece)


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)
