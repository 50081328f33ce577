"""mmsp: any language model through one message format and one stream, which stops at once.

    from mmsp import AutoLLMClient

    client = AutoLLMClient("gpt-5.5", client_type="openai-chat")
    async with client.streaming_response(messages) as stream:
        async for text in stream.text():
            print(text, end="")
            if enough:
                break          # the provider's connection is closed

Names are loaded when first used: importing this package loads no HTTP stack.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "abort_signal": ("AbortError", "AbortSignal"),
    "auto_client": ("AutoLLMClient",),
    "errors": (
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
    ),
    "settings": ("Limits", "Timeouts"),
    "stream": ("Stream", "TextStream"),
    "supported_models": ("ModelPricing", "SupportedModel", "list_supported_models"),
    "types": ("UniConfig", "UniEvent", "UniMessage", "UsageMetadata"),
    "wire": ("dumps", "loads"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from .abort_signal import AbortError as AbortError
    from .abort_signal import AbortSignal as AbortSignal
    from .auto_client import AutoLLMClient as AutoLLMClient
    from .errors import ApiKeyRequiredError as ApiKeyRequiredError
    from .errors import ConcurrentCallError as ConcurrentCallError
    from .errors import EmptyResponseError as EmptyResponseError
    from .errors import IncompleteStreamError as IncompleteStreamError
    from .errors import InvalidMessageError as InvalidMessageError
    from .errors import MMSPError as MMSPError
    from .errors import ProviderStreamError as ProviderStreamError
    from .errors import RoutingError as RoutingError
    from .errors import StreamAbortedError as StreamAbortedError
    from .errors import StreamProtocolError as StreamProtocolError
    from .errors import ToolCallArgumentParseError as ToolCallArgumentParseError
    from .errors import UnknownEventError as UnknownEventError
    from .errors import UnsupportedContentError as UnsupportedContentError
    from .errors import UnsupportedOperationError as UnsupportedOperationError
    from .errors import UnsupportedParameterError as UnsupportedParameterError
    from .errors import UpstreamConnectionError as UpstreamConnectionError
    from .errors import UpstreamError as UpstreamError
    from .errors import UpstreamTimeoutError as UpstreamTimeoutError
    from .errors import WireFormatError as WireFormatError
    from .settings import Limits as Limits
    from .settings import Timeouts as Timeouts
    from .stream import Stream as Stream
    from .stream import TextStream as TextStream
    from .supported_models import ModelPricing as ModelPricing
    from .supported_models import SupportedModel as SupportedModel
    from .supported_models import list_supported_models as list_supported_models
    from .types import UniConfig as UniConfig
    from .types import UniEvent as UniEvent
    from .types import UniMessage as UniMessage
    from .types import UsageMetadata as UsageMetadata
    from .wire import dumps as dumps
    from .wire import loads as loads

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "sync":  # the one package that is a part of what one sees here
        return import_module(".sync", __name__)
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", "sync"})
