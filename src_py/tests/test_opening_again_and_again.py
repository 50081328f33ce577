"""A request stopped while it is being opened leaves nothing, fifty times over: the far side sees the end,
no descriptor, task or kept connection remains, and the next request works.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from typing import Any

import pytest

from mmsp import AutoLLMClient
from mmsp.testing import Answer, ScriptedProvider, say
from mmsp.transport import Pool
from tests.asking import QUESTION
from tests.conftest import open_descriptors
from tests.interruption_table import EXHAUSTIVE, WIRES, Way
from tests.stopping import LIMIT_NS, STOPS, stop

TIMES = 50

# the phase: how the provider behaves, the state that shows it, and whether a proxy is in between
PHASES: dict[str, tuple[dict[str, Any], str | None, bool]] = {
    "TCP not accepted": ({"never_accept": True}, None, False),
    "TLS hello unanswered": ({"tls": True, "tls_hello": "ignore"}, "tls", False),
    "CONNECT unanswered": ({"connect": "ignore"}, "connect", True),
    "TLS behind a proxy stalled": ({"tunnel_tls": "ignore"}, "tunnel_tls", True),
    "headers late": ({}, "stalled", False),
    "headers late over TLS": ({"tls": True}, "stalled", False),
    "headers late behind a proxy": ({}, "stalled", True),
}


@pytest.mark.slow
@pytest.mark.no_debug
@pytest.mark.every_loop
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    "client_type", EXHAUSTIVE[:1]
)  # all open their connections with the same code
async def test_fifty_stops_while_opening_leave_nothing(
    client_type: str, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every way, one after the other."""
    options, state, behind_proxy = PHASES[phase]
    whole = Answer(*map(say, WIRES[client_type].answer("All is well")))
    with (
        ScriptedProvider(Answer(head_gate="never"), **options) as provider,
        ScriptedProvider(whole, tls=behind_proxy) as working,
    ):
        if behind_proxy:
            monkeypatch.setenv("HTTPS_PROXY", provider.proxy_url)
        url = "https://far.example/v1" if behind_proxy else provider.base_url
        context = provider.ssl_context if behind_proxy or options.get("tls") else None
        client = AutoLLMClient("m", "a-key", url, client_type, ssl_context=context)
        await one(client, provider, state, "abort")  # what is made once, is made
        gc.collect()
        descriptors, tasks = open_descriptors(), len(asyncio.all_tasks())
        for way in itertools.islice(itertools.cycle(STOPS), TIMES):
            await one(client, provider, state, way)
        pool = Pool.current()

        def leaks() -> list[Any]:
            tasks_left = len(asyncio.all_tasks()) - tasks
            held = [*pool._live, *pool._idle, *pool._lookups]
            return [*(open_descriptors() - descriptors), *held, *range(tasks_left)]

        async with asyncio.timeout(1):
            while leaks():
                await asyncio.sleep(0.005)
        monkeypatch.delenv("HTTPS_PROXY", raising=False)
        context = working.ssl_context if behind_proxy else None
        after = AutoLLMClient("m", "a-key", working.base_url, client_type, ssl_context=context)
        await after.streaming_response([QUESTION]).message()


async def one(
    client: AutoLLMClient, provider: ScriptedProvider, state: str | None, way: Way
) -> None:
    """A request that comes as far as `state` and is stopped there."""
    provider.forget()
    stream = client.streaming_response_stateful(QUESTION)
    until = provider.until(state) if state is not None else pending_connect(provider)
    stopped = await stop(stream, way, until=until)
    for record in provider.connections:
        assert await record.until_closed(1) - stopped.at_ns < 2 * LIMIT_NS
    assert provider.pending_connects() == 0
    client.clear_history()


async def pending_connect(provider: ScriptedProvider) -> None:
    while not provider.pending_connects():
        await asyncio.sleep(0.001)
