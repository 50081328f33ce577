"""The events of an MMSP server: the fields that are read, and what their values mean.

Every field may be missing or of another type, since servers may be of another version.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from ..items import KINDS
from ..types import FinishReason
from .forgiving import whole_characters

__all__ = ["DELTAS", "FINISH", "Event", "Item", "Usage", "is_said_by", "mended"]

FINISH: dict[str, FinishReason] = {each: each for each in get_args(FinishReason)}
DELTAS = {f"{name}.delta" for name in KINDS}


class Item(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    name: str | None = None
    arguments: Any = None  # text in a delta, an object in a finished item
    tool_call_id: str | None = None
    data: str | None = None
    mime_type: str | None = None
    embedding: Any = None
    fidelity: Any = None


class Usage(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    prompt_tokens: int | None = None
    thoughts_tokens: int | None = None
    response_tokens: int | None = None


class Event(msgspec.Struct, gc=False):
    event_type: str | None = None
    content_items: list[Item] | None = None
    usage_metadata: Usage | None = None
    finish_reason: str | None = None
    error: Any = None


def is_said_by(text: str, arguments: Any) -> bool:
    """Whether `text` says these arguments. The assembler judges what is no object."""
    try:
        return bool(msgspec.json.decode(text or "{}") == arguments)
    except (ValueError, RecursionError):
        return True


def mended(value: Any) -> Any:
    """Plain JSON in whole characters."""
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, dict):
        return {whole_characters(key): mended(part) for key, part in value.items()}
    return [mended(part) for part in value] if isinstance(value, list) else value
