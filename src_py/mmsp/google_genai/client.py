"""generateContent, of the Gemini API and of proxies for it."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.google_generate_content import GenerateContentCodec
from ..dialects.google_compatible import DIALECT, ENDPOINT

__all__ = ["GoogleGenAIClient"]


class GoogleGenAIClient(LLMClient):
    client_type = "google-genai"
    codec = GenerateContentCodec(DIALECT)
    endpoint = ENDPOINT
