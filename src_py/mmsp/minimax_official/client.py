"""MiniMax, by its Responses wire."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.openai_responses import ResponsesCodec
from ..dialects.minimax import DIALECT, ENDPOINT

__all__ = ["MiniMaxOfficialClient"]


class MiniMaxOfficialClient(LLMClient):
    client_type = "minimax-official"
    codec = ResponsesCodec(DIALECT)
    endpoint = ENDPOINT
