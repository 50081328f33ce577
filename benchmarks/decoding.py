"""µs per event: from bytes on a socket to an event in the caller's hands.

A stream of deltas, each in an HTTP chunk of its own, many to a write, so that the provider is not
what is measured; wall time of the reader, from the first byte it could have had to the `stop`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mmsp import AutoLLMClient
from mmsp.testing import Answer, ProviderProcess, chat, say

from . import floor
from .figures import Figure
from .rig import QUESTION, client_of, in_chunks, run, text_answer

__all__ = ["measure"]

TARGET = 3.5
DELTAS = 20_000
LENGTHS = (2_000, 100_000)
MIB = 2**20


def measure(*, full: bool, uvloop: bool) -> list[Figure]:
    runs = 15 if full else 7
    with ProviderProcess() as provider:
        figures = [
            _figure(provider, f"{DELTAS:,} {name} deltas", make(DELTAS), runs, uvloop)
            for name, make in KINDS.items()
        ]
        figures += [
            _figure(provider, f"{count:,} text deltas", text_answer(count), runs, uvloop)
            for count in LENGTHS
        ]
        figures += [_one_event(provider, size, runs, uvloop) for size in (2, 20)]
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


def _figure(
    provider: ProviderProcess, name: str, answer: Answer, runs: int, uvloop: bool
) -> Figure:
    ours, bare = run(_side_by_side(provider, answer, runs), uvloop=uvloop)
    return Figure.of_runs(
        name, ours, "µs/event", target=TARGET, floor=sorted(bare)[len(bare) // 2]
    )


async def _side_by_side(
    provider: ProviderProcess, answer: Answer, runs: int
) -> tuple[list[float], list[float]]:
    """µs per event of ours and of the floor, taken in turn; a first pair warms up."""
    provider.set_answers(answer)
    client = client_of(provider)
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(runs + 1):
        ours.append(await _read(client))
        bare.append(await _read_bare(provider))
    provider.forget()
    return ours[1:], bare[1:]


async def _read(client: AutoLLMClient) -> float:
    events = 0
    begun = time.perf_counter()
    async for _ in client.streaming_response(QUESTION):
        events += 1
    return (time.perf_counter() - begun) / events * 1e6


async def _read_bare(provider: ProviderProcess) -> float:
    begun = time.perf_counter()
    reader = await floor.connect(provider)
    await reader.ask(floor.request())
    reader.transport.abort()
    return (time.perf_counter() - begun) / reader.events * 1e6


def _one_event(provider: ProviderProcess, size: int, runs: int, uvloop: bool) -> Figure:
    """One event of so many MiB: the time in proportion to its size shows that it is linear."""
    pieces = chat.text("x" * (size * MIB))
    write = 64 * 1024
    writes = [say(pieces[start : start + write]) for start in range(0, len(pieces), write)]
    answer = Answer(*writes, say(chat.ending()))
    ours, _ = run(_side_by_side_once(provider, answer, min(runs, 7)), uvloop=uvloop)
    return Figure.of_runs(f"one event of {size} MiB", [each / size for each in ours], "ms/MiB")


async def _side_by_side_once(
    provider: ProviderProcess, answer: Answer, runs: int
) -> tuple[list[float], list[float]]:
    raise NotImplementedError
