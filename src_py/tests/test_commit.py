"""The commit: a turn's record, its trace and its `stop` come together or not at all."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mmsp import AbortError, MMSPError, Stream
from mmsp.integration.tracer import Tracer
from mmsp.testing import Answer, ScriptedProvider, chat, cut, say, stall
from mmsp.trace import Trace, WrittenTrace
from mmsp.types import UniMessage
from tests.asking import QUESTION, client_of, complete, events_of, shown

WHOLE = [chat.text("a"), chat.finish(), chat.usage(), chat.done()]
LARGE: UniMessage = {
    "role": "user",
    "content_items": [{"type": "text.done", "text": "x" * 1_100_000}],
}
LIMIT = 0.2  # s


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMSP_CACHE_DIR", str(tmp_path))
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.rglob("*") if each.is_file())


BOTH = ["t.json", "t.txt"]


@pytest.mark.parametrize("question", [QUESTION, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("stateful", [False, True])
async def test_the_trace_is_there_when_the_last_done_is_handed_out(
    cache: Path, stateful: bool, question: UniMessage
) -> None:
    with ScriptedProvider(complete()) as provider:
        client = client_of(provider)
        for turn in range(2):
            config: Any = {"trace_id": f"t{turn}", "temperature": 0}
            if stateful:
                stream = client.streaming_response_stateful(question, config)
            else:
                stream = client.streaming_response([question], config)
            async for event in stream:
                named = f"t{turn}.json" in files(cache)
                assert named is (shown([event])[0].startswith(("text.done", "stop")))
        loaded = Tracer().load("t1")
        message = stream.partial_message()
        history = client.get_history() if stateful else [*loaded["history"][:1], message]
        assert loaded["history"] == history
        assert loaded["config"] == {"trace_id": "t1", "temperature": 0, "model": "some-model"}


async def end_of(stream: Stream) -> str:
    try:
        return shown(await events_of(stream))[-1]
    except (AbortError, MMSPError) as error:
        return type(error).__name__


@pytest.mark.parametrize(
    "answer",
    [
        Answer(say(chat.text("a")), cut()),
        Answer(say([chat.text("a"), chat.error("no")])),
        Answer(say([chat.thinking("a"), chat.finish(), chat.usage(), chat.done()])),
        Answer.error(400),
    ],
    ids=["cut", "error", "thinking alone", "refused"],
)
async def test_a_call_that_fails_leaves_nothing(cache: Path, answer: Answer) -> None:
    with ScriptedProvider(answer) as provider:
        client = client_of(provider)
        await end_of(client.streaming_response_stateful(QUESTION, {"trace_id": "t"}))
        assert client.get_history() == []
        assert files(cache) == []


@pytest.mark.parametrize("way", ["abort", "close", "leave", "cancel"])
@pytest.mark.parametrize("after", [0, 1, 2])
async def test_a_call_that_is_stopped_leaves_nothing(cache: Path, way: str, after: int) -> None:
    """Also after the finish reason and the usage, when only the end of the body is waited for."""
    body = [[], [chat.text("a")], WHOLE][after]
    with ScriptedProvider(Answer(say(body), stall())) as provider:
        client = client_of(provider)
        stream = client.streaming_response_stateful(QUESTION, {"trace_id": "t"})
        if after:
            await anext(stream)
        reading = asyncio.ensure_future(anext(stream))
        await provider.until("stalled")
        await asyncio.sleep(0.02)
        if way == "abort":
            stream.abort()
        elif way == "close":
            await stream.aclose()
        else:
            reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        if way == "leave":
            del stream, reading
        client.clear_history()
        assert files(cache) == []


# every order, forced


def at(moment: str, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `act` run at that moment of the commit, once."""
    homes: dict[str, tuple[type, str]] = {
        "before the trace is written": (Trace, "write"),
        "between the two files": (WrittenTrace, "add"),
        "as the names are given": (WrittenTrace, "publish"),
        "between the two names": (Path, "replace"),
        "as the turn is recorded": (Stream, "_record"),
    }
    home, name = homes[moment]
    original = getattr(home, name)

    def with_act(self: Any, *given: Any) -> Any:
        act()
        return original(self, *given)

    monkeypatch.setattr(home, name, with_act)


