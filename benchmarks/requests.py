"""CPU per small request: the call, the request, an answer of a few words, the `stop`.

Time of this process's CPU, all threads, divided by the requests. Connections are kept, which is
checked: there must be no more of them than callers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from mmsp.testing import Answer, ProviderProcess, chat, say

from . import floor
from .figures import Figure
from .rig import QUESTION, client_of, median, run

__all__ = ["measure"]

TARGET = 300
ANSWER = Answer(say(chat.answer("Fine, thank you.")))
AT_ONCE = (1, 64)

Ask = Callable[[], Awaitable[None]]


def measure(*, full: bool, uvloop: bool) -> list[Figure]:
    requests, runs = (4_096, 9) if full else (1_024, 5)
    figures = []
    for callers in AT_ONCE:
        with ProviderProcess(ANSWER) as provider:
            ours = run(_ours(provider, callers, requests, runs), uvloop=uvloop)
            if len(provider.connections) > callers:
                raise RuntimeError("connections were not kept")
            bare = run(_bare(provider, callers, requests, runs), uvloop=uvloop)
        figures.append(
            Figure.of_runs(
                f"CPU, {callers} at a time", ours, "µs/request", target=TARGET, floor=median(bare)
            )
        )
    return figures


async def _ours(provider: ProviderProcess, callers: int, requests: int, runs: int) -> list[float]:
    client = client_of(provider)

    async def ask() -> None:
        async for _ in client.streaming_response(QUESTION):
            pass

    return await _cpu([ask] * callers, requests, runs)


async def _bare(provider: ProviderProcess, callers: int, requests: int, runs: int) -> list[float]:
    payload = floor.request()
    readers = [await floor.connect(provider) for _ in range(callers)]

    def asking(reader: floor.Reader) -> Ask:
        return lambda: reader.ask(payload)

    try:
        return await _cpu([asking(reader) for reader in readers], requests, runs)
    finally:
        for reader in readers:
            reader.transport.abort()


async def _cpu(asks: list[Ask], requests: int, runs: int) -> list[float]:
    """µs of CPU per request, for each run; a first run warms up."""
    each = requests // len(asks)
    found = []
    for _ in range(runs + 1):
        begun = time.process_time()
        await asyncio.gather(*(_repeat(ask, each) for ask in asks))
        found.append((time.process_time() - begun) / (each * len(asks)) * 1e6)
    return found[1:]


async def _repeat(ask: Ask, times: int) -> None:
    for _ in range(times):
        await ask()
