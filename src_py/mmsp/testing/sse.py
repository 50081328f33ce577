"""Server-sent events as the wires of `mmsp.testing` write them."""

from __future__ import annotations

import json
import re


def event(data: object, name: str | None = None) -> bytes:
    """One event: `data` as JSON (a string as it is), after an `event:` line if it has a name."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    first = f"event: {name}\n" if name is not None else ""
    return f"{first}data: {text}\n\n".encode()


def words_of(text: str) -> list[str]:
    """The words of `text`, each with the space before it; joined they are `text`."""
    return re.findall(r"\s*\S+\s*$|\s*\S+", text)
