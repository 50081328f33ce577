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

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from ..dialects.chat import ChatDialect
from ..errors import InvalidMessageError, UnsupportedContentError, UnsupportedParameterError
from ..grammar import Assembler
from ..request import HttpRequest, Target
from ..types import UniConfig, UniMessage
from .base import ids_in
from .openai_chat_decoder import THINKING_PARTS, ChatDecoder
from .picture import needs_detail

__all__ = ["ChatCodec"]

Json = dict[str, Any]

_HEADERS = (("Content-Type", "application/json"), ("Accept", "text/event-stream"))
_OURS = frozenset({"model", "stream", "messages", "n", "store"})  # not for `extra_body`
_NO_IMAGES: Mapping[str, str] = MappingProxyType({})
_FETCHED = re.compile(r"https?://", re.IGNORECASE)
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ChatCodec:
    """Chat Completions as `dialect` speaks it."""

    dialect: ChatDialect

    name: ClassVar[str] = "openai_chat"

    def needs(self, messages: Sequence[UniMessage]) -> list[str]:
        """The http(s) URLs of pictures; this wire's servers want them inline."""
        found = [url for message in messages for url in _pictures(message) if _FETCHED.match(url)]
        return list(dict.fromkeys(found))

    def encode(
        self,
        model: str,
        messages: Sequence[UniMessage],
        config: UniConfig,
        target: Target,
        *,
        client: str,
        images: Mapping[str, str] = _NO_IMAGES,
    ) -> HttpRequest:
        """The streaming request; see `mmsp.codecs.base.Codec`."""
        settings = self._settings(model, {k: v for k, v in config.items() if v is not None}, client)
        conversation = _Conversation(self, model, target.host, client, images)
        body = {"model": model, "stream": True, "messages": conversation.encode(messages, config)}
        return target.request("POST", "/chat/completions", _HEADERS, _json(body | settings, client))

    def decoder(self, assembler: Assembler, *, client: str, target: Target) -> ChatDecoder:
        return ChatDecoder(assembler, self.dialect, client=client, host=target.host)

    def list_models(self, target: Target, page: str = "") -> HttpRequest:
        return target.request("GET", "/models", (("Accept", "application/json"),))

    def models(self, answer: Any) -> tuple[list[str], str]:
        listed = answer if isinstance(answer, list) else answer["data"]  # one gateway sends it bare
        return ids_in(listed), ""

    # ---- config

    def _settings(self, model: str, config: Json, client: str) -> Json:
        """The body's keys that config decides, in the order of the wire's documentation."""
        self._refuse(config, client)
        body: Json = dict(self.dialect.always)
        if self.dialect.asks_for_usage:
            body["stream_options"] = {"include_usage": True}
        for key, name, encode in self._parameters():
            if key in config:
                body[name] = encode(config[key])
        if config.get("fast_mode"):
            body["service_tier"] = "priority"
        return body | self._thinking(model, config) | dict(config.get("extra_body", {}))

    def _parameters(self) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
        yield "max_tokens", self.dialect.max_tokens, _same
        yield "temperature", "temperature", _same
        yield "top_p", "top_p", _same
        yield "stop_sequences", "stop", _same
        yield "seed", "seed", _same
        yield "tools", "tools", _tools
        yield "tool_choice", "tool_choice", _tool_choice
        yield "output_schema", "response_format", _response_format

    def _thinking(self, model: str, config: Json) -> Json:
        level = config.get("thinking_level")
        for part, levels in self.dialect.levels:
            if level is not None and part in model.lower():
                return dict(levels.get(level, {}))
        return {}

    def _refuse(self, config: Json, client: str) -> None:
        """Raise for the first value that this dialect does not take."""
        choice = config.get("tool_choice", "auto")
        form = choice if isinstance(choice, str) else "list"
        checks = {
            "tool_choice": form in self.dialect.tool_choices,
            "prompt_caching": config.get("prompt_caching", "enable") in self.dialect.prompt_caching,
            "extra_body": not _OURS & config.get("extra_body", {}).keys(),
            **{key: not config.get(key) for key in self.dialect.refuses if key == "fast_mode"},
            **{key: key not in config for key in self.dialect.refuses if key != "fast_mode"},
        }
        for parameter, taken in checks.items():
            if not taken:
                raise UnsupportedParameterError(
                    _refusal(parameter, config), client=client, parameter=parameter
                )


def _refusal(parameter: str, config: Json) -> str:
    if parameter == "extra_body":
        taken = ", ".join(sorted(_OURS & config["extra_body"].keys()))
        return f"extra_body may not set what this library sets itself: {taken}"
    return f"this model's endpoint does not take {parameter}={config[parameter]!r}: leave it out"


def _same(value: Any) -> Any:
    return value


def _tools(tools: Sequence[Json]) -> list[Json]:
    named = ("name", "description", "parameters")
    return [
        {"type": "function", "function": {k: tool[k] for k in named if tool.get(k) is not None}}
        for tool in tools
    ]


