"""What can go wrong, one class per party at fault, details as attributes.

    MMSPError(ValueError)                all but two have `client`, a class name
    ├── the caller's request, before anything is sent
    │   ├── RoutingError                 no client for this model or client type (no `client`)
    │   ├── ApiKeyRequiredError          no key, or a key that may not go to this endpoint
    │   ├── InvalidMessageError          a message that cannot be sent
    │   ├── UnsupportedParameterError    a config value this client or model cannot take
    │   ├── UnsupportedContentError      a well-formed item the model cannot take
    │   ├── UnsupportedOperationError    something the client can never do
    │   └── ConcurrentCallError          a stateful call while another holds the client
    ├── the provider, before its answer began
    │   ├── UpstreamError                an HTTP error status
    │   ├── UpstreamConnectionError      no answer came (also a ConnectionError)
    │   └── UpstreamTimeoutError         too long in one phase (also a TimeoutError)
    ├── the provider's answer
    │   ├── ProviderStreamError          it reported a failure inside the stream (also a RuntimeError)
    │   ├── IncompleteStreamError        it ended before it was whole
    │   ├── EmptyResponseError           whole, but nothing in it can be sent back
    │   ├── ToolCallArgumentParseError   a tool call whose arguments are no JSON object
    │   ├── StreamProtocolError          it broke the wire's own rules
    │   └── UnknownEventError            an event nobody knows, in strict mode only
    ├── StreamAbortedError               somebody else ended the stream
    └── WireFormatError                  not the form in which messages are saved (no `client`)

`AbortError`, raised for a stop of the caller's own, is no MMSPError: it is an
`asyncio.CancelledError` (see `mmsp.abort_signal`).

Every attribute is plain data, so that an error can cross a wire. No message or `repr` holds a key, a
header or a request body.
"""

from __future__ import annotations

from typing import Any

from .types import FinishReason, UsageMetadata

__all__ = [
    "ApiKeyRequiredError",
    "ConcurrentCallError",
    "EmptyResponseError",
    "IncompleteStreamError",
    "InvalidMessageError",
    "MMSPError",
    "ProviderStreamError",
    "RoutingError",
    "StreamAbortedError",
    "StreamProtocolError",
    "ToolCallArgumentParseError",
    "UnknownEventError",
    "UnsupportedContentError",
    "UnsupportedOperationError",
    "UnsupportedParameterError",
    "UpstreamConnectionError",
    "UpstreamError",
    "UpstreamTimeoutError",
    "WireFormatError",
    "preview",
]

_PREVIEW_WHOLE = 160
_PREVIEW_END = 72


def preview(text: str) -> str:
    """`text` whole up to 160 characters, else its first and last 72 around a mark."""
    if len(text) <= _PREVIEW_WHOLE:
        return text
    left_out = len(text) - 2 * _PREVIEW_END
    return f"{text[:_PREVIEW_END]}…[{left_out} characters truncated]…{text[-_PREVIEW_END:]}"


