"""Chat Completions of vLLM's own server."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.openai_chat import ChatCodec
from ..dialects.vllm import DIALECT, ENDPOINT

__all__ = ["OpenAIChatVLLMAdapterClient"]


class OpenAIChatVLLMAdapterClient(LLMClient):
    client_type = "openai-chat-vllm-adapter"
    codec = ChatCodec(DIALECT)
    endpoint = ENDPOINT
