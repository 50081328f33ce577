"""How an answer ends on the wire decides what becomes of it: every end, on every wire, over a socket.

A cut answer must not pass for a whole one, and a whole one must not fail for what comes behind it. Each
case looks at what was delivered, at the error or the finish reason, at the history, at the claim, at
what the connection is used for next, and comes in one piece, in its events, and byte by byte.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from mmsp import AbortError, AbortSignal, AutoLLMClient, IncompleteStreamError, MMSPError
from mmsp.testing import Answer, ScriptedProvider, Step, chat, drip, pause, say, stall
from tests.asking import QUESTION, client_of, complete, events_of, shown
from tests.ends_table import ENDS, End, ends_of
from tests.interruption_table import EXHAUSTIVE, STREAMING, WHOLE_CALLS, WIRES

PIECES = ("event by event", "in one piece", "byte by byte")


def cells() -> list[Any]:
    """Every end on every client; in all pieces for one client a codec, and over TLS for the first."""
    return [
        pytest.param(
            client,
            end,
            pieces,
            tls,
            id=f"{client}-{end.name}-{pieces}-{'TLS' if tls else 'plain'}",
            marks=[]
            if client == EXHAUSTIVE[0] or pieces == PIECES[0]
            else [pytest.mark.exhaustive],
        )
        for client in STREAMING
        for end in ends_of(WIRES[client])
        if not (client in WHOLE_CALLS and end.name.startswith("a call"))
        for pieces in (PIECES if client in EXHAUSTIVE else PIECES[:1])
        for tls in ((False, True) if client == EXHAUSTIVE[0] else (False,))
    ]


def test_every_wire_says_how_it_ends() -> None:
    assert {WIRES[client].__name__ for client in STREAMING} == set(ENDS)


def steps_of(body: bytes, pieces: str) -> list[Step]:
    if not body:
        return []
    if pieces == "in one piece":
        return [say(body)]
    if pieces == "byte by byte":
        return [drip(body, 1, 0)]
    return [say(event) for event in body.replace(b"\n\n", b"\n\n\0").split(b"\0") if event]


def answer_of(end: End, pieces: str) -> Answer:
    steps = steps_of(end.body, pieces)
    if end.then:  # what was said arrives before what is done; a reset would overtake it
        steps += [pause(0.03), *end.then]
    elif end.framing == "short":
        steps += [pause(0.03)]
    return Answer(*steps, framing=end.framing, content_type=end.content_type)


@pytest.mark.parametrize(("client_type", "end", "pieces", "tls"), cells())
async def test_an_end(
    client_type: str, end: End, pieces: str, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmsp.silence._QUIET", end.quiet)
    monkeypatch.setattr("mmsp.silence._LINGER", end.linger)
    signal = AbortSignal()
    whole = Answer(*map(say, WIRES[client_type].answer("All is well")))
    with ScriptedProvider(answer_of(end, pieces), whole, tls=tls) as provider:
        client = client_of(provider, client_type, max_retries=0)
        stream = client.streaming_response_stateful(QUESTION, signal=signal)
        lines, error = await read(stream)
        assert lines == list(end.delivered) + ([] if end.error else [f"stop {end.last}"])
        check_error(end, error)
        assert await events_of(stream) == []
        assert stream.outcome == ("failed" if end.error else "finished")
        assert not stream.aborted
        assert not signal._listeners
        assert len(client.get_history()) == (0 if end.error else 2)
        client.clear_history()  # raises while a call holds the client
        if end.connection == "closed":
            await provider.connections[0].until_closed(0.3)
        message = await client.streaming_response_stateful(QUESTION).message()
        assert message.get("finish_reason") == "stop"
        assert len(provider.requests) == 2
        if end.connection != "either":
            assert len(provider.connections) == (1 if end.connection == "kept" else 2)


async def read(stream: Any) -> tuple[list[str], MMSPError | None]:
    events = []
    try:
        async for event in stream:
            events.append(event)
    except MMSPError as error:
        return shown(events), error
    return shown(events), None


def check_error(end: End, error: MMSPError | None) -> None:
    assert type(error) is (end.error or type(None))
    if error is not None:
        assert end.said in str(error)
        assert error.args
    if end.missing is not None:
        assert isinstance(error, IncompleteStreamError)
        assert error.missing == end.missing
        assert error.retryable


@pytest.mark.parametrize("client_type", STREAMING)
async def test_a_whole_completion_is_streamed_as_one(client_type: str, tls: bool) -> None:
    ends = ENDS[WIRES[client_type].__name__]
    with ScriptedProvider(Answer.json(ends.completion), tls=tls) as provider:
        client = client_of(provider, client_type)
        for _ in range(2):
            events = await events_of(client.streaming_response_stateful(QUESTION))
            assert shown(events) == [
                "text.delta All is well", "text.done All is well", "stop stop",
            ]  # fmt: skip
            assert events[-1]["usage_metadata"] is not None
        assert len(client.get_history()) == 4
        assert len(provider.connections) == 1


# the wait for the end of the body


WITH_AN_END_EVENT = [each for each in STREAMING if ENDS[WIRES[each].__name__].done is not None]


def whole_and_open(client_type: str) -> Answer:
    ends = ENDS[WIRES[client_type].__name__]
    comments = [step for _ in range(200) for step in (say(b": still here\n\n"), pause(0.02))]
    return Answer(say(ends.texts() + ends.ending), *comments)


@pytest.mark.slow
@pytest.mark.no_debug
@pytest.mark.parametrize("client_type", WITH_AN_END_EVENT)
async def test_a_body_held_open_with_comments_is_left_after_two_seconds(client_type: str) -> None:
    answer = whole_and_open(client_type)
    with ScriptedProvider(answer, complete()) as provider:
        client = client_of(provider, client_type)
        before = time.monotonic()
        events = await events_of(client.streaming_response_stateful(QUESTION))
        assert 1.9 < time.monotonic() - before < 3
        assert shown(events)[-2:] == ["text.done abc", "stop stop"]
        assert len(client.get_history()) == 2
        await provider.connections[0].until_closed(0.3)


@pytest.mark.parametrize("client_type", WITH_AN_END_EVENT)
@pytest.mark.parametrize("after", [0.0, 0.1])
async def test_an_abort_while_the_end_of_the_body_is_awaited_is_an_abort(
    client_type: str, after: float, tls: bool
) -> None:
    answer = whole_and_open(client_type)
    with ScriptedProvider(answer, tls=tls) as provider:
        client = client_of(provider, client_type)
        stream = client.streaming_response_stateful(QUESTION)
        lines = shown([await anext(stream) for _ in range(3)])
        reading = asyncio.create_task(anext(stream))
        await asyncio.sleep(after)
        assert not reading.done()
        stopped_ns = time.monotonic_ns()
        stream.abort("why")
        client.clear_history()
        assert await provider.connections[0].until_closed(1) - stopped_ns < 200_000_000
        with pytest.raises(AbortError):
            await reading
        assert lines == ["text.delta a", "text.delta b", "text.delta c"]
        assert client.get_history() == []
        assert stream.outcome == "aborted"


@pytest.mark.parametrize("client_type", WITH_AN_END_EVENT)
async def test_the_end_of_the_body_may_come_a_little_later_and_the_connection_is_kept(
    client_type: str, tls: bool
) -> None:
    ends = ENDS[WIRES[client_type].__name__]
    late = Answer(say(ends.texts() + ends.ending), pause(0.05))
    with ScriptedProvider(late, tls=tls) as provider:
        client = client_of(provider, client_type)
        for _ in range(3):
            await events_of(client.streaming_response([QUESTION]))
        assert len(provider.connections) == 1


@pytest.mark.parametrize("client_type", STREAMING)
async def test_an_aborted_answer_is_never_drained_for_its_connection(client_type: str) -> None:
    wire = WIRES[client_type]
    rest = [step for word in "bcdef" for step in (pause(0.02), say(wire.text(word)))]
    answer = Answer(say(wire.text("a")), *rest, say(wire.ending()))
    whole = Answer(*map(say, wire.answer("All is well")))
    with ScriptedProvider(answer, whole) as provider:
        client = client_of(provider, client_type)
        stream = client.streaming_response([QUESTION])
        await anext(stream)
        stream.abort()
        await provider.connections[0].until_closed(0.2)
        assert provider.connections[0].closed_by in ("fin", "rst")
        with pytest.raises(AbortError):
            await stream.message()
        await client.streaming_response([QUESTION]).message()
        assert len(provider.connections) == 2


# what a chat server may leave out, in every combination


@pytest.mark.parametrize("usage", ["before", "after", "none"])
@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("call", ["text", "call"])
async def test_what_an_answer_lacks_decides_its_end(
    call: str, terminal: bool, finish: bool, usage: str
) -> None:
    """Complete with a finish reason; "unknown" without, if the end event came and no call is open."""
    reason = "tool_calls" if call == "call" else "stop"
    body = [
        chat.text("a") if call == "text" else chat.tool_call(0, "c", "f", "{}"),
        chat.usage(prompt=7) if usage == "before" else b"",
        chat.finish(reason) if finish else b"",
        chat.usage(prompt=7) if usage == "after" else b"",
        chat.done() if terminal else b"",
    ]
    with ScriptedProvider(Answer(say(body))) as provider:
        client = client_of(provider)
        lines, error = await read(client.streaming_response_stateful(QUESTION))
        last = {"tool_calls": "stop tool_call", "stop": "stop stop"}[reason]
        if finish or (terminal and call == "text"):
            assert lines[-1] == (last if finish else "stop unknown")
            metadata = client.get_history()[-1].get("usage_metadata")
            assert metadata is not None
            assert metadata["prompt_tokens"] == (None if usage == "none" else 7)
        else:
            assert isinstance(error, IncompleteStreamError)
            without_usage = ("finish_reason", "usage_metadata")
            assert error.missing == (without_usage if usage == "none" else ("finish_reason",))
            assert not any(".done" in line for line in lines)
            assert client.get_history() == []
        client.clear_history()


async def test_silence_ends_an_answer_only_when_it_has_a_finish_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmsp.silence._QUIET", 0.1)
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        client: AutoLLMClient = client_of(provider)
        async with client.streaming_response([QUESTION]) as stream:
            await anext(stream)
            reading = asyncio.create_task(anext(stream))
            await asyncio.sleep(0.4)
            assert not reading.done()
            stream.abort()
            with pytest.raises(AbortError):
                await reading


async def test_usage_behind_the_finish_reason_begins_the_silence_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmsp.silence._QUIET", 0.4)
    answer = Answer(
        say([chat.text("a"), chat.finish()]),
        pause(0.25),
        say(chat.usage(prompt=3)),
        pause(0.25),
        say(chat.usage(prompt=7)),
        stall(),
    )
    with ScriptedProvider(answer) as provider:
        message = await client_of(provider).streaming_response([QUESTION]).message()
    usage = message.get("usage_metadata")
    assert usage is not None
    assert usage["prompt_tokens"] == 7
