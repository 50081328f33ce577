"""Google's Interactions wire: pieces of a stream as bytes to `say`.

Each function returns one whole event. `usage` is the event that ends the interaction, since finish reason
and token counts share it; `finish` has nothing to add and returns no bytes.
"""

from __future__ import annotations

from typing import Any

from .sse import event, words_of


def step_start(index: int, kind: str, **fields: Any) -> bytes:
    return _event("step.start", index=index, step={"type": kind, **fields})


def delta(index: int, kind: str, **fields: Any) -> bytes:
    return _event("step.delta", index=index, delta={"type": kind, **fields})


def step_stop(index: int = 0) -> bytes:
    return _event("step.stop", index=index)


def text(piece: str, index: int = 0) -> bytes:
    return delta(index, "text", text=piece)


def thinking(piece: str, index: int = 0) -> bytes:
    return delta(index, "thought_summary", content={"type": "text", "text": piece})


def signature(sealed: str, index: int = 0) -> bytes:
    return delta(index, "thought_signature", signature=sealed)


def tool_call(index: int, id: str, name: str, arguments: str = "") -> bytes:
    """The beginning of a tool call, with the first piece of its arguments."""
    began = step_start(index, "function_call", id=id, name=name, arguments={})
    return began + (delta(index, "arguments_delta", arguments=arguments) if arguments else b"")


def arguments(index: int, piece: str) -> bytes:
    return delta(index, "arguments_delta", arguments=piece)


def finish(reason: str = "completed") -> bytes:
    return b""


def usage(output_tokens: int = 5, input_tokens: int = 10, status: str = "completed") -> bytes:
    """The event that ends the interaction."""
    return _event(
        "interaction.completed",
        interaction={
            "id": "scripted",
            "status": status,
            "usage": _usage(input_tokens, output_tokens),
        },
    )


def error(message: str, code: int | str = "internal_error") -> bytes:
    """A failure inside a stream that began with status 200."""
    return _event("error", error={"code": code, "message": message})


def done() -> bytes:
    return event("[DONE]", "done")


def answer(whole: str) -> list[bytes]:
    """A complete answer: one text event a word, and the end."""
    words = words_of(whole)
    return [step_start(0, "model_output"), *map(text, words), step_stop(), *ending(len(words))]


def deltas(count: int) -> list[bytes]:
    """So many text events, for measurements."""
    return [text(f"word{number} ") for number in range(count)]


def ending(words: int = 5) -> list[bytes]:
    """What follows the last text."""
    return [usage(words), done()]


def completion(whole: str) -> dict[str, Any]:
    """The same answer unstreamed, for `Answer.json`."""
    content = [{"type": "text", "text": whole}]
    return {
        "id": "scripted",
        "status": "completed",
        "steps": [{"type": "model_output", "content": content}],
        "usage": _usage(10, len(whole.split())),
    }


def _usage(read: int, wrote: int) -> dict[str, Any]:
    return {
        "total_input_tokens": read,
        "total_cached_tokens": 0,
        "total_thought_tokens": 0,
        "total_output_tokens": wrote,
    }


def _event(kind: str, **fields: Any) -> bytes:
    return event({"event_type": kind, **fields}, kind)
