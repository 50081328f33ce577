"""How long a connection lives, and for whom: the pool's part in a request."""

from __future__ import annotations

import asyncio

import pytest

from mmsp import AutoLLMClient, MMSPError, UpstreamConnectionError
from mmsp.testing import Answer, ScriptedProvider, Step, chat, cut, pause, reset, say, stall
from mmsp.transport import pool
from mmsp.types import UniMessage
from tests.asking import BODY, QUESTION, client_of, complete, events_of, shown
from tests.calling import client_of_raw
from tests.raw_server import RawServer, head, whole

HALF = say(chat.text("Hel"))

pytestmark = pytest.mark.every_loop


async def ask(client: AutoLLMClient) -> str:
    """The last event of an answer, in short."""
    events = await events_of(client.streaming_response([QUESTION]))
    return shown(events)[-1]


# used again


@pytest.mark.parametrize(
    "answer",
    [
        complete(),
        Answer(say(BODY), framing="length"),
        Answer(say(BODY[:-20]), pause(0.02), say(BODY[-20:])),
        Answer(say(BODY), pause(0.05)),  # the end of the body comes after the terminal event
        Answer(say(BODY), interim=(100, 103)),
    ],
    ids=["chunked", "length", "in two", "late terminator", "1xx"],
)
async def test_a_connection_is_used_again_after_a_normal_end(answer: Answer, tls: bool) -> None:
    with ScriptedProvider(answer, tls=tls) as provider:
        client = client_of(provider)
        for _ in range(3):
            assert await ask(client) == "stop stop"
        assert (len(provider.connections), len(provider.requests)) == (1, 3)


async def test_a_connection_is_used_again_after_an_error_that_was_read_whole(tls: bool) -> None:
    with ScriptedProvider(Answer.error(400, "no"), complete(), tls=tls) as provider:
        client = client_of(provider)
        with pytest.raises(MMSPError):
            await ask(client)
        await ask(client)
        assert len(provider.connections) == 1


async def test_clients_of_one_endpoint_share_a_connection(tls: bool) -> None:
    with ScriptedProvider(complete(), tls=tls) as provider:
        context = provider.ssl_context if tls else None
        for _ in range(2):
            await ask(client_of(provider, ssl_context=context))
        assert len(provider.connections) == 1


async def test_streams_at_the_same_time_have_a_connection_each(tls: bool) -> None:
    with ScriptedProvider(complete(), tls=tls) as provider:
        client = client_of(provider)
        ends = await asyncio.gather(*(ask(client) for _ in range(5)))
        assert ends == ["stop stop"] * 5
        assert len(provider.connections) == 5
        await asyncio.gather(*(ask(client) for _ in range(5)))
        assert len(provider.connections) == 5


