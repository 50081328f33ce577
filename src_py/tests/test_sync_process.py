"""`mmsp.sync` in whole processes: Ctrl-C, forks, and the end of the interpreter, all without a word.

Each program runs with `-X dev -W error`, so that whatever is left open is told, and that is a failure.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmsp.testing import Answer, ScriptedProvider, chat, gate, generate_content, say, stall
from tests.accounts import account, token
from tests.asking import complete

SOURCES = Path(__file__).parent.parent
HEAD = """
import os, signal, sys, threading, time
from mmsp import AbortSignal
from mmsp.sync import Aborted, AutoLLMClient
QUESTION = {"role": "user", "content_items": [{"type": "text.done", "text": "Hello?"}]}
client = AutoLLMClient("m", "k", os.environ["PROVIDER"], "openai-chat")
def say(*words):
    print(*words, flush=True)
"""
SILENT = Answer(say(chat.text("a")), stall())
NOT_YET = Answer(head_gate="never")
TIME_LIMIT = 30


@contextlib.contextmanager
def started(program: str, provider: ScriptedProvider) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "PROVIDER": provider.base_url}
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", HEAD + program],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:  # it hangs, or a child of its does
                os.killpg(process.pid, signal.SIGKILL)


def run(program: str, *answers: Answer) -> list[str]:
    """The lines that a program prints, which has to end well and to complain of nothing."""
    with ScriptedProvider(*answers) as provider, started(program, provider) as process:
        out, err = process.communicate(timeout=TIME_LIMIT)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


# Ctrl-C


READS = {
    "a loop": "for event in client.streaming_response([QUESTION]): pass",
    "text": "for text in client.streaming_response([QUESTION]).text(): pass",
    "message": "client.streaming_response([QUESTION]).message()",
    "next_ready": "s = client.streaming_response([QUESTION])\nwhile True: s.next_ready()",
    "a list of models": "client.list_models()",
    "a block": "with client.streaming_response([QUESTION]) as s:\n for event in s: pass",
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("answer", [SILENT, NOT_YET], ids=["mid-item", "before headers"])
def test_ctrl_c_ends_a_program_that_reads(read: str, answer: Answer) -> None:
    answer = NOT_YET if read == "a list of models" else answer
    with ScriptedProvider(answer) as provider, started(READS[read], provider) as process:
        provider.wait("stalled", timeout=TIME_LIMIT)
        time.sleep(0.05)  # so that its reader waits
        sent_ns = time.monotonic_ns()
        process.send_signal(signal.SIGINT)
        closed_ns = provider.connections[0].wait_closed(TIME_LIMIT)
        _, err = process.communicate(timeout=TIME_LIMIT)
    assert closed_ns - sent_ns < 200_000_000
    assert err.strip().splitlines()[-1] == "KeyboardInterrupt"
    assert process.returncode == -signal.SIGINT
    assert "Exception ignored" not in err
    assert "Warning" not in err


CATCHES = """
with client.streaming_response([QUESTION]) as stream:
    try:
        for event in stream:
            pass
    except KeyboardInterrupt as error:
        say(type(error).__name__, error.__context__, stream.outcome, list(stream))
say(client.streaming_response([QUESTION]).message()["content_items"][0]["text"])
"""


def test_after_ctrl_c_a_program_may_go_on() -> None:
    with (
        ScriptedProvider(SILENT, complete("on")) as provider,
        started(CATCHES, provider) as process,
    ):
        provider.wait("stalled", timeout=TIME_LIMIT)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        provider.connections[0].wait_closed(TIME_LIMIT)
        out, err = process.communicate(timeout=TIME_LIMIT)
    assert (out.splitlines(), err) == (["KeyboardInterrupt None cancelled []", "on"], "")


ABORTS = """
stop = AbortSignal()
signal.signal(signal.SIGINT, lambda *_: stop.abort("Ctrl-C"))
stream = client.streaming_response([QUESTION], signal=stop)
got = []
try:
    for event in stream:
        got.append(event)
except Aborted as stopped:
    say(stopped.reason, len(got), stream.outcome)
"""


@pytest.mark.parametrize("count", [1, 5])
def test_a_handler_of_ctrl_c_that_aborts_stops_the_answer_and_not_the_program(count: int) -> None:
    with ScriptedProvider(SILENT) as provider, started(ABORTS, provider) as process:
        provider.wait("stalled", timeout=TIME_LIMIT)
        time.sleep(0.05)
        for _ in range(count):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        provider.connections[0].wait_closed(TIME_LIMIT)
        out, err = process.communicate(timeout=TIME_LIMIT)
    assert (out.splitlines(), err) == (["Ctrl-C 1 aborted"], "")


STORM = """
interrupted = []
def handler(*_):
    interrupted.append(None)
    stream.abort("why")          # whatever it interrupts, also the hand-over itself
    other.close()
    stop.abort("why")
