"""Chat Completions of any OpenAI-compatible server."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.openai_chat import ChatCodec
from ..dialects.openai_compatible import DIALECT, ENDPOINT

__all__ = ["OpenAIChatClient"]


class OpenAIChatClient(LLMClient):
    client_type = "openai-chat"
    codec = ChatCodec(DIALECT)
    endpoint = ENDPOINT
