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
    ),
    "settings": ("Limits", "Timeouts"),
    "stream": ("Stream",),
    "types": ("UniConfig", "UniEvent", "UniMessage", "UsageMetadata"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from .abort_signal import AbortError as AbortError
    from .abort_signal import AbortSignal as AbortSignal
    from .auto_client import AutoLLMClient as AutoLLMClient
    from .errors import *
    from .settings import Limits as Limits
    from .settings import Timeouts as Timeouts
    from .stream import Stream as Stream
    from .types import UniConfig as UniConfig
    from .types import UniEvent as UniEvent
    from .types import UniMessage as UniMessage
    from .types import UsageMetadata as UsageMetadata

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
