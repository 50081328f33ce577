"""Embeddings of any OpenAI-compatible server."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.openai_embedding import EmbeddingCodec
from ..dialects.embedding import DIALECT
from ..dialects.openai_endpoint import ENDPOINT

__all__ = ["OpenAIEmbeddingClient"]


class OpenAIEmbeddingClient(LLMClient):
    client_type = "openai-embedding"
    codec = EmbeddingCodec(DIALECT)
    endpoint = ENDPOINT
