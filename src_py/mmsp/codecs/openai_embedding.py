"""OpenAI's embeddings: the messages' texts become one request, its answer one vector a message.

The wire does not stream: the whole answer is read, then its vectors go out in the order of the messages.
They are asked for in base64, a third of the size; servers that ignore the wish send numbers.
"""

from __future__ import annotations

import base64
import binascii
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import byteorder
from types import MappingProxyType
from typing import Any, ClassVar

from ..errors import InvalidMessageError, StreamProtocolError, UnsupportedContentError
from ..grammar import Assembler
from ..masking import beginning
from ..request import HttpRequest, Target
from ..types import UniConfig, UniMessage
from .base import ids_in
from .encoding import Json, body_of, given, refuse, refuse_extra_body
from .http_error import complaint, stream_error
from .wire_decoder import plain_or_none

__all__ = ["EmbeddingCodec", "vector"]

_HEADERS = (("Content-Type", "application/json"), ("Accept", "application/json"))
_OURS = frozenset({"model", "input", "encoding_format"})  # not for `extra_body`
_REFUSED = (("", frozenset({"fast_mode"})),)
_NO_IMAGES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EmbeddingCodec:
    """Embeddings as OpenAI and its imitators offer them."""

    name: ClassVar[str] = "openai_embedding"

    def needs(self, messages: Sequence[UniMessage]) -> list[str]:
        return []

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
        """The request; see `mmsp.codecs.base.Codec`."""
        settings = given(config)
        refuse(_REFUSED, model, settings, client=client)
        refuse_extra_body(_OURS, settings, client=client)
        texts = [_text(index, message, client) for index, message in enumerate(messages)]
        body: Json = {"model": model, "input": texts, "encoding_format": "base64"}
        if dimensions := settings.get("embedding_config", {}).get("dimensions"):
            body["dimensions"] = dimensions
        body |= settings.get("extra_body", {})
        return target.request("POST", "/embeddings", _HEADERS, body_of(body, client=client))

    def decoder(self, assembler: Assembler, *, client: str, target: Target) -> EmbeddingDecoder:
        return EmbeddingDecoder(assembler, client=client)

    def list_models(self, target: Target, page: str = "") -> HttpRequest:
        return target.request("GET", "/models", (("Accept", "application/json"),))

    def models(self, answer: Any) -> tuple[list[str], str]:
        return ids_in(answer["data"]), ""


class EmbeddingDecoder:
    """Tells `assembler` the vectors of an answer, which has no events."""

    def __init__(self, assembler: Assembler, *, client: str) -> None:
        self.terminal = False
        self._assembler = assembler
        self._client = client

    def feed(self, event: str, data: bytes) -> None:
        """An event, which this wire has none of: an error, or nothing that can be read."""
        if not self.terminal:
            self.whole(data)

    def whole(self, body: bytes) -> None:
        answer, secrets = plain_or_none(body), self._assembler.secrets
        if (found := complaint(answer)) is not None:
            raise stream_error(found, client=self._client, secrets=secrets)
        entries = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise StreamProtocolError(
                f"the provider's answer is no list of embeddings: {beginning(body, secrets)!r}",
                client=self._client,
            )
        for place, entry in enumerate(sorted(entries, key=_index)):
            self._assembler.embedding(place, vector(entry.get("embedding"), client=self._client))
        usage = answer.get("usage")
        prompt = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        self._assembler.usage(prompt=prompt if isinstance(prompt, int) else None)
        self._assembler.finish("stop")
        self.terminal = True


def vector(value: Any, *, client: str) -> list[float]:
    """A vector given as numbers, or as base64 of little-endian 32-bit floats."""
    try:
        numbers = _floats(value) if isinstance(value, str) else [_number(each) for each in value]
    except (TypeError, ValueError, OverflowError, binascii.Error):
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):  # what is not finite cannot be saved as JSON
        raise StreamProtocolError(
            "the provider sent an embedding that is no list of numbers", client=client
        )
    return numbers


def _floats(text: str) -> list[float]:
    numbers = array("f", base64.b64decode(text, validate=True))
    if byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("no number")
    return float(value)


def _index(entry: Json) -> float:
    index = entry.get("index")
    return index if isinstance(index, int | float) else 0


def _text(index: int, message: UniMessage, client: str) -> str:
    """The texts of a message, joined."""
    items: list[Any] = list(message["content_items"])
    for item in items:
        if item["type"] != "text.done":
            raise UnsupportedContentError(
                f"messages[{index}] holds {item['type']!r}: an embedding is made of text alone",
                client=client,
                item_type=item["type"],
            )
    text = "".join(item["text"] for item in items)
    if not text:
        raise InvalidMessageError(
            f"messages[{index}] is empty: there is nothing to embed",
            client=client,
            message_index=index,
        )
    return text
