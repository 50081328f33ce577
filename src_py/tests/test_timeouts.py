"""Time-outs: when each runs, when it does not, and what it leaves: nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mmsp import AbortSignal, AutoLLMClient, Limits, Timeouts, UpstreamTimeoutError
from mmsp.call import Call
from mmsp.testing import Answer, ScriptedProvider, Step, chat, drip, pause, say, stall
from mmsp.transport import Exchange
from mmsp.transport.connection import Connection
from tests.asking import QUESTION, client_of, complete, events_of, shown
from tests.calling import ask

pytestmark = pytest.mark.no_debug

PING = b": ping\n\n"
NO_CHOICES = b'data: {"id": "x", "choices": []}\n\n'
SLACK = 0.3  # s that a busy machine may add


@asynccontextmanager
async def timing_out(phase: str, seconds: float, after: float = 0.0) -> AsyncIterator[None]:
    """The block ends with that time-out, `after` seconds and the time-out's own from here."""
    before = time.monotonic()
    with pytest.raises(UpstreamTimeoutError) as caught:
        yield
    taken = time.monotonic() - before
    assert after + seconds - 0.01 <= taken < after + seconds + SLACK
    assert (caught.value.phase, caught.value.seconds) == (phase, seconds)
    assert isinstance(caught.value, TimeoutError)
    assert f"Timeouts({phase}=…)" in str(caught.value)
    assert caught.value.client == "OpenAIChatClient"


def texts(*pieces: str) -> Step:
    return say([chat.text(piece) for piece in pieces])


# first_event


@pytest.mark.parametrize(
    "answer",
    [
        Answer(head_gate="never"),
        Answer(stall()),
        Answer(say(chat.role()), stall()),
        Answer(drip([PING] * 100, len(PING), 0.02)),
        Answer(head_gate="never", interim=(100,)),
    ],
    ids=["no head", "a head", "a role", "pings", "1xx"],
)
async def test_the_first_content_must_come_in_time(answer: Answer, tls: bool) -> None:
    with ScriptedProvider(answer, tls=tls) as provider:
        client = client_of(provider, timeouts=Timeouts(first_event=0.15))
        async with timing_out("first_event", 0.15):
            await events_of(client.streaming_response([QUESTION]))
        await provider.connections[0].until_closed(0.2)
        assert len(provider.requests) == 1  # not tried again


async def test_a_body_that_is_not_taken_counts_as_waiting_for_content(tls: bool) -> None:
    large: Any = {"role": "user", "content_items": [{"type": "text.done", "text": "x" * 8_000_000}]}
    with ScriptedProvider(read_body=False, tls=tls) as provider:
        stream = client_of(provider, timeouts=Timeouts(first_event=0.2)).streaming_response([large])
        with pytest.raises(UpstreamTimeoutError) as caught:
            await anext(stream)
        assert caught.value.phase == "first_event"
        await provider.connections[0].until_closed(0.3)
        assert provider.connections[0].bytes_received < 1_000_000


async def test_each_attempt_has_its_own_time_for_the_first_content() -> None:
    slow = Answer.error(503, "no", headers={"retry-after-ms": "10"})
    slow.head_delay = 0.15
    fine = Answer(say(chat.answer("well")), head_delay=0.15)
    with ScriptedProvider(slow, slow, fine) as provider:
        client = client_of(provider, timeouts=Timeouts(first_event=0.35))
        assert (await ask(client))[-1] == "stop stop"


async def test_the_time_for_the_first_content_ends_with_it() -> None:
    with ScriptedProvider(Answer(texts("a"), pause(0.3), say(chat.answer("b")))) as provider:
        client = client_of(provider, timeouts=Timeouts(first_event=0.2))
        assert (await ask(client))[-1] == "stop stop"


async def test_an_answer_that_began_before_anybody_looked_has_its_time_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Exchange._opened

    def unseen(self: Exchange, task: asyncio.Task[Connection]) -> None:
        waiter, self.waiter = self.waiter, None  # as on a loop that is held up: the head wakes it
        opened(self, task)
        self.waiter = waiter

    monkeypatch.setattr(Exchange, "_opened", unseen)
    with ScriptedProvider(Answer(pause(0.1), say(chat.answer("a")))) as provider:
        client = client_of(provider, timeouts=Timeouts(first_event=2.0))
        assert (await ask(client))[-1] == "stop stop"


# idle


