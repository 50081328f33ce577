"""Memory of an open silent stream, and what a stream keeps of each delta it has delivered.

Each measurement has a process of its own, so that nothing allocated before can be used again:
`python -m benchmarks.memory KIND` prints one JSON line, and `measure` runs them. "Bare" is the
floor's connection instead of a stream. RSS is what the system counts; tracemalloc counts what
Python allocated, which leaves out OpenSSL's and the kernel's.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

from mmsp import Stream
from mmsp.testing import Answer, ProviderProcess, chat, say, stall

from . import floor
from .figures import Figure
from .rig import QUESTION, client_of, in_chunks, run

__all__ = ["measure"]

STREAMS = 500
OPEN_AT_ONCE = 100
DELTAS = 100_000
KIB = 1024
SILENT = Answer(say(chat.text("Hel")), stall())
PAGE = os.sysconf("SC_PAGE_SIZE")
Bytes = Callable[[], int]


def measure(*, full: bool, uvloop: bool) -> list[Figure]:
    tls_target = 70 if uvloop else 320
    figures = []
    for kind, target in (("plain", 25), ("tls", tls_target)):
        name = f"{STREAMS} silent streams, {kind.upper() if kind == 'tls' else kind}"
        ours, bare = (_in_a_process(kind, uvloop, bare=bare) for bare in (False, True))
        traced = _in_a_process(kind, uvloop, traced=True)
        figures += [
            Figure(name=f"{name}: RSS", value=ours, unit="KB/stream", target=target, floor=bare),
            Figure(name=f"{name}: tracemalloc", value=traced, unit="KB/stream"),
        ]
    kept = _in_a_process("deltas", uvloop, traced=True)
    figures.append(Figure(name=f"kept of {DELTAS:,} deltas", value=kept, unit="KB/KB of text"))
    return figures


def _in_a_process(kind: str, uvloop: bool, *, traced: bool = False, bare: bool = False) -> float:
    flags = {"--traced": traced, "--bare": bare, "--uvloop": uvloop}
    command = [sys.executable, "-m", "benchmarks.memory", kind]
    command += [flag for flag, given in flags.items() if given]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return float(json.loads(output))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory")
    parser.add_argument("kind", choices=("plain", "tls", "deltas"))
    parser.add_argument("--traced", action="store_true", help="by tracemalloc instead of RSS")
    parser.add_argument("--bare", action="store_true", help="the floor's connections instead")
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    held = _resident
    if options.traced:
        tracemalloc.start()
        held = _traced
    print(json.dumps(run(_work(options, held), uvloop=options.uvloop)))


def _work(options: argparse.Namespace, held: Bytes) -> Coroutine[Any, Any, float]:
    if options.kind == "deltas":
        return _kept(held)
    return _open(held, tls=options.kind == "tls", bare=options.bare)


async def _open(held: Bytes, *, tls: bool, bare: bool) -> float:
    """KB that each of `STREAMS` silent streams holds."""
    with ProviderProcess(SILENT, tls=tls) as provider:
        begin = _begin_bare(provider) if bare else _begin(provider)
        opened = [await begin() for _ in range(5)]  # imports, caches, the pool
        before = held()
        for start in range(0, STREAMS, OPEN_AT_ONCE):
            opened += await asyncio.gather(*(begin() for _ in range(OPEN_AT_ONCE)))
            await asyncio.to_thread(provider.wait, "stalled", start + OPEN_AT_ONCE, 30)
        await asyncio.sleep(0.1)
        after = held()
        for end in opened:
            await end()
    return (after - before) / STREAMS / KIB


End = Callable[[], Coroutine[Any, Any, None]]
Begin = Callable[[], Coroutine[Any, Any, End]]


def _begin(provider: ProviderProcess) -> Begin:
    """Opens a stream with a task that waits for its next event."""
    client = client_of(provider)

    async def begin() -> End:
        stream = client.streaming_response(QUESTION)
        await anext(stream)
        reader = asyncio.create_task(_read(stream))

        async def end() -> None:
            await stream.aclose()
            await reader

        return end

    return begin


async def _read(stream: Stream) -> None:
    async for _ in stream:
        pass


def _begin_bare(provider: ProviderProcess) -> Begin:
    async def begin() -> End:
        reader = await floor.connect(provider)
        asking = asyncio.create_task(reader.ask(floor.request()))

        async def end() -> None:
            asking.cancel()
            reader.transport.abort()

        return end

    return begin


async def _kept(held: Bytes) -> float:
    """Bytes held for each byte of text, when so many deltas were delivered and dropped."""
    deltas = chat.deltas(DELTAS)
    text = sum(len(f"word{number} ") for number in range(DELTAS))
    answer = in_chunks([*deltas[:-1], *([b": a comment\n\n"] * 2), deltas[-1]])
    with ProviderProcess(answer) as provider:
        stream = client_of(provider).streaming_response(QUESTION)
        async with aclosing(stream):
            await anext(stream)
            before = held()
            for _ in range(DELTAS - 1):
                await anext(stream)
            after = held()
    return (after - before) / text


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


if __name__ == "__main__":
    main()
