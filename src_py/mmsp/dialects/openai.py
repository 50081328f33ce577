"""OpenAI itself, by its Responses wire. Its reasoning comes sealed, and is asked for."""

from __future__ import annotations

from .openai_endpoint import ENDPOINT
from .responses import ResponsesDialect

__all__ = ["DIALECT", "ENDPOINT"]

DIALECT = ResponsesDialect(
    always={"include": ["reasoning.encrypted_content"]},
    summary="alone",
    fixed_temperature=True,
    sealed_is_summary=True,
    keeps_empty_phase=True,
)
