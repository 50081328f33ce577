"""generateContent as Vertex AI serves it: a model stands below a project, a place and a publisher."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self
from urllib.parse import quote

from ..request import HttpRequest, Target
from .encoding import Asked, Json, versioned
from .google_codec import is_embedding
from .google_generate_content import GenerateContentCodec

__all__ = ["VertexCodec"]

_PLACE = "global"
_PUBLISHER = "google"


@dataclass(frozen=True, slots=True)
class VertexCodec(GenerateContentCodec):
    """For the models that `project` may use."""

    project: str = ""

    def of_project(self, project: str) -> Self:
        return replace(self, project=project)

    def list_models(self, target: Target, page: str = "") -> HttpRequest:
        return self._page(target, f"/publishers/{_PUBLISHER}/models", page)

    def _embedding(self, model: str, contents: list[Json], config: Json) -> tuple[str, Json]:
        body: Json = {"contents": contents}
        if dimensions := config.get("embedding_config", {}).get("dimensions"):
            body["embedContentConfig"] = {"outputDimensionality": dimensions}
        return ":embedContent", body

    def _parts(self, asked: Asked, body: Json) -> list[tuple[Json, int]]:
        """There is no batch here: a request asks for one vector."""
        if not is_embedding(asked.model):
            return [(body, 0)]
        contents = body.pop("contents")
        owed = int(len(contents) > 1)
        return [({"content": each, **body}, owed) for each in contents]

    def _model_path(self, target: Target, model: str, method: str) -> str:
        path = quote(_own_path(model), safe="/:@")
        if not path.startswith("projects/"):
            path = f"projects/{quote(self.project, safe=':')}/locations/{_PLACE}/{path}"
        return versioned(target, self.dialect.version, f"/{path}{method}")


def _own_path(model: str) -> str:
    """`publisher/model` and whole names keep their own; a bare id is one of Google's."""
    if model.startswith(("projects/", "publishers/", "models/")):
        return model
    publisher, slash, name = model.partition("/")
    if not slash:
        publisher, name = _PUBLISHER, model
    return f"publishers/{publisher}/models/{name}"
