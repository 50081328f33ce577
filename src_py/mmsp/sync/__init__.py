"""mmsp for programs without an event loop: scripts, notebooks, views, thread pools.

    from mmsp.sync import AutoLLMClient

    client = AutoLLMClient("gpt-5.5", client_type="openai-chat")
    with client.streaming_response(messages) as stream:
        for text in stream.text():
            print(text, end="")
            if enough:
                break          # the provider's connection is closed

There is no second implementation: the asynchronous client runs on a loop of its own, in one daemon
thread of the process, and hands over what it has read. Messages, events, config, errors and `AbortSignal`
are those of `mmsp`; only a stop reads differently: `Aborted`, an `Exception`.

Names are loaded when first used: importing this package loads no HTTP stack.
"""

from __future__ import annotations

import atexit
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME_OF = {
    "AbortSignal": "mmsp.abort_signal",
    "Aborted": "mmsp.sync.aborted",
    "AutoLLMClient": "mmsp.sync.auto_client",
    "Stream": "mmsp.sync.stream",
    "TextStream": "mmsp.sync.stream",
}

if TYPE_CHECKING:
    from ..abort_signal import AbortSignal as AbortSignal
    from .aborted import Aborted as Aborted
    from .auto_client import AutoLLMClient as AutoLLMClient
    from .stream import Stream as Stream
    from .stream import TextStream as TextStream

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return __all__


def _at_exit() -> None:
    driver: Any = sys.modules.get("mmsp.sync.driver")
    if driver is not None:
        driver.end()


# Here, because what is registered last runs first: whatever a program registers after this import may
# still read.
atexit.register(_at_exit)
