"""OpenAI's Responses: messages and config become a request.

What an answer becomes is in `openai_responses_decoder`. A message becomes a run of input items: texts and
pictures share a `message`, every other item is one of its own, in order. Nothing is stored at the
provider, so the whole conversation travels each time, sealed reasoning included.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..dialects.responses import ResponsesDialect
from ..errors import UnsupportedContentError
from ..grammar import Assembler
from ..request import Target
from ..types import UniMessage
from .base import BESIDE, Codec, Headers
from .encoding import (
    JSON_FOR_EVENTS,
    Asked,
    Conversation,
    Json,
    Refusals,
    body_of,
    function,
    json_schema,
    row_for,
    without_temperature,
)
from .openai_responses_decoder import ResponsesDecoder
from .openai_responses_event import BUILT_IN, SEALED
from .picture import needs_detail

__all__ = ["ResponsesCodec"]

_SAME = {
    "system_prompt": "instructions",
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
}


@dataclass(frozen=True, slots=True)
class ResponsesCodec(Codec):
    """Responses as `dialect` speaks it."""

    dialect: ResponsesDialect

    name: ClassVar[str] = "openai_responses"
    ours: ClassVar[frozenset[str]] = frozenset({"model", "stream", "input", "n", "store"})
    paths: ClassVar[tuple[str, ...]] = ("/responses",)

    @property
    def refuses(self) -> Refusals:
        return self.dialect.refuses

    def _request(self, asked: Asked) -> tuple[str, Headers, Json]:
        settings = self._settings(asked)
        items = _Items(
            self.name, asked.target.host, asked.client, asked.images, self.dialect, asked.model
        )
        body = {
            "model": asked.model,
            "stream": True,
            "store": False,
            "input": items.encode(asked.messages),
        }
        return "/responses", JSON_FOR_EVENTS, body | settings

    def decoder(self, assembler: Assembler, *, client: str, target: Target) -> ResponsesDecoder:
        return ResponsesDecoder(assembler, self.dialect, client=client)

    # ---- config

    def _settings(self, asked: Asked) -> Json:
        """The body's keys that config decides."""
        config = asked.config
        if self.dialect.fixed_temperature:
            config = without_temperature(asked)
        self._check_temperature(asked, config)
        body: Json = dict(self.dialect.always)
        for key, name in _SAME.items():
            if key in config:
                body[name] = config[key]
        if reasoning := self._reasoning(asked.model, config):
            body["reasoning"] = reasoning
        if "tools" in config:
            body["tools"] = [{"type": "function", **function(each)} for each in config["tools"]]
        if "tool_choice" in config:
            body["tool_choice"] = _tool_choice(config["tool_choice"])
        if "output_schema" in config:
            schema = json_schema(config["output_schema"])
            body["text"] = {"format": {"type": "json_schema", **schema}}
        if config.get("fast_mode"):
            body["service_tier"] = "priority"
        return body

    def _reasoning(self, model: str, config: Json) -> Json:
        made: Json = {}
        level = config.get("thinking_level")
        if level is not None:
            made["effort"] = row_for(self.dialect.efforts, model).get(level, level)
        asked = config.get("thinking_summary") and self.dialect.summary != "never"
        if asked and (level is not None or self.dialect.summary == "alone"):
            made["summary"] = "concise"
        return made

    def _check_temperature(self, asked: Asked, config: Json) -> None:
        low, high = self.dialect.temperatures
        temperature = config.get("temperature", low)
        if not low <= temperature <= high:
            raise asked.unsupported(
                "temperature",
                f"{asked.model} takes {low:g} to {high:g}",
                "Give one of these, or leave it out",
            )


def _tool_choice(choice: str | Sequence[str]) -> Any:
    if isinstance(choice, str):
        return choice
    tools = [{"type": "function", "name": name} for name in choice]
    return {"type": "allowed_tools", "mode": "required", "tools": tools}


# ---- messages


