"""Any server that speaks Chat Completions as OpenAI does; OpenAI's own unless a URL says otherwise."""

from __future__ import annotations

from .chat import ChatDialect
from .endpoint import Endpoint

__all__ = ["DIALECT", "ENDPOINT"]

DIALECT = ChatDialect()
ENDPOINT = Endpoint("https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL")
