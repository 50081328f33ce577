"""ms from a stop to the moment the provider saw its connection close.

The provider's process stamps the end of a connection when its kernel reports it. The floor is a
bare `shutdown` of a plain socket, measured against the same provider: what two processes and the
loopback interface cost.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from mmsp import AbortError, AbortSignal, AutoLLMClient, Stream
from mmsp.testing import Answer, ProviderProcess, chat, say, stall

from . import floor
from .figures import Figure
from .rig import (
    QUESTION,
    WAYS,
    Stop,
    Ways,
    client_of,
    compute,
    median,
    milliseconds,
    now_ns,
    percentile,
    run,
)

__all__ = ["measure_many", "measure_one"]

SILENT = Answer(say(chat.text("Hel")), stall())
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
SETTLE = 0.001  # s, for both processes to fall asleep
OPEN_AT_ONCE = 100


# ---- one stream


def measure_one(*, full: bool, uvloop: bool) -> list[Figure]:
    stops = 500 if full else 200
    figures = []
    for tls in (False, True):
        with ProviderProcess(SILENT, tls=tls) as provider, Ways() as ways:
            bare = [] if tls else [_shut_bare(provider) for _ in range(stops)]
            for way in WAYS:
                ours = run(_stop_each(provider, ways, way, stops), uvloop=uvloop)
                name = f"{'TLS' if tls else 'plain'}, from {way}"
                figures += _middle_and_tail(name, ours, bare)
    return figures


def _middle_and_tail(name: str, ours: list[float], bare: list[float]) -> list[Figure]:
    def figure(percent: float, target: float) -> Figure:
        return Figure(
            name=f"{name}, p{percent:g}",
            value=percentile(ours, percent),
            unit="ms",
            target=target,
            floor=percentile(bare, percent) if bare else None,
        )

    return [figure(50, 0.5), figure(99, 2.0)]


async def _stop_each(provider: ProviderProcess, ways: Ways, way: str, stops: int) -> list[float]:
    client = client_of(provider)
    return [await _stop_one(provider, client, ways, way) for _ in range(stops)]


async def _stop_one(
    provider: ProviderProcess, client: AutoLLMClient, ways: Ways, way: str
) -> float:
    provider.forget()
    stream = client.streaming_response(QUESTION)
    await anext(stream)
    reader = asyncio.create_task(_read_to_abort(stream))
    await asyncio.sleep(SETTLE)
    stopped = await WAYS[way](ways, lambda: stream.abort("enough"))
    await reader
    [closed] = provider.wait_closed()
    return milliseconds(stopped, closed)


async def _read_to_abort(stream: Stream) -> int:
    """Read to the abort's error; when it came."""
    with suppress(AbortError):
        async for _ in stream:
            pass
    return now_ns()


def _shut_bare(provider: ProviderProcess) -> float:
    provider.forget()
    with floor.connect_raw(provider) as sock:
        provider.wait("stalled")
        sock.recv(65536)
        stopped = now_ns()
        _shut(sock)
        [closed] = provider.wait_closed()
    return milliseconds(stopped, closed)


def _shut(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    sock.shutdown(socket.SHUT_RDWR)


# ---- many streams with one signal


def measure_many(*, full: bool, uvloop: bool) -> list[Figure]:
    runs = 5 if full else 3
    figures = _together(1_000, "plain", runs, uvloop, target=40)
    figures += _together(1_000, "TLS", runs, uvloop, target=50)
    if full:
        figures += _together(5_000, "plain", runs, uvloop, target=200)
    return figures


def _together(count: int, scheme: str, runs: int, uvloop: bool, *, target: float) -> list[Figure]:
    """From the loop, beside bare sockets; and once more from a thread while the loop computes."""
    tls = scheme == "TLS"
    name = f"{count:,} streams, {scheme}"
    with ProviderProcess(SILENT, tls=tls) as provider, Ways() as ways:
        found = {
            way: [run(_stop_together(provider, way, count), uvloop=uvloop) for _ in range(runs)]
            for way in (ways.from_the_loop, partial(ways.while_blocked, block=_compute_long))
        }
        bare = None if tls else median([_shut_together(provider, count) for _ in range(runs)])
    awake, blocked = found.values()
    closed, freed = zip(*awake, strict=True)
    free_by = 100 if count == 1_000 else None
    return [
        Figure.of_runs(f"{name}: last one closed", closed, "ms", target=target, floor=bare),
        Figure.of_runs(f"{name}: last reader has its error", freed, "ms", target=free_by),
        Figure.of_runs(
            f"{name}: last one closed, the loop computing", [each for each, _ in blocked], "ms"
        ),
    ]


def _compute_long() -> None:
    compute(0.5)


async def _stop_together(
    provider: ProviderProcess, way: Callable[[Stop], Awaitable[int]], count: int
) -> tuple[float, float]:
    """Silent streams with one signal; ms until the last one was closed, and the last reader told."""
    provider.forget()
    client = client_of(provider)
    signal = AbortSignal()
    readers: list[asyncio.Task[int]] = []
    for start in range(0, count, OPEN_AT_ONCE):
        readers += [
            asyncio.create_task(_read_to_abort(client.streaming_response(QUESTION, None, signal)))
            for _ in range(min(OPEN_AT_ONCE, count - start))
        ]
        await asyncio.to_thread(provider.wait, "stalled", len(readers), 60)
    await asyncio.sleep(0.2)
    gc.collect()
    stopped = await way(lambda: signal.abort("all of you"))
    freed = max(await asyncio.gather(*readers))
    closed = max(provider.wait_closed(count))
    return milliseconds(stopped, closed), milliseconds(stopped, freed)


def _shut_together(provider: ProviderProcess, count: int) -> float:
    provider.forget()
    socks = [floor.connect_raw(provider) for _ in range(count)]
    provider.wait("stalled", count, 60)
    for sock in socks:
        sock.recv(65536)
    stopped = now_ns()
    for sock in socks:
        _shut(sock)
    closed = max(provider.wait_closed(count))
    for sock in socks:
        sock.close()
    return milliseconds(stopped, closed)
