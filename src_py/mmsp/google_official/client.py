"""Google itself, by its Interactions wire."""

from __future__ import annotations

from ..base_client import LLMClient
from ..codecs.google_interactions import InteractionsCodec
from ..dialects.google import DIALECT, ENDPOINT

__all__ = ["GoogleOfficialClient"]


class GoogleOfficialClient(LLMClient):
    client_type = "google-official"
    codec = InteractionsCodec(DIALECT)
    endpoint = ENDPOINT
