"""`GoogleCodec`: what Google's two wires have in common, and Embeddings, which only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ..dialects.google import GoogleDialect
from ..request import HttpRequest, Target
from ..types import UniMessage
from .base import Codec, ids_in, page_in
from .encoding import Asked, Json, Refusals, fetched, portions, row_for, versioned

__all__ = ["GoogleCodec", "embedding_body", "is_embedding", "stand_in_signature"]

stand_in_signature = "skip_thought_signature_validator"


def is_embedding(model: str) -> bool:
    return "embedding" in model.lower()


def embedding_body(model: str, contents: list[Json], config: Json) -> Json:
    """The body that asks for a vector a content."""
    common: Json = {"model": _own_path(model)}
    if dimensions := config.get("embedding_config", {}).get("dimensions"):
        common["outputDimensionality"] = dimensions
    return {"requests": [{**common, "content": content} for content in contents]}


class GoogleCodec(Codec):
    __slots__ = ()

    dialect: GoogleDialect

    @property
    def refuses(self) -> Refusals:
        return self.dialect.refuses

    def needs(self, messages: Sequence[UniMessage]) -> list[str]:
        """The API wants pictures inline."""
        return fetched(messages)

    def list_models(self, target: Target, page: str = "") -> HttpRequest:
        return self._page(target, "/models", page)

    def _page(self, target: Target, path: str, page: str) -> HttpRequest:
        query = f"?pageToken={quote(page, safe='')}" if page else ""
        return target.request("GET", versioned(target, self.dialect.version, path) + query)

    def models(self, answer: Any) -> tuple[list[str], str]:
        """The last part of each `models/…` name, and the next page's token. A page without any leaves
        the list out, as JSON of protocol buffers does.
        """
        if answer.keys() <= {"nextPageToken"}:
            answer = {"models": [], **answer}
        names = ids_in(answer["models" if "models" in answer else "publisherModels"], "name")
        return [each.rpartition("/")[2] for each in names], page_in(answer, "nextPageToken")

    def _parts(self, asked: Asked, body: Json) -> list[tuple[Json, int]]:
        if not is_embedding(asked.model):
            return [(body, 0)]
        return portions(body, "requests", self.dialect.embeddings)

    def _model_path(self, target: Target, model: str, method: str) -> str:
        path = f"/{quote(_own_path(model), safe='/:@')}{method}"
        return versioned(target, self.dialect.version, path)

    def _level(self, model: str, level: str) -> str:
        """Google's word for a thinking level."""
        return row_for(self.dialect.levels, model)[level]


def _own_path(model: str) -> str:
    return model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
