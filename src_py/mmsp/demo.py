"""`mmsp demo`: a stream that is stopped, and the time until the provider saw it.

From its first line on, Ctrl-C and SIGTERM abort a signal and do nothing else, so nothing breaks off in
the middle, wherever they come. The second Ctrl-C changes nothing; the third leaves at once, for whom a
terminal keeps waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from .abort_signal import AbortError, AbortSignal
from .auto_client import AutoLLMClient
from .screen import OutputEnded, Screen
from .stream import Stream
from .testing import Answer, ConnectionRecord, ScriptedProvider, Step, chat, pause, say, stall
from .types import UniMessage

__all__ = ["CannotRun", "run"]

_PACE = 0.07  # s between words: reading speed
_LATE_CONNECTION = 0.2  # s until the provider has taken a connection that the kernel had taken
_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM

_STORY = """\
A model writes a word at a time, and every word is paid for. So the most useful button on the page is
the one that says Stop, and the most useful thing it can do is to end the work where the work is done:
at the provider, not only on the screen. What you are reading comes from a scripted provider on this
machine, over a real socket, at the speed of somebody reading. Press Ctrl-C at any word. The words that
had arrived stay on the screen, the history stays as it was before the question, and the provider sees
its connection close in that instant. The provider writes down when that happened, on the same clock as
this program, and the difference is printed below. Nothing is polled for and nothing waits for the next
word: the call that stops shuts the socket before it returns. When this text is over the provider falls
silent without ending its answer, as a model that thinks does; a stop works there just as well."""
_QUESTION: UniMessage = {
    "role": "user",
    "content_items": [{"type": "text.done", "text": "What is this?"}],
}


class CannotRun(Exception):
    """There can be no demonstration here; the text says why."""


class Stop:
    """The switch of the demonstration, and when it was thrown (`time.monotonic_ns`)."""

    def __init__(self) -> None:
        self.signal = AbortSignal()
        self.at_ns = 0
        self.status = 0
        self._interrupts = 0

    def abort(self, reason: str) -> None:
        self.at_ns = self.at_ns or time.monotonic_ns()
        self.signal.abort(reason)

    def listen(self) -> None:
        signal.signal(signal.SIGINT, lambda *_: self._interrupt())
        signal.signal(signal.SIGTERM, lambda *_: self._terminate())

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts > 2:
            os._exit(_INTERRUPTED)
        self.abort("Ctrl-C")

    def _terminate(self) -> None:
        self.status = _TERMINATED
        self.abort("SIGTERM")


@dataclass
class Stopped:
    """How the demonstration's stream ended."""

    reason: object
    text: str
    events: int
    history: int
    freed_ns: int


def run(stop_after: float | None) -> int:
    """Shows it and returns the status to exit with. Raises `CannotRun`."""
    stop = Stop()
    stop.listen()
    try:
        with _provider() as provider:
            _demonstrate(provider, stop, stop_after)
    except OutputEnded as ended:
        if not ended.reader_left:
            raise CannotRun(str(ended)) from None
        return ended.status
    return stop.status


def _provider() -> ScriptedProvider:
    try:
        return ScriptedProvider(_story())
    except RuntimeError as error:  # no epoll
        raise CannotRun(str(error)) from None


def _demonstrate(provider: ScriptedProvider, stop: Stop, stop_after: float | None) -> None:
    screen = Screen()
    screen.line(f"[dim]A scripted provider speaks Chat Completions at {provider.base_url}[/]")
    how = "Ctrl-C stops it" if stop_after is None else f"Stopping after {stop_after:g} s"
    screen.line(f"[dim]{how}.[/]\n")
    stopped = asyncio.run(_stream(provider, stop, stop_after, screen.piece))
    _report(screen, _connection(provider), stop.at_ns, stopped)


async def _stream(
    provider: ScriptedProvider, stop: Stop, stop_after: float | None, show: Callable[[str], None]
) -> Stopped:
    client = AutoLLMClient("demo", "no-key", provider.base_url, "openai-chat")
    if stop_after is not None:
        loop = asyncio.get_running_loop()
        loop.call_later(stop_after, stop.abort, f"{stop_after:g} s were over")
    stream = client.streaming_response_stateful(_QUESTION, signal=stop.signal)
    text, events, error = await _show(stream, show)
    history = len(client.get_history())
    return Stopped(error.reason, text, events, history, time.monotonic_ns())


async def _show(stream: Stream, show: Callable[[str], None]) -> tuple[str, int, AbortError]:
    text, events = "", 0
    try:
        async with stream:
            async for event in stream:
                events += 1
                for item in event["content_items"]:
                    if item["type"] == "text.delta":
                        text += item["text"]
                        show(item["text"])
    except AbortError as error:
        return text, events, error
    raise RuntimeError("the scripted provider ended its answer")


def _connection(provider: ScriptedProvider) -> ConnectionRecord | None:
    """The stream's connection; None if it was stopped before there was one."""
    with contextlib.suppress(TimeoutError):
        provider.wait(lambda seen: seen.connections, timeout=_LATE_CONNECTION)
    return provider.connections[0] if provider.connections else None


def _report(
    screen: Screen, connection: ConnectionRecord | None, at_ns: int, stopped: Stopped
) -> None:
    screen.line(f"[bold]Stopped.[/] Reason: {stopped.reason}")
    screen.line(
        f"Arrived: {stopped.events} events, {len(stopped.text)} characters;"
        f" history: {stopped.history} messages."
    )
    if connection is None:
        screen.line("It was stopped before anything was sent: the provider saw no connection.")
        return
    closed_ns = connection.wait_closed()
    screen.line(
        f"The provider saw its connection close [bold green]{(closed_ns - at_ns) / 1e6:.2f} ms[/]"
        f" after the stop ({(connection.closed_by or 'nobody').upper()});"
        f" the reader had its error after {(stopped.freed_ns - at_ns) / 1e6:.2f} ms."
    )


def _story() -> Answer:
    steps: list[Step] = []
    for word in _STORY.split():
        steps += [say(chat.text(f"{word} ")), pause(_PACE)]
    return Answer(*steps, stall())
