"""`AutoLLMClient` for threads: the asynchronous one's methods, which wait where those are awaited."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from ..auto_client import AutoLLMClient as Core

if TYPE_CHECKING:
    import ssl

    from ..abort_signal import AbortSignal
    from ..settings import Limits, Timeouts
    from ..stream import Stream as CoreStream
    from ..types import UniConfig, UniMessage
    from .stream import Stream

__all__ = ["AutoLLMClient"]


class AutoLLMClient:
    """The client of `model`, for any number of threads at once.

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
        self._core = Core(
            model,
            api_key,
            base_url,
            client_type,
            default_headers,
            timeouts=timeouts,
            max_retries=max_retries,
            limits=limits,
            ssl_context=ssl_context,
            allow_private_image_urls=allow_private_image_urls,
        )
        # It loads the HTTP stack, so not before there is a client; nor later, when a program has threads
        # and may fork: a child would wait for ever for a module that a thread of its parent loads.
        from .stream import Stream

        self._make = Stream
        self._streams: dict[int, weakref.ref[Stream]] = {}  # changed by any thread, in single steps

    @property
    def model(self) -> str:
        return self._core.model

    @property
    def client_type(self) -> str:
        """The type of the client that was picked."""
        return self._core.client_type

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
        return self._stream(self._core.streaming_response(messages, config, signal))

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
        return self._stream(self._core.streaming_response_stateful(message, config, signal))

    def list_models(self, signal: AbortSignal | None = None) -> list[str]:
        """The ids of the endpoint's models, as it lists them; of a client that was found by the model's id,
        only those of the same family.

        `signal` stops it as it stops a stream. Raises `Aborted`, the errors of an answer that is refused,
        late or unreadable, `StreamAbortedError` when the client is closed meanwhile, and
        `UnsupportedOperationError` where an endpoint has no list.
        """
        from ..abort_signal import AbortSignal, checked_signal
        from .driver import current

        given, leaving = checked_signal(signal), AbortSignal()
        both = leaving if given is None else AbortSignal.any([given, leaving])
        try:
            return current().do(lambda: self._core.list_models(both))
        finally:
            leaving.abort()  # by what a signal handler raised; else there is nothing left to stop

    def get_history(self) -> list[UniMessage]:
        """A copy of the conversation so far."""
        return self._core.get_history()

    def set_history(self, messages: Sequence[UniMessage]) -> None:
        """Replace the conversation by a copy of `messages`."""
        self._core.set_history(messages)

    def clear_history(self) -> None:
        """Begin a new conversation."""
        self._core.clear_history()

    def close(self) -> None:
        """Close this client's streams, and stop its lists of models, from any thread. Optional: a client
        that is dropped leaves nothing open.
        """
        from ..stream import Stream as CoreStream

        for each in list(self._streams.values()):
            if (stream := each()) is not None:
                stream.close()
        for call in self._core._client._live_calls():
            if not isinstance(call, CoreStream):
                call.close_now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._core)

    def _stream(self, core: CoreStream) -> Stream:
        """Know of the stream for as long as it lives."""
        stream = self._make(core)
        key, streams = id(stream), self._streams
        streams[key] = weakref.ref(stream, lambda _: streams.pop(key, None))
        return stream
