"""A server that relays a server: a stop at the outermost closes the innermost; errors and fidelity cross
unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mmsp import AbortError, AutoLLMClient, MMSPError, StreamAbortedError, UpstreamError
from mmsp.integration.server import create_server_app
from mmsp.integration.server.app import ServerApp
from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from tests.asking import QUESTION, complete, events_of, shown
from tests.serving import KEY, MODEL, Caller, app_for, served
from tests.stopping import LIMIT_NS, STOPS, stop

SILENT = {
    "headers late": Answer(say(chat.text("late")), head_gate="never"),
    "before the first event": Answer(stall()),
    "mid-item": Answer(say(chat.text("One")), stall()),
}


@contextlib.asynccontextmanager
async def chain(
    provider: ScriptedProvider, links: int = 2
) -> AsyncIterator[tuple[AutoLLMClient, list[ServerApp]]]:
    """caller → `links` servers → provider: the caller's client, and the servers' apps, innermost first."""
    async with contextlib.AsyncExitStack() as stack:
        apps = [app_for(provider, KEY)]
        place = await stack.enter_async_context(served(apps[0]))
        for _ in range(links - 1):
            cells = {"model_id": MODEL, "api_key": KEY, "server_model_id": MODEL}
            rows = [{**cells, "base_url": place.base_url, "client_type": "mmsp"}]
            apps.append(create_server_app(rows, [KEY]))
            place = await stack.enter_async_context(served(apps[-1]))
        yield AutoLLMClient(MODEL, KEY, place.base_url, "mmsp"), apps


@pytest.mark.parametrize("way", STOPS)
@pytest.mark.parametrize("phase", SILENT)
@pytest.mark.parametrize("links", [1, 2])
async def test_a_stop_at_the_outermost_closes_the_innermost(
    links: int, phase: str, way: Any
) -> None:
    with ScriptedProvider(SILENT[phase]) as provider:
        async with chain(provider, links) as (client, apps):
            stream = client.streaming_response([QUESTION])
            if phase == "mid-item":
                assert shown([await anext(stream)]) == ["text.delta One"]
            reached = provider.until("answering" if phase == "headers late" else "stalled")
            stopped = await stop(stream, way, until=reached)
            closed_ns = await provider.connections[0].until_closed()
            assert closed_ns - stopped.at_ns < LIMIT_NS
            for app in apps:
                await asyncio.wait_for(app.streams.none_left(), 5)
    assert len(provider.requests) == 1


async def test_a_busy_caller_is_no_exception() -> None:
    with ScriptedProvider(SILENT["mid-item"]) as provider:
        async with chain(provider) as (client, _):
            stream = client.streaming_response([QUESTION])
            await anext(stream)
            await provider.until("stalled")
            stopped_ns = time.monotonic_ns()
            stream.abort("why")  # and no read follows
            assert await provider.connections[0].until_closed() - stopped_ns < LIMIT_NS
            with pytest.raises(AbortError):
                await anext(stream)


async def test_events_and_fidelity_cross_a_chain_unchanged() -> None:
    pieces = [
        chat.thinking("Let me see"),
        *chat.answer("All is well")[:3],
        chat.tool_call(0, "call-1", "look", '{"q": "x"}'),
        *chat.ending(),
    ]
    answer = Answer(say(pieces))
    with ScriptedProvider(answer) as provider:
        direct = AutoLLMClient("some-model", "a-key", provider.base_url, "openai-chat")
        there = await events_of(direct.streaming_response([QUESTION]))
        async with chain(provider) as (client, _):
            crossed = await events_of(client.streaming_response([QUESTION]))
    assert [_timeless(each) for each in crossed] == [_timeless(each) for each in there]


def _timeless(event: Any) -> Any:
    return {name: value for name, value in event.items() if name != "created_at"}


async def test_a_conversation_goes_on_through_a_chain() -> None:
    with ScriptedProvider(complete("One"), complete("Two")) as provider:
        async with chain(provider) as (client, _):
            await client.streaming_response_stateful(QUESTION).message()
            await client.streaming_response_stateful(QUESTION).message()
            assert [each["role"] for each in client.get_history()] == ["user", "assistant"] * 2
    assert [each["role"] for each in provider.requests[1].json()["messages"]] == [
        *("user", "assistant"),
        "user",
    ]


async def test_a_providers_refusal_comes_back_as_what_it_was_and_is_not_asked_for_again() -> None:
    refusal = Answer.error(400, "too long", "context_length_exceeded", {"x-request-id": "req-1"})
    with ScriptedProvider(refusal) as provider:
        async with chain(provider) as (client, _):
            with pytest.raises(UpstreamError) as caught:
                await client.streaming_response([QUESTION]).message()
    error = caught.value
    assert (error.status, error.error_type) == (400, "context_length_exceeded")
    assert (error.request_id, error.client) == ("req-1", "OpenAIChatClient")
    assert len(provider.requests) == 1


async def test_a_chain_does_not_multiply_attempts() -> None:
    broken = Answer.error(503, "busy", headers={"retry-after-ms": "1"})
    with ScriptedProvider(broken) as provider:
        async with chain(provider) as (client, _):
            with pytest.raises(UpstreamError) as caught:
                await client.streaming_response([QUESTION]).message()
    assert caught.value.retryable is True
    assert len(provider.requests) == 3  # of the innermost client alone


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([chat.text("A"), chat.error("broken")], "ProviderStreamError"),
        ([chat.error("broken")], "ProviderStreamError"),
        ([chat.text("A")], "IncompleteStreamError"),
        ([*chat.ending()], "EmptyResponseError"),
        (
            [chat.text("A"), chat.tool_call(0, "c", "f", "{"), *chat.ending()],
            "ToolCallArgumentParseError",
        ),
    ],
)
async def test_an_error_comes_back_as_the_class_it_was(pieces: list[bytes], kind: str) -> None:
    with ScriptedProvider(Answer(say(pieces))) as provider:
        direct = AutoLLMClient("some-model", "a-key", provider.base_url, "openai-chat")
        there, here = [], []
        with pytest.raises(MMSPError) as original:
            async for event in direct.streaming_response([QUESTION]):
                there.append(event)
        async with chain(provider) as (client, _):
            with pytest.raises(MMSPError) as crossed:
                async for event in client.streaming_response([QUESTION]):
                    here.append(event)
    assert type(crossed.value).__name__ == type(original.value).__name__ == kind
    assert vars(crossed.value) == vars(original.value)
    assert str(crossed.value) == str(original.value)
    assert shown(here) == shown(there)


async def test_a_bad_request_comes_back_as_the_class_it_was() -> None:
    with ScriptedProvider(complete()) as provider:
        async with chain(provider) as (client, _):
            with pytest.raises(MMSPError) as caught:
                await client.streaming_response([QUESTION], {"extra_body": {"x": 1}}).message()
    assert isinstance(caught.value, UpstreamError)
    assert caught.value.error_type == "InvalidRequestError"
    assert provider.requests == []


async def test_a_stream_that_an_operator_ended_is_told_so_through_a_chain() -> None:
    with ScriptedProvider(SILENT["mid-item"]) as provider:
        async with chain(provider) as (client, apps):
            stream = client.streaming_response_stateful(QUESTION)
            await anext(stream)
            apps[0].abort_all({"code": 7})
            with pytest.raises(StreamAbortedError) as caught:
                await anext(stream)
            assert caught.value.reason == {"code": 7}
            assert caught.value.retryable is False
            assert stream.outcome == "failed"
            assert client.get_history() == []


async def test_lists_of_models_come_through_the_client() -> None:
    with ScriptedProvider(complete()) as provider:
        async with chain(provider) as (client, _):
            assert await client.list_models() == [MODEL]


async def test_a_caller_of_a_chain_can_leave_while_it_is_flooded() -> None:
    flood = Answer(say([chat.text("x" * 100_000)] * 800), stall())
    with ScriptedProvider(flood) as provider:
        async with chain(provider) as (client, apps):
            stream = client.streaming_response([QUESTION])
            await anext(stream)
            left_ns = time.monotonic_ns()
            await stream.aclose()
            assert await provider.connections[0].until_closed() - left_ns < LIMIT_NS
            for app in apps:
                await asyncio.wait_for(app.streams.none_left(), 5)


async def test_a_caller_that_hangs_up_on_the_outermost_closes_the_innermost() -> None:
    with ScriptedProvider(SILENT["mid-item"]) as provider:
        inner = app_for(provider, KEY)
        async with served(inner) as place:
            cells = {"model_id": MODEL, "api_key": KEY, "server_model_id": MODEL}
            outer = create_server_app(
                [{**cells, "base_url": place.base_url, "client_type": "mmsp"}], [KEY]
            )
            async with served(outer) as outermost, Caller(outermost) as caller:
                await caller.ask()
                reply = await caller.head()
                await caller.until_event(reply)
                left_ns = time.monotonic_ns()
                caller.writer.close()
                assert await provider.connections[0].until_closed() - left_ns < LIMIT_NS
                for app in (outer, inner):
                    await asyncio.wait_for(app.streams.none_left(), 5)
