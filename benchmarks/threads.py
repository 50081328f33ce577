"""`mmsp.sync`: what the hand-over between threads costs, and how fast a stop from a thread frees a reader.

Each kind of stream is read by the asynchronous client too, in the same sitting: that is the floor, so the
ratio is the price of a program without an event loop. With `--full` the OpenAI SDK's synchronous client
reads the same streams, from an environment of its own that is made for it and thrown away.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mmsp.sync import Aborted, AutoLLMClient, Stream
from mmsp.testing import Answer, ProviderProcess, chat, say, stall

from .decoding import read as read_on_a_loop
from .figures import Figure
from .rig import (
    QUESTION,
    client_of,
    environment,
    median,
    milliseconds,
    now_ns,
    percentile,
    run,
    text_answer,
)

__all__ = ["measure"]

DELTAS = 20_000
SILENT = Answer(say(chat.text("Hel")), stall())
SETTLE = 0.001  # s, for the reader to wait
SDK = "openai"
READ_WITH_THE_SDK = """
import json, sys, time
from openai import OpenAI
url, runs = sys.argv[1], int(sys.argv[2])
client = OpenAI(base_url=url, api_key="scripted", max_retries=0)
found = []
for _ in range(runs):
    count, begun = 0, time.perf_counter()
    question = [{"role": "user", "content": "Say something."}]
    for _ in client.chat.completions.create(model="m", messages=question, stream=True):
        count += 1
    found.append((time.perf_counter() - begun) / count * 1e6)
print(json.dumps(found))
"""


def measure(*, full: bool, uvloop: bool) -> list[Figure]:
    runs = 15 if full else 5
    with ProviderProcess() as provider:
        figures = []
        for (name, answer), target in zip(STREAMS.items(), TARGETS, strict=True):
            provider.set_answers(answer)
            figures += _read(provider, name, target, runs, uvloop=uvloop)
            if full and (sdk := _read_with_the_sdk(provider, runs)):
                figures.append(Figure.of_runs(f"{name}, the OpenAI SDK", sdk, "µs/event"))
    with ProviderProcess(SILENT) as provider:  # one that no kept connection leads to
        return figures + _stop(provider, 500 if full else 200)


def _apart(count: int) -> Answer:
    return Answer(*map(say, [*chat.deltas(count), *chat.ending(count)]))


STREAMS = {
    f"{DELTAS:,} text deltas, 64 a write": text_answer(DELTAS),
    f"{DELTAS:,} text deltas, each a write": _apart(DELTAS),
}
TARGETS = (10.0, None)  # µs an event: 100,000 events a second, where the provider can say so many


def _read(
    provider: ProviderProcess, name: str, target: float | None, runs: int, *, uvloop: bool
) -> list[Figure]:
    """By threads and on a loop in turn; a first pair warms up."""
    client, core = _client_of(provider), client_of(provider)
    ours: dict[Callable[[Stream], int], list[float]] = {_one_by_one: [], _as_lists: []}
    on_a_loop: list[float] = []
    for _ in range(runs + 1):
        for read, times in ours.items():
            begun = time.perf_counter()
            count = read(client.streaming_response(QUESTION))
            times.append((time.perf_counter() - begun) / count * 1e6)
        seconds, events = run(read_on_a_loop(core), uvloop=uvloop)
        on_a_loop.append(seconds / events * 1e6)
    floor = median(on_a_loop[1:])
    return [
        Figure.of_runs(name + how, times[1:], "µs/event", target=target, floor=floor)
        for how, times in zip(("", ", next_ready()"), ours.values(), strict=True)
    ]


def _one_by_one(stream: Stream) -> int:
    return sum(1 for _ in stream)


def _as_lists(stream: Stream) -> int:
    count = 0
    try:
        while True:
            count += len(stream.next_ready())
    except StopIteration:
        return count


def _client_of(provider: ProviderProcess) -> AutoLLMClient:
    with environment():
        return AutoLLMClient(
            "scripted", client_type="openai-chat", api_key="scripted", base_url=provider.base_url
        )


# ---- stops


def _stop(provider: ProviderProcess, stops: int) -> list[Figure]:
    client = _client_of(provider)
    closed, freed = zip(*(_stop_one(provider, client) for _ in range(stops)), strict=True)
    return [
        Figure(name=f"{what}, p{percent}", value=percentile(times, percent), unit="ms", target=most)
        for what, times in (
            ("from abort() in a thread to the close", closed),
            ("from abort() in a thread to the reader's error", freed),
        )
        for percent, most in ((50, 3.0), (99, None))
    ]


def _stop_one(provider: ProviderProcess, client: AutoLLMClient) -> tuple[float, float]:
    provider.forget()
    stream = client.streaming_response(QUESTION)
    next(stream)
    stopped: list[int] = []

    def stop() -> None:
        time.sleep(SETTLE)
        stopped.append(now_ns())
        stream.abort("enough")

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        next(stream)
    except Aborted:
        freed = now_ns()
    thread.join()
    [closed] = provider.wait_closed()
    return milliseconds(stopped[0], closed), milliseconds(stopped[0], freed)


# ---- the SDK


def _read_with_the_sdk(provider: ProviderProcess, runs: int) -> list[float]:
    """µs an event of each run but the first; nothing when its environment cannot be made."""
    with tempfile.TemporaryDirectory(prefix="mmsp-sdk-") as folder:
        python = Path(folder, "bin", "python")
        try:
            _quietly(sys.executable, "-m", "venv", folder)
            _quietly(str(python), "-m", "pip", "install", SDK)
        except subprocess.CalledProcessError as error:
            print(f"No figure for the SDK: {error.cmd[-1]} failed.", file=sys.stderr)
            return []
        with environment(PYTHONPATH=None):
            read = _quietly(str(python), "-c", READ_WITH_THE_SDK, provider.base_url, str(runs + 1))
        found: list[float] = json.loads(read)
        return found[1:]


def _quietly(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
