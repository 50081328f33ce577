"""MMSP over HTTP: messages and config as they are, public events as the answer.

The server asks the provider, so everything that is the provider's affair is left to it: what a model
takes, pictures given as URLs, `extra_body`, the trace. Bytes travel in base64, as in `mmsp.wire`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import MMSPError, UpstreamError
from ..grammar import Assembler
from ..request import Target
from .base import Codec, Headers
from .encoding import JSON_FOR_EVENTS, Asked, Json, Refusals
from .error_wire import error_from_wire
from .mmsp_wire_decoder import MMSPDecoder

__all__ = ["MMSPCodec"]


@dataclass(frozen=True, slots=True)
class MMSPCodec(Codec):
    """The wire of this library's own server."""

    name: ClassVar[str] = "mmsp"
    ours: ClassVar[frozenset[str]] = frozenset()
    paths: ClassVar[tuple[str, ...]] = ("/stream",)

    @property
    def refuses(self) -> Refusals:
        return ()

    def _request(self, asked: Asked) -> tuple[str, Headers, Json]:
        # bytes stand in inline items alone, and are written in base64 with the rest of the body
        body = {"model": asked.model, "messages": asked.messages, "config": asked.config}
        return "/stream", JSON_FOR_EVENTS, body

    def _extra(self, asked: Asked) -> Json:
        """Nothing: `extra_body` is for the provider's request, and travels in the config."""
        return {}

    def decoder(self, assembler: Assembler, *, client: str, target: Target) -> MMSPDecoder:
        return MMSPDecoder(assembler, client=client)

    def refusal(self, error: UpstreamError) -> MMSPError:
        """The error that the server tells of, as the class it was."""
        said = error.error.get("error") if isinstance(error.error, dict) else None
        if not isinstance(said, dict):
            return error
        found = error_from_wire(said, client=error.client, status=error.status)
        if type(found).__name__ == said.get("type"):
            return found
        error.error = said  # a refusal of the server itself
        return error
