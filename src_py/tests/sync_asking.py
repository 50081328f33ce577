"""Short words for tests that ask through the synchronous client, and stop it from elsewhere."""

from __future__ import annotations

import contextlib
import signal as os_signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from mmsp.sync import AutoLLMClient
from mmsp.testing import ScriptedProvider

__all__ = ["client_of", "elsewhere", "handled", "interrupt_main", "rest"]


def client_of(
    provider: ScriptedProvider, client_type: str = "openai-chat", **settings: Any
) -> AutoLLMClient:
    if provider.manners.tls:
        settings.setdefault("ssl_context", provider.ssl_context)
    return AutoLLMClient("some-model", "a-key", provider.base_url, client_type, **settings)


@contextlib.contextmanager
def elsewhere(work: Callable[[], object]) -> Iterator[None]:
    """`work` runs in a thread meanwhile, which has ended at the end; what it raises is raised there."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="elsewhere")
    thread.start()
    try:
        yield
    finally:
        thread.join()
        if raised:
            raise raised.pop()


@contextlib.contextmanager
def handled(handler: Callable[[], object]) -> Iterator[None]:
    """`handler` is what SIGUSR1 does meanwhile, on the main thread."""
    before = os_signal.signal(os_signal.SIGUSR1, lambda *_: handler())
    try:
        yield
    finally:
        os_signal.signal(os_signal.SIGUSR1, before)


def interrupt_main() -> None:
    """Send the main thread a SIGUSR1."""
    ident = threading.main_thread().ident
    assert ident is not None
    os_signal.pthread_kill(ident, os_signal.SIGUSR1)


def rest() -> None:
    """So long that a reader who is about to wait does so."""
    time.sleep(0.005)
