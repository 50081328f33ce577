"""The table of clients: a row per client type, loaded when it is first used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from .errors import RoutingError

if TYPE_CHECKING:
    from .base_client import LLMClient

__all__ = ["ALIASES", "CLIENTS", "ClientEntry", "find_client"]


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


CLIENTS: dict[str, ClientEntry] = {
    entry.client_type: entry
    for entry in (
        ClientEntry("openai-official", ".openai_official.client", "OpenAIOfficialClient", True),
        ClientEntry(
            "anthropic-official", ".anthropic_official.client", "AnthropicOfficialClient", True
        ),
        ClientEntry("google-official", ".google_official.client", "GoogleOfficialClient", True),
        ClientEntry(
            "deepseek-official", ".deepseek_official.client", "DeepSeekOfficialClient", True
        ),
        ClientEntry("minimax-official", ".minimax_official.client", "MiniMaxOfficialClient", True),
        ClientEntry("openai-responses", ".openai_responses.client", "OpenAIResponsesClient"),
        ClientEntry("openai-chat", ".openai_chat.client", "OpenAIChatClient"),
        ClientEntry("openai-embedding", ".openai_embedding.client", "OpenAIEmbeddingClient"),
        ClientEntry("ant-messages", ".ant_messages.client", "AntMessagesClient"),
        ClientEntry("google-genai", ".google_genai.client", "GoogleGenAIClient"),
    )
}

ALIASES = {"openai": "openai-chat"}


def find_client(model: str, client_type: str | None = None) -> ClientEntry:
    """The client for `client_type`, or the variable CLIENT_TYPE. Raises `RoutingError`."""
    named = client_type or os.environ.get("CLIENT_TYPE") or None
    if named is None:
        raise RoutingError(
            f"No client is known for the model {model!r}: name one with client_type=… or CLIENT_TYPE "
            f"({', '.join(CLIENTS)}).",
            model=model,
        )
    key = named.strip().lower()
    entry = CLIENTS.get(ALIASES.get(key, key))
    if entry is None:
        raise RoutingError(
            f"No client type {named!r}. There are: {', '.join(CLIENTS)}.",
            model=model,
            client_type=named,
        )
    return entry