signal.signal(signal.SIGUSR1, handler)
main = threading.main_thread().ident
over = threading.Event()
def shoot():
    while not over.is_set():
        signal.pthread_kill(main, signal.SIGUSR1)
        time.sleep(0.0002)
stop, stream, other = (AbortSignal(), *(client.streaming_response([QUESTION]) for _ in range(2)))
thread = threading.Thread(target=shoot)
thread.start()
asked = stopped = 0
while asked < 200 or len(interrupted) < 200:
    asked += 2
    stop = AbortSignal()
    other = client.streaming_response([QUESTION], signal=stop)
    stream = client.streaming_response([QUESTION], signal=stop)
    for each in (stream, other):
        try:
            for event in each:
                pass
            stopped += each.outcome == "closed"
        except Aborted:
            stopped += 1
over.set()
thread.join()
say(asked == stopped)
"""


def test_a_storm_of_signals_that_stop_never_blocks_the_hand_over() -> None:
    assert run(STORM, SILENT) == ["True"]


# fork


FORK = """
finished = client.streaming_response([QUESTION]).message()
stream = client.streaming_response_stateful(QUESTION)
assert next(stream)
assert next(stream)
unread = client.streaming_response([QUESTION])
child = os.fork()
if not child:
    assert threading.active_count() == 1
    for read in (stream.__next__, stream.message, stream.next_ready):
        try:
            read()
        except RuntimeError as error:
            assert "before a fork" in str(error)
        else:
            raise AssertionError("a stream of the parent was read")
    stream.close()                     # the child's copy alone
    client.clear_history()             # and with it the claim
    assert client.streaming_response_stateful(QUESTION).message()
    assert unread.message()            # nobody has begun it
    assert threading.active_count() == 2
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
say("child done")
rest = "".join(stream.text())          # "go" was sent meanwhile
say(rest, stream.outcome, len(client.get_history()))
say(client.streaming_response([QUESTION]).message()["content_items"][0]["text"])
"""


def test_a_forked_child_has_its_own_thread_and_leaves_its_parents_streams_alone() -> None:
    two = say([chat.text("one "), chat.text("two "), chat.text("three ")])
    slow = Answer(two, gate("go"), *map(say, chat.answer("four")))
    with (
        ScriptedProvider(complete("x"), slow, complete("in the child")) as provider,
        started(FORK, provider) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "child done\n"
        provider.open("go")
        out, err = process.communicate(timeout=TIME_LIMIT)
        assert len(provider.requests) == 5
    assert (out.splitlines(), err) == (["three four finished 2", "in the child"], "")


FORK_WHILE_READING = """
threads = [
    threading.Thread(target=lambda: [0 for _ in client.streaming_response([QUESTION])])
    for _ in range(4)
]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if not child:
        assert client.streaming_response([QUESTION]).text().__next__() == "w0 "
        os._exit(0)                    # as the workers of multiprocessing do
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
for thread in threads:
    thread.join()
say("all")
"""


def test_a_program_may_fork_while_its_threads_read() -> None:
    words = Answer(
        *(say(chat.text(f"w{number} ")) for number in range(3000)), say(chat.answer("x"))
    )
    assert run(FORK_WHILE_READING, words) == ["all"]


FORK_IN_THE_MIDST = """
stream = client.streaming_response([QUESTION])
next(stream)
(sock,) = stream._core._exchange._sockets
held, done = threading.Event(), threading.Event()
def hold():
    with sock._guard:                  # as the driver's thread does when it closes a connection
        held.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if not child:
    stream.abort("why")
    stream.close()
    sock.close()                       # the child's descriptor alone
    sys.exit(0)
say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
thread.join()
stream.close()
"""


def test_a_fork_in_the_midst_of_a_close_leaves_a_child_that_can_close() -> None:
    assert run(FORK_IN_THE_MIDST, SILENT) == ["0"]


FORK_WHILE_A_TOKEN_IS_FETCHED = """
client = AutoLLMClient("gemini-x", os.environ["ACCOUNT"], os.environ["ORIGIN"], "google-genai")
waiting = client.streaming_response([QUESTION])
thread = threading.Thread(target=lambda: say(len(list(waiting))))
thread.start()
sys.stdin.readline()                   # the token's server has the request
child = os.fork()
if not child:
    say(client.streaming_response([QUESTION]).message()["content_items"][0]["text"])
    sys.exit(0)
