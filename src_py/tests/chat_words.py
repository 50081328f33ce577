"""Short words for tests of the Chat Completions codec: messages, chunks, what a decoder made of them."""

from __future__ import annotations

import json
from typing import Any

from mmsp.codecs.openai_chat import ChatCodec
from mmsp.codecs.openai_chat_decoder import ChatDecoder
from mmsp.dialects.chat import ChatDialect
from mmsp.dialects.openai_compatible import DIALECT
from mmsp.grammar import Assembler
from mmsp.request import Target

Json = dict[str, Any]
TARGET = Target("https://api.example/v1/", (("Authorization", "Bearer k"),))
CODEC = ChatCodec(DIALECT)
OURS = {"wire": "openai_chat", "host": "api.example"}

# ---- messages, and what is sent


def encode(
    *messages: Any, model: str = "m", codec: ChatCodec = CODEC, images: Any = None, **config: Any
) -> Json:
    taken: Any = config
    request = codec.encode(model, messages, taken, TARGET, client="C", images=images or {})
    body: Json = json.loads(request.body)
    return body


def messages_of(*messages: Any, **options: Any) -> list[Any]:
    encoded: list[Any] = encode(*messages, **options)["messages"]
    return encoded


def part(words: str) -> Json:
    return {"type": "text", "text": words}


def picture(url: str, **more: str) -> Json:
    return {"type": "image_url", "image_url": {"url": url, **more}}


# ---- chunks, and what is read


class Answer:
    """What a decoder makes of some chunks."""

    def __init__(
        self, *frames: Any, dialect: ChatDialect = DIALECT, host: str = "api.example"
    ) -> None:
        self.assembler = Assembler(client="C", wire="openai_chat", host=host)
        self.decoder = ChatDecoder(self.assembler, dialect, client="C")
        self.feed(*frames)

    def feed(self, *frames: Any) -> None:
        for frame in frames:
            data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
            self.decoder.feed("", data)

    def end(self) -> Json:
        """The message; its finish is given if none came."""
        if self.assembler.finish_reason is None:
            self.assembler.finish("unknown")
        self.assembler.complete(terminal=True)
        return self.assembler.message()

    @property
    def prompt_tokens(self) -> int | None:
        usage = self.assembler.usage_metadata
        return usage["prompt_tokens"] if usage else None

    def items(self) -> list[Any]:
        items: list[Any] = self.end()["content_items"]
        return items

    def calls(self) -> list[tuple[str, str, Any]]:
        return [
            (item["name"], item["tool_call_id"], item["arguments"])
            for item in self.items()
            if item["type"] == "tool_call.done"
        ]


def chunk(finish: Any = None, **delta: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def calls(*pieces: Json) -> Json:
    return chunk(tool_calls=list(pieces))


def piece(index: Any = None, id: Any = None, name: Any = None, arguments: Any = None) -> Json:
    function = {"name": name, "arguments": arguments}
    made: Json = {"function": {k: v for k, v in function.items() if v is not None}}
    return made | {k: v for k, v in {"index": index, "id": id}.items() if v is not None}


def tool_call_of(name: str, id: str, arguments: Any) -> Any:
    return {"type": "tool_call.done", "name": name, "arguments": arguments, "tool_call_id": id}
