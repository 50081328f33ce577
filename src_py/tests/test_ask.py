"""`mmsp ask` and `mmsp models` as processes of their own: what they print, and how they end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mmsp import loads
from mmsp.testing import Answer, ScriptedProvider, chat, pause, say, stall
from tests.asking import complete
from tests.stopping import LIMIT_NS

SOURCES = Path(__file__).parent.parent
COMMAND = (sys.executable, "-W", "error", "-m", "mmsp")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": ""}
PATIENCE = 30.0


def options(provider: ScriptedProvider) -> list[str]:
    return ["-m", "m", "-t", "openai-chat", "-u", provider.base_url, "--api-key", "k"]


def run(
    provider: ScriptedProvider, *words: str, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words, *options(provider)],
        env=ENVIRONMENT,
        input=stdin or "",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def asked(provider: ScriptedProvider) -> str:
    """The text of the question as the provider got it."""
    (message,) = [
        each for each in provider.requests[-1].json()["messages"] if each["role"] == "user"
    ]
    return "".join(part.get("text", "") for part in message["content"])


def test_an_answer_is_printed_with_a_line_end_and_nothing_else() -> None:
    with ScriptedProvider(complete("All is wéll")) as provider:
        done = run(provider, "ask", "How", "are you?")
        assert (done.stdout, done.stderr, done.returncode) == ("All is wéll\n", "", 0)
        assert asked(provider) == "How are you?"


def test_what_is_piped_in_belongs_to_the_question() -> None:
    with ScriptedProvider(complete()) as provider:
        run(provider, "ask", "Summarise:", stdin="a long text\n")
        assert asked(provider) == "Summarise:\n\na long text"
        run(provider, "ask", stdin="the question")
        assert asked(provider) == "the question"


def test_the_caller_sets_the_system_prompt_the_limit_and_pictures(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    with ScriptedProvider(complete()) as provider:
        more = ("--system", "Be brief.", "--max-tokens", "5", "--image", str(picture))
        assert run(provider, "ask", "hi", *more).returncode == 0
        body = provider.requests[0].json()
        assert "Be brief." in json.dumps(body["messages"][0])
        assert 5 in (body.get("max_tokens"), body.get("max_completion_tokens"))
        assert "data:image/png;base64,iVBORw0KGgo=" in json.dumps(body)


def test_events_are_printed_a_line_each() -> None:
    with ScriptedProvider(complete("All is well")) as provider:
        done = run(provider, "ask", "hi", "--json")
        events = [loads(line) for line in done.stdout.splitlines()]
        assert [each["event_type"] for each in events] == ["delta"] * 4 + ["stop"]
        assert events[3]["content_items"] == [{"type": "text.done", "text": "All is well"}]


def test_thinking_goes_where_it_is_in_nobodys_way() -> None:
    answer = Answer(say([chat.thinking("Let me see"), *chat.answer("42")]))
    with ScriptedProvider(answer) as provider:
        assert run(provider, "ask", "hi").stderr == ""
        done = run(provider, "ask", "hi", "--thinking")
        assert (done.stdout, done.stderr) == ("42\n", "Let me see\n\n")


def test_the_models_of_an_endpoint_are_printed_a_line_each() -> None:
    listed = Answer.json({"object": "list", "data": [{"id": "a"}, {"id": "b"}]})
    with ScriptedProvider(listed) as provider:
        done = run(provider, "models")
        assert (done.stdout, done.stderr, done.returncode) == ("a\nb\n", "", 0)


@pytest.mark.parametrize("command", ["ask", "models"])
def test_a_refusal_is_told_in_a_line_without_the_key(command: str) -> None:
    with ScriptedProvider(Answer.error(401, "no such key: k-e-y-0815")) as provider:
        words = [command, "hi"] if command == "ask" else [command]
        given = [*options(provider)[:-1], "k-e-y-0815"]
        done = subprocess.run(
            [*COMMAND, *words, *given],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.startswith("Error: HTTP 401: no such key: ***")
        assert "0815" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["ask", "-m", "nobody-knows"], 2, "there is no question"),
        (["ask", "hi"], 2, "Missing option '--model'"),
        (["ask", "hi", "-m", "nobody-knows"], 1, "No client is known for the model 'nobody-knows'"),
        (["ask", "hi", "-m", "m", "-t", "openai-chta"], 1, "did you mean 'openai-chat'?"),
        (["ask", "hi", "-m", "m", "-t", "openai-chat", "-u", "http://127.0.0.1:9"], 1, "api_key"),
        (
            ["ask", "hi", "-m", "m", "-t", "openai-chat", "--api-key", "k", "-i", "a.txt"],
            1,
            "picture",
        ),
        (
            ["ask", "hi", "-m", "m", "-t", "openai-chat", "--api-key", "k", "-i", "no.png"],
            1,
            "read",
        ),
    ],
)
def test_a_mistake_is_told_with_what_to_do(words: list[str], status: int, told: str) -> None:
    done = subprocess.run(
        [*COMMAND, *words],
        env={key: value for key, value in ENVIRONMENT.items() if not key.endswith("_KEY")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == status
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")]
)
def test_shells_complete_commands(shell: str, word: str) -> None:
    def told(**environment: str) -> str:
        done = subprocess.run(
            COMMAND,
            env=ENVIRONMENT | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return done.stdout

    assert word in told(_MMSP_COMPLETE=f"{shell}_source")
    if shell == "bash":
        names = told(_MMSP_COMPLETE="bash_complete", COMP_WORDS="mmsp ", COMP_CWORD="1")
        assert {"ask", "chat", "demo", "models", "serve"} <= set(
            names.replace("plain,", "").split()
        )


# ---- being stopped


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a pseudo-terminal."""
    ends = pty.openpty()
    yield ends
    for each in ends:
        os.close(each)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
