"""Short words for tests of the Responses codec: messages, events, what a decoder made of them."""

from __future__ import annotations

import json
from typing import Any

from mmsp.codecs.openai_responses import ResponsesCodec
from mmsp.codecs.openai_responses_decoder import ResponsesDecoder
from mmsp.dialects import deepseek, minimax, openai, responses_compatible
from mmsp.dialects.responses import ResponsesDialect
from mmsp.grammar import Assembler
from mmsp.request import Target

Json = dict[str, Any]
TARGET = Target("https://api.example/v1/", (("Authorization", "Bearer k"),))
DIALECTS: dict[str, ResponsesDialect] = {
    "openai-responses": responses_compatible.DIALECT,
    "openai-official": openai.DIALECT,
    "deepseek-official": deepseek.DIALECT,
    "minimax-official": minimax.DIALECT,
}
PLAIN = responses_compatible.DIALECT
OURS = {"wire": "openai_responses", "host": "api.example"}

# ---- messages, and what is sent


def encode(
    *messages: Any, model: str = "m", dialect: ResponsesDialect = PLAIN, **config: Any
) -> Json:
    taken: Any = config
    request = ResponsesCodec(dialect).encode(model, messages, taken, TARGET, client="C")
    body: Json = json.loads(request.body)
    return body


def input_of(*messages: Any, **options: Any) -> list[Any]:
    encoded: list[Any] = encode(*messages, **options)["input"]
    return encoded


def message(role: str, *content: Any, **more: Any) -> Json:
    kind = "input_text" if role == "user" else "output_text"
    parts = [{"type": kind, "text": it} if isinstance(it, str) else it for it in content]
    return {"type": "message", "role": role, "content": parts, **more}


def picture(url: str, **more: str) -> Json:
    return {"type": "input_image", "image_url": url, **more}


def call_item(id: str = "c1", name: str = "f", arguments: str = "{}") -> Json:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


def thought(*words: str, **more: Any) -> Json:
    """A reasoning item whose words are in `content`."""
    content = [{"type": "reasoning_text", "text": each} for each in words]
    return {"type": "reasoning", "summary": [], **({"content": content} if words else {}), **more}


def summarized(words: str, **more: Any) -> Json:
    return {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": words}],
        **more,
    }


# ---- events, and what is read


class Answer:
    """What a decoder makes of some events."""

    def __init__(
        self, *events: Any, dialect: ResponsesDialect = PLAIN, strict: bool = False
    ) -> None:
        self.assembler = Assembler(
            client="C", wire="openai_responses", host="api.example", strict=strict
        )
        self.decoder = ResponsesDecoder(self.assembler, dialect, client="C")
        self.feed(*events)

    def feed(self, *events: Any) -> None:
        for each in events:
            data = each if isinstance(each, bytes) else json.dumps(each).encode()
            self.decoder.feed("", data)

    def end(self) -> Json:
        """The message; its finish is given if none came."""
        if self.assembler.finish_reason is None:
            self.assembler.finish("unknown")
        self.assembler.out.extend(self.assembler.complete(terminal=True))
        return self.assembler.message()

    def items(self) -> list[Any]:
        items: list[Any] = self.end()["content_items"]
        return items

    def sent(self) -> list[str]:
        """The types of all that went out."""
        return [item["type"] for item in self.assembler.out]


def event(kind: str, **fields: Any) -> Json:
    return {"type": f"response.{kind}", **fields}


def added(index: int | None, kind: str, **fields: Any) -> Json:
    return event("output_item.added", **_at(index), item={"type": kind, **fields})


def done(index: int | None, kind: str, **fields: Any) -> Json:
    return event("output_item.done", **_at(index), item={"type": kind, **fields})


def said(index: int | None, piece: str, **fields: Any) -> Json:
    return event("output_text.delta", **_at(index), delta=piece, **fields)


def mused(index: int | None, piece: str, **fields: Any) -> Json:
    return event("reasoning_text.delta", **_at(index), delta=piece, **fields)


def in_short(index: int | None, piece: str, **fields: Any) -> Json:
    return event("reasoning_summary_text.delta", **_at(index), delta=piece, **fields)


def argued(index: int | None, piece: str, **fields: Any) -> Json:
    return event("function_call_arguments.delta", **_at(index), delta=piece, **fields)


def call_added(index: int | None, call_id: str | None = "c1", **fields: Any) -> Json:
    return added(
        index, "function_call", **{"id": f"fc_{call_id}", "call_id": call_id, "name": "f", **fields}
    )


def call_done(index: int | None, call_id: str | None = "c1", **fields: Any) -> Json:
    whole = call_added(index, call_id, **fields)
    return whole | {"type": "response.output_item.done"}


def completed(status: str = "completed", **fields: Any) -> Json:
    return event(status, response={"status": status, **fields})


def _at(index: int | None) -> Json:
    return {} if index is None else {"output_index": index}
