"""Any server that speaks Responses as OpenAI does; OpenAI's own unless a URL says otherwise."""

from __future__ import annotations

from .endpoint import Endpoint
from .responses import ResponsesDialect

__all__ = ["DIALECT", "ENDPOINT"]

DIALECT = ResponsesDialect()
ENDPOINT = Endpoint("https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL")
