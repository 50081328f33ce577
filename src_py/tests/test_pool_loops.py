"""One client on several event loops, in turn and in threads."""

from __future__ import annotations

import asyncio
import threading

from mmsp import AutoLLMClient
from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from tests.asking import QUESTION, client_of, complete, events_of


async def ask(client: AutoLLMClient) -> int:
    return len(await events_of(client.streaming_response([QUESTION])))


def test_a_client_serves_two_loops_one_after_the_other(tls: bool) -> None:
    with ScriptedProvider(complete(), tls=tls) as provider:
        client = client_of(provider, max_retries=0)
        for number in range(2):
            asyncio.run(ask(client))
            provider.connections[number].wait_closed(0.5)
        assert len(provider.connections) == 2


def test_a_client_serves_a_loop_after_one_that_was_closed_under_its_connection(tls: bool) -> None:
    with ScriptedProvider(complete(), tls=tls) as provider:
        client = client_of(provider, max_retries=0)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(ask(client))
        loop.close()
        assert provider.connections[0].closed_ns is None
        asyncio.run(ask(client))
        provider.connections[0].wait_closed(0.5)


def test_a_client_serves_loops_in_several_threads_at_once(tls: bool) -> None:
    counts: list[int] = []

    async def several(client: AutoLLMClient) -> None:
        counts.extend([await ask(client) for _ in range(10)])

    with ScriptedProvider(complete(), tls=tls) as provider:
        client = client_of(provider, max_retries=0)
        threads = [threading.Thread(target=lambda: asyncio.run(several(client))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(counts) == 40
        assert len(set(counts)) == 1
        assert len(provider.connections) == 4  # no connection serves two loops


def test_a_stream_is_stopped_from_another_thread_while_a_third_reads_its_own(tls: bool) -> None:
    with ScriptedProvider(Answer(say(chat.text("Hel")), stall()), tls=tls) as provider:
        client = client_of(provider)

        async def aborted() -> bool:
            stream = client.streaming_response([QUESTION])
            await anext(stream)
            threading.Timer(0.05, stream.abort, ["stop"]).start()
            try:
                await anext(stream)
            except asyncio.CancelledError as error:
                return error.args == ("stop",)
            return False

        outcomes: list[bool] = []
        threads = [
            threading.Thread(target=lambda: outcomes.append(asyncio.run(aborted())))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == [True] * 4
