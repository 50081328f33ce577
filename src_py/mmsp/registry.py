"""The table of clients: a row per client type, loaded when it is first used; and which a model needs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from .arguments import checked_model, checked_text
from .credentials import needed_credentials
from .errors import RoutingError
from .plain import closest

if TYPE_CHECKING:
    from .base_client import LLMClient

__all__ = [
    "ALIASES",
    "CLIENTS",
    "FAMILIES",
    "ClientEntry",
    "credentials_for",
    "family_of",
    "find_client",
    "refuse_client_type",
]


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """Where a client lives. `official` ones are a vendor's own; others serve whoever speaks the wire."""

    client_type: str
    module: str
    class_name: str
    official: bool = False

    def load(self) -> type[LLMClient]:
        return cast(
            "type[LLMClient]", getattr(import_module(self.module, __package__), self.class_name)
        )


_OFFICIAL = (
    ("openai-official", "OpenAIOfficialClient"),
    ("anthropic-official", "AnthropicOfficialClient"),
    ("google-official", "GoogleOfficialClient"),
    ("zai-official", "ZAIOfficialClient"),
    ("moonshot-official", "MoonshotOfficialClient"),
    ("deepseek-official", "DeepSeekOfficialClient"),
    ("minimax-official", "MiniMaxOfficialClient"),
)
_COMPATIBLE = (
    ("openai-responses", "OpenAIResponsesClient"),
    ("openai-chat", "OpenAIChatClient"),
    ("openai-chat-vllm-adapter", "OpenAIChatVLLMAdapterClient"),
    ("openai-embedding", "OpenAIEmbeddingClient"),
    ("ant-messages", "AntMessagesClient"),
    ("google-genai", "GoogleGenAIClient"),
    ("mmsp", "MMSPClient"),
)

CLIENTS: dict[str, ClientEntry] = {
    client_type: ClientEntry(
        client_type, f".{client_type.replace('-', '_')}.client", class_name, official
    )
    for official, rows in ((True, _OFFICIAL), (False, _COMPATIBLE))
    for client_type, class_name in rows
}

# Older names.
ALIASES = {
    "openai": "openai-chat",
    "gemini-official": "google-official",
    "gemini-generate-content": "google-genai",
}

# How the ids of a vendor's own models begin.
FAMILIES = {
    "gpt-": "openai-official",
    "text-embedding-": "openai-official",
    "claude-": "anthropic-official",
    "gemini-": "google-official",
    "glm-": "zai-official",
    "kimi-": "moonshot-official",
    "deepseek-": "deepseek-official",
    "minimax-": "minimax-official",
}
_EMBEDDINGS = "text-embedding-"


def family_of(model: str) -> str | None:
    """The official client type of the family that `model` belongs to, by the beginning of its id."""
    lower = model.lower()
    return next((found for part, found in FAMILIES.items() if lower.startswith(part)), None)


def find_client(model: str, client_type: str | None = None) -> ClientEntry:
    """The client for `client_type`, or the variable CLIENT_TYPE, or the model's family.

    Raises `RoutingError`, and what `mmsp.arguments` raises for what is no string.
    """
    _check(model, client_type)
    named = client_type or os.environ.get("CLIENT_TYPE") or None
    found = family_of(model) if named is None else named.strip().lower()
    if found is None:
        raise RoutingError(
            f"No client is known for the model {model!r}: name one with client_type=… or CLIENT_TYPE. "
            f"{_there_are()}",
            model=model,
        )
    found = ALIASES.get(found, found)
    if found == "openai-official" and model.lower().startswith(_EMBEDDINGS):
        found = "openai-embedding"
    entry = CLIENTS.get(found)
    if entry is None:
        near = closest(found, (*CLIENTS, *ALIASES), likeness=0.6)
        meant = "." if near is None else f": did you mean {near!r}?"
        raise RoutingError(
            f"No client type {named!r}{meant} {_there_are()}", model=model, client_type=named
        )
    return entry


def refuse_client_type(name: str, value: Any) -> None:
    """Raise `ValueError` for an argument that is the name of a client type. "openai" may be a key: people
    give it to servers of their own."""
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in CLIENTS or ("-" in word and word in ALIASES):
        raise ValueError(f"{name} is the name of a client type: give it as client_type=…")


def _check(model: Any, client_type: Any) -> None:
    if not isinstance(model, str):
        checked_model(model)
    checked_text("client_type", client_type)


def credentials_for(client_type: str, base_url: str | None = None) -> dict[str, Any] | None:
    """What a client of that type would do without a key being given (`needed_credentials`); None for a
    type that is not known."""
    key = (checked_text("client_type", client_type) or "").strip().lower()
    entry = CLIENTS.get(ALIASES.get(key, key))
    return None if entry is None else needed_credentials(entry.load().endpoint, base_url)


def _there_are() -> str:
    official = ", ".join(each.client_type for each in CLIENTS.values() if each.official)
    others = ", ".join(each.client_type for each in CLIENTS.values() if not each.official)
    return f"There are, for one vendor each: {official}; for whoever speaks the protocol: {others}."
