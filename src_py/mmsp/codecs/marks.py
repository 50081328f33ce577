"""By what an answer is known to be of another wire than its client's, when nothing in it could be read.

A wrong `client_type`, or a base URL with another protocol behind it, brings a perfect answer that the
decoder sees nothing in: it would be called incomplete, and trying again would be advised.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["BY_WIRE", "wrong_wire"]

# What people call a wire, and the client type that reads it from whoever speaks it.
BY_WIRE = {
    "openai_chat": ("Chat Completions", "openai-chat"),
    "openai_responses": ("Responses", "openai-responses"),
    "openai_embedding": ("OpenAI's embeddings", "openai-embedding"),
    "anthropic_messages": ("Anthropic's Messages", "ant-messages"),
    "google_generate_content": ("generateContent", "google-genai"),
    "google_interactions": ("Google's Interactions", "google-official"),
    "mmsp": ("MMSP", "mmsp"),
}

# A key of an event or of a whole answer, how the word there begins ("" for whatever is there), its wire.
_MARKS = (
    ("object", "chat.completion", "openai_chat"),
    ("object", "response", "openai_responses"),
    ("object", "list", "openai_embedding"),
    ("type", "response.", "openai_responses"),
    ("type", "message", "anthropic_messages"),
    ("type", "content_block", "anthropic_messages"),
    ("event_type", "interaction.", "google_interactions"),
    ("event_type", "step.", "google_interactions"),
    ("choices", "", "openai_chat"),
    ("candidates", "", "google_generate_content"),
    ("usageMetadata", "", "google_generate_content"),
    ("steps", "", "google_interactions"),
    ("content_items", "", "mmsp"),
)


def wrong_wire(data: bytes, wire: str) -> str | None:
    """What is to be said of an answer with `data` in it to a client of `wire`; None if it has no mark of
    another one, or one of its own."""
    answer = _decoded(data)
    found = [of for key, word, of in _MARKS if key in answer and _begins(answer[key], word)]
    if not found or wire in found or wire not in BY_WIRE:
        return None
    (theirs, client_type), (ours, _) = BY_WIRE[found[0]], BY_WIRE[wire]
    return (
        f"the answer is one of {theirs}, and this client reads {ours}: wrong client_type? "
        f"client_type={client_type!r} reads such answers; or name another base_url"
    )


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return {}
    if isinstance(answer, list) and answer:
        answer = answer[0]  # generateContent without `alt=sse`
    return answer if isinstance(answer, dict) else {}


def _begins(value: Any, word: str) -> bool:
    return not word or (isinstance(value, str) and value.startswith(word))
