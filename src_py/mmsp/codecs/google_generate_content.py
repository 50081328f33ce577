"""Google's generateContent: messages and config become a request.

What an answer becomes is in `google_generate_content_decoder`. A message becomes parts of one content, or
of several where function responses stand beside other parts, which Vertex AI refuses in one.

The models seal their thinking in signatures, and answer 4xx to a function call that comes back without
one. A signature travels on the part that followed the thought it seals, so it is moved there; a call
made by somebody else's model gets the stand-in that Google documents for it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

from ..dialects.google import GoogleDialect
from ..grammar import Assembler
from ..request import Target
from ..types import UniMessage
from .base import BESIDE, Headers
from .encoding import Asked, Conversation, Json
from .google_codec import GoogleCodec, embedding_body, is_embedding, stand_in_signature
from .google_generate_content_decoder import GenerateContentDecoder
from .google_speech import is_speech, speech

__all__ = ["Contents", "GenerateContentCodec"]

_HEADERS = (("Content-Type", "application/json"),)
_GENERATION = {
    "max_tokens": "maxOutputTokens",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
    "seed": "seed",
}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


@dataclass(frozen=True, slots=True)
class GenerateContentCodec(GoogleCodec):
    """generateContent as `dialect` speaks it."""

    dialect: GoogleDialect

    name: ClassVar[str] = "google_generate_content"
    ours: ClassVar[frozenset[str]] = frozenset({"contents", "content", "requests"})

    def _request(self, asked: Asked) -> tuple[str, Headers, Json]:
        model, config = asked.model, asked.config
        contents = Contents(self.name, asked.target.host, asked.client, asked.images)
        method = ":streamGenerateContent?alt=sse"
        if is_embedding(model):
            method, body = self._embedding(model, contents.encode(asked.messages), config)
        elif is_speech(model):
            body = self._speech(asked)
        else:
            body = {"contents": contents.encode(asked.messages), **self._settings(model, config)}
        return self._model_path(asked.target, model, method), _HEADERS, body

    def decoder(
        self, assembler: Assembler, *, client: str, target: Target
    ) -> GenerateContentDecoder:
        return GenerateContentDecoder(assembler, client=client)

    # ---- config

    def _settings(self, model: str, config: Json) -> Json:
        body: Json = {}
        if (system := config.get("system_prompt")) is not None:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if tools := config.get("tools"):
            body["tools"] = [{"functionDeclarations": [_declaration(each) for each in tools]}]
            if choice := config.get("tool_choice"):
                body["toolConfig"] = {"functionCallingConfig": _calling(choice)}
        if generation := self._generation(model, config):
            body["generationConfig"] = generation
        return body

    def _generation(self, model: str, config: Json) -> Json:
        made: Json = {
            name: config[key] for key, name in _GENERATION.items() if config.get(key) is not None
        }
        if thinking := self._thinking(model, config):
            made["thinkingConfig"] = thinking
        if image := config.get("image_config"):
            names = {"aspect_ratio": "aspectRatio", "image_size": "imageSize"}
            made["imageConfig"] = {name: image[key] for key, name in names.items() if key in image}
        if schema := config.get("output_schema"):
            made |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
        return made

    def _thinking(self, model: str, config: Json) -> Json:
        made: Json = {}
        if (shown := config.get("thinking_summary")) is not None:
            made["includeThoughts"] = shown
        if (level := config.get("thinking_level")) is not None:
            made["thinkingLevel"] = self._level(model, level).upper()
        return made

    # ---- embeddings and speech

    def _embedding(self, model: str, contents: list[Json], config: Json) -> tuple[str, Json]:
        return ":batchEmbedContents", embedding_body(model, contents, config)

    def _speech(self, asked: Asked) -> Json:
        chosen, said = speech(asked, self.dialect.labelled_speech)
        parts = [
            {"text": words} | ({"speechMetadata": {"speaker": name}} if name else {})
            for name, words in said
        ]
        generation: Json = {"responseModalities": ["AUDIO"], "speechConfig": _speech_config(chosen)}
        if (longest := asked.config.get("max_tokens")) is not None:
            generation["maxOutputTokens"] = longest
        return {
            "contents": [{"role": "user", "parts": parts}],
            "generationConfig": generation,
        }


def _declaration(tool: Json) -> Json:
    made = {key: tool[key] for key in ("name", "description") if tool.get(key) is not None}
    schema = tool.get("parameters")  # plain JSON schema has a field of its own
    return made | ({"parametersJsonSchema": schema} if schema is not None else {})


def _calling(choice: str | list[str]) -> Json:
    if isinstance(choice, str):
        return {"mode": _MODES[choice]}
    return {"mode": "ANY", "allowedFunctionNames": choice}


def _speech_config(chosen: list[Json]) -> Json:
    def voice(each: Json) -> Json:
        return {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": each["voice"]}}}

    if len(chosen) == 1:
        return voice(chosen[0])
    speakers = [{"speaker": each["speaker"], **voice(each)} for each in chosen]
    return {"multiSpeakerVoiceConfig": {"speakerVoiceConfigs": speakers}}


# ---- messages


@dataclass(slots=True)
class Contents(Conversation):
    """Remembers the names of the calls that results answer."""

    called: dict[str, str] = field(default_factory=dict)

    def encode(self, messages: Sequence[UniMessage]) -> list[Json]:
        encoded: list[Json] = []
        for index, message in enumerate(messages):
            items: list[Any] = list(message["content_items"])
            parts = [part for item in items for part in self._parts(index, item)]
            if message["role"] == "assistant":
                parts = _with_signatures(parts)
            if all(part.get("thought") for part in parts):
                raise self.nothing_left(index)
            role = "user" if message["role"] == "user" else "model"
            runs = groupby(parts, key=lambda part: "functionResponse" in part)
            encoded += ({"role": role, "parts": list(run)} for _, run in runs)
        return encoded

    def _parts(self, index: int, item: Json) -> Iterator[Json]:
        own = self.own(item)
        signed = _signed(own)
        yield from own.get(BESIDE) or ()
        match item["type"]:
            case "text.done":
                yield {"text": item["text"], **signed}
            case "thinking.done":
                yield {"text": item["thinking"], "thought": True, **signed}
            case "image_url.done":
                yield self._image(index, item["image_url"])
            case "inline_data.done":
                yield {**_inline(item), **signed}
            case "inline_thinking.done":
                yield {**_inline(item), "thought": True, **signed}
            case "tool_call.done":
                yield {"functionCall": self._call(item), **signed}
            case "tool_result.done":
                yield {"functionResponse": self._response(index, item)}
            case kind:
                raise self.foreign(index, kind)

    def _call(self, item: Json) -> Json:
        name, call_id = item["name"], item["tool_call_id"]
        self.called[call_id] = name
        return {**_id(call_id, name), "name": name, "args": item["arguments"]}

    def _response(self, index: int, item: Json) -> Json:
        call_id = self.call_id(index, item)
        name = self.called.get(call_id, call_id)
        made = {**_id(call_id, name), "name": name, "response": {"result": item["text"]}}
        images = [self._image(index, url) for url in item.get("images") or ()]
        return made | ({"parts": images} if images else {})

    def _image(self, index: int, url: str) -> Json:
        mime_type, data = self.inline(index, url)
        return {"inlineData": {"mimeType": mime_type, "data": data}}


def _id(call_id: str, name: str) -> Json:
    """The id, unless it was made here of the name, for a call that came without."""
    made_up = re.fullmatch(re.escape(name) + r"(_\d+)?", call_id)
    return {} if made_up else {"id": call_id}


def _inline(item: Json) -> Json:
    data = base64.b64encode(item["data"]).decode()
    return {"inlineData": {"mimeType": item["mime_type"], "data": data}}


def _signed(own: Json) -> Json:
    signature = own.get("signature")
    if isinstance(signature, bytes):  # as older programs kept it
        signature = base64.b64encode(signature).decode()
    return {"thoughtSignature": signature} if signature else {}


def _with_signatures(parts: list[Json]) -> list[Json]:
    """The parts of a model's turn, every signature where the API looks for it."""
    thoughts = [part for part in parts if part.get("thought") and "text" in part]
    calls = [part for part in parts if "functionCall" in part]
    if calls and "thoughtSignature" not in calls[0]:
        before = parts[: parts.index(calls[0])]
        signed = [it for it in thoughts if "thoughtSignature" in it and it in before]
        stand_in = {"thoughtSignature": stand_in_signature}
        calls[0]["thoughtSignature"] = (signed[-1] if signed else stand_in).pop("thoughtSignature")
    for thought in thoughts:
        if "thoughtSignature" in thought:
            _hand_over(thought, parts[_place(parts, thought) + 1 :])
    return [it for it in parts if it.get("text") != "" or "thoughtSignature" in it]


def _hand_over(thought: Json, later: list[Json]) -> None:
    for part in later:
        if not part.get("thought") and "thoughtSignature" not in part:
            part["thoughtSignature"] = thought.pop("thoughtSignature")
            return


def _place(parts: list[Json], part: Json) -> int:
    return next(place for place, each in enumerate(parts) if each is part)
