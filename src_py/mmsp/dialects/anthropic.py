"""Anthropic itself.

Newer models think as they see fit: they answer 400 to `disabled`, so no thinking becomes the least
there is (Anthropic's documentation of Opus 5.5, Sonnet 5.5 and Fable 5.1).
"""

from __future__ import annotations

from typing import Any

from .endpoint import Endpoint, Headers
from .messages import EFFORTS, MessagesDialect

__all__ = ["DIALECT", "ENDPOINT"]

_LEAST = {**EFFORTS, "none": EFFORTS["low"]}
_BETWEEN_TOOLS = {**EFFORTS, "none": {"thinking": {"type": "between_tools"}}}
_UP_TO_HIGH = {**EFFORTS, "xhigh": EFFORTS["high"]}

_FORCED = frozenset({"tool_choice=required", "tool_choice=list"})
_FAST = frozenset({"fast_mode"})


def key_header(key: str) -> Headers:
    return (("X-Api-Key", key),)


def _cached(**fields: Any) -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral", **fields}}


DIALECT = MessagesDialect(
    levels=(
        ("opus-5-5", _LEAST),
        ("fable-5", _LEAST),
        ("haiku-5-5", _LEAST),
        ("sonnet-5-5", _BETWEEN_TOOLS),
        ("4-6", _UP_TO_HIGH),
        ("", EFFORTS),
    ),
    caching={"enable": _cached(), "enhance": _cached(ttl="1h"), "disable": {}},
    fixed_temperature=True,
    refuses=(
        ("", frozenset({"seed", "top_p"})),  # top_p is a 400 since the API's version 2026-10-21
        ("opus-5-5", _FORCED),
        ("sonnet-5-5", _FORCED | _FAST),
        ("haiku-5-5", _FORCED | _FAST),
        ("fable-5-1", _FORCED | _FAST),
        ("4-6", _FAST),
    ),
    replays_unsigned_thinking=False,
    input_usage_at_end=False,
)
ENDPOINT = Endpoint(
    "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", key_header
)
