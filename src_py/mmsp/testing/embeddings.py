"""OpenAI's embeddings wire, which does not stream: a whole answer as bytes to `say`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

VECTOR = (0.5, -0.25, 1.0)


def completion(whole: str = "", vectors: Sequence[Sequence[float]] = (VECTOR,)) -> dict[str, Any]:
    """The answer, for `Answer.json`; what was asked does not matter."""
    data = [
        {"object": "embedding", "index": index, "embedding": list(vector)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": 2, "total_tokens": 2}
    return {"object": "list", "data": data, "model": "scripted", "usage": usage}


def answer(whole: str = "") -> list[bytes]:
    """The same as the pieces of a body."""
    text = json.dumps(completion(whole)).encode()
    return [text[: len(text) // 2], text[len(text) // 2 :]]
