"""Short words for messages and their items, as tests of codecs give and expect them."""

from __future__ import annotations

from typing import Any


def user(*items: Any) -> Any:
    return {
        "role": "user",
        "content_items": [text(it) if isinstance(it, str) else it for it in items],
    }


def assistant(*items: Any) -> Any:
    return user(*items) | {"role": "assistant"}


def text(words: str, **fidelity: Any) -> Any:
    item = {"type": "text.done", "text": words}
    return {**item, "fidelity": fidelity} if fidelity else item


def thinking(words: str, **fidelity: Any) -> Any:
    item = {"type": "thinking.done", "thinking": words}
    return {**item, "fidelity": fidelity} if fidelity else item


def tool_call(id: str = "c1", name: str = "f", arguments: Any = None, **fidelity: Any) -> Any:
    item = {"type": "tool_call.done", "name": name, "arguments": arguments or {}}
    item["tool_call_id"] = id
    return {**item, "fidelity": fidelity} if fidelity else item


def result(id: str = "c1", words: str = "r", **more: Any) -> Any:
    return {"type": "tool_result.done", "text": words, "tool_call_id": id, **more}


def image(url: str) -> Any:
    return {"type": "image_url.done", "image_url": url}