@dataclass(slots=True)
class _Items(Conversation):
    dialect: ResponsesDialect
    model: str

    def encode(self, messages: Sequence[UniMessage]) -> list[Json]:
        encoded: list[Json] = []
        for index, message in enumerate(messages):
            made = self._message(index, message["role"], list(message["content_items"]))
            if all(item["type"] == "reasoning" for item in made):
                raise self.nothing_left(index)
            encoded += made
        return encoded

    def _message(self, index: int, role: str, items: list[Any]) -> list[Json]:
        made: list[Json] = []
        run = _Run(role)
        for item in items:
            own = self.own(item) if self.dialect.keeps_reasoning else {}
            if beside := _beside(own):
                made += run.take()
                made += beside
            match item["type"]:
                case "text.done":
                    if beside and not item["text"] and "phase" not in own:
                        continue  # it was made to carry them and nothing else
                    made += run.change_phase(own.get("phase") if role == "assistant" else None)
                    kind = "input_text" if role == "user" else "output_text"
                    run.content.append({"type": kind, "text": item["text"]})
                case "image_url.done":
                    run.content.append(self._image(index, item["image_url"], "image_url.done"))
                case _:
                    made += run.take()
                    made.append(self._other(index, item, own))
        return made + run.take()

    def _other(self, index: int, item: Json, own: Json) -> Json:
        match item["type"]:
            case "thinking.done":
                return self._thinking(item["thinking"], own)
            case "tool_call.done":
                return _tool_call(item, self.client)
            case "tool_result.done":
                return self._tool_result(index, item)
            case kind:
                raise self.foreign(index, kind)

    def _thinking(self, text: str, own: Json) -> Json:
        dialect = self.dialect
        content = [{"type": "reasoning_text", "text": text}] if text else []
        if dialect.thinking_goes_to == "content alone":
            return {"type": "reasoning", "content": content}
        made: Json = {"type": "reasoning", "summary": []}
        if text and dialect.thinking_goes_to == "channel" and self._is_summary(own):
            made["summary"] = [{"type": "summary_text", "text": text}]
        elif text:
            made["content"] = content
        return made | {key: own[key] for key in SEALED if own.get(key) is not None}

    def _is_summary(self, own: Json) -> bool:
        if (channel := own.get("channel")) is not None:
            return bool(channel == "summary")
        return self.dialect.sealed_is_summary and own.get("encrypted_content") is not None

    def _tool_result(self, index: int, item: Json) -> Json:
        output: Any = item["text"]
        if images := item.get("images"):
            parts = [self._image(index, url, "tool_result") for url in images]
            output = [{"type": "input_text", "text": item["text"]}, *parts]
        return {
            "type": "function_call_output",
            "call_id": self.call_id(index, item),
            "output": output,
        }

    def _image(self, index: int, url: str, item_type: str) -> Json:
        self._refuse_image(item_type)
        url = self.picture(index, url)
        image = {"type": "input_image", "image_url": url}
        fine = self.dialect.fine_images
        if fine and fine in self.model.lower() and needs_detail(url):
            image["detail"] = "high"
        return image

    def _refuse_image(self, item_type: str) -> None:
        pattern = self.dialect.text_only
        if pattern and re.fullmatch(pattern, self.model.rpartition("/")[2].lower()):
            raise UnsupportedContentError(
                f"{self.model} sees no pictures: leave them out, or ask another model",
                client=self.client,
                item_type=item_type.removesuffix(".done"),
            )


class _Run:
    """Texts and pictures of one message that follow each other, in one phase."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._phase: str | None = None
        self.content: list[Json] = []

    def take(self) -> list[Json]:
        """The run as a message item, if there is any; another begins."""
        content, self.content = self.content, []
        if not content:
            return []
        message: Json = {"type": "message", "role": self._role, "content": content}
        return [message | ({"phase": self._phase} if self._phase is not None else {})]

    def change_phase(self, phase: str | None) -> list[Json]:
        """Another phase ends the run; a text that names none goes on in the last one."""
        if phase is None or phase == self._phase:
            return []
        before = self.take()
        self._phase = phase
        return before


def _beside(own: Json) -> list[Json]:
    """The built-in tools' items that came before an item."""
    beside = own.get(BESIDE)
    found = beside if isinstance(beside, list) else []
    return [each for each in found if isinstance(each, dict) and str(each.get("type")) in BUILT_IN]


def _tool_call(item: Json, client: str) -> Json:
    return {
        "type": "function_call",
        "call_id": item["tool_call_id"],
        "name": item["name"],
        "arguments": body_of(item["arguments"], client=client).decode(),
    }
