"""OpenAI's endpoint, which four client types share."""

from __future__ import annotations

from .endpoint import Endpoint

__all__ = ["ENDPOINT"]

ENDPOINT = Endpoint(
    "https://api.openai.com/v1",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    own_headers={"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"},
    header_lines="OPENAI_CUSTOM_HEADERS",
)
