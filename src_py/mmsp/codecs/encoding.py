"""What the encoding of every wire shares: bodies, refusals, pictures, what an item may take back.

A dialect names what its models refuse in rows of (part of a lower-cased model id, refused values),
"" standing for every model. A refused value is a config key, or `key=value`; `tool_choice=list` is
any list of names. `fast_mode` counts only when it is on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ..errors import InvalidMessageError, UnsupportedParameterError, preview
from ..request import Target
from ..types import UniConfig, UniMessage

__all__ = [
    "JSON_FOR_EVENTS",
    "Asked",
    "Conversation",
    "Json",
    "LevelRows",
    "Refusals",
    "body_of",
    "fetched",
    "for_level",
    "function",
    "given",
    "is_fetched",
    "json_schema",
    "refuse",
    "refuse_extra_body",
    "row_for",
    "versioned",
    "without_temperature",
]

Json = dict[str, Any]
LevelRows = Sequence[tuple[str, Mapping[str, Mapping[str, Any]]]]
Refusals = tuple[tuple[str, frozenset[str]], ...]
T = TypeVar("T")

JSON_FOR_EVENTS = (("Content-Type", "application/json"), ("Accept", "text/event-stream"))

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_FETCHED = re.compile(r"https?://", re.IGNORECASE)
_VERSION = re.compile(r"/v\d\w*$")
_DATA_URL = re.compile(r"data:([^;,]+)(?:;[^;,=]+=[^;,]*)*;base64,", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Asked:
    """What one request is made of: what a caller asks `model` for, and what that needs on its way.

    `config` has only keys with a value; `images` the `data:` URL of every picture that was fetched.
    """

    model: str
    messages: Sequence[UniMessage]
    config: Json
    target: Target
    client: str
    images: Mapping[str, str]

    def unsupported(self, key: str, why: str, advice: str) -> UnsupportedParameterError:
        """Who refuses which value of the config, why, and what to do."""
        value = f"config.{key}={preview(repr(self.config[key]))}"
        return UnsupportedParameterError(
            f"{self.client} does not take {value}: {why}. {advice}.",
            client=self.client,
            parameter=key,
        )


def given(config: UniConfig) -> Json:
    """The keys that have a value."""
    return {key: value for key, value in config.items() if value is not None}


def refuse(rows: Refusals, asked: Asked) -> None:
    """Raise for the first value of the config that `rows` refuse for the model."""
    lower = asked.model.lower()
    refused = {value: part for part, values in rows if part in lower for value in values}
    for key, value in asked.config.items():
        if key == "fast_mode" and not value:
            continue
        for named in (key, f"{key}={_form(value)}"):
            if named in refused:
                raise asked.unsupported(
                    key, _why(refused[named], named, asked.model), "Leave it out"
                )


def _why(part: str, refused: str, model: str) -> str:
    """`part` is of the model's id, `refused` a key or a value of it."""
    what = "value of it" if "=" in refused else "parameter"
    return f"{model} has no such {what}" if part else f"its provider has no such {what}"


def refuse_extra_body(ours: frozenset[str], asked: Asked) -> None:
    """Raise when `extra_body` sets a key that this library sets itself."""
    if taken := sorted(ours & asked.config.get("extra_body", {}).keys()):
        raise asked.unsupported(
            "extra_body",
            f"{', '.join(taken)} is what the client sets itself",
            "Leave it out, and give it as a message or a key of the config",
        )


def _form(value: Any) -> str:
    return value if isinstance(value, str) else "list" if isinstance(value, list) else repr(value)


def body_of(body: Any, *, client: str) -> bytes:
    """The request's body. Raises `InvalidMessageError` for what JSON cannot carry."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidMessageError(
            f"the request holds what JSON cannot carry: {error}", client=client
        ) from None


def is_fetched(url: str) -> bool:
    """Whether a picture's URL names a place on the network."""
    return _FETCHED.match(url) is not None


def fetched(messages: Sequence[UniMessage]) -> list[str]:
    """The http(s) URLs of all pictures, in order, each once."""
    return list(dict.fromkeys(url for url in _pictures(messages) if is_fetched(url)))


def _pictures(messages: Sequence[UniMessage]) -> Iterator[str]:
    for message in messages:
        for item in message["content_items"]:
            if item["type"] == "image_url.done":
                yield item["image_url"]
            elif item["type"] == "tool_result.done":
                yield from item.get("images") or ()


