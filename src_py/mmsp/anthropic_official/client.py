"""Anthropic itself."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.anthropic_messages import MessagesCodec
from ..dialects.anthropic import DIALECT, ENDPOINT

__all__ = ["AnthropicOfficialClient"]


class AnthropicOfficialClient(LLMClient):
    client_type = "anthropic-official"
    codec = MessagesCodec(DIALECT)
    endpoint = ENDPOINT
