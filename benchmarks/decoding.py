"""µs per event: from bytes on a socket to an event in the caller's hands.

A stream of deltas, each in an HTTP chunk of its own but many to a write, so that it is not the
provider that is measured. Wall time from the call to the `stop`, the request included.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mmsp import AutoLLMClient
from mmsp.testing import Answer, ProviderProcess, chat, say

from . import floor
from .figures import Figure
from .rig import QUESTION, client_of, in_chunks, median, run, text_answer

__all__ = ["measure", "read"]

TARGET = 3.5
DELTAS = 20_000
OTHER_LENGTHS = (2_000, 100_000)
MIB = 2**20
WRITE = 64 * 1024


def measure(*, full: bool, uvloop: bool) -> list[Figure]:
    runs = 15 if full else 5
    with ProviderProcess() as provider:
        streams = {f"{DELTAS:,} {kind} deltas": make(DELTAS) for kind, make in KINDS.items()}
        streams |= {f"{count:,} text deltas": text_answer(count) for count in OTHER_LENGTHS}
        figures = [
            run(_deltas(provider, name, answer, runs), uvloop=uvloop)
            for name, answer in streams.items()
        ]
        figures += [run(_one_event(provider, size, runs), uvloop=uvloop) for size in (2, 20)]
    return figures


def _thinking(count: int) -> Answer:
    deltas = [chat.thinking(f"word{number} ") for number in range(count)]
    return in_chunks([*deltas, chat.text("So."), *chat.ending(count)])


def _arguments(count: int) -> Answer:
    pieces = ['{"numbers": [', *(f"{number}, " for number in range(count - 2)), "0]}"]
    deltas = [chat.arguments(0, piece) for piece in pieces]
    ending = [chat.finish("tool_calls"), *chat.ending(count)[1:]]
    return in_chunks([chat.tool_call(0, "call_1", "add"), *deltas, *ending])


KINDS: dict[str, Callable[[int], Answer]] = {
    "text": text_answer,
    "thinking": _thinking,
    "tool-argument": _arguments,
}


async def _deltas(provider: ProviderProcess, name: str, answer: Answer, runs: int) -> Figure:
    """Ours and the floor in turn; a first pair warms up."""
    provider.set_answers(answer)
    client = client_of(provider)
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(runs + 1):
        seconds, events = await read(client)
        ours.append(seconds / events * 1e6)
        bare.append(await _read_bare(provider))
    return Figure.of_runs(name, ours[1:], "µs/event", target=TARGET, floor=median(bare[1:]))


async def _one_event(provider: ProviderProcess, size: int, runs: int) -> Figure:
    """One event of so many MiB; that the time for each MiB stays the same shows it is linear."""
    event = chat.text("x" * (size * MIB))
    writes = [say(event[start : start + WRITE]) for start in range(0, len(event), WRITE)]
    provider.set_answers(Answer(*writes, say(chat.ending())))
    client = client_of(provider)
    ours = [(await read(client))[0] / size * 1e3 for _ in range(runs + 1)]
    return Figure.of_runs(f"one event of {size} MiB", ours[1:], "ms/MiB")


async def read(client: AutoLLMClient) -> tuple[float, int]:
    events = 0
    begun = time.perf_counter()
    async for _ in client.streaming_response(QUESTION):
        events += 1
    return time.perf_counter() - begun, events


async def _read_bare(provider: ProviderProcess) -> float:
    begun = time.perf_counter()
    reader = await floor.connect(provider)
    await reader.ask(floor.request())
    reader.transport.abort()
    return (time.perf_counter() - begun) / reader.events * 1e6
