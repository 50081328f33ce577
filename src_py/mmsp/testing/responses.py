"""OpenAI's Responses wire: pieces of a stream as bytes to `say`.

Each function returns one or more whole events. `usage` is the event that ends the stream, since finish
reason and token counts share it; `finish` and `done` have nothing to add and return no bytes.
"""

from __future__ import annotations

from typing import Any

from .sse import event, words_of


def item_added(index: int, kind: str, **fields: Any) -> bytes:
    """An output item begins."""
    return _event("output_item.added", output_index=index, item={"type": kind, **fields})


def item_done(index: int, kind: str, **fields: Any) -> bytes:
    return _event("output_item.done", output_index=index, item={"type": kind, **fields})


def text(piece: str, index: int = 0) -> bytes:
    return _event("output_text.delta", output_index=index, item_id=f"msg_{index}", delta=piece)


def thinking(piece: str, index: int = 0) -> bytes:
    """A piece of the model's reasoning."""
    return _event("reasoning_text.delta", output_index=index, item_id=f"rs_{index}", delta=piece)


def summary(piece: str, index: int = 0) -> bytes:
    """A piece of the summary of the model's reasoning."""
    return _event(
        "reasoning_summary_text.delta", output_index=index, item_id=f"rs_{index}", delta=piece
    )


def tool_call(index: int, id: str, name: str, arguments: str = "") -> bytes:
    """The beginning of a tool call, with the first piece of its arguments."""
    began = item_added(
        index, "function_call", id=f"fc_{index}", call_id=id, name=name, arguments=""
    )
    return began + (_arguments(index, arguments) if arguments else b"")


def arguments(index: int, piece: str) -> bytes:
    return _arguments(index, piece)


def finish(reason: str = "stop") -> bytes:
    return b""


def usage(output_tokens: int = 5, input_tokens: int = 10, status: str = "completed") -> bytes:
    """The event that ends the stream."""
    response = {
        "id": "resp_scripted",
        "object": "response",
        "status": status,
        "output": [],
        "usage": _usage(input_tokens, output_tokens),
    }
    return _event(status, response=response)


def error(message: str, code: str = "server_error") -> bytes:
    """A failure inside a stream that began with status 200."""
    return event({"type": "error", "code": code, "message": message, "param": None})


def done() -> bytes:
    return b""


def answer(whole: str) -> list[bytes]:
    """A complete answer: one text event a word, and the end."""
    words = words_of(whole)
    began = item_added(0, "message", id="msg_0", role="assistant", content=[])
    return [began, *map(text, words), *ending(len(words))]


def deltas(count: int) -> list[bytes]:
    """So many text events, for measurements."""
    return [text(f"word{number} ") for number in range(count)]


def ending(words: int = 5) -> list[bytes]:
    """What follows the last text."""
    return [usage(words)]


def completion(whole: str) -> dict[str, Any]:
    """The same answer unstreamed, for `Answer.json`."""
    content = [{"type": "output_text", "text": whole}]
    return {
        "id": "resp_scripted",
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "id": "msg_0", "role": "assistant", "content": content}],
        "usage": _usage(10, len(whole.split())),
    }


def _arguments(index: int, piece: str) -> bytes:
    return _event(
        "function_call_arguments.delta", output_index=index, item_id=f"fc_{index}", delta=piece
    )


def _usage(read: int, wrote: int) -> dict[str, Any]:
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": wrote,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + wrote,
    }


def _event(kind: str, **fields: Any) -> bytes:
    kind = f"response.{kind}"
    return event({"type": kind, **fields}, kind)
