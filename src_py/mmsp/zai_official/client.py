"""Z.AI, by its Chat Completions wire."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.openai_chat import ChatCodec
from ..dialects.zai import DIALECT, ENDPOINT

__all__ = ["ZAIOfficialClient"]


class ZAIOfficialClient(LLMClient):
    client_type = "zai-official"
    codec = ChatCodec(DIALECT)
    endpoint = ENDPOINT