@pytest.mark.parametrize(
    "silence",
    [
        [],
        [drip([PING] * 100, len(PING), 0.02)],
        [drip(chat.text("b")[:40], 1, 0.05)],
        [drip([chat.role()] * 100, len(chat.role()), 0.02)],
        [drip([chat.usage()] * 100, len(chat.usage()), 0.02)],
        [drip([NO_CHOICES] * 100, len(NO_CHOICES), 0.02)],
    ],
    ids=["silence", "pings", "half an event", "roles", "usage", "chunks without choices"],
)
async def test_two_contents_may_not_be_too_far_apart(silence: list[Step], tls: bool) -> None:
    with ScriptedProvider(Answer(texts("a"), *silence, stall()), tls=tls) as provider:
        stream = client_of(provider, timeouts=Timeouts(idle=0.15)).streaming_response([QUESTION])
        assert shown([await anext(stream)]) == ["text.delta a"]
        async with timing_out("idle", 0.15):
            await anext(stream)
        await provider.connections[0].until_closed(0.2)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_every_content_begins_the_idle_time_anew() -> None:
    events = [step for number in range(6) for step in (texts(str(number)), pause(0.08))]
    with ScriptedProvider(Answer(*events, say(chat.ending()))) as provider:
        client = client_of(provider, timeouts=Timeouts(idle=0.2))
        assert (await ask(client))[-1] == "stop stop"


async def test_pieces_that_are_held_back_are_content_too() -> None:
    """A second tool call goes out when the first is over, but the answer goes on meanwhile."""
    held = [step for _ in range(6) for step in (pause(0.08), say(chat.arguments(1, " ")))]
    begun = say([chat.tool_call(0, "a", "f", "{}"), chat.tool_call(1, "b", "g", "{}")])
    answer = Answer(begun, *held, say([chat.finish("tool_calls"), *chat.ending()[1:]]))
    with ScriptedProvider(answer) as provider:
        client = client_of(provider, timeouts=Timeouts(idle=0.3))
        assert (await ask(client))[-1] == "stop tool_call"


async def test_after_the_finish_reason_no_time_for_content_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmsp.silence._QUIET", 0.5)
    answer = Answer(say([chat.text("a"), chat.finish()]), stall())
    with ScriptedProvider(answer) as provider:
        client = client_of(provider, timeouts=Timeouts(first_event=0.1, idle=0.1))
        assert (await ask(client))[-1] == "stop stop"


async def test_the_idle_time_does_not_run_while_the_caller_is_busy(tls: bool) -> None:
    answer = Answer(texts("a"), pause(0.3), say(chat.answer("b")))
    with ScriptedProvider(answer, tls=tls) as provider:
        stream = client_of(provider, timeouts=Timeouts(idle=0.2)).streaming_response([QUESTION])
        await anext(stream)
        await asyncio.sleep(0.25)
        events = [event async for event in stream]  # which waits for another 0.05 s
        assert shown(events)[-1] == "stop stop"


async def test_the_idle_time_begins_when_the_caller_comes_back() -> None:
    with ScriptedProvider(Answer(texts("a"), stall())) as provider:
        stream = client_of(provider, timeouts=Timeouts(idle=0.15)).streaming_response([QUESTION])
        await anext(stream)
        await asyncio.sleep(0.3)
        async with timing_out("idle", 0.15):
            await anext(stream)


async def test_a_blocked_loop_is_no_silence_of_the_provider() -> None:
    with ScriptedProvider(Answer(texts("a"), pause(0.05), say(chat.answer("b")))) as provider:
        stream = client_of(provider, timeouts=Timeouts(idle=0.1)).streaming_response([QUESTION])
        await anext(stream)
        reading = asyncio.create_task(events_of(stream))
        await asyncio.sleep(0)
        time.sleep(0.3)  # what came meanwhile is looked at before the clock
        assert shown(await reading)[-1] == "stop stop"


# total


@pytest.mark.parametrize(
    "answer",
    [
        Answer(head_gate="never"),
        Answer(drip(chat.deltas(200), 200, 0.01)),
        Answer(stall(), status=503),
        Answer.error(429, "no", headers={"retry-after": "30"}),
    ],
    ids=["no head", "a steady stream", "an error without end", "a wait before a retry"],
)
async def test_the_whole_call_must_be_over_in_time(answer: Answer, tls: bool) -> None:
    with ScriptedProvider(answer, tls=tls) as provider:
        client = client_of(provider, timeouts=Timeouts(total=0.2))
        async with timing_out("total", 0.2):
            await events_of(client.streaming_response([QUESTION]))
        if provider.connections[0].state != "idle":
            await provider.connections[0].until_closed(0.2)
        assert len(provider.requests) == 1


async def test_the_whole_time_includes_all_attempts() -> None:
    with ScriptedProvider(never_accept=True) as provider:
        client = client_of(provider, timeouts=Timeouts(connect=0.15, total=0.4), max_retries=9)
        async with timing_out("total", 0.4):
            await events_of(client.streaming_response([QUESTION]))


@pytest.mark.every_loop
async def test_the_whole_time_runs_while_the_caller_is_busy(tls: bool) -> None:
    with ScriptedProvider(Answer(texts("a", "b"), stall()), tls=tls) as provider:
        stream = client_of(provider, timeouts=Timeouts(total=0.2)).streaming_response([QUESTION])
        await anext(stream)
        before = time.monotonic()
        await provider.connections[0].until_closed(0.2 + SLACK)  # nobody reads
        assert time.monotonic() - before < 0.2 + SLACK
        assert shown([await anext(stream)]) == ["text.delta b"]  # it had arrived
        with pytest.raises(UpstreamTimeoutError) as caught:
            await anext(stream)
        assert caught.value.phase == "total"
        assert not stream.aborted


