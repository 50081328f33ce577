"""Responses of any OpenAI-compatible server."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.openai_responses import ResponsesCodec
from ..dialects.responses_compatible import DIALECT, ENDPOINT

__all__ = ["OpenAIResponsesClient"]


class OpenAIResponsesClient(LLMClient):
    client_type = "openai-responses"
    codec = ResponsesCodec(DIALECT)
    endpoint = ENDPOINT