@pytest.mark.parametrize("phase", ["headers late", "mid-item"])
def test_a_stop_keeps_what_had_come_and_closes_the_providers_connection(
    phase: str, number: signal.Signals, status: int
) -> None:
    late = Answer(say(chat.text("One")), head_gate="never")
    answer = late if phase == "headers late" else Answer(say(chat.text("One ")), stall())
    with ScriptedProvider(answer) as provider:
        process = started(provider, "ask", "hi")
        provider.wait("answering" if phase == "headers late" else "stalled", timeout=PATIENCE)
        if phase == "mid-item":
            assert process.stdout is not None
            assert process.stdout.read(4) == b"One "
        stopped_ns = time.monotonic_ns()
        process.send_signal(number)
        assert provider.connections[0].wait_closed() - stopped_ns < LIMIT_NS
        out, error = process.communicate(timeout=PATIENCE)
        assert (process.returncode, error) == (status, b"")
        assert out == (b"" if phase == "headers late" else b"\n")


def test_ctrl_c_at_a_terminal_stops_the_answer(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    with ScriptedProvider(Answer(say(chat.text("One ")), stall())) as provider:
        process = subprocess.Popen(
            [*COMMAND, "ask", "hi", *options(provider)],
            env=ENVIRONMENT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        provider.wait("stalled", timeout=PATIENCE)
        seen = b""
        while b"One" not in seen:
            seen += os.read(ours, 100)
        os.write(ours, b"\x03")
        assert process.wait(PATIENCE) == 130
        provider.connections[0].wait_closed()


def _own_terminal() -> None:
    """In the child: the terminal of its standard input is its own, so that Ctrl-C reaches it."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_reader_that_leaves_closes_the_providers_connection() -> None:
    words = [step for _ in range(400) for step in (say(chat.text("word\n")), pause(0.01))]
    with ScriptedProvider(Answer(*words, stall())) as provider:
        process = started(provider, "ask", "hi")
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        provider.connections[0].wait_closed()


def started(provider: ScriptedProvider, *words: str) -> Any:
    return subprocess.Popen(
        [*COMMAND, *words, *options(provider)],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