async def test_after_a_burst_only_so_many_connections_are_kept(
    tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_MOST_IDLE", 3)
    with ScriptedProvider(complete(), tls=tls) as provider:
        client = client_of(provider)
        await asyncio.gather(*(ask(client) for _ in range(8)))
        async with asyncio.timeout(5):
            while sum(each.closed_ns is not None for each in provider.connections) < 5:
                await asyncio.sleep(0.01)
        await asyncio.gather(*(ask(client) for _ in range(3)))
        assert len(provider.connections) == 8


# not used again


@pytest.mark.parametrize(
    "steps",
    [
        {"keep_alive": False},
        {"framing": "close"},
        {"framing": "short"},
    ],
    ids=["Connection: close", "ended by EOF", "short body"],
)
async def test_a_connection_the_provider_ends_is_not_used_again(
    steps: dict[str, object], tls: bool
) -> None:
    first = Answer(say(BODY), **steps)  # type: ignore[arg-type]
    with ScriptedProvider(first, complete(), tls=tls) as provider:
        client = client_of(provider, max_retries=0)
        await ask(client)
        await ask(client)
        assert len(provider.connections) == 2


@pytest.mark.parametrize("end", [cut(), reset()], ids=["cut", "reset"])
async def test_a_connection_that_broke_is_not_used_again(end: Step, tls: bool) -> None:
    with ScriptedProvider(Answer(HALF, end), complete(), tls=tls) as provider:
        client = client_of(provider, max_retries=0)
        with pytest.raises(MMSPError):
            await ask(client)
        await ask(client)
        assert len(provider.connections) == 2


@pytest.mark.parametrize("way", ["abort", "close", "cancel", "leave"])
async def test_a_connection_that_was_stopped_is_not_used_again(way: str, tls: bool) -> None:
    with ScriptedProvider(Answer(HALF, stall()), complete(), tls=tls) as provider:
        client = client_of(provider, max_retries=0)
        stream = client.streaming_response([QUESTION])
        await anext(stream)
        if way == "abort":
            stream.abort()
        elif way == "close":
            await stream.aclose()
        elif way == "cancel":
            reading = asyncio.create_task(stream.__anext__())
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
        del stream
        await ask(client)
        assert len(provider.connections) == 2
        await provider.connections[0].until_closed(0.2)


@pytest.mark.parametrize(
    "extra",
    [b"?", b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n", head("content-length: 9")],
    ids=["a byte", "an answer", "half an answer"],
)
@pytest.mark.parametrize("when", ["with the body", "while it is idle"])
async def test_a_connection_with_bytes_nobody_asked_for_is_not_used_again(
    extra: bytes, when: str, tls: bool
) -> None:
    first = (whole(BODY) + extra,) if when == "with the body" else (whole(BODY), extra)
    async with RawServer(first, secure=tls, stays_open=True) as server:
        client = client_of_raw(server)
        assert await ask(client) == "stop stop"
        await asyncio.wait_for(server.ended.wait(), 2)
        assert await ask(client) == "stop stop"
        assert server.connections == 2


async def test_a_connection_whose_answer_ends_before_its_request_is_not_used_again(
    tls: bool,
) -> None:
    large: UniMessage = {
        "role": "user",
        "content_items": [{"type": "text.done", "text": "x" * 8_000_000}],
    }
    async with RawServer(whole(BODY), secure=tls, reads_bodies=False, stays_open=True) as server:
        events = await events_of(client_of_raw(server).streaming_response([large]))
        assert shown(events)[-1] == "stop stop"
        await asyncio.wait_for(server.ended.wait(), 2)


# kept connections that die


async def test_a_kept_connection_the_server_closed_is_replaced_at_once(tls: bool) -> None:
    closing = Answer(say(BODY), cut(), framing="length")
    with ScriptedProvider(closing, complete(), tls=tls) as provider:
        client = client_of(provider, max_retries=0)
        await ask(client)
        provider.connections[0].wait_closed()  # the loop is blocked: it cannot have noticed
        assert await ask(client) == "stop stop"
        assert (len(provider.connections), len(provider.requests)) == (2, 2)


async def test_a_kept_connection_that_ends_on_the_next_request_is_replaced_at_once(
    tls: bool,
) -> None:
    async with RawServer(whole(BODY), b"", secure=tls) as server:
        client = client_of_raw(server)
        for _ in range(3):
            assert await ask(client) == "stop stop"
        assert server.connections == 3
        assert len(server.requests) == 5  # two were sent twice


async def test_a_kept_connection_that_ends_after_a_byte_of_the_answer_is_an_error(
    tls: bool,
) -> None:
    async with RawServer(whole(BODY), b"HTTP/1.1 2", secure=tls) as server:
        client = client_of_raw(server, max_retries=2)
        await ask(client)
        with pytest.raises(UpstreamConnectionError) as caught:
            await ask(client)
        assert caught.value.phase == "head"
        assert len(server.requests) == 2


async def test_an_idle_connection_is_closed_after_a_while(
    monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    monkeypatch.setattr(pool, "_KEEP_IDLE", 0.05)
    with ScriptedProvider(complete(), tls=tls) as provider:
        client = client_of(provider)
        await ask(client)
        await provider.connections[0].until_closed(1)
        assert provider.connections[0].closed_by == "fin"
        await ask(client)
        assert len(provider.connections) == 2


async def test_a_connection_in_use_does_not_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_KEEP_IDLE", 0.05)
    slow = Answer(say(BODY[:-20]), pause(0.15), say(BODY[-20:]))
    with ScriptedProvider(complete(), slow) as provider:
        client = client_of(provider)
        await ask(client)
        assert await ask(client) == "stop stop"
        assert len(provider.connections) == 1


# clients, loops and threads


async def test_a_client_that_is_dropped_leaves_nothing_open(tls: bool) -> None:
    with ScriptedProvider(Answer(HALF, stall()), tls=tls) as provider:
        client = client_of(provider)
        stream = client.streaming_response([QUESTION])
        await anext(stream)
        del client
        assert provider.connections[0].closed_ns is None  # the stream alone is enough
        del stream
        await provider.connections[0].until_closed(0.2)
