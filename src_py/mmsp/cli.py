"""The `mmsp` command."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from .abort_signal import AbortError, AbortSignal
from .auto_client import AutoLLMClient
from .integration.server.command import serve
from .stream import Stream
from .testing import Answer, ScriptedProvider, Step, chat, pause, say, stall
from .types import UniMessage

try:
    import click
    from rich.console import Console
except ImportError:  # pragma: no cover - a missing extra
    raise SystemExit(
        "The mmsp command needs click and rich: install mmsp with its extra `cli`."
    ) from None

__all__ = ["main"]

_PACE = 0.07  # s between words: reading speed
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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mmsp")
def main() -> None:
    """Any language model through one message format, and a stream that stops at once."""


@main.command()
@click.option(
    "--stop-after",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop by itself. Without it Ctrl-C stops; where nobody is at a terminal, 2 seconds do.",
)
def demo(stop_after: float | None) -> None:
    """Stream a text from a built-in provider and stop it: how long until its connection closed?"""
    if stop_after is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        stop_after = 2.0
    console = Console(highlight=False)
    with ScriptedProvider(_story()) as provider:
        console.print(f"[dim]A scripted provider speaks Chat Completions at {provider.base_url}[/]")
        how = "Ctrl-C stops it" if stop_after is None else f"Stopping after {stop_after:g} s"
        console.print(f"[dim]{how}.[/]\n")
        stopped = asyncio.run(_stream(provider, stop_after))
        _report(console, provider, stopped)


main.add_command(serve)


@dataclass
class Stopped:
    """How the demonstration's stream ended. Times are `time.monotonic_ns`."""

    error: AbortError
    text: str
    events: int
    history: int
    at_ns: int
    freed_ns: int


async def _stream(provider: ScriptedProvider, stop_after: float | None) -> Stopped:
    client = AutoLLMClient("demo", "no-key", provider.base_url, "openai-chat")
    stop = AbortSignal()
    at_ns = 0

    def abort(reason: str) -> None:
        nonlocal at_ns
        at_ns = at_ns or time.monotonic_ns()
        stop.abort(reason)

    if stop_after is not None:
        asyncio.get_running_loop().call_later(stop_after, abort, f"{stop_after:g} s were over")
    stream = client.streaming_response_stateful(_QUESTION, signal=stop)
    with _on_interrupt(lambda: abort("Ctrl-C")):
        text, events, error = await _show(stream)
    return Stopped(error, text, events, len(client.get_history()), at_ns, time.monotonic_ns())


async def _show(stream: Stream) -> tuple[str, int, AbortError]:
    text, events = "", 0
    try:
        async with stream:
            async for event in stream:
                events += 1
                for item in event["content_items"]:
                    if item["type"] == "text.delta":
                        text += item["text"]
                        sys.stdout.write(item["text"])
                        sys.stdout.flush()
    except AbortError as error:
        return text, events, error
    raise RuntimeError("the scripted provider ended its answer")


@contextmanager
def _on_interrupt(call: Callable[[], object]) -> Generator[None]:
    """Have Ctrl-C call `call()` in the signal handler itself."""
    before = signal.signal(signal.SIGINT, lambda *_: call())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _report(console: Console, provider: ScriptedProvider, stopped: Stopped) -> None:
    record = provider.connections[0]
    closed_ns = record.wait_closed()
    console.print("\n")
    console.print(f"[bold]Stopped.[/] Reason: {stopped.error.reason}")
    console.print(
        f"Arrived: {stopped.events} events, {len(stopped.text)} characters;"
        f" history: {stopped.history} messages."
    )
    console.print(
        f"The provider saw its connection close [bold green]{(closed_ns - stopped.at_ns) / 1e6:.2f} ms[/]"
        f" after the stop ({(record.closed_by or 'nobody').upper()});"
        f" the reader had its error after {(stopped.freed_ns - stopped.at_ns) / 1e6:.2f} ms."
    )


def _story() -> Answer:
    steps: list[Step] = []
    for word in _STORY.split(" "):
        steps += [say(chat.text(word.replace("\n", " ") + " ")), pause(_PACE)]
    return Answer(*steps, stall())
