"""Google's Interactions: messages and config become a request.

What an answer becomes is in `google_interactions_decoder`. A message becomes steps: texts and media share
one, every other item is one of its own. A signature stands on a thought of its own, in front of what it
belongs to, and a turn of the model has to open with a signed one: where there is none, Google's
documented stand-in takes its place.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..dialects.google import GoogleDialect
from ..grammar import Assembler
from ..request import Target
from ..types import UniMessage
from .base import BESIDE, Headers
from .encoding import JSON_FOR_EVENTS, Asked, Conversation, Json, function, versioned
from .google_codec import GoogleCodec, embedding_body, is_embedding, stand_in_signature
from .google_generate_content import Contents
from .google_interactions_decoder import InteractionsDecoder
from .google_speech import is_speech, speech

__all__ = ["InteractionsCodec"]

_GENERATION = {
    "max_tokens": "max_output_tokens",
    "top_p": "top_p",
    "stop_sequences": "stop_sequences",
    "seed": "seed",
}
_MEDIA = frozenset({"image", "audio", "video"})


@dataclass(frozen=True, slots=True)
class InteractionsCodec(GoogleCodec):
    """Interactions as `dialect` speaks it."""

    dialect: GoogleDialect

    name: ClassVar[str] = "google_interactions"
    ours: ClassVar[frozenset[str]] = frozenset({"model", "stream", "input", "store", "requests"})
    paths: ClassVar[tuple[str, ...]] = ("/interactions",)

    def _request(self, asked: Asked) -> tuple[str, Headers, Json]:
        model, config = asked.model, asked.config
        if is_embedding(model):
            return self._embedding(asked)
        body: Json = {"model": model, "stream": True, "store": False}
        if config.get("fast_mode"):
            body["service_tier"] = "priority"
        if is_speech(model):
            body |= self._speech(asked)
        else:
            steps = _Steps(self.name, asked.target.host, asked.client, asked.images)
            body |= {"input": steps.encode(asked.messages), **self._settings(model, config)}
        return (
            versioned(asked.target, self.dialect.version, "/interactions"),
            JSON_FOR_EVENTS,
            body,
        )

    def decoder(self, assembler: Assembler, *, client: str, target: Target) -> InteractionsDecoder:
        return InteractionsDecoder(assembler, client=client)

    # ---- config

    def _settings(self, model: str, config: Json) -> Json:
        body: Json = {}
        if (system := config.get("system_prompt")) is not None:
            body["system_instruction"] = system
        generation: Json = {
            name: config[key] for key, name in _GENERATION.items() if config.get(key) is not None
        }
        if (level := config.get("thinking_level")) is not None:
            generation["thinking_level"] = self._level(model, level)
        if (shown := config.get("thinking_summary")) is not None:
            generation["thinking_summaries"] = "auto" if shown else "none"
        if tools := config.get("tools"):
            body["tools"] = [{"type": "function", **function(each)} for each in tools]
            if choice := config.get("tool_choice"):
                generation["tool_choice"] = _tool_choice(choice)
        if generation:
            body["generation_config"] = generation
        if form := _response_format(config):
            body["response_format"] = form
        return body

    def _embedding(self, asked: Asked) -> tuple[str, Headers, Json]:
        """Embeddings have no wire but generateContent's."""
        contents = Contents(self.name, asked.target.host, asked.client, asked.images)
        body = embedding_body(asked.model, contents.encode(asked.messages), asked.config)
        path = self._model_path(asked.target, asked.model, ":batchEmbedContents")
        return path, JSON_FOR_EVENTS[:1], body

    # ---- speech

    def _speech(self, asked: Asked) -> Json:
        chosen, said = speech(asked, self.dialect.labelled_speech)
        generation: Json = {
            "speech_config": [
                {key: each[key] for key in ("speaker", "voice") if key in each} for each in chosen
            ]
        }
        if (longest := asked.config.get("max_tokens")) is not None:
            generation["max_output_tokens"] = longest
        return {
            "input": [{"type": "user_input", "content": [_turn(*each) for each in said]}],
            "response_format": {"type": "audio"},
            "generation_config": generation,
        }


def _turn(name: str, words: str) -> Json:
    said: Json = {"type": "text", "text": words}
    if name:
        said["annotations"] = [{"type": "speech_metadata", "speaker": name}]
    return said


def _tool_choice(choice: str | list[str]) -> Any:
    if isinstance(choice, str):
        return "any" if choice == "required" else choice
    return {"allowed_tools": {"mode": "any", "tools": choice}}


