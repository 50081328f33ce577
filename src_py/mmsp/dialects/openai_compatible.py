"""Any server that speaks Chat Completions as OpenAI does; OpenAI's own unless a URL says otherwise."""

from __future__ import annotations

from .chat import ChatDialect
from .openai_endpoint import ENDPOINT

__all__ = ["DIALECT", "ENDPOINT"]

DIALECT = ChatDialect()