def portions(body: Json, key: str, most: int, most_bytes: int = 0) -> list[tuple[Json, int]]:
    """`body`, once for as many of the list at `key` as go into one request, with their number.

    `most_bytes` counts the texts in the list.
    """
    found: list[list[Any]] = [[]]
    size = 0
    for each in body[key]:
        more = _size(each) if most_bytes else 0
        if found[-1] and (len(found[-1]) == most or size + more > most_bytes > 0):
            found.append([])
            size = 0
        found[-1].append(each)
        size += more
    return [({**body, key: portion}, len(portion)) for portion in found]


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def json_schema(schema: Json) -> Json:
    """The wrapping that both of OpenAI's wires want around a schema."""
    title = schema.get("title")
    name = _NOT_IN_A_NAME.sub("_", title)[:64] if isinstance(title, str) else ""
    return {"name": name or "output", "schema": schema, "strict": True}


def versioned(target: Target, version: str, path: str) -> str:
    """`path` below the API's version, unless the base URL names one: both habits are common."""
    base = target.base_url.partition("?")[0].rstrip("/")
    return path if _VERSION.search(base) else f"/{version}{path}"


@dataclass(slots=True)
class Conversation:
    """The messages of one request on their way into a wire's form: what the encoders have in common.

    `images` has the `data:` URL of every picture that was fetched.
    """

    wire: str
    host: str
    client: str
    images: Mapping[str, str]

    def own(self, item: Mapping[str, Any]) -> Json:
        """The item's fidelity if it is this wire's and host's, or names neither; else an empty one."""
        fidelity: Json = item.get("fidelity") or {}
        origin = (fidelity.get("wire"), fidelity.get("host"))
        return fidelity if origin in ((self.wire, self.host), (None, None)) else {}

    def call_id(self, index: int, item: Mapping[str, Any]) -> str:
        """The id of the call that a tool result answers."""
        call_id: str | None = item.get("tool_call_id")
        if not call_id:
            raise self.invalid(index, "has a tool result without tool_call_id", "tool_result")
        return call_id

    def picture(self, index: int, url: str) -> str:
        """The http(s) or `data:` URL of a picture, the latter if it was fetched."""
        url = self.images.get(url, url)
        if not is_fetched(url) and url[:5].lower() != "data:":
            raise self.invalid(index, "has a picture that is no http(s) or data: URL", "image_url")
        return url

    def inline(self, index: int, url: str) -> tuple[str, str]:
        """The mime type and the base64 text of a picture that has to travel with the request."""
        url = self.picture(index, url)
        found = _DATA_URL.match(url)
        if found is None:
            raise self.invalid(
                index, "has a picture that is not data:<mime type>;base64,<data>", "image_url"
            )
        return found[1], url[found.end() :]

    def nothing_left(self, index: int) -> InvalidMessageError:
        return self.invalid(index, "leaves nothing to send: add text or a tool result")

    def foreign(self, index: int, kind: str) -> InvalidMessageError:
        return self.invalid(
            index,
            f"has an item of type {kind!r}, which {self.client} cannot send: leave it out",
            kind,
        )

    def invalid(self, index: int, what: str, item_type: str | None = None) -> InvalidMessageError:
        return InvalidMessageError(
            f"messages[{index}] {what}",
            client=self.client,
            item_type=item_type,
            message_index=index,
        )


def function(tool: Json) -> Json:
    """What OpenAI's wires say of a tool."""
    named = ("name", "description", "parameters")
    return {key: tool[key] for key in named if tool.get(key) is not None}


def row_for(rows: Sequence[tuple[str, Mapping[str, T]]], model: str) -> Mapping[str, T]:
    """The first row whose text is in the lower-cased id of the model, or an empty one."""
    lower = model.lower()
    return next((row for part, row in rows if part in lower), {})


def for_level(rows: LevelRows, model: str, level: str | None) -> Json:
    """What a thinking level adds to the body."""
    return {} if level is None else dict(row_for(rows, model).get(level, {}))


def without_temperature(asked: Asked) -> Json:
    """The config for a model whose temperature is 1.0 and nothing else, and is not sent."""
    if asked.config.get("temperature", 1.0) != 1.0:
        raise asked.unsupported(
            "temperature", f"{asked.model} has no temperature but 1.0", "Leave it out"
        )
    return {key: value for key, value in asked.config.items() if key != "temperature"}
