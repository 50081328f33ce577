"""`mmsp chat` as a process: lines piped in, and a person at a pseudo-terminal who presses Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmsp import loads
from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from tests.asking import complete
from tests.stopping import LIMIT_NS

SOURCES = Path(__file__).parent.parent
COMMAND = (sys.executable, "-W", "error", "-m", "mmsp", "chat")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCES), "TERM": "dumb"}
PATIENCE = 30.0


def options(provider: ScriptedProvider) -> list[str]:
    return ["-m", "m", "-t", "openai-chat", "-u", provider.base_url, "--api-key", "k"]


def talk(
    provider: ScriptedProvider, *lines: str, more: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options(provider), *more],
        env=ENVIRONMENT,
        input="\n".join([*lines, ""]),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def roles(provider: ScriptedProvider) -> list[str]:
    return [each["role"] for each in provider.requests[-1].json()["messages"]]


def test_a_conversation_goes_on_from_line_to_line() -> None:
    with ScriptedProvider(complete("One"), complete("Two")) as provider:
        done = talk(provider, "first", "", "second", more=("--system", "Be brief."))
        assert (done.stdout, done.returncode) == ("One\nTwo\n", 0)
        assert roles(provider) == ["system", "user", "assistant", "user"]
        assert "Traceback" not in done.stderr


def test_a_conversation_is_saved_and_goes_on_another_day(tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    with ScriptedProvider(complete("One"), complete("Two")) as provider:
        talk(provider, "first", f"/save {saved}")
        assert [each["role"] for each in loads(saved.read_text())] == ["user", "assistant"]
        done = talk(provider, f"/load {saved}", "second")
        assert "2 messages" in done.stderr
        assert roles(provider) == ["user", "assistant", "user"]


def test_the_model_the_prompt_and_the_beginning_can_be_changed() -> None:
    with ScriptedProvider(complete("One"), complete("Two"), complete("Three")) as provider:
        done = talk(
            provider, "a", "/model other", "/system Be kind.", "b", "/clear", "/system", "c"
        )
        assert done.returncode == 0
        first, second, third = (each.json() for each in provider.requests)
        assert (first["model"], second["model"]) == ("m", "other")
        assert [each["role"] for each in second["messages"]] == [
            "system",
            "user",
            "assistant",
            "user",
        ]
        assert [each["role"] for each in third["messages"]] == ["user"]


def test_a_picture_goes_with_the_next_message_alone(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    with ScriptedProvider(complete("A cat"), complete("Yes")) as provider:
        talk(provider, f"/image {picture}", "what?", "sure?")
        first, second = (each.json()["messages"][-1] for each in provider.requests)
        assert "data:image/png" in str(first)
        assert "data:image/png" not in str(second)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/nothing", "there is no /nothing: /help lists what there is"),
        ("/", "there is no /: /help lists"),
        ("/image", "/image needs one more word"),
        ("/image no.png", "no.png cannot be read"),
        ("/load no.json", "No such file"),
        ("/help", "Ctrl-C stops an answer"),
        ("hi", "HTTP 400: no such thing"),
    ],
)
def test_a_mistake_ends_nothing(line: str, told: str) -> None:
    with ScriptedProvider(Answer.error(400, "no such thing"), complete("Well")) as provider:
        if line != "hi":
            provider.answers = [complete("Well")]
        done = talk(provider, line, "hello")
        assert told in done.stderr
        assert done.stdout.strip() == "Well"
        assert (done.returncode, "Traceback" in done.stderr) == (0, False)


# ---- at a terminal


class Person:
    """Somebody at a terminal in which the command runs."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *options(provider)],
            env=ENVIRONMENT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.seen = ""

    def types(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def sees(self, text: str) -> None:
        """Wait until it stands on the screen, and forget what came before."""
        give_up = time.monotonic() + PATIENCE
        while text not in self.seen:
            ready, _, _ = select.select([self.ours], [], [], 0.2)
            if ready:
                self.seen += os.read(self.ours, 4096).decode("utf-8", "replace")
            assert time.monotonic() < give_up, f"{text!r} is not on the screen: {self.seen!r}"
        self.seen = self.seen.partition(text)[2]

    def leave(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def person(request: pytest.FixtureRequest) -> Iterator[list[Person]]:
    people: list[Person] = []
    yield people
    for each in people:
        each.leave()


def test_ctrl_c_stops_the_answer_and_keeps_the_conversation_and_then_leaves(
    person: list[Person],
) -> None:
    with ScriptedProvider(
        complete("One"), Answer(say(chat.text("Two ")), stall()), complete("Three")
    ) as provider:
        person.append(Person(provider))
        (someone,) = person
        someone.sees("›")
        someone.types("first\n")
        someone.sees("One")
        someone.sees("›")
        someone.types("second\n")
        someone.sees("Two")
        stopped_ns = time.monotonic_ns()
        someone.types("\x03")
        closed_ns = provider.connections[-1].wait_closed()
        assert closed_ns - stopped_ns < LIMIT_NS
        someone.sees("the conversation is as it was before the question")
        someone.sees("›")
        someone.types("third\n")
        someone.sees("Three")
        assert roles(provider) == ["user", "assistant", "user"]
        someone.sees("›")
        someone.types("\x03")
        assert someone.process.wait(PATIENCE) == 130