def _response_format(config: Json) -> list[Json]:
    """The forms the answer may take; naming pictures alone would switch text off."""
    if image := config.get("image_config"):
        named = {key: image[key] for key in ("aspect_ratio", "image_size") if key in image}
        return [{"type": "text"}, {"type": "image", **named}]
    if schema := config.get("output_schema"):
        return [{"type": "text", "mime_type": "application/json", "schema": schema}]
    return []


# ---- messages


@dataclass(slots=True)
class _Steps(Conversation):
    """Remembers the names of the calls that results answer."""

    called: dict[str, str] = field(default_factory=dict)

    def encode(self, messages: Sequence[UniMessage]) -> list[Json]:
        encoded: list[Json] = []
        for index, message in enumerate(messages):
            is_user = message["role"] == "user"
            run = _Run("user_input" if is_user else "model_output")
            items: list[Any] = list(message["content_items"])
            for item in items:
                self._item(run, index, item)
            steps = run.end()
            if all(step["type"] == "thought" for step in steps):
                raise self.nothing_left(index)
            encoded += steps if is_user else _opened_by_thought(steps)
        return encoded

    def _item(self, run: _Run, index: int, item: Json) -> None:
        own = self.own(item)
        signature = own.get("signature")
        for step in own.get(BESIDE) or ():
            run.step(step)
        kind = item["type"]
        if kind in ("thinking.done", "inline_thinking.done"):
            run.think(_thought(item), signature)
            return
        if signature:
            run.step({"type": "thought", "signature": signature})
        match kind:
            case "text.done":
                if item["text"]:  # an empty text is refused
                    run.say({"type": "text", "text": item["text"]})
            case "image_url.done":
                run.say(self._image(index, item["image_url"]))
            case "inline_data.done":
                run.say(_media(item["mime_type"], base64.b64encode(item["data"]).decode()))
            case "tool_call.done":
                run.step(self._call(item))
            case "tool_result.done":
                run.step(self._result(index, item))
            case _:
                raise self.foreign(index, kind)

    def _call(self, item: Json) -> Json:
        self.called[item["tool_call_id"]] = item["name"]
        return {
            "type": "function_call",
            "id": item["tool_call_id"],
            "name": item["name"],
            "arguments": item["arguments"],
        }

    def _result(self, index: int, item: Json) -> Json:
        call_id = self.call_id(index, item)
        result: Any = item["text"]
        if images := item.get("images"):
            text = [{"type": "text", "text": item["text"]}] if item["text"] else []
            result = [*text, *(self._image(index, url) for url in images)]
        return {
            "type": "function_result",
            "call_id": call_id,
            "name": self.called.get(call_id, call_id),
            "result": result,
        }

    def _image(self, index: int, url: str) -> Json:
        return _media(*self.inline(index, url))


class _Run:
    """The steps of one message: what is said gathers in one, what is thought in another."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._said: list[Json] = []
        self._thought: list[Json] = []
        self._steps: list[Json] = []

    def say(self, block: Json) -> None:
        self._end_thought()
        self._said.append(block)

    def think(self, block: Json | None, signature: str | None) -> None:
        """A signature ends the thought it seals."""
        self._end_said()
        if block is not None:
            self._thought.append(block)
        if signature:
            self._end_thought(signature)

    def step(self, step: Json) -> None:
        self.end()
        self._steps.append(step)

    def end(self) -> list[Json]:
        self._end_said()
        self._end_thought()
        return self._steps

    def _end_said(self) -> None:
        if self._said:
            self._steps.append({"type": self._kind, "content": self._said})
            self._said = []

    def _end_thought(self, signature: str | None = None) -> None:
        if self._thought or signature:
            step: Json = {"type": "thought"}
            if self._thought:
                step["summary"] = self._thought
            if signature:
                step["signature"] = signature
            self._steps.append(step)
            self._thought = []


def _thought(item: Json) -> Json | None:
    if item["type"] == "inline_thinking.done":
        return _media(item["mime_type"], base64.b64encode(item["data"]).decode())
    return {"type": "text", "text": item["thinking"]} if item["thinking"] else None


def _media(mime_type: str, data: str) -> Json:
    family = mime_type.partition("/")[0].lower()
    kind = family if family in _MEDIA else "document"
    return {"type": kind, "data": data, "mime_type": mime_type}


def _opened_by_thought(steps: list[Json]) -> list[Json]:
    """A model's turn, which may not open with an unsigned thought nor act without a signed one."""
    first = steps[0]
    signatures = [step["signature"] for step in steps if step.get("signature")]
    if first["type"] == "thought" and not first.get("signature") and signatures:
        return [{**first, "signature": signatures[0]}, *steps[1:]]
    thinks = any(step["type"] == "thought" for step in steps)
    if (thinks and first["type"] != "thought") or not signatures:
        return [{"type": "thought", "signature": stand_in_signature}, *steps]
    return steps
