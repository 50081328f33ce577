"""A stop arrives in whatever the program is doing: in the middle of a paced answer, before the first token,
through every entry, in every kind of item, however often and from whichever side it is called.

`test_interruption.py` has the phases of a request; these are the programs that people write around one.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mmsp import AbortError, AbortSignal, AutoLLMClient
from mmsp.testing import Answer, ScriptedProvider, Step, pause, say, stall
from tests.asking import QUESTION, client_of, shown
from tests.ends_table import ENDS
from tests.interruption_table import EXHAUSTIVE, WAYS, WIRES, Way
from tests.stopping import LIMIT_NS, STOPS, abort_as, stop

pytestmark = pytest.mark.no_debug


@pytest.fixture(params=EXHAUSTIVE)
def client_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tls(client_type: str) -> bool:
    """Every other client's provider speaks TLS."""
    return EXHAUSTIVE.index(client_type) % 2 == 1


@pytest.fixture
def without_the_collector() -> Iterator[None]:
    """So that nothing closes because it happened to be collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def paced(wire: Any) -> Answer:
    """A text every 10 ms, for half a minute."""
    steps: list[Step] = [
        step for number in range(3000) for step in (say(wire.text(f"{number} ")), pause(0.01))
    ]
    return Answer(*steps)


def whole(wire: Any) -> Answer:
    return Answer(*map(say, wire.answer("All is well")))


@pytest.mark.parametrize("way", STOPS)
async def test_a_paced_answer_is_stopped_though_the_stream_is_kept_and_nothing_is_collected(
    client_type: str, way: Way, tls: bool, without_the_collector: None
) -> None:
    with ScriptedProvider(paced(WIRES[client_type]), tls=tls) as provider:
        kept = client_of(provider, client_type).streaming_response([QUESTION])
        for number in range(5):
            assert shown([await anext(kept)]) == [f"text.delta {number} "]
        stopped = await stop(kept, way)
        assert await provider.connections[0].until_closed(1) - stopped.at_ns < LIMIT_NS
        assert provider.connections[0].closed_by is not None


@pytest.mark.parametrize("way", STOPS)
async def test_a_stop_before_the_first_token_lets_the_next_request_in(
    client_type: str, way: Way, tls: bool
) -> None:
    """One at a time, by a semaphore of the program's and by the claim of a stateful call."""
    wire = WIRES[client_type]
    with ScriptedProvider(Answer(stall()), whole(wire), tls=tls) as provider:
        client = client_of(provider, client_type)
        one_at_a_time = asyncio.Semaphore(1)

        async def guarded() -> dict[str, Any]:
            async with one_at_a_time:
                return dict(await client.streaming_response_stateful(QUESTION).message())

        async with one_at_a_time:
            stream = client.streaming_response_stateful(QUESTION)
            waiting = asyncio.create_task(guarded())
            stopped = await stop(stream, way, until=provider.until("stalled"))
        assert stopped.events == []
        assert await provider.connections[0].until_closed(1) - stopped.at_ns < LIMIT_NS
        assert (await waiting)["finish_reason"] == "stop"
        assert len(provider.requests[1].body) == len(provider.requests[0].body)


# every entry


async def _events(client: AutoLLMClient, signal: AbortSignal) -> None:
    async for _ in client.streaming_response([QUESTION], signal=signal):
        pass


async def _stateful(client: AutoLLMClient, signal: AbortSignal) -> None:
    async for _ in client.streaming_response_stateful(QUESTION, signal=signal):
        pass


async def _with(client: AutoLLMClient, signal: AbortSignal) -> None:
    async with client.streaming_response([QUESTION], signal=signal) as stream:
        async for _ in stream:
            pass


async def _text(client: AutoLLMClient, signal: AbortSignal) -> None:
    async for _ in client.streaming_response([QUESTION], signal=signal).text():
        pass


async def _message(client: AutoLLMClient, signal: AbortSignal) -> None:
    await client.streaming_response([QUESTION], signal=signal).message()


async def _models(client: AutoLLMClient, signal: AbortSignal) -> None:
    await client.list_models(signal)


