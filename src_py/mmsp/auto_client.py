"""`AutoLLMClient`: any model through one class. It picks the client and hands every call to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from .registry import family_of, find_client, refuse_client_type

if TYPE_CHECKING:
    import ssl

    from .abort_signal import AbortSignal
    from .settings import Limits, Timeouts
    from .stream import Stream
    from .types import UniConfig, UniMessage

__all__ = ["AutoLLMClient"]


class AutoLLMClient:
    """The client of `model`.

    `client_type` (or the variable CLIENT_TYPE) says which wire to speak; without, the beginning of the
    model's id says whose model it is (`mmsp.registry.FAMILIES`). The other arguments are those of
    `mmsp.base_client.LLMClient`. Raises `RoutingError` when no client is known, `ApiKeyRequiredError`
    when no key may be used, `TypeError` and `ValueError` for other arguments that are none.
    """

    def __init__(
        self,
        model: str,
        api_key: str | None = None,
        base_url: str | None = None,
        client_type: str | None = None,
        default_headers: Mapping[str, str] | None = None,
        *,
        timeouts: Timeouts | None = None,
        max_retries: int = 2,
        limits: Limits | None = None,
        ssl_context: ssl.SSLContext | None = None,
        allow_private_image_urls: bool = False,
    ) -> None:
        client = find_client(model, client_type).load()
        refuse_client_type("api_key", api_key)
        refuse_client_type("base_url", base_url)
        named = client_type or os.environ.get("CLIENT_TYPE")
        self._family = None if named else family_of(model)
        self._client = client(
            model,
            api_key,
            base_url,
            default_headers,
            timeouts=timeouts,
            max_retries=max_retries,
            limits=limits,
            ssl_context=ssl_context,
            allow_private_image_urls=allow_private_image_urls,
        )

    @property
    def model(self) -> str:
        return self._client.model

    @property
    def client_type(self) -> str:
        """The type of the client that was picked."""
        return self._client.client_type

    def streaming_response(
        self,
        messages: Sequence[UniMessage],
        config: UniConfig | None = None,
        signal: AbortSignal | None = None,
    ) -> Stream:
        """See `LLMClient.streaming_response`."""
        return self._client.streaming_response(messages, config, signal)

    def streaming_response_stateful(
        self,
        message: UniMessage,
        config: UniConfig | None = None,
        signal: AbortSignal | None = None,
    ) -> Stream:
        """See `LLMClient.streaming_response_stateful`."""
        return self._client.streaming_response_stateful(message, config, signal)

    async def list_models(self, signal: AbortSignal | None = None) -> list[str]:
        """See `LLMClient.list_models`.

        Of a client that was found by the model's id, only the models of the same family.
        """
        models = await self._client.list_models(signal)
        return [each for each in models if self._family in (None, family_of(each))]

    def get_history(self) -> list[UniMessage]:
        """A copy of the conversation so far."""
        return self._client.get_history()

    def set_history(self, messages: Sequence[UniMessage]) -> None:
        """Replace the conversation by a copy of `messages`."""
        self._client.set_history(messages)

    def clear_history(self) -> None:
        """Begin a new conversation."""
        self._client.clear_history()

    async def aclose(self) -> None:
        """Close this client's streams. Optional."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<AutoLLMClient {self._client!r}>"
