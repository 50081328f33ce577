"""`LLMClient`: what every client is: a codec and an endpoint bound to a model, a history and a claim.

A client file names its codec and endpoint and nothing else. Calls are checked, and the caller's
messages copied, when they are made; everything that holds something happens at the stream's first read.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from .abort_signal import AbortSignal, checked_signal
from .arguments import (
    checked_base,
    checked_flag,
    checked_key,
    checked_kind,
    checked_model,
    checked_retries,
    checked_target,
    checked_text,
    missing_version,
)
from .checks import checked_config, checked_message, checked_messages
from .codecs.base import AccountCodec, Codec
from .connector import Connector
from .credentials import environment_headers, resolve_credentials
from .dialects.endpoint import Endpoint
from .ending import Claim
from .errors import (
    ConcurrentCallError,
    InvalidMessageError,
    RoutingError,
    UnsupportedParameterError,
)
from .grammar import Assembler
from .http_call import HttpCall
from .masking import also, secrets_in
from .model_list import fetch_models
from .pictures import PictureFetcher
from .plain import copied
from .request import HttpRequest
from .service_account import ServiceAccount, account_of
from .settings import Limits, Timeouts
from .stream import Stream, unix_milliseconds
from .tokens import Tokens
from .trace import Trace, cache_folder, check_trace_id
from .transport import Proxies, Route, checked_context
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

    Raises `ApiKeyRequiredError` when no key may be used, for an argument that is none `TypeError` or
    `ValueError`, and `ImportError` when a kind of key needs an extra that is not installed. A client
    needs no closing.

    `account_codec` makes the codec for the project of a service account, where the endpoint takes its
    key.
    """

    client_type: ClassVar[str]
    codec: Codec
    endpoint: ClassVar[Endpoint]
    account_codec: ClassVar[AccountCodec | None] = None
    traces: ClassVar[bool] = True

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
        self.model = checked_model(model)
        name = type(self).__name__
        key, url = resolve_credentials(
            self.endpoint,
            checked_text("api_key", api_key),
            checked_text("base_url", base_url),
            client=name,
            client_type=self.client_type,
        )
        checked_base(url, self.codec.paths, client=name)
        checked_key(key, client=name)
        if self.endpoint.refuses_accounts and key.lstrip().startswith("{"):
            raise RoutingError(
                f"{name}: {self.endpoint.refuses_accounts}.",
                model=self.model,
                client_type=self.client_type,
            )
        endpoint = self.endpoint.for_key(key)
        own = (*environment_headers(endpoint, base_url), *endpoint.auth(key))
        self._target = checked_target(url, own, default_headers, client=name)
        account = account_of(key, endpoint, client=name, client_type=self.client_type)
        route = partial(_route, Proxies.from_environment(), checked_context(ssl_context))
        private = checked_flag("allow_private_image_urls", allow_private_image_urls)
        how = "an mmsp.Limits, as Limits(image_bytes=1_000_000)"
        limits = checked_kind("limits", limits, Limits, how) or Limits()
        how = "an mmsp.Timeouts, as Timeouts(total=30)"
        timeouts = checked_kind("timeouts", timeouts, Timeouts, how) or Timeouts()
        self._pictures = PictureFetcher(
            client=name,
            limits=limits,
            route=partial(route, public_only=not private),
            allow_private=private,
        )
        self._connector = Connector(
            client=name,
            route=route,
            timeouts=timeouts,
            limits=limits,
            max_retries=checked_retries(max_retries),
            lacks=missing_version(url, self.endpoint.default_url),
            refusal=self.codec.refusal,
            secrets=also(
                secrets_in(
                    "" if key == self.endpoint.placeholder_key else key, url, self._target.overrides
                ),
                () if account is None else (account.private_key,),
            ),
        )
        if account is not None:
            self._ask_as(account, endpoint)
        self._history: list[UniMessage] = []
        self._claim = Claim()
        self._calls: dict[int, weakref.ref[HttpCall]] = {}  # changed by any thread, in single steps

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
        settings = self._check_config(config)
        mine = self._check_messages(messages)
        if not mine:
            raise InvalidMessageError(
                "messages is empty: give it at least one message", client=type(self).__name__
            )
        requests = self._try_to_encode(mine, settings)

        async def prepare(stream: Stream) -> list[HttpRequest]:
            stream._trace = self._trace(mine, settings)
            return requests or await self._fetch_and_encode(stream, mine, settings)

        return self._stream(signal, prepare)

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
        settings = self._check_config(config)
        mine = [checked_message(message, client=type(self).__name__, now=unix_milliseconds())]
        self._try_to_encode(mine, settings)

        async def prepare(stream: Stream) -> list[HttpRequest]:
            if not stream._hold(self._claim):
                raise self._concurrent("A stateful call of this client is still running")
            messages = [*self._history, *mine]
            stream._trace = self._trace(messages, settings)
            return await self._fetch_and_encode(stream, messages, settings)

        def commit(answer: UniMessage) -> None:
            self._history += [*mine, copied(answer)]

        return self._stream(signal, prepare, commit)

    async def list_models(self, signal: AbortSignal | None = None) -> list[str]:
        """The ids of the endpoint's models, as it lists them.

        `signal` stops it as it stops a stream. Raises `AbortError`, the errors of an answer that is
        refused, late or unreadable, `StreamAbortedError` when the client is closed meanwhile, and
        `UnsupportedOperationError` where an endpoint has no list.
        """
        call = HttpCall(self._connector, checked_signal(signal))
        self._keep(call)
        return await call.run(
            partial(fetch_models, call, self.codec, self._target, self._connector)
        )

    # history

    def get_history(self) -> list[UniMessage]:
        """A copy of the conversation so far."""
        history: list[UniMessage] = copied(self._history)
        return history

    def set_history(self, messages: Sequence[UniMessage]) -> None:
        """Replace the conversation by a copy of `messages`."""
        self._change_history(self._check_messages(messages))

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
        """Close this client's streams, and stop its lists of models. Optional: a client that is dropped
        leaves nothing open.
        """
        calls = self._live_calls()
        for call in calls:
            call.close_now()
        for call in calls:
            await call.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model!r} at {self._target.host}>"

    # parts

    def _ask_as(self, account: ServiceAccount, endpoint: Endpoint) -> None:
        """Ask in the account's project, with its tokens."""
        assert endpoint.grant is not None
        assert self.account_codec is not None
        self.codec = self.account_codec.of_project(account.project)
        self._connector.authorization = Tokens(account, endpoint.grant, self._connector)

    def _check_messages(self, messages: Sequence[UniMessage]) -> list[UniMessage]:
        return checked_messages(messages, client=type(self).__name__, now=unix_milliseconds())

    def _check_config(self, config: UniConfig | None) -> UniConfig:
        client = type(self).__name__
        checked = checked_config({} if config is None else config, client=client)
        if (trace_id := checked.get("trace_id")) is not None:
            try:
                check_trace_id(trace_id)
            except ValueError as error:
                raise UnsupportedParameterError(
                    f"config.trace_id cannot name a trace: {error}",
                    client=client,
                    parameter="trace_id",
                ) from None
        return checked

    def _trace(self, messages: list[UniMessage], config: UniConfig) -> Trace | None:
        """What this call leaves when it ends well; None if nobody asked for it."""
        trace_id = config.get("trace_id")
        if trace_id is None or not self.traces:
            return None
        folder = cache_folder()
        return Trace(folder, trace_id, model=self.model, config=config, messages=messages)

    def _try_to_encode(
        self, messages: list[UniMessage], config: UniConfig
    ) -> list[HttpRequest] | None:
        """The requests, or None if pictures are to be fetched first. Raises what is wrong with them."""
        urls = self.codec.needs(messages)
        requests = self._encode(messages, config, self._pictures.check(urls, messages))
        return None if urls else requests

    async def _fetch_and_encode(
        self, stream: Stream, messages: list[UniMessage], config: UniConfig
    ) -> list[HttpRequest]:
        urls = self.codec.needs(messages)
        images = await self._pictures.fetch(stream, urls, messages) if urls else {}
        return self._encode(messages, config, images)

    def _encode(
        self, messages: list[UniMessage], config: UniConfig, images: Mapping[str, str]
    ) -> list[HttpRequest]:
        return self.codec.requests(
            self.model, messages, config, self._target, client=type(self).__name__, images=images
        )

    def _stream(self, signal: AbortSignal | None, prepare: Any, commit: Any = None) -> Stream:
        name = type(self).__name__
        assembler = Assembler(
            client=name,
            wire=self.codec.name,
            host=self._target.host,
            strict=_strict(),
            secrets=self._connector.secrets,
        )
        stream = Stream(
            self._connector,
            checked_signal(signal),
            assembler=assembler,
            decoder=self.codec.decoder(assembler, client=name, target=self._target),
            prepare=prepare,
            commit=commit,
        )
        self._keep(stream)
        return stream

    def _live_calls(self) -> list[HttpCall]:
        return [call for each in list(self._calls.values()) if (call := each()) is not None]

    def _keep(self, call: HttpCall) -> None:
        """Know of `call` for as long as it lives."""
        key, calls = id(call), self._calls
        calls[key] = weakref.ref(call, lambda _: calls.pop(key, None))


def _route(
    proxies: Proxies,
    ssl_context: ssl.SSLContext | None,
    url: str,
    *,
    public_only: bool = False,
) -> Route:
    return Route.to(url, proxies, ssl_context, public_only=public_only)


def _strict() -> bool:
    return os.environ.get("MMSP_DEBUG", "").lower() not in _OFF
