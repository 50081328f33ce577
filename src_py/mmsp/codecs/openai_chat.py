"""Chat Completions, OpenAI's first wire and everybody's second: messages and config become a request.

What an answer becomes is in `openai_chat_decoder`. Three habits of this wire shape the encoding:

- A tool's result is a message of its own and holds text alone, so its pictures move into the user
  message that follows.
- Thinking has no place in the standard. Servers put it into a field of their own, by two names; it
  goes back into the one it came from, and into both when that is not known.
- Hidden reasoning goes back to gateways only in the blocks they sent it in, and only to the host
  that sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..dialects.chat import ChatDialect
from ..errors import UnsupportedContentError
from ..grammar import Assembler
from ..request import Target
from ..types import UniMessage
from .base import Codec, Headers, ids_in
from .encoding import (
    JSON_FOR_EVENTS,
    Asked,
    Conversation,
    Json,
    Refusals,
    body_of,
    fetched,
    for_level,
    function,
    json_schema,
    without_temperature,
)
from .openai_chat_decoder import THINKING_PARTS, ChatDecoder
from .picture import needs_detail

__all__ = ["ChatCodec"]


@dataclass(frozen=True, slots=True)
class ChatCodec(Codec):
    """Chat Completions as `dialect` speaks it."""

    dialect: ChatDialect

    name: ClassVar[str] = "openai_chat"
    ours: ClassVar[frozenset[str]] = frozenset({"model", "stream", "messages", "n", "store"})
    paths: ClassVar[tuple[str, ...]] = ("/chat/completions",)

    @property
    def refuses(self) -> Refusals:
        return self.dialect.refuses

    def needs(self, messages: Sequence[UniMessage]) -> list[str]:
        """Most servers of this wire want pictures inline."""
        return [] if self.dialect.pictures_by_url else fetched(messages)

    def _request(self, asked: Asked) -> tuple[str, Headers, Json]:
        settings = self._settings(asked)
        conversation = _Messages(
            self.name, asked.target.host, asked.client, asked.images, self.dialect, asked.model
        )
        messages = conversation.encode(asked.messages, asked.config.get("system_prompt"))
        body = {"model": asked.model, "stream": True, "messages": messages}
        return "/chat/completions", JSON_FOR_EVENTS, body | settings

    def decoder(self, assembler: Assembler, *, client: str, target: Target) -> ChatDecoder:
        return ChatDecoder(assembler, self.dialect, client=client)

    def models(self, answer: Any) -> tuple[list[str], str]:
        listed = answer if isinstance(answer, list) else answer["data"]  # one gateway sends it bare
        return ids_in(listed), ""

    # ---- config

    def _settings(self, asked: Asked) -> Json:
        """The body's keys that config decides, in the order of the wire's documentation."""
        dialect, config = self.dialect, asked.config
        if dialect.fixed_temperature:
            config = without_temperature(asked)
        body: Json = dict(dialect.always)
        if dialect.asks_for_usage:
            body["stream_options"] = {"include_usage": True}
        for key, name, encode in self._parameters():
            if key in config:
                body[name] = encode(config[key])
        if config.get("fast_mode"):
            body["service_tier"] = "priority"
        body |= dialect.caching.get(config.get("prompt_caching", "enable"), {})
        caches_by_key = dialect.cache_key and dialect.cache_key in asked.model.lower()
        if caches_by_key and "trace_id" in config:
            body["prompt_cache_key"] = config["trace_id"]
        return body | for_level(dialect.levels, asked.model, config.get("thinking_level"))

    def _parameters(self) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
        yield "max_tokens", self.dialect.max_tokens, _same
        yield "temperature", "temperature", _same
        yield "top_p", "top_p", _same
        yield "stop_sequences", "stop", _same
        yield "seed", "seed", _same
        yield "tools", "tools", _tools
        yield "tool_choice", "tool_choice", _tool_choice
        yield "output_schema", "response_format", _response_format


def _same(value: Any) -> Any:
    return value


def _tools(tools: Sequence[Json]) -> list[Json]:
    return [{"type": "function", "function": function(tool)} for tool in tools]


def _tool_choice(choice: str | Sequence[str]) -> Any:
    if isinstance(choice, str):
        return choice
    tools = [{"type": "function", "function": {"name": name}} for name in choice]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}


def _response_format(schema: Json) -> Json:
    return {"type": "json_schema", "json_schema": json_schema(schema)}


# ---- messages


@dataclass(slots=True)
class _Messages(Conversation):
    """Remembers where earlier thinking went."""

    dialect: ChatDialect
    model: str
    thought: tuple[str, ...] = field(default=())  # the fields that earlier thinking was sent in

    def encode(self, messages: Sequence[UniMessage], system: str | None) -> list[Json]:
        encoded: list[Json] = []
        if system:
            encoded.append({"role": "system", "content": system})
        for index, message in enumerate(messages):
            encode = self._user if message["role"] == "user" else self._assistant
            made = encode(index, list(message["content_items"]))
            if not made:
                raise self.nothing_left(index)
            encoded += made
        return encoded

    def _user(self, index: int, items: list[Any]) -> list[Json]:
        results: list[Json] = []
        parts: list[Json] = []
        for item in items:
            match item.get("type"):
                case "text.done":
                    parts.append({"type": "text", "text": item["text"]})
                case "image_url.done":
                    parts.append(self._image(index, item["image_url"], "image_url"))
                case "tool_result.done":
                    results.append(self._tool_result(index, item))
                    for url in item.get("images") or ():
                        parts.append(self._image(index, url, "tool_result"))
                case kind:
                    raise self.foreign(index, kind)
        return [*results, {"role": "user", "content": parts}] if parts else results

    def _assistant(self, index: int, items: list[Any]) -> list[Json]:
        message: Json = {"role": "assistant"}
        thinking = [item for item in items if item.get("type") == "thinking.done"]
        parts_field = self._reasoning_fields(thinking) == (THINKING_PARTS,)
        parts: list[Json] = []
        calls: list[Json] = []
        for item in items:
            match item.get("type"):
                case "text.done":
                    parts.append({"type": "text", "text": item["text"]})
                case "thinking.done":
                    if parts_field:
                        parts.append(_thinking_part(item["thinking"]))
                case "tool_call.done":
                    calls.append(self._tool_call(item))
                case kind:
                    raise self.foreign(index, kind)
        if not any(part["type"] == "text" for part in parts) and not calls:
            return []
        if parts:
            message["content"] = parts
        if calls:
            message["tool_calls"] = calls
        if not parts_field:
            message |= self._reasoning(thinking, bool(calls))
        return [message]

    def _image(self, index: int, url: str, item_type: str) -> Json:
        lower = self.model.lower()
        if self.dialect.sees_pictures not in lower:
            raise UnsupportedContentError(
                f"{self.model} sees no pictures: leave them out, or ask another model",
                client=self.client,
                item_type=item_type,
            )
        image = {"url": self.picture(index, url)}
        if (fine := self.dialect.fine_images) and fine in lower and needs_detail(image["url"]):
            image["detail"] = "high"
        return {"type": "image_url", "image_url": image}

    def _tool_result(self, index: int, item: Json) -> Json:
        return {
            "role": "tool",
            "tool_call_id": self.call_id(index, item),
            "content": item["text"],
        }

    def _tool_call(self, item: Json) -> Json:
        arguments = body_of(item["arguments"], client=self.client).decode()
        named = {"name": item["name"], "arguments": arguments}
        return {"id": item["tool_call_id"], "type": "function", "function": named}

    # thinking

    def _reasoning(self, thinking: list[Any], calls: bool) -> Json:
        text = "".join(item["thinking"] for item in thinking)
        sent: Json = {}
        if text:
            self.thought = self._reasoning_fields(thinking)
            sent = dict.fromkeys(self.thought, text)
        elif calls and self.dialect.replays_empty_reasoning:
            sent = dict.fromkeys(self.thought, "")
        details = [block for item in thinking for block in self._details(item)]
        return sent | ({"reasoning_details": details} if details else {})

    def _reasoning_fields(self, thinking: list[Any]) -> tuple[str, ...]:
        """The field all of it came in, or those the dialect knows."""
        known = self.dialect.reasoning_fields
        named = {self.own(item).get("reasoning_field") for item in thinking}
        if len(named) == 1 and (name := named.pop()) in (*known, THINKING_PARTS):
            return (name,)
        return known

    def _details(self, item: Json) -> Iterator[Json]:
        """The blocks in which a gateway sent this thinking, for the same gateway."""
        own = self.own(item)
        if not self.dialect.reasoning_details:
            return
        named = {"format": own.get("format"), "id": own.get("reasoning_id")}
        named = {key: value for key, value in named.items() if value}
        if own.get("encrypted_content") and own.get("format"):
            yield {"type": "reasoning.encrypted", "data": own["encrypted_content"], **named}
        if own.get("reasoning_signature"):
            signed = {"text": item["thinking"], "signature": own["reasoning_signature"]}
            yield {"type": "reasoning.text", **signed, **named}
        blocks = own.get("reasoning_details")
        if isinstance(blocks, list):
            yield from blocks


def _thinking_part(text: str) -> Json:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
