"""What of an answer that was broken off can be sent back.

Text that is not blank, pictures, and signed thinking directly before something kept: a provider refuses
a thought that has lost what it led to. Finished calls on request, since their results are then owed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["is_picture", "kept_of"]

Item = dict[str, Any]


def kept_of(items: Sequence[Item], *, tool_calls: bool) -> list[Item]:
    """Those of the done `items` that are kept, in order."""
    kept: list[Item] = []
    led_to_kept = False
    for item in reversed(items):
        verdict = _verdict(item, tool_calls, led_to_kept)
        if verdict is None:
            continue
        led_to_kept = verdict
        if verdict:
            kept.append(item)
    return kept[::-1]


def is_picture(mime_type: str) -> bool:
    return mime_type.lower().startswith("image/")


def _verdict(item: Item, tool_calls: bool, led_to_kept: bool) -> bool | None:
    """Whether `item` is kept; None for what leaves no gap where it is left out."""
    match item["type"]:
        case "text.done":
            return True if item["text"].strip() else None
        case "thinking.done" | "inline_thinking.done":
            return led_to_kept and "fidelity" in item
        case "inline_data.done":
            return is_picture(item["mime_type"])
        case kind:
            return tool_calls and kind == "tool_call.done"
