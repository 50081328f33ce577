"""`Stream` through a real client and a real socket: what it hands out, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from mmsp import (
    AbortError,
    AbortSignal,
    ConcurrentCallError,
    EmptyResponseError,
    IncompleteStreamError,
    MMSPError,
    ProviderStreamError,
    StreamProtocolError,
    Timeouts,
    ToolCallArgumentParseError,
)
from mmsp.testing import Answer, ScriptedProvider, Step, chat, cut, gate, pause, reset, say, stall
from tests.asking import QUESTION, client_of, complete, events_of, shown

FULL = [
    chat.thinking("hm "),
    chat.thinking("yes"),
    chat.text("Let me "),
    chat.text("look."),
    chat.tool_call(0, "c1", "find", ""),
    chat.arguments(0, '{"q":'),
    chat.arguments(0, "1}"),
    chat.tool_call(1, "c2", "add", "{}"),
    chat.finish("tool_calls"),
    chat.usage(),
    chat.done(),
]


def segment(*events: bytes) -> Step:
    return say(list(events))


# what a stream hands out


async def test_events_follow_the_grammar_and_end_with_one_stop() -> None:
    with ScriptedProvider(Answer(*map(say, FULL))) as provider:
        events = await events_of(client_of(provider).streaming_response([QUESTION]))
    assert shown(events) == [
        "thinking.delta hm ",
        "thinking.delta yes",
        "thinking.done hm yes",
        "text.delta Let me ",
        "text.delta look.",
        "text.done Let me look.",
        "tool_call.delta ",
        'tool_call.delta {"q":',
        "tool_call.delta 1}",
        "tool_call.done {'q': 1}",
        "tool_call.delta {}",
        "tool_call.done {}",
        "stop tool_call",
    ]
    assert all(event["created_at"] > 1.7e12 for event in events)
    assert events[-1]["usage_metadata"] is not None


async def test_text_gives_the_text_alone() -> None:
    with ScriptedProvider(Answer(*map(say, FULL))) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        assert [piece async for piece in stream.text()] == ["Let me ", "look."]


async def test_leaving_the_text_closes_the_connection() -> None:
    with ScriptedProvider(Answer(segment(*FULL[:4]), stall())) as provider:
        async for _ in client_of(provider).streaming_response([QUESTION]).text():
            break
        await provider.connections[0].until_closed(0.2)


async def test_message_reads_to_the_end() -> None:
    with ScriptedProvider(complete("All is well")) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        message = await stream.message()
    assert message["content_items"] == [{"type": "text.done", "text": "All is well"}]
    assert message.get("finish_reason") == "stop"
    assert stream.usage == message.get("usage_metadata")


async def test_message_raises_what_the_stream_raises() -> None:
    with ScriptedProvider(Answer(segment(*FULL[:4]), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        asyncio.get_running_loop().call_later(0.02, stream.abort, "enough")
        with pytest.raises(AbortError) as caught:
            await stream.message()
    assert caught.value.reason == "enough"


async def test_usage_is_what_the_provider_has_reported_so_far() -> None:
    with ScriptedProvider(
        Answer(say(chat.text("a")), say(chat.usage(prompt=7)), say(chat.text("b")), stall())
    ) as provider:
        async with client_of(provider).streaming_response([QUESTION]) as stream:
            before = stream.usage
            await anext(stream)
            await anext(stream)
            after = stream.usage
    assert before is None
    assert after is not None
    assert after["prompt_tokens"] == 7


async def test_a_partial_message_holds_what_can_be_sent_back() -> None:
    with ScriptedProvider(Answer(segment(*FULL[:8]), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        assert stream.partial_message() is None
        for _ in range(9):
            await anext(stream)
        stream.abort()
        kept = stream.partial_message()
        assert kept is not None
        host = provider.base_url.split("/")[2]
        origin = {"wire": "openai_chat", "host": host, "reasoning_field": "reasoning_content"}
        assert kept["content_items"] == [
            {"type": "thinking.done", "thinking": "hm yes", "fidelity": origin},
            {"type": "text.done", "text": "Let me look."},
        ]
        assert kept.get("finish_reason") == "unknown"
        assert "created_at" in kept
        await stream.aclose()


async def test_after_the_stop_the_partial_message_is_the_whole() -> None:
    with ScriptedProvider(complete()) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        assert await stream.message() == stream.partial_message()


async def test_the_request_id_is_the_providers() -> None:
    answer = Answer(segment(*chat.answer("hi")), headers={"x-request-id": "req-7"})
    with ScriptedProvider(answer) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        before = stream.request_id
        await anext(stream)
        assert (before, stream.request_id) == (None, "req-7")
        await stream.aclose()


# reads


async def test_each_read_may_come_from_another_task() -> None:
    with ScriptedProvider(complete("one two three")) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        events = [await asyncio.create_task(anext(stream)) for _ in range(5)]
        assert shown(events)[-1] == "stop stop"
        with pytest.raises(StopAsyncIteration):
            await asyncio.ensure_future(anext(stream))


async def test_a_second_read_at_once_is_refused_and_the_first_unharmed() -> None:
    with ScriptedProvider(Answer(gate("go"), say(chat.text("a")), stall())) as provider:
        async with client_of(provider).streaming_response([QUESTION]) as stream:
            first = asyncio.create_task(anext(stream))
            await provider.until("stalled")
            with pytest.raises(RuntimeError, match="one read at a time"):
                await anext(stream)
            provider.open("go")
            assert shown([await first]) == ["text.delta a"]


async def test_asend_is_anext_and_takes_nothing() -> None:
    with ScriptedProvider(complete("a")) as provider:
        async with client_of(provider).streaming_response([QUESTION]) as stream:
            assert shown([await stream.asend(None)]) == ["text.delta a"]
            with pytest.raises(TypeError):
                await stream.asend("x")  # type: ignore[arg-type]


async def test_athrow_closes_and_raises() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        await anext(stream)
        with pytest.raises(KeyError, match="mine"):
            await stream.athrow(KeyError("mine"))
        await provider.connections[0].until_closed(0.2)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_closing_after_an_abort_drops_the_rest_and_the_error() -> None:
    with ScriptedProvider(Answer(segment(*FULL[:4]), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        await anext(stream)
        stream.abort("why")
        await stream.aclose()
        assert await events_of(stream) == []
        assert stream.aborted


async def test_an_outer_timeout_keeps_its_meaning() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client_of(provider).streaming_response([QUESTION]).message()
        await provider.connections[0].until_closed(0.2)


async def test_a_task_group_keeps_its_meaning() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(client_of(provider).streaming_response([QUESTION]).message())
                await provider.until("stalled")
                raise KeyError("mine")
        assert caught.group_contains(KeyError, depth=1)
        await provider.connections[0].until_closed(0.2)


async def test_an_aborted_child_ends_its_task_group_quietly_and_the_reason_stays() -> None:
    signal = AbortSignal()
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        async with asyncio.TaskGroup() as group:
            stream = client_of(provider).streaming_response([QUESTION], signal=signal)
            child = group.create_task(stream.message())
            await provider.until("stalled")
            signal.abort("why")
        assert child.cancelled()
        assert (stream.reason, signal.reason) == ("why", "why")


# stopping, where the table of test_interruption.py does not look


async def test_a_signal_that_was_aborted_before_sends_nothing() -> None:
    signal = AbortSignal()
    signal.abort("before")
    with ScriptedProvider(complete()) as provider:
        stream = client_of(provider).streaming_response([QUESTION], signal=signal)
        with pytest.raises(AbortError) as caught:
            await anext(stream)
        assert caught.value.reason == "before"
        assert provider.connections == []
    assert not signal._listeners


async def test_a_finished_stream_no_longer_listens() -> None:
    signal = AbortSignal()
    with ScriptedProvider(complete()) as provider:
        client = client_of(provider)
        for _ in range(100):
            stream = client.streaming_response([QUESTION], signal=signal)
            await stream.message()
            assert not signal._listeners
        signal.abort()
        assert not stream.aborted
        assert len(provider.connections) == 1


async def test_an_abort_between_the_last_done_and_the_stop_changes_nothing() -> None:
    with ScriptedProvider(complete("a")) as provider:
        client = client_of(provider)
        stream = client.streaming_response_stateful(QUESTION)
        assert shown([await anext(stream), await anext(stream)]) == ["text.delta a", "text.done a"]
        stream.abort()
        assert shown([await anext(stream)]) == ["stop stop"]
        assert len(client.get_history()) == 2
        assert not stream.aborted


@pytest.mark.parametrize("taken", range(1, 11))
async def test_an_abort_at_each_delta_of_a_rich_turn_leaves_the_history_as_it_was(
    taken: int,
) -> None:
    whole = Answer(*map(say, FULL[:-1]), stall())
    with ScriptedProvider(complete("before"), whole, complete("after")) as provider:
        client = client_of(provider)
        await client.streaming_response_stateful(QUESTION).message()
        before = client.get_history()
        stream = client.streaming_response_stateful(QUESTION)
        for _ in range(taken):
            await anext(stream)
        stream.abort("why")
        with pytest.raises(AbortError):
            await stream.message()
        assert client.get_history() == before
        await client.streaming_response_stateful(QUESTION).message()
        sent = provider.requests[-1].json()["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "user"]
        assert not any("tool_calls" in message for message in sent)


async def test_pieces_of_a_second_call_that_are_held_back_are_not_delivered() -> None:
    calls = [
        chat.tool_call(0, "c1", "find", '{"a":'),
        chat.tool_call(1, "c2", "find", '{"b":'),
        chat.arguments(0, "1"),
        chat.arguments(1, "2"),
    ]
    with ScriptedProvider(Answer(segment(*calls), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        events = [await anext(stream)]
        stream.abort("why")
        with pytest.raises(AbortError):
            while True:
                events.append(await anext(stream))
    assert shown(events) == ['tool_call.delta {"a":', "tool_call.delta 1"]


async def test_after_an_abort_the_finish_in_the_rest_ends_it() -> None:
    with ScriptedProvider(Answer(segment(*FULL), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        events = [await anext(stream)]
        stream.abort()
        with pytest.raises(AbortError) as caught:
            while True:
                events.append(await anext(stream))
    assert caught.value.args == ()
    assert shown(events)[-1] == "tool_call.delta 1}"
    assert not any(line.startswith(("tool_call.done", "stop")) for line in shown(events))


async def test_after_an_abort_half_an_event_is_dropped_and_a_bad_frame_is_no_error() -> None:
    half = chat.text("never")[:30]
    for rest in (half, b"data: not json\n\n", chat.error("late", 500)):
        answer = Answer(segment(chat.text("a"), chat.text("b"), rest), stall())
        with ScriptedProvider(answer) as provider:
            stream = client_of(provider).streaming_response([QUESTION])
            events = [await anext(stream)]
            stream.abort("why")
            with pytest.raises(AbortError):
                while True:
                    events.append(await anext(stream))
        assert shown(events) == ["text.delta a", "text.delta b"]


async def test_a_provider_that_ignores_the_end_and_writes_on_delays_nothing() -> None:
    answer = Answer(*(step for _ in range(400) for step in (say(chat.text("x")), pause(0.005))))
    with ScriptedProvider(answer, ignore_eof=True) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        await anext(stream)
        started = time.monotonic()
        stream.abort("why")
        with pytest.raises(AbortError):
            await stream.message()
        assert time.monotonic() - started < 0.2


async def test_a_caller_that_does_not_read_holds_back_the_provider() -> None:
    piece = chat.text("x" * 10_000)
    with ScriptedProvider(Answer(say([piece] * 3000), stall())) as provider:  # 30 MB
        stream = client_of(provider).streaming_response([QUESTION])
        await anext(stream)
        await asyncio.sleep(0.3)
        assert stream._exchange is not None
        assert stream._exchange._size < 2**20
        assert provider.connections[0].bytes_sent < 20_000_000
        started = time.monotonic_ns()
        stream.abort("why")
        assert (await provider.connections[0].until_closed(1) - started) < 2e8
        with pytest.raises(AbortError):
            await stream.message()


async def test_a_stream_that_a_thread_drops_closes_its_connection() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        streams = [client_of(provider).streaming_response([QUESTION])]
        await anext(streams[0])
        started = time.monotonic_ns()
        await asyncio.to_thread(streams.clear)
        assert await provider.connections[0].until_closed(1) - started < 2e8
        await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_stream_in_a_cycle_closes_when_it_is_collected() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        cycle: list[object] = [client_of(provider).streaming_response([QUESTION])]
        await anext(cycle[0])  # type: ignore[call-overload]
        cycle.append(cycle)
        del cycle
        gc.collect()
        await provider.connections[0].until_closed(0.2)


# stateful calls


async def test_a_finished_turn_is_recorded_before_its_stop() -> None:
    with ScriptedProvider(complete("a")) as provider:
        client = client_of(provider)
        lengths = []
        async for event in client.streaming_response_stateful(QUESTION):
            lengths.append((event["event_type"], len(client.get_history())))
    assert lengths == [("delta", 0), ("delta", 2), ("stop", 2)]
    assert QUESTION == {"role": "user", "content_items": [{"type": "text.done", "text": "Hello?"}]}


async def test_one_stateful_call_at_a_time() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall()), complete()) as provider:
        client = client_of(provider)
        first = client.streaming_response_stateful(QUESTION)
        await anext(first)
        with pytest.raises(ConcurrentCallError):
            await anext(client.streaming_response_stateful(QUESTION))
        for change in (client.clear_history, lambda: client.set_history([])):
            with pytest.raises(ConcurrentCallError):
                change()
        await client.streaming_response([QUESTION]).message()  # a stateless one asks for nothing
        await first.aclose()
        await client.streaming_response_stateful(QUESTION).message()


async def test_history_goes_in_and_out_as_copies() -> None:
    with ScriptedProvider(complete()) as provider:
        client = client_of(provider)
        mine = [QUESTION]
        client.set_history(mine)
        taken = client.get_history()
        assert taken[0]["content_items"] == QUESTION["content_items"]
        taken[0]["content_items"].clear()
        assert client.get_history()[0]["content_items"] == QUESTION["content_items"]
        assert "created_at" not in QUESTION


async def test_closing_the_client_closes_its_streams() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        async with client_of(provider) as client:
            stream = client.streaming_response([QUESTION])
            await anext(stream)
        await provider.connections[0].until_closed(0.2)
        assert await events_of(stream) == []


# ends on the wire


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("end", [cut(), reset(), "short"])
async def test_three_deltas_and_a_broken_connection_give_three_deltas_and_the_error(
    end: object, tls: bool
) -> None:
    steps: list[Step] = [segment(*(chat.text(each) for each in "abc"))]
    framing = "short" if end == "short" else "chunked"
    if not isinstance(end, str):
        steps += [pause(0.02), end]  # type: ignore[list-item]
    with ScriptedProvider(Answer(*steps, framing=framing), tls=tls) as provider:  # type: ignore[arg-type]
        client = client_of(provider)
        stream = client.streaming_response_stateful(QUESTION)
        events = [await anext(stream)]
        await provider.connections[0].until_closed()  # while the caller is busy
        await asyncio.sleep(0.01)
        with pytest.raises(IncompleteStreamError) as caught:
            while True:
                events.append(await anext(stream))
        assert shown(events) == ["text.delta a", "text.delta b", "text.delta c"]
        assert caught.value.missing == ("finish_reason", "usage_metadata")
        assert client.get_history() == []
        client.clear_history()
        assert await events_of(stream) == []


async def test_the_connection_is_kept_when_the_end_of_the_body_comes_a_little_later() -> None:
    late = Answer(segment(*chat.answer("a")), pause(0.05))
    with ScriptedProvider(late) as provider:
        client = client_of(provider)
        for _ in range(3):
            await client.streaming_response([QUESTION]).message()
        assert len(provider.connections) == 1


async def test_a_body_that_never_ends_is_left_after_two_seconds() -> None:
    comments: list[Step] = [
        step for _ in range(80) for step in (say(b": still here\n\n"), pause(0.05))
    ]
    with ScriptedProvider(Answer(segment(*chat.answer("a")), *comments)) as provider:
        started = time.monotonic()
        await client_of(provider).streaming_response([QUESTION]).message()
        assert 1.9 < time.monotonic() - started < 3
        await provider.connections[0].until_closed(0.2)


@pytest.mark.parametrize("end", [reset(), cut(), "short"])
async def test_nothing_after_the_terminal_event_can_fail_the_turn(end: object) -> None:
    steps: list[Step] = [segment(*chat.answer("a"))]
    framing = "short" if end == "short" else "chunked"
    if not isinstance(end, str):
        steps.append(end)  # type: ignore[arg-type]
    with ScriptedProvider(Answer(*steps, framing=framing)) as provider:  # type: ignore[arg-type]
        message = await client_of(provider).streaming_response([QUESTION]).message()
    assert message["content_items"] == [{"type": "text.done", "text": "a"}]


async def test_a_finish_reason_and_a_clean_end_are_complete_without_the_terminal_event() -> None:
    answer = Answer(segment(chat.text("a"), chat.finish("length")))
    with ScriptedProvider(answer) as provider:
        events = await events_of(client_of(provider).streaming_response([QUESTION]))
    assert shown(events) == ["text.delta a", "text.done a", "stop length"]
    assert events[-1]["usage_metadata"] == dict.fromkeys(
        ("cached_tokens", "prompt_tokens", "thoughts_tokens", "response_tokens")
    )


async def test_a_finish_reason_and_silence_are_complete_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmsp.silence._QUIET", 0.1)
    answer = Answer(segment(chat.text("a"), chat.finish()), stall())
    with ScriptedProvider(answer) as provider:
        message = await client_of(provider).streaming_response([QUESTION]).message()
        assert message.get("finish_reason") == "stop"
        await provider.connections[0].until_closed(0.2)


async def test_a_last_event_without_its_blank_line_counts_at_a_clean_end() -> None:
    answer = Answer(say(chat.text("a")), say(chat.finish().rstrip(b"\n")), framing="close")
    with ScriptedProvider(answer) as provider:
        message = await client_of(provider).streaming_response([QUESTION]).message()
    assert message.get("finish_reason") == "stop"


@pytest.mark.parametrize(
    ("steps", "error", "delivered"),
    [
        ([chat.text("a")], IncompleteStreamError, 1),
        ([chat.text("a"), chat.error("broken", 503)], ProviderStreamError, 1),
        ([chat.error("broken", "overloaded")], ProviderStreamError, 0),
        ([chat.thinking("hm"), chat.finish(), chat.done()], EmptyResponseError, 1),
        (
            [chat.tool_call(0, "c", "f", "{"), chat.finish("tool_calls"), chat.done()],
            ToolCallArgumentParseError,
            1,
        ),
        (
            [chat.tool_call(0, "c", "f", "{}"), chat.finish("length"), chat.done()],
            ToolCallArgumentParseError,
            1,
        ),
        ([chat.tool_call(0, "c", "f", "{}"), chat.done()], IncompleteStreamError, 1),
        ([b"data: what is this\n\n"], StreamProtocolError, 0),
        ([b": only\n\n: comments\n\n"], IncompleteStreamError, 0),
        ([], IncompleteStreamError, 0),
        ([b"<html><body>Bad gateway</body></html>"], StreamProtocolError, 0),
        ([b'{"error":{"message":"no","code":"bad"}}'], ProviderStreamError, 0),
    ],
)
async def test_an_answer_that_is_not_whole_raises_its_own_error_and_records_nothing(
    steps: list[bytes], error: type[MMSPError], delivered: int
) -> None:
    with ScriptedProvider(Answer(*map(say, steps)), complete()) as provider:
        client = client_of(provider)
        stream = client.streaming_response_stateful(QUESTION)
        events = []
        with pytest.raises(error):
            async for event in stream:
                events.append(event)
        assert len(events) == delivered
        assert not any("done" in line or "stop" in line for line in shown(events))
        assert client.get_history() == []
        await client.streaming_response_stateful(QUESTION).message()


async def test_a_whole_completion_in_place_of_a_stream_is_streamed_as_one() -> None:
    with ScriptedProvider(Answer.json(chat.completion("All is well"))) as provider:
        events = await events_of(client_of(provider).streaming_response([QUESTION]))
    assert shown(events) == ["text.delta All is well", "text.done All is well", "stop stop"]


async def test_an_event_over_the_limit_is_a_typed_error() -> None:
    from mmsp import Limits

    with ScriptedProvider(Answer(say(chat.text("x" * 5000)), stall())) as provider:
        client = client_of(provider, limits=Limits(event_bytes=1000))
        with pytest.raises(StreamProtocolError, match="event_bytes"):
            await client.streaming_response([QUESTION]).message()
        await provider.connections[0].until_closed(0.2)


async def test_a_total_time_out_closes_while_the_caller_is_busy_and_delivers_what_arrived() -> None:
    with ScriptedProvider(
        Answer(segment(*(chat.text(each) for each in "abc")), stall())
    ) as provider:
        client = client_of(provider, timeouts=Timeouts(total=0.1))
        stream = client.streaming_response([QUESTION])
        events = [await anext(stream)]
        await provider.connections[0].until_closed(0.5)
        with pytest.raises(TimeoutError):
            while True:
                events.append(await anext(stream))
    assert shown(events) == ["text.delta a", "text.delta b", "text.delta c"]
