"""What every codec offers: requests out of messages, and a decoder for the answer. Pure data in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from ..grammar import Assembler
from ..request import HttpRequest, Target
from ..types import UniConfig, UniMessage

__all__ = ["Codec", "Decoder", "ids_in"]


class Decoder(Protocol):
    """Reads one answer and tells its assembler what it saw.

    Both methods raise only this package's errors: `ProviderStreamError` for a failure the provider
    reports, `StreamProtocolError` for what its wire does not allow, and what the assembler raises.
    """

    @property
    def terminal(self) -> bool:
        """Whether the wire's own end event was read; everything after it is ignored."""
        ...

    def feed(self, event: str, data: bytes) -> None:
        """One event of the stream: its name, or "", and its data."""
        ...

    def whole(self, body: bytes) -> None:
        """The body of a 200 answer that is no stream: a whole completion, or an error."""
        ...


class Codec(Protocol):
    """One wire protocol in one dialect. `name` marks what only this wire can take back."""

    name: ClassVar[str]

    def needs(self, messages: Sequence[UniMessage]) -> list[str]:
        """The http(s) URLs of pictures that have to be fetched before `encode`."""
        ...

    def encode(
        self,
        model: str,
        messages: Sequence[UniMessage],
        config: UniConfig,
        target: Target,
        *,
        client: str,
        images: Mapping[str, str] = ...,
    ) -> HttpRequest:
        """The request. `images` has the `data:` URL of every URL that `needs` named.

        Raises `UnsupportedParameterError` before it looks at any message, `InvalidMessageError` and
        `UnsupportedContentError`.
        """
        ...

    def decoder(self, assembler: Assembler, *, client: str, target: Target) -> Decoder: ...

    def list_models(self, target: Target, page: str = "") -> HttpRequest:
        """The request for the endpoint's models, or for a further page of them."""
        ...

    def models(self, answer: Any) -> tuple[list[str], str]:
        """The ids in the decoded answer to `list_models`, and what its next page is called: "" if it is
        the last. Raises `LookupError` or `TypeError` for what is no such answer.
        """
        ...


def ids_in(entries: Any, key: str = "id") -> list[str]:
    """The ids of a list of models; an entry without one is left out. Raises `TypeError` for no list."""
    if not isinstance(entries, list):
        raise TypeError("no list")
    found = [each.get(key) for each in entries if isinstance(each, dict)]
    return [each for each in found if isinstance(each, str)]
