"""Any server that speaks Messages as Anthropic does; Anthropic's own unless a URL says otherwise."""

from __future__ import annotations

from .endpoint import Endpoint, Headers
from .messages import MessagesDialect

__all__ = ["DIALECT", "ENDPOINT"]


def both(key: str) -> Headers:
    """The key in both places: Anthropic and DeepSeek read the first, OpenRouter and Z.AI the second."""
    return (("X-Api-Key", key), ("Authorization", f"Bearer {key}"))


DIALECT = MessagesDialect()
ENDPOINT = Endpoint("https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", both)
