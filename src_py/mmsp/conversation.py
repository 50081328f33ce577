"""`mmsp chat`: a conversation at the terminal.

Ctrl-C while an answer comes stops it: what had come stays on the screen, the provider's connection is
closed, and the conversation is as it was before the question. Ctrl-C at the prompt leaves.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import sync
from .ask import CannotAsk, Endpoint, Question
from .errors import MMSPError
from .screen import OutputEnded, Screen
from .types import UniConfig, UniMessage
from .wire import dumps, loads

__all__ = ["Conversation", "chat"]

_LEFT = 128 + signal.SIGINT
_PROMPT = "› "
_HELP = """\
/image FILE|URL   send a picture with the next message
/model ID         go on with another model
/system TEXT      the system prompt from now on; without TEXT none
/save FILE        keep the conversation; /load FILE goes on with one
/clear            begin anew
/help             this; Ctrl-C stops an answer, and at the prompt it leaves, as /quit does"""


def chat(endpoint: Endpoint, system: str | None = None) -> int:
    """Talk until the person leaves; the status to exit with. Raises `CannotAsk`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    conversation = Conversation(endpoint, system)
    conversation.note(f"{endpoint.model} · /help tells what else there is")
    try:
        while (line := conversation.read()) is not None:
            conversation.take(line)
    except KeyboardInterrupt:
        conversation.note("")
        return _LEFT
    except OutputEnded as ended:
        if not ended.reader_left:
            raise CannotAsk(str(ended)) from None
        return ended.status
    return 0


class Conversation:
    """One conversation: whom it is with, what will be sent with the next message, what is on the screen."""

    def __init__(self, endpoint: Endpoint, system: str | None = None) -> None:
        self._endpoint = endpoint
        self._system = system
        self._client = self._client_of(endpoint)
        self._images: list[str] = []
        self._screen = Screen()
        self._is_over = False

    # ---- lines

    def read(self) -> str | None:
        """The next line; None when there is none any more."""
        if self._is_over:
            return None
        with contextlib.suppress(ImportError):  # for history and the keys of the line
            import readline as _readline

            del _readline
        try:
            return input(_PROMPT if sys.stdin.isatty() else "")
        except EOFError:
            return None

    def take(self, line: str) -> None:
        """Do what a line says: a command, or a message."""
        line = line.strip()
        if not line:
            return
        try:
            if line.startswith("/"):
                self._obey(*line[1:].split(maxsplit=1))
            else:
                self._answer(line)
        except (CannotAsk, MMSPError, ValueError, OSError) as error:
            self.note(f"{error}")

    def note(self, line: str) -> None:
        """A word of the program's own, beside the conversation."""
        print(line, file=sys.stderr, flush=True)

    # ---- commands

    def _obey(self, name: str = "", argument: str = "") -> None:
        commands: dict[str, Callable[[str], object]] = {
            "image": self._add_image,
            "model": self._change_model,
            "system": self._change_system,
            "save": self._save,
            "load": self._load,
            "clear": lambda _: self._client.clear_history(),
            "help": lambda _: self.note(_HELP),
            "quit": self._leave,
        }
        command = commands.get(name)
        if command is None:
            raise CannotAsk(f"there is no /{name}: /help lists what there is")
        if not argument and name in ("image", "model", "save", "load"):
            raise CannotAsk(f"/{name} needs one more word: /help tells which")
        command(argument.strip())

    def _add_image(self, place: str) -> None:
        Question("", images=[place]).message()  # raises for what is none
        self._images.append(place)

    def _change_model(self, model: str) -> None:
        endpoint = Endpoint(
            model, self._endpoint.client_type, self._endpoint.base_url, self._endpoint.api_key
        )
        client = self._client_of(endpoint)
        client.set_history(self._client.get_history())
        self._endpoint, self._client = endpoint, client

    def _change_system(self, text: str) -> None:
        self._system = text or None

    def _save(self, place: str) -> None:
        Path(place).write_text(dumps(self._client.get_history()) + "\n", encoding="utf-8")

    def _load(self, place: str) -> None:
        messages: list[UniMessage] = loads(Path(place).read_text(encoding="utf-8"))
        self._client.set_history(messages)
        self.note(f"{len(messages)} messages")

    def _leave(self, _: str) -> None:
        self._is_over = True

    # ---- an answer

    def _answer(self, text: str) -> None:
        message = Question(text, images=self._images).message()
        config: UniConfig = {} if self._system is None else {"system_prompt": self._system}
        began = time.monotonic()
        usage = None
        try:
            with self._client.streaming_response_stateful(message, config) as stream:
                for event in stream:
                    self._show(event["content_items"])
                    usage = event["usage_metadata"] or usage
        except KeyboardInterrupt:
            self._screen.write("\n")
            self.note("stopped; the conversation is as it was before the question")
            return
        except MMSPError:
            self._screen.write("\n")
            raise
        self._images = []
        self._screen.write("\n")
        self.note(_footer(usage, time.monotonic() - began))

    def _show(self, items: Sequence[Any]) -> None:
        for item in items:
            if item["type"] == "text.delta":
                self._screen.write(item["text"])

    def _client_of(self, endpoint: Endpoint) -> sync.AutoLLMClient:
        try:
            return sync.AutoLLMClient(
                endpoint.model, endpoint.api_key, endpoint.base_url, endpoint.client_type
            )
        except (ValueError, ImportError) as error:
            raise CannotAsk(str(error)) from None


def _footer(usage: Any, seconds: float) -> str:
    written = [(usage or {}).get(name) for name in ("thoughts_tokens", "response_tokens")]
    tokens = sum(count for count in written if count)
    return f"{tokens} tokens, {seconds:.1f} s" if tokens else f"{seconds:.1f} s"
