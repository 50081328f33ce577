"""Anthropic's Messages: messages and config become a request.

What an answer becomes is in `anthropic_messages_decoder`. Each message becomes one message of content
blocks. A user message puts its tool results first, as the API demands. Redacted thinking travels as
thinking with a mark for its text and the sealed data for its signature. What a server-side tool left
in an answer rides in the fidelity of the item that followed it, and goes back in front of that item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from ..dialects.messages import MessagesDialect
from ..grammar import Assembler
from ..request import HttpRequest, Target
from ..types import UniMessage
from .anthropic_messages_decoder import REDACTED, MessagesDecoder
from .base import BESIDE, Codec, Headers, ids_in, page_in
from .encoding import (
    JSON_FOR_EVENTS,
    Asked,
    Conversation,
    Json,
    Refusals,
    for_level,
    is_fetched,
    versioned,
    without_temperature,
)

__all__ = ["MessagesCodec"]

_VERSION = ("anthropic-version", "2026-10-21")
_HEADERS = (*JSON_FOR_EVENTS, _VERSION)
_FAST = (("anthropic-beta", "fast-mode-2026-02-01"),)


@dataclass(frozen=True, slots=True)
class MessagesCodec(Codec):
    """Messages as `dialect` speaks it."""

    dialect: MessagesDialect

    name: ClassVar[str] = "anthropic_messages"
    ours: ClassVar[frozenset[str]] = frozenset({"model", "stream", "messages"})
    paths: ClassVar[tuple[str, ...]] = ("/messages",)

    @property
    def refuses(self) -> Refusals:
        return self.dialect.refuses

    def _request(self, asked: Asked) -> tuple[str, Headers, Json]:
        settings = self._settings(asked)
        blocks = _Blocks(self.name, asked.target.host, asked.client, asked.images, self.dialect)
        body = {"model": asked.model, "stream": True, "messages": blocks.encode(asked.messages)}
        headers = _HEADERS + (_FAST if asked.config.get("fast_mode") else ())
        return versioned(asked.target, "v1", "/messages"), headers, body | settings

    def decoder(self, assembler: Assembler, *, client: str, target: Target) -> MessagesDecoder:
        return MessagesDecoder(assembler, self.dialect, client=client)

    def list_models(self, target: Target, page: str = "") -> HttpRequest:
        path = versioned(target, "v1", "/models") + (f"?after_id={quote(page)}" if page else "")
        return target.request("GET", path, (("Accept", "application/json"), _VERSION))

    def models(self, answer: Any) -> tuple[list[str], str]:
        ids = ids_in(answer["data"])
        if not answer.get("has_more"):
            return ids, ""
        return ids, page_in(answer, "last_id") or "".join(ids[-1:])

    # ---- config

    def _settings(self, asked: Asked) -> Json:
        """The body's keys that config decides."""
        config = asked.config
        self._refuse(asked)
        if self.dialect.fixed_temperature:
            config = without_temperature(asked)
        body: Json = {"max_tokens": config.get("max_tokens", self.dialect.max_tokens)}
        for key, name in _SAME.items():
            if key in config:
                body[name] = config[key]
        if "tools" in config:
            body["tools"] = [_tool(each) for each in config["tools"]]
        if "tool_choice" in config:
            body["tool_choice"] = _tool_choice(config["tool_choice"])
        if config.get("fast_mode"):
            body["speed"] = "fast"
        body |= self.dialect.caching[config.get("prompt_caching", "enable")]
        return body | self._thinking(asked.model, config)

    def _thinking(self, model: str, config: Json) -> Json:
        """The keys `thinking` and `output_config`."""
        made = for_level(self.dialect.levels, model, config.get("thinking_level"))
        if (shown := config.get("thinking_summary")) is not None:
            thinking = made.setdefault("thinking", {"type": "adaptive"})
            if thinking["type"] == "adaptive":  # the others refuse it
                made["thinking"] = {**thinking, "display": "summarized" if shown else "omitted"}
        if schema := config.get("output_schema"):
            form = {"type": "json_schema", "schema": schema}
            made["output_config"] = {**made.get("output_config", {}), "format": form}
        return made

    def _refuse(self, asked: Asked) -> None:
        config = asked.config
        problems = {
            "prompt_caching": config.get("prompt_caching", "enable") not in self.dialect.caching,
            "tool_choice": isinstance(names := config.get("tool_choice"), list) and len(names) != 1,
        }
        for parameter, refused in problems.items():
            if refused:
                raise asked.unsupported(parameter, *_ADVICE[parameter])