@pytest.mark.parametrize("where", ["here", "in a thread"])
@pytest.mark.parametrize(
    ("moment", "traced", "records"),
    [
        ("before the trace is written", True, False),
        ("between the two files", True, False),
        ("as the names are given", True, True),
        ("between the two names", True, True),
        ("as the turn is recorded", True, True),
        ("as the turn is recorded", False, True),
    ],
)
async def test_an_abort_at_the_commit_takes_all_or_nothing(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    records: bool,
    where: str,
    traced: bool,
) -> None:
    with ScriptedProvider(Answer(say(WHOLE))) as provider:
        client = client_of(provider)
        config: Any = {"trace_id": "t"} if traced else {}
        stream = client.streaming_response_stateful(QUESTION, config)

        def act() -> None:
            thread = threading.Thread(target=stream.abort, args=("now",))
            (thread.run if where == "here" else thread.start)()
            if where != "here":
                thread.join()

        at(moment, act, monkeypatch)
        assert await end_of(stream) == ("stop stop" if records else "AbortError")
        monkeypatch.undo()
        assert stream.aborted is not records
        assert len(client.get_history()) == (2 if records else 0)
    assert files(cache) == (BOTH if records and traced else [])


@pytest.mark.no_debug
@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("where", ["in the loop", "in a thread"])
async def test_an_abort_around_the_commit_a_thousand_times(
    cache: Path, where: str, stateful: bool
) -> None:
    chance, outcomes = random.Random(5), {"stop stop": 0, "AbortError": 0}
    with ScriptedProvider(Answer(say(WHOLE))) as provider:
        client = client_of(provider)
        for _ in range(1000):
            make: Any = (
                client.streaming_response_stateful if stateful else client.streaming_response
            )
            stream = make(QUESTION if stateful else [QUESTION], {"trace_id": "t"})
            after = chance.uniform(0.0, 2.0e-3)
            if where == "in the loop":
                timer = asyncio.get_running_loop().call_later(after, stream.abort)
                ended = await end_of(stream)
                timer.cancel()
            else:
                thread = threading.Thread(target=_abort_after, args=(stream, after))
                thread.start()
                ended = await end_of(stream)
                thread.join()
            outcomes[ended] += 1
            whole = ended == "stop stop"
            assert files(cache) == (BOTH if whole else [])
            assert len(client.get_history()) == (2 if whole and stateful else 0)
            client.clear_history()
            for each in cache.iterdir():
                each.unlink()
    assert min(outcomes.values()) > 20, outcomes


def _abort_after(stream: Stream, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0)
    stream.abort()


