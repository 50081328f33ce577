"""The list of an endpoint's models: a plain call, which stops like any other."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from mmsp import (
    AbortError,
    AbortSignal,
    IncompleteStreamError,
    Limits,
    MMSPError,
    ProviderStreamError,
    StreamAbortedError,
    StreamProtocolError,
    Timeouts,
    UpstreamConnectionError,
    UpstreamError,
    UpstreamTimeoutError,
)
from mmsp.registry import CLIENTS
from mmsp.testing import Answer, ScriptedProvider, cut, drip, reset, say, stall
from tests.asking import QUESTION, client_of

LISTED = {"object": "list", "data": [{"id": "b"}, {"id": "a"}, {"object": "model"}]}
LIMIT = 0.2  # s


async def test_the_models_are_those_of_the_endpoint_in_its_order(tls: bool) -> None:
    with ScriptedProvider(Answer.json(LISTED), tls=tls) as provider:
        client = client_of(provider)
        assert await client.list_models() == ["b", "a"]
        assert await client.list_models() == ["b", "a"]
        request = provider.requests[0]
        assert (request.method, request.target) == ("GET", "/v1/models")
        assert request.header("authorization") == "Bearer a-key"
        assert len(provider.connections) == 1  # kept between the two


async def test_an_encoded_or_chunked_list_is_read_too() -> None:
    with ScriptedProvider(Answer(say('{"data":'), say('[{"id":"a"}]}'))) as provider:
        assert await client_of(provider).list_models() == ["a"]


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (Answer.error(401, "no a-key here"), UpstreamError, "HTTP 401: no *** here"),
        (Answer(status=302, headers={"location": "https://b.example/x"}), UpstreamError, "b.example"),
        (Answer.json({"error": {"message": "down", "code": 503}}), ProviderStreamError, "down"),
        (Answer(say("<html>a-key")), StreamProtocolError, "'<html>***'"),
        (Answer(), StreamProtocolError, "no list of models: ''"),
        (Answer.json({"data": "x"}), StreamProtocolError, "no list of models"),
        (Answer.json([]), None, ""),
        (Answer.json([[]] * 3), StreamProtocolError, "no list of models: '[[],[],[]]'"),
        (Answer(say("x" * 2000), framing="length"), StreamProtocolError, "longer than 1,000 bytes"),
        (Answer(say('{"data":'), cut()), IncompleteStreamError, "cut"),
        (Answer(say('{"data":'), reset()), IncompleteStreamError, "cut"),
        (Answer(say('{"data":'), framing="short"), IncompleteStreamError, "cut"),
        (Answer(cut()), IncompleteStreamError, "cut"),
    ],
)  # fmt: skip
async def test_what_is_no_list_of_models_has_its_error(
    answer: Answer, error: type[MMSPError] | None, said: str
) -> None:
    with ScriptedProvider(answer) as provider:
        client = client_of(provider, limits=Limits(answer_bytes=1000), max_retries=0)
        if error is None:
            assert await client.list_models() == []
            return
        with pytest.raises(error) as caught:
            await client.list_models()
        assert said in str(caught.value)
        assert "a-key" not in str(caught.value)


NO_ENTRIES: list[Any] = [
    "a", 3, None, {"id": "a"}, ["a"], [None, 3], [{}], [{"id": 3, "name": []}], [{"id": "", "name": ""}],
]  # fmt: skip
RUBBISH: list[Any] = [
    None, 3, "a", True, ["a"], [3], [[]], [{}], {}, {"a": 1},
    *({key: each} for key in ("data", "models", "publisherModels") for each in NO_ENTRIES),
]  # fmt: skip


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_rubbish_is_no_list_of_models_on_any_wire(client_type: str) -> None:
    # to Google's servers an object without a list is one whose list is empty
    rubbish = [each for each in RUBBISH if each != {} or not client_type.startswith("google")]
    with ScriptedProvider(*map(Answer.json, rubbish)) as provider:
        client = client_of(provider, client_type, max_retries=0)
        for _ in rubbish:
            with pytest.raises(StreamProtocolError, match="The answer is no list of models"):
                await client.list_models()


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_a_list_of_models_may_be_empty_and_hold_a_nameless_one(client_type: str) -> None:
    def listed(*entries: Any) -> Answer:
        return Answer.json({"data": entries, "models": entries})

    named = {"id": "a", "name": "models/a"}
    with ScriptedProvider(listed(), listed(named, {}, 3, "b")) as provider:
        client = client_of(provider, client_type)
        assert await client.list_models() == []
        assert await client.list_models() == ["a"]


@pytest.mark.parametrize("client_type", CLIENTS)
@pytest.mark.parametrize("page", [3, ["a"], {"a": 1}, True])
async def test_a_next_page_has_a_name(client_type: str, page: Any) -> None:
    entries = [{"id": "a", "name": "models/a"}]
    answer = {"data": entries, "models": entries, "has_more": True}
    pages = (
        CLIENTS[client_type].load().codec.models(answer | {"last_id": "b", "nextPageToken": "b"})
    )
    with ScriptedProvider(
        Answer.json(answer | {"last_id": page, "nextPageToken": page})
    ) as provider:
        client = client_of(provider, client_type)
        if pages[1]:
            with pytest.raises(StreamProtocolError, match="no list of models"):
                await client.list_models()
        else:
            assert await client.list_models() == ["a"]


async def test_a_passing_failure_is_tried_again() -> None:
    busy = Answer.error(503, headers={"retry-after-ms": "1"})
    with ScriptedProvider(busy, Answer.json(LISTED)) as provider:
        assert await client_of(provider).list_models() == ["b", "a"]
        assert len(provider.requests) == 2


async def test_an_endpoint_that_nobody_serves_is_told() -> None:
    with ScriptedProvider() as provider:
        client = client_of(provider, max_retries=0)
    with pytest.raises(UpstreamConnectionError):
        await client.list_models()


@pytest.mark.parametrize(
    ("timeouts", "phase", "answer"),
    [
        (Timeouts(first_event=0.1), "first_event", Answer(head_gate="never")),
        (Timeouts(idle=0.1), "idle", Answer(say("{"), stall())),
        (Timeouts(total=0.1), "total", Answer(drip(" " * 1000, 1, 0.01))),
    ],
)
async def test_a_list_that_is_late_times_out(
    timeouts: Timeouts, phase: str, answer: Answer
) -> None:
    with ScriptedProvider(answer) as provider:
        with pytest.raises(UpstreamTimeoutError) as caught:
            await client_of(provider, timeouts=timeouts).list_models()
        assert caught.value.phase == phase
        await provider.connections[0].until_closed(LIMIT)


PHASES: dict[str, dict[str, Any]] = {
    "TCP connect not accepted": {"never_accept": True},
    "TLS hello unanswered": {"tls": True, "tls_hello": "ignore"},
    "headers late": {},
    "inside the body": {},
}


@pytest.mark.parametrize("way", ["abort", "abort from a thread", "cancel"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_stop_closes_the_connection_at_once(phase: str, way: str) -> None:
    answer = Answer(head_gate="never") if phase == "headers late" else Answer(say("{"), stall())
    signal, reason = AbortSignal(), object()
    with ScriptedProvider(answer, **PHASES[phase]) as provider:
        client = client_of(provider)
        task = asyncio.create_task(client.list_models(signal))
        if phase == "TCP connect not accepted":
            while not provider.pending_connects():
                await asyncio.sleep(0.001)
        else:
            await provider.until("tls" if phase.startswith("TLS") else "stalled")
        await asyncio.sleep(0.01)
        started = time.monotonic()
        if way == "cancel":
            task.cancel()
        elif way == "abort":
            signal.abort(reason)
        else:
            thread = threading.Thread(target=signal.abort, args=(reason,))
            thread.start()
            thread.join()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert time.monotonic() - started < LIMIT
        if provider.connections:
            await provider.connections[0].until_closed(LIMIT)
        if way == "cancel":
            assert not isinstance(caught.value, AbortError)
        else:
            assert isinstance(caught.value, AbortError)
            assert caught.value.reason is reason
            assert task.cancelling() == 0
        assert not signal._listeners


async def test_a_signal_aborted_before_sends_nothing_and_one_aborted_after_does_nothing() -> None:
    signal = AbortSignal()
    with ScriptedProvider(Answer.json(LISTED)) as provider:
        client = client_of(provider)
        assert await client.list_models(signal) == ["b", "a"]
        assert not signal._listeners
        signal.abort("why")
        with pytest.raises(AbortError) as caught:
            await client.list_models(signal)
        assert caught.value.reason == "why"
        assert len(provider.requests) == 1


async def test_a_stop_while_waiting_to_try_again_sends_nothing_more() -> None:
    signal = AbortSignal()
    busy = Answer.error(429, headers={"retry-after": "30"})
    with ScriptedProvider(busy) as provider:
        task = asyncio.create_task(client_of(provider).list_models(signal))
        await provider.until("idle")
        await asyncio.sleep(0.02)
        signal.abort()
        with pytest.raises(AbortError):
            await task
        assert len(provider.requests) == 1


# ---- pages


def page(client_type: str, number: int, filling: str = "") -> dict[str, Any]:
    """A page that names another one behind it."""
    if client_type.startswith("google"):
        return {"models": [{"name": f"models/m{number}"}], "nextPageToken": f"p{number}{filling}"}
    return {"data": [{"id": f"m{number}"}], "has_more": True, "last_id": f"p{number}{filling}"}


PAGED = ["anthropic-official", "ant-messages", "google-official", "google-genai"]


@pytest.mark.parametrize("client_type", PAGED)
async def test_a_list_may_have_so_many_pages_and_no_more(client_type: str) -> None:
    pages = [Answer.json(page(client_type, number)) for number in range(4)]
    last = Answer.json({"models": [], "data": []})
    with ScriptedProvider(*pages[:2], last) as provider:
        client = client_of(provider, client_type, limits=Limits(list_pages=3))
        assert await client.list_models() == ["m0", "m1"]
        provider.answers = pages
        provider.forget()
        with pytest.raises(StreamProtocolError, match=r"more than 3 pages \(Limits.list_pages\)"):
            await client.list_models()
        assert len(provider.requests) == 3
        provider.answers = pages[:1]
        with pytest.raises(StreamProtocolError, match="the same page again"):
            await client.list_models()


@pytest.mark.parametrize("client_type", PAGED)
async def test_the_pages_of_a_list_together_are_limited_in_size(client_type: str) -> None:
    pages = [Answer.json(page(client_type, number, "x" * 400)) for number in range(4)]
    with ScriptedProvider(*pages) as provider:
        client = client_of(provider, client_type, limits=Limits(answer_bytes=1200))
        with pytest.raises(StreamProtocolError, match=r"longer than 1,200 bytes \(Limits.answer"):
            await client.list_models()
        assert len(provider.requests) == 3


STALLED_PAGES = {
    "between two pages": Answer(head_gate="never"),
    "inside the second page": Answer(say('{"data": ['), stall()),
    "before the end of the second page": Answer(say('{"data":[],"models":[]}'), stall()),
    "sleeping before the second page": Answer.error(503, headers={"retry-after": "30"}),
}
ENDS = ["abort", "abort from a thread", "cancel", "the client is closed"]


@pytest.mark.every_loop
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("place", STALLED_PAGES)
@pytest.mark.parametrize("client_type", PAGED)
async def test_a_stop_at_a_later_page_closes_the_connection_and_asks_for_no_more(
    client_type: str, place: str, end: str
) -> None:
    signal = AbortSignal()
    asleep = place.startswith("sleeping")
    first = Answer.json(page(client_type, 1))
    with ScriptedProvider(first, STALLED_PAGES[place], first) as provider:
        client = client_of(provider, client_type)
        task = asyncio.create_task(client.list_models(signal))
        await provider.until((lambda it: len(it.requests) == 2) if asleep else "stalled")
        await asyncio.sleep(0.02)
        started = time.monotonic()
        await ended(end, client, signal, task)
        assert time.monotonic() - started < LIMIT
        if not asleep:
            await provider.connections[-1].until_closed(LIMIT)
        await asyncio.sleep(0.02)
        assert len(provider.requests) == 2
        assert not signal._listeners


async def ended(end: str, client: Any, signal: AbortSignal, task: asyncio.Task[list[str]]) -> None:
    """End the call as `end` says, and look at what comes out of it."""
    error: type[BaseException] = AbortError
    if end == "cancel":
        task.cancel()
        error = asyncio.CancelledError
    elif end == "the client is closed":
        await client.aclose()
        error = StreamAbortedError
    elif end == "abort":
        signal.abort()
    else:
        thread = threading.Thread(target=signal.abort)
        thread.start()
        thread.join()
    with pytest.raises(error) as caught:
        await task
    assert type(caught.value) is error
    assert task.cancelling() == (1 if end == "cancel" else 0)


# ---- closing the client


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_closing_a_client_stops_its_lists_and_its_streams_together(client_type: str) -> None:
    with ScriptedProvider(Answer(head_gate="never")) as provider:
        async with client_of(provider, client_type) as client:
            lists = [asyncio.create_task(client.list_models()) for _ in range(3)]
            stream = client.streaming_response([QUESTION])
            reading = asyncio.ensure_future(anext(stream))
            await provider.until("stalled", count=4)
            closing_at = time.monotonic()
        for connection in provider.connections:
            await connection.until_closed(LIMIT)
        assert time.monotonic() - closing_at < LIMIT
        for each in lists:
            with pytest.raises(StreamAbortedError, match="client was closed") as caught:
                await each
            assert not caught.value.retryable
        with pytest.raises(StopAsyncIteration):
            await reading
        assert stream.outcome == "closed"


async def test_a_list_that_is_over_is_not_known_any_more() -> None:
    with ScriptedProvider(Answer.json(LISTED)) as provider:
        client = client_of(provider)
        assert await client.list_models() == ["b", "a"]
        assert client._client._calls == {}
        await client.aclose()
        assert await client.list_models() == ["b", "a"]  # closing is of what runs


async def test_a_client_may_be_closed_from_another_thread_s_loop() -> None:
    with ScriptedProvider(Answer(head_gate="never")) as provider:
        client = client_of(provider)
        task = asyncio.create_task(client.list_models())
        await provider.until("stalled")
        thread = threading.Thread(target=lambda: asyncio.run(client.aclose()))
        thread.start()
        thread.join()
        await provider.connections[0].until_closed(LIMIT)
        with pytest.raises(StreamAbortedError):
            await task


async def test_a_closed_list_leaves_nothing_for_a_task_group_to_swallow() -> None:
    """A `CancelledError` that nobody asked for would end a child without a word."""
    with ScriptedProvider(Answer(head_gate="never")) as provider:
        client = client_of(provider)
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(client.list_models())
                await provider.until("stalled")
                await client.aclose()
        assert caught.group_contains(StreamAbortedError)
