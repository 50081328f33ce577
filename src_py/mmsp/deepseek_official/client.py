"""DeepSeek, by its Responses wire."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.openai_responses import ResponsesCodec
from ..dialects.deepseek import DIALECT, ENDPOINT

__all__ = ["DeepSeekOfficialClient"]


class DeepSeekOfficialClient(LLMClient):
    client_type = "deepseek-official"
    codec = ResponsesCodec(DIALECT)
    endpoint = ENDPOINT