# a large trace, which is written off the loop


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Every second file takes until the event is set."""
    go_on, add = threading.Event(), WrittenTrace.add

    def slowly(self: WrittenTrace, place: Path, suffix: str, text: str) -> None:
        if suffix == ".json":
            go_on.wait(10)
        add(self, place, suffix, text)

    monkeypatch.setattr(WrittenTrace, "add", slowly)
    yield go_on
    go_on.set()


async def test_a_large_answer_to_a_small_question_is_written_off_the_loop_too(
    cache: Path, slow_disk: threading.Event
) -> None:
    large = [chat.text("x" * 1_100_000), chat.finish(), chat.usage(), chat.done()]
    with ScriptedProvider(Answer(say(large))) as provider:
        stream = client_of(provider).streaming_response([QUESTION], {"trace_id": "t"})
        reading = asyncio.ensure_future(end_of(stream))
        while not files(cache):
            await asyncio.sleep(0.001)
        stream.abort()
        assert await reading == "AbortError"
        slow_disk.set()
        for thread in threading.enumerate():
            if thread.name == "mmsp-trace":
                await asyncio.to_thread(thread.join, 5)
    assert files(cache) == []


async def test_whatever_goes_wrong_with_a_trace_the_answer_is_not_lost(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> str:
        raise RecursionError

    monkeypatch.setattr("mmsp.trace._transcript", broken)
    with ScriptedProvider(complete()) as provider:
        client = client_of(provider)
        assert (
            await end_of(client.streaming_response_stateful(QUESTION, {"trace_id": "t"}))
            == "stop stop"
        )
        assert len(client.get_history()) == 2
    assert caplog.messages == ["trace 't' was not saved: RecursionError"]
    assert files(cache) == []


@pytest.mark.parametrize("way", ["abort", "close", "cancel"])
async def test_a_stop_does_not_wait_for_the_disk(
    cache: Path, slow_disk: threading.Event, way: str
) -> None:
    with ScriptedProvider(Answer(say(WHOLE))) as provider:
        client = client_of(provider)
        stream = client.streaming_response_stateful(LARGE, {"trace_id": "t"})
        assert shown([await anext(stream)]) == ["text.delta a"]
        reading = asyncio.ensure_future(anext(stream))
        while not files(cache):
            await asyncio.sleep(0.001)
        started = time.monotonic()
        if way == "abort":
            stream.abort("why")
        elif way == "close":
            await stream.aclose()
        else:
            reading.cancel()
        ended = (await asyncio.gather(reading, return_exceptions=True))[0]
        assert time.monotonic() - started < LIMIT
        assert isinstance(ended, asyncio.CancelledError | StopAsyncIteration)
        client.clear_history()
        slow_disk.set()
        for _ in range(500):
            if not files(cache):
                break
            await asyncio.sleep(0.01)
        assert files(cache) == []
        for thread in threading.enumerate():
            if thread.name == "mmsp-trace":
                thread.join(5)


async def test_the_loop_goes_on_while_a_large_trace_is_written(
    cache: Path, slow_disk: threading.Event
) -> None:
    with ScriptedProvider(Answer(say(WHOLE))) as provider:
        stream = client_of(provider).streaming_response([LARGE], {"trace_id": "t"})
        reading = asyncio.ensure_future(end_of(stream))
        while not files(cache):
            await asyncio.sleep(0.001)
        slow_disk.set()
        assert await reading == "stop stop"
        assert files(cache) == BOTH


# a full disk

FULL_DISK = """
    import asyncio, resource
    from mmsp import AutoLLMClient
    from mmsp.testing import Answer, ScriptedProvider, chat, say
    from tests.asking import QUESTION, client_of, complete

    async def main():
        with ScriptedProvider(complete()) as provider:
            client = client_of(provider)
            question = {"role": "user", "content_items": [{"type": "text.done", "text": "x" * %d}]}
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
            stream = client.streaming_response_stateful(question, {"trace_id": "t"})
            message = await stream.message()
            print(message["content_items"][0]["text"], len(client.get_history()))

    asyncio.run(main())
"""


@pytest.mark.parametrize("size", [5_000, 1_100_000])
def test_a_full_disk_loses_no_answer(tmp_path: Path, size: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(FULL_DISK % size)],
        env={
            **os.environ,
            "MMSP_CACHE_DIR": str(tmp_path),
            "PYTHONPATH": str(Path(__file__).parent.parent),
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.stdout == "All is well 2\n"
    assert ended.stderr.strip() == "trace 't' was not saved: File too large"
    assert files(tmp_path) == []


async def test_two_calls_with_one_id_tear_no_file(cache: Path) -> None:
    with ScriptedProvider(complete()) as provider:
        client = client_of(provider)

        async def ask() -> None:
            for _ in range(20):
                assert (
                    await end_of(client.streaming_response([QUESTION], {"trace_id": "t"}))
                    == "stop stop"
                )

        await asyncio.gather(*(ask() for _ in range(8)))
    assert files(cache) == BOTH
    assert len(Tracer().load("t")["history"]) == 2


async def test_a_client_type_may_leave_its_traces_to_somebody_else(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedProvider(complete()) as provider:
        client = client_of(provider)
        monkeypatch.setattr(type(client._client), "traces", False)
        assert await end_of(client.streaming_response([QUESTION], {"trace_id": "t"})) == "stop stop"
    assert files(cache) == []
