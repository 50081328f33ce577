"""MMSP over HTTP: pieces of a stream as bytes to `say`.

Each function returns one or more whole events. `usage` is the `stop`, since finish reason and token counts
share it; `finish` has nothing to add and returns no bytes.
"""

from __future__ import annotations

from typing import Any

from .sse import event, words_of

Fidelity = dict[str, Any]

CREATED_AT = 1_700_000_000_000


def delta(kind: str, fidelity: Fidelity | None = None, **fields: Any) -> bytes:
    """An event with one item."""
    item = {"type": kind, **fields} | ({} if fidelity is None else {"fidelity": fidelity})
    return _event("delta", [item])


def text(piece: str, fidelity: Fidelity | None = None) -> bytes:
    return delta("text.delta", fidelity, text=piece)


def thinking(piece: str, fidelity: Fidelity | None = None) -> bytes:
    return delta("thinking.delta", fidelity, thinking=piece)


def tool_call(
    index: int, id: str, name: str, arguments: str = "", fidelity: Fidelity | None = None
) -> bytes:
    """The beginning of a tool call, with the first piece of its arguments."""
    return delta("tool_call.delta", fidelity, name=name, arguments=arguments, tool_call_id=id)


def arguments(index: int, piece: str) -> bytes:
    return delta("tool_call.delta", name="", arguments=piece, tool_call_id="")


def finish(reason: str = "stop") -> bytes:
    return b""


def usage(
    response_tokens: int = 5, prompt_tokens: int = 10, finish_reason: str | None = "stop"
) -> bytes:
    """The `stop`."""
    counts = {
        "cached_tokens": None,
        "prompt_tokens": prompt_tokens,
        "thoughts_tokens": None,
        "response_tokens": response_tokens,
    }
    return _event("stop", [], counts, finish_reason)


def error(message: str, type: str = "ProviderStreamError", **fields: Any) -> bytes:
    """A failure inside a stream that began with status 200."""
    return event({"error": {"type": type, "message": message, **fields}})


def keep_alive() -> bytes:
    return b": keep-alive\n\n"


def done() -> bytes:
    return event("[DONE]")


def answer(whole: str) -> list[bytes]:
    """A complete answer: one delta a word, the finished item, and the end."""
    words = words_of(whole)
    finished = [delta("text.done", text=whole)] if words else []
    return [*map(text, words), *finished, *ending(len(words))]


def deltas(count: int) -> list[bytes]:
    """So many text events, for measurements."""
    return [text(f"word{number} ") for number in range(count)]


def ending(words: int = 5) -> list[bytes]:
    """What follows the last item."""
    return [usage(words), done()]


def completion(whole: str) -> dict[str, Any]:
    """The same answer unstreamed, for `Answer.json`: a message."""
    return {
        "role": "assistant",
        "content_items": [{"type": "text.done", "text": whole}],
        "usage_metadata": None,
        "finish_reason": "stop",
        "created_at": CREATED_AT,
    }


def _event(
    kind: str,
    items: list[dict[str, Any]],
    counts: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> bytes:
    return event(
        {
            "role": "assistant",
            "event_type": kind,
            "content_items": items,
            "usage_metadata": counts,
            "finish_reason": finish_reason,
            "created_at": CREATED_AT,
        }
    )
