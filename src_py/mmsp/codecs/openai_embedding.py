"""OpenAI's embeddings: the messages' texts become one request, its answer one vector a message.

The wire does not stream: the whole answer is read, then its vectors go out in the order of the messages.
More messages than a server takes at once are asked for one portion after the other.
They are asked for in base64, a third of the size; servers that ignore the wish send numbers.
"""

from __future__ import annotations

import base64
import binascii
import math
from array import array
from dataclasses import dataclass
from sys import byteorder
from typing import Any, ClassVar

from ..dialects.embedding import DIALECT, EmbeddingDialect
from ..errors import InvalidMessageError, StreamProtocolError, UnsupportedContentError
from ..grammar import Assembler
from ..request import Target
from ..types import UniMessage
from .base import Codec, Headers
from .encoding import Asked, Json, Refusals, portions
from .wire_decoder import AnswerDecoder, count_in, plain_or_none

__all__ = ["EmbeddingCodec", "vector"]

_HEADERS = (("Content-Type", "application/json"), ("Accept", "application/json"))


@dataclass(frozen=True, slots=True)
class EmbeddingCodec(Codec):
    """Embeddings as OpenAI and its imitators offer them."""

    dialect: EmbeddingDialect = DIALECT

    name: ClassVar[str] = "openai_embedding"
    ours: ClassVar[frozenset[str]] = frozenset({"model", "input", "encoding_format"})
    paths: ClassVar[tuple[str, ...]] = ("/embeddings",)

    @property
    def refuses(self) -> Refusals:
        return (("", frozenset({"fast_mode"})),)

    def _request(self, asked: Asked) -> tuple[str, Headers, Json]:
        texts = [_text(index, each, asked.client) for index, each in enumerate(asked.messages)]
        body: Json = {"model": asked.model, "input": texts, "encoding_format": "base64"}
        if dimensions := asked.config.get("embedding_config", {}).get("dimensions"):
            body["dimensions"] = dimensions
        return "/embeddings", _HEADERS, body

    def _parts(self, asked: Asked, body: Json) -> list[tuple[Json, int]]:
        return portions(body, "input", self.dialect.inputs, self.dialect.bytes)

    def decoder(self, assembler: Assembler, *, client: str, target: Target) -> EmbeddingDecoder:
        return EmbeddingDecoder(assembler, client=client)


class EmbeddingDecoder(AnswerDecoder):
    """Tells `assembler` the vectors of an answer, which has no events."""

    def feed(self, event: str, data: bytes) -> None:
        """An event, which this wire has none of: an error, or nothing that can be read."""
        if not self.terminal:
            self.whole(data)

    def whole(self, body: bytes) -> None:
        answer = plain_or_none(body)
        self._complain(answer)
        entries = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise StreamProtocolError(
                f"the provider's answer is no list of embeddings: {self._shown(body)!r}",
                client=self._client,
            )
        for place, entry in enumerate(self._in_order(entries)):
            self._assembler.embedding(place, vector(entry.get("embedding"), client=self._client))
        self._assembler.usage(prompt=count_in(answer.get("usage"), "prompt_tokens"))
        self._assembler.finish("stop")
        self.terminal = True

    def _in_order(self, entries: list[Json]) -> list[Json]:
        """The entries in the order of the inputs: of their indexes, or as they came if none has one."""
        indexes = [entry.get("index") for entry in entries]
        if not any(map(_is_index, indexes)):
            return entries
        pairs = zip(indexes, entries, strict=True)
        numbered = {index: entry for index, entry in pairs if _is_index(index)}
        if numbered.keys() != set(range(len(entries))):
            raise StreamProtocolError(
                "the provider's embeddings do not tell by their indexes which input each is of",
                client=self._client,
            )
        return [numbered[each] for each in range(len(entries))]


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


def _is_index(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
