"""What every codec is: requests out of messages, and a decoder for the answer. Pure data in and out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from ..errors import MMSPError, UpstreamError
from ..grammar import Assembler
from ..request import HttpRequest, Target
from ..types import UniConfig, UniMessage
from .encoding import Asked, Json, Refusals, body_of, given, refuse, refuse_extra_body

__all__ = ["BESIDE", "AccountCodec", "Codec", "Decoder", "Headers", "ids_in", "page_in"]

Headers = tuple[tuple[str, str], ...]

BESIDE = "beside"  # in fidelity: what the provider's own tools left in front of the item

_NO_IMAGES: Mapping[str, str] = MappingProxyType({})


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

    def next_answer(self) -> None:
        """What comes from here on answers another request of the same call."""
        ...


class Codec(ABC):
    """One wire protocol in one dialect. `name` marks what only this wire can take back; `ours` are the
    keys of its body that `extra_body` may not set; `paths` are the ends of the URLs that its requests go
    to, as far as they are always the same. What is not said otherwise is as at OpenAI's.
    """

    __slots__ = ()

    name: ClassVar[str]
    ours: ClassVar[frozenset[str]]
    paths: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def refuses(self) -> Refusals:
        """What the dialect's models do not take; see `mmsp.codecs.encoding`."""

    def needs(self, messages: Sequence[UniMessage]) -> list[str]:
        """The http(s) URLs of pictures that have to be fetched before `encode`. None, where servers
        fetch pictures themselves.
        """
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
        """The request, or the first of `requests`."""
        return self.requests(model, messages, config, target, client=client, images=images)[0]

    def requests(
        self,
        model: str,
        messages: Sequence[UniMessage],
        config: UniConfig,
        target: Target,
        *,
        client: str,
        images: Mapping[str, str] = _NO_IMAGES,
    ) -> list[HttpRequest]:
        """What has to be asked, one after the other: one request, but where it would hold more than
        the provider takes. `images` has the `data:` URL of every URL that `needs` named.

        Raises `UnsupportedParameterError` before it looks at any message, `InvalidMessageError` and
        `UnsupportedContentError`.
        """
        asked = Asked(model, messages, given(config), target, client, images)
        refuse(self.refuses, asked)
        extra = self._extra(asked)
        path, headers, body = self._request(asked)
        body |= extra
        return [
            target.request("POST", path, headers, body_of(part, client=client), owed)
            for part, owed in self._parts(asked, body)
        ]

    @abstractmethod
    def _request(self, asked: Asked) -> tuple[str, Headers, Json]:
        """The path, headers and body that ask the model; `_extra` is added to the body."""

    def _extra(self, asked: Asked) -> Json:
        """What the caller adds to the request's body. Raises `UnsupportedParameterError`."""
        refuse_extra_body(self.ours, asked)
        extra: Json = asked.config.get("extra_body", {})
        return extra

    def _parts(self, asked: Asked, body: Json) -> list[tuple[Json, int]]:
        """The bodies to send, if `body` is too much for one, with the number of items each asks for."""
        return [(body, 0)]

    @abstractmethod
    def decoder(self, assembler: Assembler, *, client: str, target: Target) -> Decoder: ...

    def refusal(self, error: UpstreamError) -> MMSPError:
        """What an HTTP error status means to the caller, once it is not tried again any more."""
        return error

    def list_models(self, target: Target, page: str = "") -> HttpRequest:
        """The request for the endpoint's models, or for a further page of them."""
        return target.request("GET", "/models", (("Accept", "application/json"),))

    def models(self, answer: Any) -> tuple[list[str], str]:
        """The ids in the decoded answer to `list_models`, and what its next page is called: "" if it is
        the last. Raises `LookupError` or `TypeError` for what is no such answer.
        """
        return ids_in(answer["data"]), ""


class AccountCodec(Protocol):
    """Makes the codec that asks in a service account's project."""

    def of_project(self, project: str) -> Codec: ...


def ids_in(entries: Any, key: str = "id") -> list[str]:
    """The ids of a list of models; an entry without one is left out.

    Raises `TypeError` for what is no list, and for a list in which nothing has one.
    """
    if not isinstance(entries, list):
        raise TypeError("no list")
    found = [each.get(key) for each in entries if isinstance(each, dict)]
    ids = [each for each in found if isinstance(each, str) and each]
    if entries and not ids:
        raise TypeError("a list of something else")
    return ids


def page_in(answer: dict[str, Any], key: str) -> str:
    """What the next page is called; "" if there is none. Raises `TypeError`."""
    name = answer.get(key) or ""
    if not isinstance(name, str):
        raise TypeError("no name of a page")
    return name