def _rebuild(kind: type[MMSPError], args: tuple[Any, ...], fields: dict[str, Any]) -> MMSPError:
    """Copying and pickling: an error again, without its constructor's checks."""
    new = OSError.__new__ if issubclass(kind, OSError) else kind.__new__  # whose layout it has
    error: MMSPError = new(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class MMSPError(ValueError):
    """Base of all errors of this package; never raised itself.

    `retryable` says whether the same call may well succeed when it is made again.
    """

    retryable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class RoutingError(MMSPError):
    """No client speaks for this `model` or `client_type`."""

    def __init__(self, message: str, *, model: str, client_type: str | None = None) -> None:
        super().__init__(message)
        self.model = model
        self.client_type = client_type


class WireFormatError(MMSPError):
    """What cannot be saved, or is no saved message; `path` names the place, from `$`, the whole."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class ClientError(MMSPError):
    """Base of errors that belong to a client; `client` is its class name."""

    def __init__(self, message: str, *, client: str) -> None:
        super().__init__(message)
        self.client = client


class ApiKeyRequiredError(ClientError):
    """No key was found, or the environment's key is reserved for another endpoint than `base_url`."""

    def __init__(
        self,
        message: str,
        *,
        client: str,
        client_type: str,
        api_key_env: str,
        base_url_env: str,
        base_url: str | None = None,
    ) -> None:
        super().__init__(message, client=client)
        self.client_type = client_type
        self.api_key_env = api_key_env
        self.base_url_env = base_url_env
        self.base_url = base_url


class InvalidMessageError(ClientError):
    """A message that cannot be sent; `message_index` counts from 0 in what the caller gave."""

    def __init__(
        self,
        message: str,
        *,
        client: str,
        item_type: str | None = None,
        message_index: int | None = None,
    ) -> None:
        super().__init__(message, client=client)
        self.item_type = item_type
        self.message_index = message_index


class UnsupportedParameterError(ClientError):
    """A config value (`parameter` is its key) that this client or model cannot take."""

    def __init__(self, message: str, *, client: str, parameter: str) -> None:
        super().__init__(message, client=client)
        self.parameter = parameter


class UnsupportedContentError(ClientError):
    """A well-formed item that the model cannot take."""

    def __init__(self, message: str, *, client: str, item_type: str) -> None:
        super().__init__(message, client=client)
        self.item_type = item_type


class UnsupportedOperationError(ClientError):
    """Something this client can never do."""

    def __init__(self, message: str, *, client: str, operation: str) -> None:
        super().__init__(message, client=client)
        self.operation = operation


class ConcurrentCallError(ClientError):
    """A stateful call, or a change of the history, while a stateful call holds the client."""


class UpstreamError(ClientError):
    """The provider answered with an HTTP error `status` before any stream.

    `error_type` is the provider's own word for it, `error` the object it sent, `retry_after` the
    seconds it asked to wait, `retryable` whether trying again makes sense.
    """

    def __init__(
        self,
        message: str,
        *,
        client: str,
        status: int | None = None,
        error_type: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        retryable: bool = False,
        error: Any = None,
    ) -> None:
        super().__init__(message, client=client)
        self.status = status
        self.error_type = error_type
        self.request_id = request_id
        self.retry_after = retry_after
        self.retryable = retryable
        self.error = error


class UpstreamConnectionError(ClientError, ConnectionError):
    """No answer came: `phase` is resolve, connect, proxy, tls, send or head."""

    def __init__(self, message: str, *, client: str, phase: str, retryable: bool = True) -> None:
        super().__init__(message, client=client)
        self.phase = phase
        self.retryable = retryable


class UpstreamTimeoutError(ClientError, TimeoutError):
    """More than `seconds` passed in `phase`: connect, first_event, idle or total."""

    def __init__(
        self, message: str, *, client: str, phase: str, seconds: float, retryable: bool = True
    ) -> None:
        super().__init__(message, client=client)
        self.phase = phase
        self.seconds = seconds
        self.retryable = retryable


class ProviderStreamError(ClientError, RuntimeError):
    """The provider reported a failure inside an open stream; `code` and `error_type` are its words."""

    def __init__(
        self,
        message: str,
        *,
        client: str,
        code: int | str | None = None,
        error_type: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message, client=client)
        self.code = code
        self.error_type = error_type
        self.retryable = retryable


class IncompleteStreamError(ClientError):
    """The stream ended before it was whole; `missing` names what never came."""

    retryable = True

    def __init__(
        self,
        message: str,
        *,
        client: str,
        missing: tuple[str, ...] = (),
        finish_reason: FinishReason | None = None,
        usage_metadata: UsageMetadata | None = None,
    ) -> None:
        super().__init__(message, client=client)
        self.missing = missing
        self.finish_reason = finish_reason
        self.usage_metadata = usage_metadata


class EmptyResponseError(ClientError):
    """The answer is whole but holds only thinking, or nothing: providers refuse it when sent back."""

    retryable = True

    def __init__(
        self,
        message: str,
        *,
        client: str,
        finish_reason: FinishReason | None = None,
        usage_metadata: UsageMetadata | None = None,
    ) -> None:
        super().__init__(message, client=client)
        self.finish_reason = finish_reason
        self.usage_metadata = usage_metadata


class ToolCallArgumentParseError(ClientError):
    """A tool call whose arguments are no JSON object, or were cut; raised in place of its `.done`."""

    def __init__(
        self,
        message: str,
        *,
        client: str,
        tool_name: str,
        tool_call_id: str,
        raw_arguments_length: int,
        raw_arguments_preview: str,
    ) -> None:
        super().__init__(message, client=client)
        self.tool_name = tool_name
        self.tool_call_id = tool_call_id
        self.raw_arguments_length = raw_arguments_length
        self.raw_arguments_preview = raw_arguments_preview


class StreamProtocolError(ClientError):
    """The answer broke the rules of its own wire."""


class UnknownEventError(ClientError):
    """An event that nobody knows, on wires that are read strictly. `event` is a preview of it."""

    def __init__(self, message: str, *, client: str, event: str) -> None:
        super().__init__(message, client=client)
        self.event = event


class StreamAbortedError(ClientError):
    """Somebody else ended the stream or call: an operator, a server shutting down, whoever closed the
    client of a `list_models`. Not retryable.
    """

    def __init__(self, message: str, *, client: str, reason: Any = None) -> None:
        super().__init__(message, client=client)
        self.reason = reason
