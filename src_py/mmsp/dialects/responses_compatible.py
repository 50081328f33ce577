"""Any server that speaks Responses as OpenAI does; OpenAI's own unless a URL says otherwise."""

from __future__ import annotations

from .openai_endpoint import ENDPOINT
from .responses import ResponsesDialect

__all__ = ["DIALECT", "ENDPOINT"]

DIALECT = ResponsesDialect()