async def test_a_call_that_is_over_in_time_is_not_touched() -> None:
    with ScriptedProvider(complete()) as provider:
        client = client_of(provider, timeouts=Timeouts(total=0.3))
        stream = client.streaming_response([QUESTION])
        first = await anext(stream)
        events = [first, *[event async for event in stream]]
        assert shown(events)[-1] == "stop stop"
        await asyncio.sleep(0.35)
        assert provider.connections[0].state == "idle"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


# what a time-out leaves


@pytest.mark.every_loop
@pytest.mark.parametrize("phase", ["first_event", "idle", "total"])
async def test_a_time_out_frees_the_claim_and_records_nothing(phase: str) -> None:
    first = Answer(stall()) if phase == "first_event" else Answer(texts("a"), stall())
    with ScriptedProvider(first, complete()) as provider:
        client = client_of(provider, timeouts=Timeouts(**{phase: 0.1}))
        with pytest.raises(UpstreamTimeoutError):
            await events_of(client.streaming_response_stateful(QUESTION))
        assert client.get_history() == []
        await events_of(client.streaming_response_stateful(QUESTION))
        assert len(client.get_history()) == 2
        assert len(provider.requests[1].json()["messages"]) == 1


async def test_an_abort_before_a_time_out_wins(tls: bool) -> None:
    with ScriptedProvider(Answer(stall()), tls=tls) as provider:
        client = client_of(provider, timeouts=Timeouts(first_event=0.3, total=0.3))
        stream = client.streaming_response([QUESTION])
        reading = asyncio.create_task(stream.__anext__())
        await provider.until("stalled")
        stream.abort()
        await asyncio.sleep(0.35)
        with pytest.raises(asyncio.CancelledError):
            await reading


@pytest.mark.parametrize(
    "wrong",
    [{"connect": 0}, {"idle": -1}, {"total": "1"}, {"first_event": True}, {"idle": float("nan")}],
)
def test_a_time_out_is_a_number_above_zero(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be a number above 0"):
        Timeouts(**wrong)


@pytest.mark.parametrize("wrong", [0, -1, "1", True, None])
def test_a_limit_is_a_number_above_zero(wrong: Any) -> None:
    with pytest.raises(ValueError, match="head_bytes must be a"):
        Limits(head_bytes=wrong)


async def test_no_time_out_is_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    none = Timeouts(connect=None, first_event=None, idle=None, total=None)
    armed = timers(monkeypatch)
    with ScriptedProvider(Answer(texts("a"), pause(0.05), stall())) as provider:
        stream = client_of(provider, timeouts=none).streaming_response([QUESTION])
        await anext(stream)
        reading = asyncio.create_task(stream.__anext__())
        await asyncio.sleep(0.1)
        stream.abort()
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert armed == []


def timers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When each timer that a call arms is due."""
    armed: list[float] = []
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def note(when: float, callback: Any, *args: Any, **context: Any) -> asyncio.TimerHandle:
        if callback.__module__ == Call.__module__:
            armed.append(when)
        return call_at(when, callback, *args, **context)

    monkeypatch.setattr(loop, "call_at", note)
    return armed


async def test_a_stream_has_one_timer_however_many_its_deltas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    armed = timers(monkeypatch)
    deltas = [say(each) for each in chat.deltas(10_000)]
    with ScriptedProvider(Answer(*deltas, say(chat.ending()))) as provider:
        await ask(client_of(provider))
    # to connect, and at most once more for the end of the body
    assert 1 <= len(armed) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("calls", [10_000])
async def test_finished_calls_leave_nothing_behind(calls: int) -> None:
    loop: Any = asyncio.get_running_loop()
    signal = AbortSignal()
    stops = 0
    with ScriptedProvider(Answer(say(chat.answer("well")), framing="length")) as provider:
        client = client_of(provider, timeouts=Timeouts(total=600))

        async def some(client: AutoLLMClient, count: int) -> None:
            nonlocal stops
            for _ in range(count):
                async for event in client.streaming_response([QUESTION], signal=signal):
                    stops += event["event_type"] == "stop"
                provider.forget()

        await asyncio.gather(*(some(client, calls // 10) for _ in range(10)))
        assert stops == calls
        live = [handle for handle in loop._scheduled if not handle.cancelled()]
        assert len(live) <= 10 + 1  # an idle connection has one, and the test's own
        assert len(loop._scheduled) < 300  # asyncio sweeps cancelled ones out in such portions
        assert len(signal._listeners) == 0
        assert len(client._client._calls) == 0
        signal.abort()
