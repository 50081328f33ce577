"""generateContent, of the Gemini API, of proxies for it, and of Vertex AI."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.google_generate_content import GenerateContentCodec
from ..codecs.google_vertex import VertexCodec
from ..dialects import vertex
from ..dialects.google_compatible import DIALECT, ENDPOINT

__all__ = ["GoogleGenAIClient"]


class GoogleGenAIClient(LLMClient):
    client_type = "google-genai"
    codec = GenerateContentCodec(DIALECT)
    account_codec = VertexCodec(vertex.DIALECT)
    endpoint = ENDPOINT
