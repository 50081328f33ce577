"""A stop against everything that can happen in the same instant."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from mmsp import AbortError, AbortSignal, AutoLLMClient
from mmsp.testing import Answer, ProviderProcess, ScriptedProvider, chat, gate, say, stall
from mmsp.transport.connection import Connection
from tests.asking import QUESTION, client_of, shown

LIMIT_NS = 200_000_000


@pytest.mark.no_debug
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("how", ["asleep", "computing"])
async def test_a_blocked_loop_does_not_hold_the_connection_open(how: str, tls: bool) -> None:
    switch = AbortSignal()
    with ScriptedProvider(Answer(say(chat.text("a")), stall()), tls=tls) as provider:
        stream = client_of(provider).streaming_response([QUESTION], signal=switch)
        await anext(stream)
        pending = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.01)
        aborted: list[int] = []

        def abort() -> None:
            aborted.append(time.monotonic_ns())
            switch.abort("why")

        timer = threading.Timer(0.3, abort)
        timer.start()
        block(2.0, how)
        record = provider.connections[0]
        assert record.closed_ns is not None
        assert record.closed_ns - aborted[0] < LIMIT_NS
        with pytest.raises(AbortError):
            await pending
        timer.join()


def block(seconds: float, how: str) -> None:
    if how == "asleep":
        time.sleep(seconds)
    until = time.monotonic() + seconds
    while how == "computing" and time.monotonic() < until:
        sum(range(1000))


@pytest.mark.no_debug
@pytest.mark.parametrize("order", ["abort first", "data first"])
async def test_an_abort_and_the_last_bytes_in_one_turn_give_an_abort_and_no_record(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [chat.finish(), chat.usage(), chat.done()]
    answer = Answer(say(chat.text("a")), gate("end"), say([chat.text("b"), *whole]))
    arrived = Connection.data_received
    switch = AbortSignal()

    def data_received(self: Connection, data: bytes) -> None:
        last = b"[DONE]" in data
        if last and order == "abort first":
            switch.abort("now")
        arrived(self, data)
        if last and order == "data first":
            switch.abort("now")

    monkeypatch.setattr(Connection, "data_received", data_received)
    with ScriptedProvider(answer) as provider:
        provider.open("end")
        client = client_of(provider)
        for _ in range(1000):
            switch = AbortSignal()
            stream = client.streaming_response_stateful(QUESTION, signal=switch)
            events = []
            with pytest.raises(AbortError) as caught:
                async for event in stream:
                    events.append(event)
            assert caught.value.reason == "now"
            assert shown(events) in (["text.delta a"], ["text.delta a", "text.delta b"])
            assert client.get_history() == []
            client.clear_history()


@pytest.mark.no_debug
@pytest.mark.parametrize("where", ["in the loop", "in a thread"])
async def test_an_abort_around_the_commit_gives_both_or_neither(where: str) -> None:
    """A `stop` and its record, or an abort error and none; whichever the instant decides."""
    whole = [chat.text("a"), chat.finish(), chat.usage(), chat.done()]
    with ScriptedProvider(Answer(say(whole))) as provider:
        client = client_of(provider)
        chance, outcomes = random.Random(7), {"stop": 0, "abort": 0}
        for _ in range(1000):
            stream = client.streaming_response_stateful(QUESTION)
            aborting = abort_soon(stream.abort, chance.uniform(0.0, 1.2e-3), where)
            events, recorded = [], False
            try:
                async for event in stream:
                    events.append(event)
                recorded = shown(events)[-1] == "stop stop"
            except AbortError:
                assert not any("done" in line or "stop" in line for line in shown(events))
            assert len(client.get_history()) == (2 if recorded else 0)
            assert stream.aborted is not recorded
            outcomes["stop" if recorded else "abort"] += 1
            await aborting()
            client.clear_history()
        assert all(outcomes.values()), outcomes


def abort_soon(
    abort: Callable[[], None], after: float, where: str
) -> Callable[[], Awaitable[None]]:
    if where == "in the loop":
        timer = asyncio.get_running_loop().call_later(after, abort)

        async def cancel() -> None:
            timer.cancel()

        return cancel

    def abort_later() -> None:
        until = time.monotonic() + after
        while time.monotonic() < until:
            time.sleep(0)
        abort()

    thread = threading.Thread(target=abort_later)
    thread.start()

    async def join() -> None:
        thread.join()

    return join


@pytest.mark.no_debug
@pytest.mark.parametrize("tls", [False, True])
async def test_a_thousand_silent_streams_aborted_together_are_all_closed(
    tls: bool, report_at_the_end: list[str]
) -> None:
    """The provider has a process of its own, for in this one it would wait for the thousand readers."""
    switch = AbortSignal()
    with ProviderProcess(Answer(say(chat.text("a")), stall()), tls=tls) as provider:
        context = provider.ssl_context if tls else None
        client = AutoLLMClient("m", "a-key", provider.base_url, "openai-chat", ssl_context=context)

        async def read() -> str:
            try:
                await client.streaming_response([QUESTION], signal=switch).message()
            except AbortError as error:
                return str(error.reason)
            return "ended"

        tasks: list[asyncio.Task[str]] = []
        for _ in range(10):  # a hundred at a time, so that no handshake waits long
            tasks += [asyncio.create_task(read()) for _ in range(100)]
            await asyncio.to_thread(provider.wait, "stalled", len(tasks), 20)
        started = time.monotonic_ns()
        switch.abort("all")
        reasons = await asyncio.gather(*tasks)
        freed = time.monotonic_ns()
        closed = await asyncio.to_thread(provider.wait_closed, 1000)
        took = max(closed) - started
    report_at_the_end.append(
        f"1,000 silent streams{' over TLS' * tls}, aborted together: closed after "
        f"{took / 1e6:.0f} ms, their readers freed after {(freed - started) / 1e6:.0f} ms"
    )
    assert took < LIMIT_NS
    assert reasons == ["all"] * 1000


@pytest.mark.no_debug
@pytest.mark.parametrize("tls", [False, True])
async def test_a_thousand_streams_aborted_from_a_thread_are_closed_while_the_loop_computes(
    tls: bool, report_at_the_end: list[str]
) -> None:
    """A cut that gave up the interpreter's lock would wait 5 ms for it a thousand times."""
    switch = AbortSignal()
    started: list[int] = []

    def abort() -> None:
        started.append(time.monotonic_ns())
        switch.abort("all")

    with ProviderProcess(Answer(say(chat.text("a")), stall()), tls=tls) as provider:
        context = provider.ssl_context if tls else None
        client = AutoLLMClient("m", "a-key", provider.base_url, "openai-chat", ssl_context=context)
        streams = [client.streaming_response([QUESTION], signal=switch) for _ in range(1000)]
        for start in range(0, 1000, 100):  # a hundred at a time, so that no handshake waits long
            await asyncio.gather(*(anext(each) for each in streams[start : start + 100]))
        readers = [asyncio.create_task(anext(each)) for each in streams]
        await asyncio.sleep(0)
        timer = threading.Timer(0.2, abort)
        timer.start()
        block(1.5, "computing")
        closed = max(await asyncio.to_thread(provider.wait_closed, 1000)) - started[0]
        ended = await asyncio.gather(*readers, return_exceptions=True)
        timer.join()
    report_at_the_end.append(
        f"1,000 silent streams{' over TLS' * tls}, aborted from a thread while the loop computes: "
        f"closed after {closed / 1e6:.0f} ms"
    )
    assert closed < LIMIT_NS
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)


@pytest.mark.no_debug
async def test_aclose_and_abort_from_many_sides_end_a_stream_once() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        client = client_of(provider)
        for number in range(200):
            stream = client.streaming_response_stateful(QUESTION)
            await anext(stream)
            pending = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            thread = threading.Thread(target=stream.abort, args=("thread",))
            thread.start()
            ended = await asyncio.gather(
                pending, stream.aclose(), stream.aclose(), return_exceptions=True
            )
            thread.join()
            assert isinstance(ended[0], StopAsyncIteration | asyncio.CancelledError)
            assert ended[1:] == [None, None]
            client.clear_history()
            assert await provider.connections[number].until_closed(1)
