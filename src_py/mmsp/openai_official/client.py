"""OpenAI itself, by its Responses wire."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.openai_responses import ResponsesCodec
from ..dialects.openai import DIALECT, ENDPOINT

__all__ = ["OpenAIOfficialClient"]


class OpenAIOfficialClient(LLMClient):
    client_type = "openai-official"
    codec = ResponsesCodec(DIALECT)
    endpoint = ENDPOINT
