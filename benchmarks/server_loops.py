"""The server on asyncio's loop and on uvloop's: events a second, and how soon a caller's leaving is heard.

    python -m benchmarks.server_loops

The server is a process of its own; provider and caller are this one. The rounds alternate, and the best
of each loop counts for the rate, the median for the times.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time

from mmsp.testing import Answer, ScriptedProvider, chat, say, stall

ROUNDS = 5
EVENTS = 20_000
LEAVES = 40
QUESTION = (
    b'{"model": "m", "messages": [{"role": "user", "content_items":'
    b' [{"type": "text.done", "text": "Hello?"}]}]}'
)


def serve(loop: str, base_url: str) -> None:
    """In the server's process."""
    import uvicorn

    from mmsp.integration.server import create_server_app

    row = {"model_id": "m", "api_key": "k", "server_model_id": "m", "base_url": base_url}
    app = create_server_app([row | {"client_type": "openai-chat"}])
    uvicorn.run(app, port=0, loop=loop, http="httptools", lifespan="off", access_log=False)


async def ask(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    head = "POST /v1/stream HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(QUESTION)}\r\n\r\n".encode() + QUESTION)
    return reader, writer


async def rate(port: int) -> float:
    began = time.perf_counter()
    reader, writer = await ask(port)
    await reader.readuntil(b"[DONE]")
    writer.close()
    return EVENTS / (time.perf_counter() - began)


async def leave(port: int, provider: ScriptedProvider) -> float:
    """ms from hanging up until the provider saw its connection close."""
    reader, writer = await ask(port)
    await reader.readuntil(b"One")
    left = time.monotonic_ns()
    writer.close()
    return (await provider.connections[-1].until_closed() - left) / 1e6


async def measure(loop: str) -> tuple[float, float]:
    flood = Answer(*(say(each) for each in chat.answer(" x" * EVENTS)))
    silent = Answer(say(chat.text("One")), stall())
    with ScriptedProvider(flood, silent) as provider:
        command = (sys.executable, "-m", "benchmarks.server_loops", loop, provider.base_url)
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220
        assert server.stderr is not None
        try:
            line = next(each for each in server.stderr if "running on" in each)
            port = int(line.partition("127.0.0.1:")[2].split()[0])
            events = await rate(port)
            leaves = [await leave(port, provider) for _ in range(LEAVES)]
        finally:
            server.terminate()
            server.wait()
            server.stderr.close()
    return events, statistics.median(leaves)


def main() -> None:
    found: dict[str, list[tuple[float, float]]] = {"asyncio": [], "uvloop": []}
    for _ in range(ROUNDS):
        for loop, results in found.items():
            results.append(asyncio.run(measure(loop)))
    for loop, results in found.items():
        events = max(rate for rate, _ in results)
        late = statistics.median(left for _, left in results)
        print(f"{loop:8} {events:9,.0f} events/s   leaving heard after {late:.2f} ms")


if __name__ == "__main__":
    serve(*sys.argv[1:]) if len(sys.argv) > 1 else main()
