"""Plain data, the stuff of messages: a copy of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["copied"]


def copied(value: Any) -> Any:
    """`value` with containers of its own, as dicts and lists; strings and bytes are shared."""
    if isinstance(value, dict | Mapping):  # dict first: the general question is slow
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [copied(part) for part in value]
    return value
