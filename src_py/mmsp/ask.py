"""`mmsp ask` and `mmsp models`: one question, one answer, for the shell and its pipes.

The answer goes to the standard output as it comes, everything else to the standard error. Ctrl-C stops the
answer: what had come stays, the provider's connection is closed, and the status is 130, as a shell expects.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import mimetypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from .abort_signal import AbortSignal
from .auto_client import AutoLLMClient
from .errors import MMSPError
from .screen import OutputEnded, Screen
from .types import UniConfig, UniMessage
from .wire import dumps

__all__ = ["CannotAsk", "Endpoint", "Question", "ask", "list_models"]

T = TypeVar("T")

_STOPPED = {"Ctrl-C": 128 + signal.SIGINT, "SIGTERM": 128 + signal.SIGTERM}
_DIM, _NORMAL = "\x1b[2m", "\x1b[22m"


class CannotAsk(Exception):
    """What the person has to change, or what the provider said."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who is asked: the arguments of `AutoLLMClient`."""

    model: str
    client_type: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)

    def client(self) -> AutoLLMClient:
        try:
            return AutoLLMClient(self.model, self.api_key, self.base_url, self.client_type)
        except (ValueError, ImportError) as error:
            raise CannotAsk(str(error)) from None


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and how the answer is shown: as text, or as events in JSON, one a line."""

    text: str
    images: Sequence[str] = ()
    config: UniConfig = field(default_factory=lambda: UniConfig())
    as_json: bool = False
    thinking: bool = False

    def message(self) -> UniMessage:
        images = [{"type": "image_url.done", "image_url": _image(each)} for each in self.images]
        items: list[Any] = [{"type": "text.done", "text": self.text}, *images]
        return {"role": "user", "content_items": items}


def ask(endpoint: Endpoint, question: Question) -> int:
    """Ask, show the answer as it comes, and return the status to exit with. Raises `CannotAsk`."""
    return _run(lambda stop: _answer(endpoint.client(), question, stop))


def list_models(endpoint: Endpoint) -> int:
    """Print the ids of the endpoint's models, one a line. Raises `CannotAsk`."""
    return _run(lambda stop: _models(endpoint.client(), stop))


async def _models(client: AutoLLMClient, stop: AbortSignal) -> None:
    screen = Screen()
    for model in await client.list_models(stop):
        screen.write(f"{model}\n")


async def _answer(client: AutoLLMClient, question: Question, stop: AbortSignal) -> None:
    show = _Shown(question)
    try:
        async with client.streaming_response([question.message()], question.config, stop) as stream:
            async for event in stream:
                show.event(event)
    finally:
        show.end()


class _Shown:
    """The answer on its way to the two outputs."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._screen = Screen()
        self._line_is_open = False
        self._thinks = False

    def event(self, event: Any) -> None:
        if self._question.as_json:
            self._screen.write(f"{dumps(event)}\n")
            return
        for item in event["content_items"]:
            if item["type"] == "text.delta":
                self._think("")
                self._line_is_open = not item["text"].endswith("\n")
                self._screen.write(item["text"])
            elif item["type"] == "thinking.delta" and self._question.thinking:
                self._think(item["thinking"])
            elif item["type"] == "tool_call.done":
                _tell(f"the model calls {item['name']} with {dumps([item])}")

    def _think(self, text: str) -> None:
        """Thinking goes where it is in nobody's way, dimmed on a terminal."""
        if text or self._thinks:
            dim, normal = (_DIM, _NORMAL) if sys.stderr.isatty() else ("", "")
            sys.stderr.write(f"{dim}{text}{normal}" if text else "\n\n")
            sys.stderr.flush()
        self._thinks = bool(text)

    def end(self) -> None:
        if self._line_is_open:
            with contextlib.suppress(OutputEnded):
                self._screen.write("\n")


# ---- running, and being stopped


def _run(work: Callable[[AbortSignal], Awaitable[None]]) -> int:
    stop = AbortSignal()
    for number, reason in ((signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")):
        signal.signal(number, _stopping(stop, reason))
    try:
        asyncio.run(_worked(work(stop)))
    except asyncio.CancelledError:  # whatever asyncio has made of the abort's own error
        return _STOPPED[str(stop.reason)]
    except OutputEnded as ended:
        if not ended.reader_left:
            raise CannotAsk(str(ended)) from None
        return ended.status
    except MMSPError as error:
        raise CannotAsk(str(error)) from None
    return 0


async def _worked(work: Awaitable[T]) -> T:
    return await work


def _stopping(stop: AbortSignal, reason: str) -> Callable[..., None]:
    def handle(*_: object) -> None:
        if stop.aborted:  # the second: a person who will not wait
            os._exit(_STOPPED[reason])
        stop.abort(reason)

    return handle


def _tell(line: str) -> None:
    print(f"mmsp: {line}", file=sys.stderr)


# ---- pictures


def _image(place: str) -> str:
    """A URL as it is, a file as a `data:` URL."""
    if place.startswith(("http://", "https://", "data:")):
        return place
    kind, _ = mimetypes.guess_type(place)
    if kind is None or not kind.startswith("image/"):
        raise CannotAsk(f"{place} has not the name of a picture: .png, .jpeg, .gif, .webp")
    try:
        data = Path(place).read_bytes()
    except OSError as error:
        raise CannotAsk(f"{place} cannot be read: {error.strerror}") from None
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
