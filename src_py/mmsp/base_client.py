"""`LLMClient`: what every client is: a codec and an endpoint bound to a model, a history and a claim.

A client file names its codec and endpoint and nothing else. Calls are checked, and the caller's
messages copied, when they are made; everything that holds something happens at the stream's first read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakSet

from .abort_signal import AbortSignal
from .codecs.base import Codec
from .connector import Connector
from .credentials import resolve_credentials
from .dialects.endpoint import Endpoint
from .ending import Claim
from .errors import ConcurrentCallError, InvalidMessageError
from .grammar import Assembler
from .plain import copied
from .request import HttpRequest, Target
from .settings import Limits, Timeouts
from .stream import Stream
from .transport import Proxies, Route
from .types import UniConfig, UniMessage

if TYPE_CHECKING:
    import ssl

__all__ = ["LLMClient"]

_OFF = ("", "0", "false", "no", "off")


class LLMClient:
    """A client of one provider for one model. `AutoLLMClient` picks the class; both have these methods.

    - `api_key`, `base_url`: default to the environment's, by the rules in `mmsp.credentials`.
    - `default_headers`: sent with every request; they win over the client's own.
    - `timeouts`, `limits`: see `mmsp.Timeouts`, `mmsp.Limits`. `max_retries`: further attempts before the
      first byte of an answer.
    - `ssl_context`: instead of the system's certificates.

    Raises `ApiKeyRequiredError` when no key may be used. A client needs no closing.
    """

    client_type: ClassVar[str]
    codec: ClassVar[Codec]
    endpoint: ClassVar[Endpoint]

    def __init__(
        self,
        model: str,
        api_key: str | None = None,
        base_url: str | None = None,
        default_headers: Mapping[str, str] | None = None,
        *,
        timeouts: Timeouts | None = None,
        max_retries: int = 2,
        limits: Limits | None = None,
        ssl_context: ssl.SSLContext | None = None,
        allow_private_image_urls: bool = False,
    ) -> None:
        self.model = model
        self.allow_private_image_urls = allow_private_image_urls
        name = type(self).__name__
        key, url = resolve_credentials(
            self.endpoint, api_key, base_url, client=name, client_type=self.client_type
        )
        overrides = tuple((default_headers or {}).items())
        self._target = Target(url, self.endpoint.auth(key), overrides)
        try:
            self._target.request("GET", "/")
        except ValueError as error:
            raise ValueError(
                f"{name}: base_url or default_headers cannot be sent: {error}"
            ) from None
        self._connector = Connector(
            client=name,
            route=partial(_route, Proxies.from_environment(), ssl_context),
            timeouts=timeouts or Timeouts(),
            limits=limits or Limits(),
            max_retries=max_retries,
            secrets=(key,) if key else (),
        )
        self._history: list[UniMessage] = []
        self._claim = Claim()
        self._streams: WeakSet[Stream] = WeakSet()

    # calls

    def streaming_response(
        self,
        messages: Sequence[UniMessage],
        config: UniConfig | None = None,
        signal: AbortSignal | None = None,
    ) -> Stream:
        """Ask the model and stream its answer; nothing is remembered.

        What is wrong with `messages` or `config` is raised here; the request is sent at the first read.
        `signal` stops the stream, now or at any time.
        """
        request = self._encode(self._copy_in(messages), config or {})
        return self._stream(signal, lambda stream: request)

    def streaming_response_stateful(
        self,
        message: UniMessage,
        config: UniConfig | None = None,
        signal: AbortSignal | None = None,
    ) -> Stream:
        """Add `message` to the history, ask the model, and add its answer when it is whole.

        Both are recorded together, directly before the `stop` is handed out. A stream that ends in any
        other way records nothing. One at a time: the next call's first read raises
        `ConcurrentCallError` while this one runs; an abort or close frees the client at once.
        """
        mine = self._copy_in([message])
        settings: UniConfig = copied(config or {})
        self._encode(mine, settings)

        def prepare(stream: Stream) -> HttpRequest:
            if not stream._hold(self._claim):
                raise self._concurrent("A stateful call of this client is still running")
            return self._encode([*self._history, *mine], settings)

        def commit(answer: UniMessage) -> None:
            self._history += [*mine, copied(answer)]

        return self._stream(signal, prepare, commit)

    # history

    def get_history(self) -> list[UniMessage]:
        """A copy of the conversation so far."""
        history: list[UniMessage] = copied(self._history)
        return history

    def set_history(self, messages: Sequence[UniMessage]) -> None:
        """Replace the conversation by a copy of `messages`."""
        self._change_history(self._copy_in(messages))

    def clear_history(self) -> None:
        """Begin a new conversation."""
        self._change_history([])

    def _change_history(self, messages: list[UniMessage]) -> None:
        if not self._claim.take():
            raise self._concurrent("The history cannot change while a stateful call runs")
        try:
            self._history = messages
        finally:
            self._claim.free()

    def _concurrent(self, what: str) -> ConcurrentCallError:
        return ConcurrentCallError(
            f"{what}: read it to its end, abort it or close it first.", client=type(self).__name__
        )

    # life

    async def aclose(self) -> None:
        """Close this client's streams. Optional: a client that is dropped leaves nothing open."""
        for stream in list(self._streams):
            await stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model!r} at {self._target.host}>"

    # parts

    def _copy_in(self, messages: Sequence[UniMessage]) -> list[UniMessage]:
        now = time.time_ns() // 1_000_000
        copies: list[UniMessage] = copied(list(messages))
        for index, message in enumerate(copies):
            if not message.get("content_items"):
                raise InvalidMessageError(
                    f"messages[{index}].content_items is empty: give it at least one item.",
                    client=type(self).__name__,
                    message_index=index,
                )
            message.setdefault("created_at", now)
        return copies

    def _encode(self, messages: list[UniMessage], config: UniConfig) -> HttpRequest:
        return self.codec.encode(
            self.model, messages, config, self._target, client=type(self).__name__
        )

    def _stream(self, signal: AbortSignal | None, prepare: Any, commit: Any = None) -> Stream:
        name = type(self).__name__
        assembler = Assembler(
            client=name, wire=self.codec.name, host=self._target.host, strict=_strict()
        )
        stream = Stream(
            self._connector,
            signal,
            assembler=assembler,
            decoder=self.codec.decoder(assembler, client=name, target=self._target),
            prepare=prepare,
            commit=commit,
        )
        self._streams.add(stream)
        return stream


def _route(proxies: Proxies, ssl_context: ssl.SSLContext | None, url: str) -> Route:
    return Route.to(url, proxies, ssl_context)


def _strict() -> bool:
    return os.environ.get("MMSP_DEBUG", "").lower() not in _OFF
