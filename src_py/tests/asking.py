"""Short words for tests that ask a scripted provider through the real client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import ModuleType
from typing import Any

from mmsp import AutoLLMClient
from mmsp.testing import Answer, ScriptedProvider, chat, say
from mmsp.types import UniEvent, UniMessage

QUESTION: UniMessage = {
    "role": "user",
    "content_items": [{"type": "text.done", "text": "Hello?"}],
}


# An answer as bytes, and the events it makes.
BODY = b"".join(chat.answer("All is well"))
WHOLE = [
    "text.delta All",
    "text.delta  is",
    "text.delta  well",
    "text.done All is well",
    "stop stop",
]


def client_of(
    provider: ScriptedProvider, client_type: str = "openai-chat", **settings: Any
) -> AutoLLMClient:
    if provider.manners.tls:
        settings.setdefault("ssl_context", provider.ssl_context)
    return AutoLLMClient("some-model", "a-key", provider.base_url, client_type, **settings)


def complete(text: str = "All is well") -> Answer:
    """A whole answer, an event a write."""
    return Answer(*(say(each) for each in chat.answer(text)))


def complete_on(wire: ModuleType, text: str = "All is well") -> Answer:
    """The same on another wire."""
    return Answer(*(say(each) for each in wire.answer(text)))


async def events_of(stream: AsyncIterator[UniEvent]) -> list[UniEvent]:
    return [event async for event in stream]


def shown(events: Sequence[UniEvent]) -> list[str]:
    """Events in short: `text.delta Hel`, `tool_call.done {"q": 1}`, `stop length`."""
    return [_short(event) for event in events]


def _short(event: UniEvent) -> str:
    if event["event_type"] == "stop":
        return f"stop {event['finish_reason']}"
    (item,) = event["content_items"]
    fields: dict[str, Any] = dict(item)
    value = next(
        fields[name]
        for name in ("text", "thinking", "arguments", "data", "embedding")
        if name in fields
    )
    return f"{item['type']} {value}"