say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
waiting.close()
thread.join()
"""


def test_a_child_that_is_forked_while_a_token_is_fetched_fetches_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = Answer(say(generate_content.answer("well")))
    with ScriptedProvider(answer) as vertex, ScriptedProvider(NOT_YET, token()) as tokens:
        monkeypatch.setenv("ACCOUNT", account(f"{tokens.origin}/token"))
        monkeypatch.setenv("ORIGIN", vertex.origin)
        with started(FORK_WHILE_A_TOKEN_IS_FETCHED, vertex) as process:
            tokens.wait("stalled", timeout=TIME_LIMIT)
            out, err = process.communicate("go\n", timeout=TIME_LIMIT)
        assert len(tokens.requests) == 2
    assert (out.splitlines(), err) == (["well", "0", "0"], "")


IN_A_POOL = """
import multiprocessing
def ask(_):
    return client.streaming_response([QUESTION]).message()["content_items"][0]["text"]
if __name__ == "__main__":
    ask(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        say(pool.map(ask, range(6)) == ["well"] * 6)
"""


def test_the_workers_of_a_forked_pool_may_ask() -> None:
    assert run(IN_A_POOL, complete("well")) == ["True"]


# the end of the interpreter


ENDS = {
    "an open stream": "stream = client.streaming_response([QUESTION]); next(stream)",
    "an open stream in a cycle": (
        "stream = client.streaming_response([QUESTION]); next(stream); cycle = [stream]\n"
        "cycle.append(cycle)"
    ),
    "an open text": "text = client.streaming_response([QUESTION]).text(); next(text)",
    "a stateful stream": "stream = client.streaming_response_stateful(QUESTION); next(stream)",
    "a stream that was aborted": (
        "stream = client.streaming_response([QUESTION]); next(stream); stream.abort('why')"
    ),
    "a stream never read": "stream = client.streaming_response([QUESTION])",
    "a stream in an error": (
        "try:\n"
        "    for event in client.streaming_response([QUESTION]): raise LookupError\n"
        "except LookupError as found: error = found"
    ),
    "a daemon thread that reads": (
        "read = lambda: list(client.streaming_response([QUESTION]))\n"
        "threading.Thread(target=read, daemon=True).start()\n"
        "while not client._streams: time.sleep(0.01)\n"
        "time.sleep(0.1)"
    ),
    "ten daemon threads that read": (
        "read = lambda: list(client.streaming_response([QUESTION]))\n"
        "for _ in range(10): threading.Thread(target=read, daemon=True).start()\n"
        "while len(client._streams) < 10: time.sleep(0.01)\n"
        "time.sleep(0.1)"
    ),
    "sys.exit": "stream = client.streaming_response([QUESTION]); next(stream); sys.exit(0)",
}


@pytest.mark.parametrize("left", ENDS)
def test_at_exit_nothing_waits_and_nothing_warns(left: str) -> None:
    with ScriptedProvider(SILENT) as provider, started(f"{ENDS[left]}\n", provider) as process:
        out, err = process.communicate(timeout=TIME_LIMIT)
        for record in provider.connections:
            record.wait_closed()
    assert (process.returncode, out, err) == (0, "", "")


def test_a_forked_child_that_ends_is_silent_too() -> None:
    program = (
        "stream = client.streaming_response([QUESTION]); next(stream)\n"
        "child = os.fork()\n"
        "if not child: mine = client.streaming_response([QUESTION]); next(mine); sys.exit(0)\n"
        "say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert run(program, SILENT) == ["0"]


AT_EXIT = """
import atexit
def ask(when):
    try:
        say(when, client.streaming_response([QUESTION]).message()["content_items"][0]["text"])
    except RuntimeError as error:
        say(when, error)
atexit.register(ask, "registered after the import")
ask("before")
"""


def test_what_runs_at_exit_may_still_ask() -> None:
    assert run(AT_EXIT, complete("well")) == ["before well", "registered after the import well"]


TOO_LATE = """
import sys
from mmsp.sync import driver
driver.end()
for ask in (client.list_models, client.streaming_response([QUESTION]).message):
    try:
        ask()
    except RuntimeError as error:
        say(error)
"""


def test_when_the_interpreter_ends_nothing_is_begun() -> None:
    told = "the interpreter is shutting down: mmsp.sync reads nothing any more"
    assert run(TOO_LATE, complete()) == [told, told]


def test_no_thread_of_this_process_is_needed_for_these() -> None:
    assert not [each for each in threading.enumerate() if each.name == "mmsp-sync"]
