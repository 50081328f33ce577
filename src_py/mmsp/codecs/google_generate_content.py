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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote

from ..dialects.google import GoogleDialect
from ..grammar import Assembler
from ..request import HttpRequest, Target
from ..types import UniConfig, UniMessage
from .base import ids_in
from .encoding import (
    Conversation,
    Json,
    body_of,
    given,
    is_fetched,
    pictures,
    refuse,
    refuse_extra_body,
    versioned,
)
from .google_generate_content_decoder import BESIDE, GenerateContentDecoder
from .google_speech import is_speech, script, turns, voices

__all__ = [
    "Contents",
    "GenerateContentCodec",
    "embedding_body",
    "is_embedding",
    "model_path",
    "models_in",
    "models_request",
    "stand_in_signature",
]

_HEADERS = (("Content-Type", "application/json"),)
_OURS = frozenset({"contents"})  # not for `extra_body`
_NO_IMAGES: Mapping[str, str] = MappingProxyType({})
_GENERATION = {
    "max_tokens": "maxOutputTokens",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
    "seed": "seed",
}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}

stand_in_signature = "skip_thought_signature_validator"


def is_embedding(model: str) -> bool:
    return "embedding" in model.lower()


def embedding_body(model: str, contents: list[Json], config: Json) -> Json:
    """The body that asks for a vector a content."""
    common: Json = {"model": _own_path(model)}
    if dimensions := config.get("embedding_config", {}).get("dimensions"):
        common["outputDimensionality"] = dimensions
    return {"requests": [{**common, "content": content} for content in contents]}


def model_path(target: Target, version: str, model: str, method: str) -> str:
    return versioned(target, version, f"/{quote(_own_path(model), safe='/:@')}{method}")


def models_request(target: Target, version: str, page: str) -> HttpRequest:
    query = f"?pageToken={quote(page, safe='')}" if page else ""
    return target.request("GET", versioned(target, version, "/models") + query)


def models_in(answer: Any) -> tuple[list[str], str]:
    """The last part of each `models/…` name, and the next page's token."""
    names = ids_in(answer.get("models") or answer["publisherModels"], "name")
    return [each.rpartition("/")[2] for each in names], str(answer.get("nextPageToken") or "")


def _own_path(model: str) -> str:
    return model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"


@dataclass(frozen=True, slots=True)
class GenerateContentCodec:
    """generateContent as `dialect` speaks it."""

    dialect: GoogleDialect

    name: ClassVar[str] = "google_generate_content"

    def needs(self, messages: Sequence[UniMessage]) -> list[str]:
        """The http(s) URLs of pictures; the API wants them inline."""
        return list(dict.fromkeys(url for url in pictures(messages) if is_fetched(url)))

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
        settings = given(config)
        refuse(self.dialect.refuses, model, settings, client=client)
        refuse_extra_body(_OURS, settings, client=client)
        contents = Contents(self.name, target.host, client, images)
        method = ":streamGenerateContent?alt=sse"
        if is_embedding(model):
            body = embedding_body(model, contents.encode(messages), settings)
            method = ":batchEmbedContents"
        elif is_speech(model):
            body = self._speech(model, messages, settings, client)
        else:
            body = {"contents": contents.encode(messages), **self._settings(model, settings)}
        body |= settings.get("extra_body", {})
        path = model_path(target, self.dialect.version, model, method)
        return target.request("POST", path, _HEADERS, body_of(body, client=client))

    def decoder(
        self, assembler: Assembler, *, client: str, target: Target
    ) -> GenerateContentDecoder:
        return GenerateContentDecoder(assembler, client=client)

    def list_models(self, target: Target, page: str = "") -> HttpRequest:
        return models_request(target, self.dialect.version, page)

    def models(self, answer: Any) -> tuple[list[str], str]:
        return models_in(answer)

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
            lower = model.lower()
            words = next(words for part, words in self.dialect.levels if part in lower)
            made["thinkingLevel"] = words[level].upper()
        return made

    # ---- speech

    def _speech(
        self, model: str, messages: Sequence[UniMessage], config: Json, client: str
    ) -> Json:
        chosen = voices(config, client=client)
        text = script(messages, client=client)
        parts: list[Json] = [{"text": text}]
        if len(chosen) > 1 and self.dialect.labelled_speech in model.lower():
            names = [each["speaker"] for each in chosen]
            said = turns(text, names, client=client, index=len(messages) - 1)
            parts = [{"text": words, "speechMetadata": {"speaker": name}} for name, words in said]
        generation: Json = {"responseModalities": ["AUDIO"], "speechConfig": _speech_config(chosen)}
        if (longest := config.get("max_tokens")) is not None:
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