Entry = Callable[[AutoLLMClient, AbortSignal], Awaitable[None]]
ENTRIES: tuple[Entry, ...] = (_events, _stateful, _with, _text, _message, _models)


@pytest.mark.parametrize(
    "way", ["abort", "abort from a thread", "abort in a signal handler", "cancel"]
)
@pytest.mark.parametrize("entry", ENTRIES)
async def test_every_entry_stops_in_every_way(client_type: str, entry: Entry, way: Way) -> None:
    signal = AbortSignal()
    with ScriptedProvider(Answer(head_gate="never")) as provider:
        client = client_of(provider, client_type)
        task = asyncio.ensure_future(entry(client, signal))
        await provider.until("stalled")
        await asyncio.sleep(0.01)
        if way == "cancel":
            stopped_ns = time.monotonic_ns()
            task.cancel()
        else:
            stopped_ns = abort_as(way, lambda: signal.abort("why"))
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert isinstance(caught.value, AbortError) is (way != "cancel")
        assert await provider.connections[0].until_closed(1) - stopped_ns < LIMIT_NS
        assert len(provider.requests) == 1
        assert not signal._listeners
        client.clear_history()


# a stream that nobody reads


@pytest.mark.parametrize("way", ["abort", "abort from a thread", "close", "leave"])
async def test_a_stream_that_is_never_read_leaves_nothing(
    client_type: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMSP_CACHE_DIR", str(tmp_path))
    with ScriptedProvider(whole(WIRES[client_type])) as provider:
        client = client_of(provider, client_type)
        streams = [client.streaming_response_stateful(QUESTION, {"trace_id": "t"})]
        client.clear_history()  # it holds no claim
        if way.startswith("abort"):
            abort_as(way, streams[0].abort)
            with pytest.raises(AbortError):
                await anext(streams[0])
        elif way == "close":
            await streams[0].aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(streams[0])
        streams.clear()
        gc.collect()
        await asyncio.sleep(0.02)
        assert provider.connections == []
        assert list(tmp_path.rglob("*")) == []
        assert client.get_history() == []


# a caller that does not read, a provider that does not listen


@pytest.mark.parametrize("way", [*(way for way in STOPS if way != "cancel"), "leave"])
async def test_a_caller_that_does_not_read_keeps_memory_bounded_and_stops_at_once(
    client_type: str, way: Way, tls: bool
) -> None:
    piece = WIRES[client_type].text("x" * 10_000)
    with ScriptedProvider(Answer(say([piece] * 3000), stall()), tls=tls) as provider:  # 30 MB
        before = len(asyncio.all_tasks())
        streams = [client_of(provider, client_type).streaming_response([QUESTION])]
        await anext(streams[0])
        record = provider.connections[0]
        sent = -1
        while sent != record.bytes_sent:  # until it is held back
            sent = record.bytes_sent
            await asyncio.sleep(0.1)
        assert sent < 20_000_000  # what the two kernels hold
        exchange = streams[0]._exchange
        assert exchange is not None
        assert exchange._size < 2**20
        if way == "leave":
            stopped_ns = time.monotonic_ns()
            streams.clear()
        else:
            stopped_ns = (await stop(streams[0], way, waiting=False)).at_ns
        assert await record.until_closed(1) - stopped_ns < LIMIT_NS
        assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize("way", STOPS)
async def test_a_provider_that_ignores_the_end_of_the_connection_delays_no_stop(
    client_type: str, way: Way, tls: bool
) -> None:
    with ScriptedProvider(paced(WIRES[client_type]), ignore_eof=True, tls=tls) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION])
        await anext(stream)
        started = time.monotonic_ns()
        await stop(stream, way)
        assert time.monotonic_ns() - started < 2 * LIMIT_NS


# two tasks, and stops that come twice


