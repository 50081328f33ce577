"""The events of a Responses stream: the few fields that are read, and what the words in them mean.

Every field may be missing, since imitators leave out what they have no use for.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from ..types import FinishReason
from .forgiving import whole_characters

__all__ = [
    "BUILT_IN",
    "OURS",
    "SEALED",
    "SKIPPED",
    "Event",
    "Item",
    "Response",
    "Usage",
    "as_text",
    "finish_of",
    "is_same",
    "key_of",
    "merged",
    "texts",
]

OURS = frozenset({"message", "reasoning", "function_call"})

# Items of built-in tools that the API takes back as it sent them. A drawn picture is left out for its size.
BUILT_IN = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "mcp_approval_request",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
    }
)

# What a provider needs back with a reasoning item; the last two are gateways' additions.
SEALED = ("encrypted_content", "signature", "format")

# Everything else of the type definitions says again what is read elsewhere, or nothing we have.
SKIPPED = (
    "response.audio",
    "response.code_interpreter_call",
    "response.compaction",
    "response.content_part.",
    "response.created",
    "response.custom_tool_call",
    "response.file_search_call",
    "response.image_generation_call",
    "response.in_progress",
    "response.mcp_",
    "response.output_text.",
    "response.queued",
    "response.reasoning_",
    "response.refusal.done",
    "response.shell_call",
    "response.steer",
    "response.web_search_call",
    "compaction.",
    "keepalive",
    "ping",
    "steer.",
)


class Item(msgspec.Struct, gc=False):
    type: str | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    phase: str | None = None
    content: Any = None
    summary: Any = None
    encrypted_content: str | None = None
    signature: str | None = None
    format: str | None = None
    status: str | None = None

    @property
    def own_id(self) -> str | None:
        return self.call_id or self.id


class InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class Response(msgspec.Struct, gc=False):
    """`output` is read from the raw answer, and only where no event said anything."""

    status: str | None = None
    usage: Usage | None = None
    incomplete_details: Incomplete | None = None
    error: Any = None


class Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    item: Item | None = None
    response: Response | None = None
    arguments: str | None = None
    error: Any = None


def key_of(read: Event) -> Hashable:
    """By number, since one gateway changes the id with every delta; by id where there is no number."""
    if read.output_index is not None:
        return read.output_index
    return read.item_id or (read.item and (read.item.id or read.item.call_id)) or ""


def is_same(one: Item, other: Item) -> bool:
    """Whether two announcements at one place are of one item, and not of a server that never counts."""
    return one.type == other.type and one.own_id == other.own_id


def finish_of(status: str | None, reason: str | None) -> FinishReason:
    if status == "incomplete":
        return "content_filter" if reason == "content_filter" else "length"
    return "stop" if status == "completed" else "unknown"


def merged(announced: Item, done: Item) -> Item:
    """A call's name and id from wherever they came."""
    return Item(
        type=done.type,
        id=announced.id or done.id,
        call_id=announced.call_id or done.call_id,
        name=announced.name or done.name,
    )


def as_text(arguments: Any) -> str:
    """Arguments as JSON text, which one server sends as an object."""
    if arguments is None or isinstance(arguments, str):
        return whole_characters(arguments or "")
    return msgspec.json.encode(arguments).decode()


def texts(parts: Any, *names: str) -> str:
    """The texts of content or summary parts, joined."""
    if not isinstance(parts, list):
        return ""
    found = [part.get(name) for part in parts if isinstance(part, dict) for name in names]
    return "".join(whole_characters(each) for each in found if isinstance(each, str))
