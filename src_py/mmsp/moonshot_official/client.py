"""Moonshot's Kimi, by its Chat Completions wire."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.openai_chat import ChatCodec
from ..dialects.moonshot import DIALECT, ENDPOINT

__all__ = ["MoonshotOfficialClient"]


class MoonshotOfficialClient(LLMClient):
    client_type = "moonshot-official"
    codec = ChatCodec(DIALECT)
    endpoint = ENDPOINT
