"""Messages of any server that speaks it as Anthropic does."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.anthropic_messages import MessagesCodec
from ..dialects.messages_compatible import DIALECT, ENDPOINT

__all__ = ["AntMessagesClient"]


class AntMessagesClient(LLMClient):
    client_type = "ant-messages"
    codec = MessagesCodec(DIALECT)
    endpoint = ENDPOINT