_SAME = {
    "system_prompt": "system",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop_sequences": "stop_sequences",
}
_ADVICE = {
    "prompt_caching": ("its provider has no such value of it", "Leave it out"),
    "tool_choice": ("the protocol can ask for one tool only", "Name one tool, or say 'required'"),
}


def _tool(tool: Json) -> Json:
    made = {key: tool[key] for key in ("name", "description") if tool.get(key) is not None}
    return {**made, "input_schema": tool.get("parameters") or {"type": "object"}}


def _tool_choice(choice: str | Sequence[str]) -> Json:
    if isinstance(choice, str):
        return {"type": "any" if choice == "required" else choice}
    return {"type": "tool", "name": choice[0]}


# ---- messages


@dataclass(slots=True)
class _Blocks(Conversation):
    dialect: MessagesDialect

    def encode(self, messages: Sequence[UniMessage]) -> list[Json]:
        encoded: list[Json] = []
        for index, message in enumerate(messages):
            items: list[Any] = list(message["content_items"])
            blocks = [block for item in items for block in self._item(index, item)]
            if all(block["type"] in _THOUGHTS for block in blocks):
                raise self.nothing_left(index)
            blocks.sort(key=lambda block: block["type"] != "tool_result")  # results first: its rule
            encoded.append({"role": message["role"], "content": blocks})
        return encoded

    def _item(self, index: int, item: Json) -> list[Json]:
        own = self.own(item)
        beside: list[Json] = list(own.get(BESIDE) or ())
        match item["type"]:
            case "text.done":  # an empty text is refused
                text = [{"type": "text", "text": item["text"]}] if item["text"] else []
                return beside + text
            case "image_url.done":
                return [self._image(index, item["image_url"])]
            case "thinking.done":
                return beside + self._thought(item["thinking"], own.get("signature"))
            case "tool_call.done":
                return [*beside, _tool_use(item)]
            case "tool_result.done":
                return [self._tool_result(index, item)]
            case kind:
                raise self.foreign(index, kind)

    def _thought(self, text: str, signature: str | None) -> list[Json]:
        if text == REDACTED:
            return [{"type": "redacted_thinking", "data": signature}] if signature else []
        if signature:
            return [{"type": "thinking", "thinking": text, "signature": signature}]
        if self.dialect.replays_unsigned_thinking and text:
            return [{"type": "thinking", "thinking": text}]
        return []

    def _tool_result(self, index: int, item: Json) -> Json:
        text = [{"type": "text", "text": item["text"]}] if item["text"] else []
        images = [self._image(index, url) for url in item.get("images") or ()]
        return {
            "type": "tool_result",
            "tool_use_id": self.call_id(index, item),
            "content": text + images,
        }

    def _image(self, index: int, url: str) -> Json:
        if is_fetched(url) and url not in self.images:
            return {"type": "image", "source": {"type": "url", "url": url}}
        mime_type, data = self.inline(index, url)
        source = {"type": "base64", "media_type": mime_type, "data": data}
        return {"type": "image", "source": source}


_THOUGHTS = frozenset({"thinking", "redacted_thinking"})


def _tool_use(item: Json) -> Json:
    return {
        "type": "tool_use",
        "id": item["tool_call_id"],
        "name": item["name"],
        "input": item["arguments"],
    }
