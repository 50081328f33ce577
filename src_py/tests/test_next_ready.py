"""`Stream.next_ready`: what `anext` hands out one by one, several at a time."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from mmsp import (
    AbortError,
    ConcurrentCallError,
    ProviderStreamError,
    Stream,
    StreamProtocolError,
    Timeouts,
    UpstreamTimeoutError,
)
from mmsp.testing import Answer, ScriptedProvider, chat, gate, say, stall
from mmsp.types import UniEvent
from tests.asking import QUESTION, client_of, complete, events_of, shown
from tests.interruption_table import STREAMING, WIRES, texts

CALLS = [
    chat.thinking("hm "),
    chat.text("Let me "),
    chat.tool_call(0, "c1", "find", '{"a":'),
    chat.tool_call(1, "c2", "find", '{"b":'),
    chat.tool_call(2, "c3", "find", '{"c":'),
    chat.arguments(2, "3}"),
    chat.arguments(0, "1}"),
    chat.arguments(1, "2}"),
    chat.finish("tool_calls"),
    chat.usage(),
    chat.done(),
]
TEN = [f"text.delta {number}" for number in range(10)]


async def lists_of(stream: Stream) -> list[list[UniEvent]]:
    lists = []
    while True:
        try:
            lists.append(await stream.next_ready())
        except StopAsyncIteration:
            return lists


def flat(lists: list[list[UniEvent]]) -> list[str]:
    return [line for each in lists for line in shown(each)]


def ten(*further: bytes) -> list[bytes]:
    return [*(chat.text(str(number)) for number in range(10)), *further]


@pytest.mark.every_loop
async def test_what_came_together_is_handed_out_together() -> None:
    with ScriptedProvider(Answer(say(ten()), gate("end"), say(chat.answer("x")))) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        assert shown(await stream.next_ready()) == TEN
        provider.open("end")
        *deltas, last = await lists_of(stream)
    assert flat(deltas) == ["text.delta x"]
    assert shown(last) == ["text.done 0123456789x", "stop stop"]


@pytest.mark.parametrize("client_type", WIRES)
@pytest.mark.parametrize("apart", [False, True])
async def test_the_order_is_that_of_anext_for_every_client(client_type: str, apart: bool) -> None:
    events = WIRES[client_type].answer("one two three four")
    answer = Answer(*map(say, events)) if apart else Answer(say(events))
    with ScriptedProvider(answer, answer) as provider:
        client = client_of(provider, client_type)
        one_by_one = await events_of(client.streaming_response([QUESTION]))
        lists = await lists_of(client.streaming_response([QUESTION]))
    assert all(lists)
    assert flat(lists) == shown(one_by_one)


async def test_a_list_is_never_longer_than_256() -> None:
    many = [chat.text(str(number)) for number in range(3000)]
    with ScriptedProvider(Answer(say(many), say(chat.answer("x")))) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        lists = [await stream.next_ready()]
        while len(lists[-1]) < 256 and len(lists) < 100:
            await asyncio.sleep(0.01)  # so that much waits to be taken
            lists.append(await stream.next_ready())
        lists += await lists_of(stream)
    assert max(map(len, lists)) == 256
    assert flat(lists)[:3000] == [f"text.delta {number}" for number in range(3000)]


async def test_it_waits_for_the_next_event() -> None:
    with ScriptedProvider(Answer(gate("go"), say(ten()), stall())) as provider:
        async with client_of(provider).streaming_response([QUESTION]) as stream:
            read = asyncio.create_task(stream.next_ready())
            await provider.until("stalled")
            assert not read.done()
            provider.open("go")
            assert shown(await read) == TEN


async def test_it_and_anext_take_turns() -> None:
    with ScriptedProvider(Answer(say(ten()), stall())) as provider:
        async with client_of(provider).streaming_response([QUESTION]) as stream:
            first = await anext(stream)
            assert shown([first, *await stream.next_ready()]) == TEN


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (chat.error("broken", 500), ProviderStreamError),
        (b"data: not json\n\n", StreamProtocolError),
    ],
)
async def test_an_error_behind_ready_events_is_raised_by_the_next_call(
    bad: bytes, error: type[Exception]
) -> None:
    with ScriptedProvider(Answer(say(ten(bad)), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        assert shown(await stream.next_ready()) == TEN
        assert stream.outcome is None
        with pytest.raises(error):
            await stream.next_ready()
        with pytest.raises(StopAsyncIteration):
            await stream.next_ready()


async def test_the_end_behind_ready_events_is_committed_by_the_next_call() -> None:
    whole = ten(chat.finish("stop"), chat.usage(), chat.done())
    with ScriptedProvider(Answer(say(whole))) as provider:
        client = client_of(provider)
        stream = client.streaming_response_stateful(QUESTION)
        assert shown(await stream.next_ready()) == TEN
        assert (client.get_history(), stream.outcome) == ([], None)
        assert shown(await stream.next_ready()) == ["text.done 0123456789", "stop stop"]
        assert len(client.get_history()) == 2
        with pytest.raises(StopAsyncIteration):
            await stream.next_ready()


async def test_a_time_out_is_raised_as_by_anext() -> None:
    with ScriptedProvider(Answer(say(ten()), stall())) as provider:
        client = client_of(provider, timeouts=Timeouts(idle=0.05))
        stream = client.streaming_response([QUESTION])
        assert shown(await stream.next_ready()) == TEN
        with pytest.raises(UpstreamTimeoutError):
            await stream.next_ready()


async def test_a_concurrent_call_is_refused_as_by_anext() -> None:
    with ScriptedProvider(Answer(say(ten()), stall())) as provider:
        client = client_of(provider)
        async with client.streaming_response_stateful(QUESTION) as stream:
            await stream.next_ready()
            with pytest.raises(ConcurrentCallError):
                await client.streaming_response_stateful(QUESTION).next_ready()


# stopping


@pytest.mark.parametrize("client_type", STREAMING)
async def test_an_abort_drains_what_had_arrived(client_type: str) -> None:
    wire = WIRES[client_type]
    answer = Answer(say([*map(wire.text, texts(50)), wire.finish(), wire.usage()]), stall())
    with ScriptedProvider(answer) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION])
        lists = [[await anext(stream)]]
        stream.abort("why")
        with pytest.raises(AbortError) as caught:
            while True:
                lists.append(await stream.next_ready())
        with pytest.raises(StopAsyncIteration):
            await stream.next_ready()
    assert caught.value.reason == "why"
    assert list(map(len, lists)) == [1, 49]
    assert flat(lists) == [f"text.delta {text}" for text in texts(50)]


async def test_an_abort_frees_a_call_that_waits() -> None:
    with ScriptedProvider(Answer(say(ten()), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        await stream.next_ready()
        read = asyncio.create_task(stream.next_ready())
        await asyncio.sleep(0.01)
        assert not read.done()
        stream.abort("why")
        with pytest.raises(AbortError):
            await read
        await provider.connections[0].until_closed(0.2)


@pytest.mark.parametrize("apart", [False, True])
async def test_whatever_list_was_handed_out_an_abort_leaves_what_it_leaves_by_anext(
    apart: bool,
) -> None:
    """A caller who stops at the nth event, and gets the rest of its list, has got what `anext` gives."""
    answer = Answer(*(map(say, CALLS) if apart else [say(CALLS)]), stall())
    for taken in range(1, 11):  # the closing `.done` and the `stop` are none of them
        with ScriptedProvider(answer, answer) as provider:
            client = client_of(provider)
            by_anext = await stopped_after(
                taken, client.streaming_response([QUESTION]), lists=False
            )
            by_lists = await stopped_after(taken, client.streaming_response([QUESTION]), lists=True)
        if apart:  # then what had arrived is a matter of time
            assert by_lists[:taken] == by_anext[:taken]
        else:
            assert by_lists == by_anext
        assert not any(line.startswith("stop") for line in by_lists)


async def stopped_after(taken: int, stream: Stream, *, lists: bool) -> list[str]:
    events: list[UniEvent] = []
    with pytest.raises(AbortError):
        while True:
            events += await stream.next_ready() if lists else [await anext(stream)]
            if len(events) >= taken:
                stream.abort()
    return shown(events)


async def test_what_the_finish_set_free_comes_alone() -> None:
    with ScriptedProvider(Answer(say(CALLS))) as provider:
        lists = await lists_of(client_of(provider).streaming_response([QUESTION]))
    assert shown(lists[0])[-1] == "tool_call.delta 1}"
    assert [len(each) for each in lists[1:-1]] == [1] * (len(lists) - 2)
    assert [line.split()[0] for line in shown(lists[-1])] == ["tool_call.done", "stop"]


async def test_a_second_read_at_once_is_refused_and_the_first_unharmed() -> None:
    with ScriptedProvider(Answer(gate("go"), say(ten()), stall())) as provider:
        async with client_of(provider).streaming_response([QUESTION]) as stream:
            first = asyncio.create_task(stream.next_ready())
            await provider.until("stalled")
            for second in (stream.next_ready, stream.__anext__):
                with pytest.raises(RuntimeError, match="one read at a time"):
                    await second()
            provider.open("go")
            assert shown(await first) == TEN


async def test_a_cancelled_call_ends_the_stream() -> None:
    with ScriptedProvider(Answer(say(ten()), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        await stream.next_ready()
        read = asyncio.create_task(stream.next_ready())
        await asyncio.sleep(0.01)
        assert not read.done()
        read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await read
        await provider.connections[0].until_closed(0.2)
        assert stream.outcome == "cancelled"
        with pytest.raises(StopAsyncIteration):
            await stream.next_ready()


async def test_after_a_close_there_is_nothing_more() -> None:
    with ScriptedProvider(Answer(say(ten()), stall())) as provider:
        async with aclosing(client_of(provider).streaming_response([QUESTION])) as stream:
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await stream.next_ready()


async def test_a_close_after_an_abort_drops_the_rest_and_the_error() -> None:
    with ScriptedProvider(Answer(say(ten()), stall()), complete()) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        await anext(stream)
        stream.abort()
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await stream.next_ready()