def _tool_choice(choice: str | Sequence[str]) -> Any:
    if isinstance(choice, str):
        return choice
    tools = [{"type": "function", "function": {"name": name}} for name in choice]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}


def _response_format(schema: Json) -> Json:
    title = schema.get("title")
    name = _NOT_IN_A_NAME.sub("_", title)[:64] if isinstance(title, str) else ""
    form = {"name": name or "output", "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": form}


def _json(body: Any, client: str) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidMessageError(
            f"the request holds what JSON cannot carry: {error}", client=client
        ) from None


# ---- messages


@dataclass(slots=True)
class _Conversation:
    """The messages of one request; remembers where earlier thinking went."""

    codec: ChatCodec
    model: str
    host: str
    client: str
    images: Mapping[str, str]
    thought: tuple[str, ...] = field(default=())  # the fields that earlier thinking was sent in

    def encode(self, messages: Sequence[UniMessage], config: UniConfig) -> list[Json]:
        encoded: list[Json] = []
        if system := config.get("system_prompt"):
            encoded.append({"role": "system", "content": system})
        for index, message in enumerate(messages):
            encode = self._user if message["role"] == "user" else self._assistant
            made = encode(index, list(message["content_items"]))
            if not made:
                raise self._invalid(index, "leaves nothing to send: add text or a tool result")
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
                    parts.append(self._image(index, item["image_url"], "image_url.done"))
                case "tool_result.done":
                    results.append(self._tool_result(index, item))
                    for url in item.get("images") or ():
                        parts.append(self._image(index, url, "tool_result"))
                case kind:
                    raise self._foreign(index, kind, "user")
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
                    raise self._foreign(index, kind, "assistant")
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
        url = self.images.get(url, url)
        if _FETCHED.match(url):
            raise UnsupportedContentError(
                "pictures go to this endpoint inline: give a data: URL instead of an http one",
                client=self.client,
                item_type=item_type,
            )
        if url[:5].lower() != "data:":
            raise self._invalid(index, "has a picture that is no http(s) or data: URL", "image_url")
        image = {"url": url}
        fine = self.codec.dialect.fine_images
        if fine and fine in self.model.lower() and needs_detail(url):
            image["detail"] = "high"
        return {"type": "image_url", "image_url": image}

    def _tool_result(self, index: int, item: Json) -> Json:
        if not item.get("tool_call_id"):
            raise self._invalid(index, "has a tool result without tool_call_id", "tool_result")
        return {
            "role": "tool",
            "tool_call_id": item["tool_call_id"],
            "content": item["text"],
        }

    def _tool_call(self, item: Json) -> Json:
        arguments = _json(item["arguments"], self.client).decode()
        function = {"name": item["name"], "arguments": arguments}
        return {"id": item["tool_call_id"], "type": "function", "function": function}

    # thinking

    def _reasoning(self, thinking: list[Any], calls: bool) -> Json:
        text = "".join(item["thinking"] for item in thinking)
        sent: Json = {}
        if text:
            self.thought = self._reasoning_fields(thinking)
            sent = dict.fromkeys(self.thought, text)
        elif calls and self.codec.dialect.replays_empty_reasoning:
            sent = dict.fromkeys(self.thought, "")
        details = [block for item in thinking for block in self._details(item)]
        return sent | ({"reasoning_details": details} if details else {})

    def _reasoning_fields(self, thinking: list[Any]) -> tuple[str, ...]:
        """The field all of it came in, or those the dialect knows."""
        known = self.codec.dialect.reasoning_fields
        named = {self._own(item).get("reasoning_field") for item in thinking}
        if len(named) == 1 and (name := named.pop()) in (*known, THINKING_PARTS):
            return (name,)
        return known

    def _details(self, item: Json) -> Iterator[Json]:
        """The blocks in which a gateway sent this thinking, for the same gateway."""
        own = self._own(item)
        if not self.codec.dialect.reasoning_details:
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

    def _own(self, item: Json) -> Json:
        """The item's fidelity if it is this wire's and host's, or names neither."""
        fidelity = item.get("fidelity") or {}
        origin = (fidelity.get("wire"), fidelity.get("host"))
        return fidelity if origin in ((self.codec.name, self.host), (None, None)) else {}

    # errors

    def _foreign(self, index: int, kind: Any, role: str) -> InvalidMessageError:
        return self._invalid(
            index, f"has an item of type {kind!r}, which no {role} message takes", kind
        )

    def _invalid(self, index: int, what: str, item_type: str | None = None) -> InvalidMessageError:
        return InvalidMessageError(
            f"messages[{index}] {what}",
            client=self.client,
            item_type=item_type,
            message_index=index,
        )


def _thinking_part(text: str) -> Json:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def _pictures(message: UniMessage) -> Iterator[str]:
    for item in message["content_items"]:
        if item["type"] == "image_url.done":
            yield item["image_url"]
        elif item["type"] == "tool_result.done":
            yield from item.get("images") or ()