@pytest.mark.parametrize("way", [way for way in STOPS if way != "cancel"])
async def test_a_stop_from_another_task_twice_ends_the_read_once(
    client_type: str, way: Way, tls: bool
) -> None:
    with ScriptedProvider(Answer(stall()), tls=tls) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION])
        reading = asyncio.create_task(stream.__anext__())
        await provider.until("stalled")
        if way == "close":
            await asyncio.gather(stream.aclose(), stream.aclose())
            found = await asyncio.gather(reading, return_exceptions=True)
            assert isinstance(found[0], StopAsyncIteration)
        else:
            for reason in ("first", "second"):
                abort_as(way, partial(stream.abort, reason))
            with pytest.raises(AbortError) as caught:
                await reading
            assert caught.value.reason == "first"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        await provider.connections[0].until_closed(0.2)


# in each kind of item


def items(client_type: str) -> dict[str, bytes]:
    ends = ENDS[WIRES[client_type].__name__]
    found = {"text": ends.texts("a"), "thinking": ends.wire.thinking("hm"), "nothing": b""}
    if ends.arguments_in_pieces:
        found["call"] = found["second call"] = ends.call('{"q":')
        if ends.interleaves:
            found["second call"] += ends.wire.tool_call(1, "c2", "add", "{")
    else:  # they come whole, and the second would end the first
        found["call"] = found["second call"] = ends.call('{"q":1}')
    return found


@pytest.mark.parametrize("way", STOPS)
@pytest.mark.parametrize("kind", ["text", "thinking", "call", "second call", "nothing"])
async def test_a_stop_inside_an_item_has_no_end_of_it(
    client_type: str, kind: str, way: Way, tls: bool
) -> None:
    ends = ENDS[WIRES[client_type].__name__]
    body = items(client_type)[kind]
    with ScriptedProvider(Answer(say(body), stall()), tls=tls) as provider:
        client = client_of(provider, client_type)
        stream = client.streaming_response_stateful(QUESTION)
        reads = {"nothing": 0, "text": 1, "thinking": 1}.get(kind, 1 + ends.names_first)
        first = shown([await anext(stream) for _ in range(reads)])
        stopped = await stop(stream, way)
        assert not any(".done" in line for line in [*first, *stopped.delivered])
        assert await provider.connections[0].until_closed(1) - stopped.at_ns < LIMIT_NS
        assert client.get_history() == []
        client.clear_history()


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("cancel", "leave")])
@pytest.mark.parametrize("held", range(1, 8))
async def test_of_seven_deltas_in_one_segment_none_is_lost(
    client_type: str, way: Way, held: int, tls: bool
) -> None:
    """The caller holds one of them when it stops: the others come, in order, then the error."""
    ends = ENDS[WIRES[client_type].__name__]
    lines = [f"text.delta {letter}" for letter in "abcdefg"]
    with ScriptedProvider(Answer(say(ends.texts("abcdefg")), stall()), tls=tls) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION])
        taken = shown([await anext(stream) for _ in range(held)])
        await provider.until("stalled")
        stopped = await stop(stream, way, waiting=False)
        assert taken == lines[:held]
        assert stopped.delivered == (lines[held:] if way.startswith("abort") else [])


# reads from many tasks, and a stream that is dropped


@pytest.mark.parametrize("reads", [1, 3])
async def test_a_stream_read_from_many_tasks_and_dropped_ends_without_a_word(
    client_type: str, reads: int, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    ends = ENDS[WIRES[client_type].__name__]
    with ScriptedProvider(Answer(say(ends.texts()), stall()), tls=tls) as provider:
        streams = [client_of(provider, client_type).streaming_response([QUESTION])]
        for _ in range(reads):
            await asyncio.create_task(streams[0].__anext__())
        dropped_ns = time.monotonic_ns()
        streams.clear()
        gc.collect()
        assert await provider.connections[0].until_closed(1) - dropped_ns < LIMIT_NS
        await asyncio.sleep(0.01)
        gc.collect()
    assert complaints == []


async def test_a_stream_dropped_while_a_task_of_its_own_reads_it_ends_without_a_word(
    client_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task alone holds the stream; it is cancelled and nobody asks for its result."""
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with ScriptedProvider(Answer(stall())) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION])
        reading = asyncio.create_task(stream.__anext__())
        await provider.until("stalled")
        reading.cancel()
        del stream, reading
        await provider.connections[0].until_closed(0.2)
        gc.collect()
    assert complaints == []
