"""How programs end that have asked a provider: silently, and with nothing left open.

Each is a process of its own, in Python's development mode, in which every warning is an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from tests.asking import complete

SOURCES = Path(__file__).parent.parent


PRELUDE = """
import asyncio, os, signal, sys, threading, time
from mmsp import AutoLLMClient

QUESTION = {"role": "user", "content_items": [{"type": "text.done", "text": "hi"}]}
client = AutoLLMClient("some-model", "a-key", os.environ["TRY_URL"], "openai-chat")
kept = []

if os.environ["TRY_LOOP"] == "uvloop":
    from uvloop import new_event_loop
else:
    from asyncio import new_event_loop

def new_loop():
    loop = new_event_loop()
    loop.slow_callback_duration = 60  # a busy machine is no complaint
    return loop

def run(main):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)

async def whole():
    async for event in client.streaming_response([QUESTION]):
        if event["event_type"] == "stop":
            return
    raise AssertionError("no stop")

async def begin():
    stream = client.streaming_response([QUESTION])
    await anext(stream)
    return stream

async def read_for_ever():
    async for event in client.streaming_response([QUESTION]):
        pass
"""

# name: (whether the provider's answers stall, the program, its exit code)
LIVES: dict[str, tuple[bool, str, int]] = {
    "an idle connection": (False, "run(whole())", 0),
    "two loops": (False, "run(whole()); run(whole())", 0),
    "an open stream that is kept": (
        True,
        """
async def main():
    kept.append(await begin())
run(main())
""",
        0,
    ),
    "an open stream in a task": (
        True,
        """
async def main():
    kept.append(asyncio.create_task(read_for_ever()))
    await asyncio.sleep(0.1)
run(main())
""",
        0,
    ),
    "a stream being opened": (
        True,
        """
async def main():
    kept.append(asyncio.create_task(read_for_ever()))
    await asyncio.sleep(0)
run(main())
""",
        0,
    ),
    "sys.exit inside the loop": (
        True,
        """
async def main():
    stream = await begin()
    sys.exit(3)
run(main())
""",
        3,
    ),
    "an exception": (
        True,
        """
async def main():
    stream = await begin()
    raise ValueError("deliberate")
run(main())
""",
        1,
    ),
    "an exception inside async with": (
        True,
        """
async def main():
    async with client.streaming_response([QUESTION]) as stream:
        async for event in stream:
            raise ValueError("deliberate")
run(main())
""",
        1,
    ),
    "Ctrl-C while it reads": (
        True,
        """
async def main():
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    await read_for_ever()
try:
    run(main())
except KeyboardInterrupt:
    sys.exit(4)
""",
        4,
    ),
    "Ctrl-C while it works": (
        True,
        """
async def main():
    stream = await begin()
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    while True:
        await asyncio.sleep(0)
try:
    run(main())
except KeyboardInterrupt:
    sys.exit(4)
""",
        4,
    ),
    "KeyboardInterrupt raised by the program": (
        True,
        """
async def main():
    async for event in client.streaming_response([QUESTION]):
        raise KeyboardInterrupt
try:
    run(main())
except KeyboardInterrupt:
    sys.exit(4)
""",
        4,
    ),
    "os._exit": (
        True,
        """
async def main():
    kept.append(await begin())
    os._exit(5)
run(main())
""",
        5,
    ),
    "a loop of its own, ended by the book": (
        False,
        """
loop = new_loop()
loop.run_until_complete(whole())
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
""",
        0,
    ),
    "a loop of its own, ended by the book, with an open stream": (
        True,
        """
loop = new_loop()
kept.append(loop.run_until_complete(begin()))
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
""",
        0,
    ),
    "a loop of its own, ended by the book, right after an abort": (
        True,
        """
async def main():
    stream = client.streaming_response([QUESTION])
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    stream.abort()
    reading.cancel()
loop = new_loop()
loop.run_until_complete(main())
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
""",
        0,
    ),
    "a loop in a thread": (
        False,
        """
thread = threading.Thread(target=run, args=[whole()])
thread.start()
thread.join()
""",
        0,
    ),
    "a loop in a daemon thread that runs on": (
        False,
        """
loop = new_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(whole(), loop).result()
""",
        0,
    ),
    "an open stream in a daemon thread": (
        True,
        """
threading.Thread(target=run, args=[read_for_ever()], daemon=True).start()
time.sleep(0.2)
""",
        0,
    ),
    "a client made and dropped": (False, "del client", 0),
    "a stream made and never read": (
        False,
        """
async def main():
    kept.append(client.streaming_response([QUESTION]))
run(main())
""",
        0,
    ),
}

# asyncio alone: uvloop complains of its transports while the loop is being closed, when nobody can act.
LIVES_ON_ASYNCIO: dict[str, tuple[bool, str, int]] = {
    "a loop that is closed under an idle connection": (
        False,
        """
loop = new_loop()
loop.run_until_complete(whole())
loop.close()
""",
        0,
    ),
    "a loop that is closed under an open stream": (
        True,
        """
loop = new_loop()
kept.append(loop.run_until_complete(begin()))
loop.close()
""",
        0,
    ),
    "a second loop after one that was closed under its connection": (
        False,
        """
loop = new_loop()
loop.run_until_complete(whole())
loop.close()
run(whole())
""",
        0,
    ),
}


def programs() -> Iterator[object]:
    everything = LIVES | LIVES_ON_ASYNCIO
    plain = {name for name in everything if "idle" in name or "open stream" in name}
    for loop, tls, lives in (
        ("asyncio", True, everything),
        ("uvloop", True, LIVES),
        ("asyncio", False, {name: everything[name] for name in everything if name in plain}),
    ):
        for name, life in lives.items():
            yield pytest.param(loop, tls, *life, id=f"{name}-{loop}-{'TLS' if tls else 'plain'}")


def run_program(program: str, provider: ScriptedProvider, loop: str) -> tuple[int, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCES),
        "TRY_URL": provider.base_url,
        "TRY_LOOP": loop,
        "SSL_CERT_FILE": provider.ca_file,
    }
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", PRELUDE + program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("loop", "secure", "stalls", "program", "code"), list(programs()))
def test_a_program_ends_without_a_complaint(
    loop: str, secure: bool, stalls: bool, program: str, code: int
) -> None:
    answer = Answer(say(chat.text("Hel")), stall()) if stalls else complete()
    with ScriptedProvider(answer, tls=secure) as provider:
        found, complaint = run_program(program, provider, loop)
        assert found == code, complaint
        if "deliberate" in program:
            assert complaint.startswith("Traceback")
            assert complaint.rstrip().endswith("ValueError: deliberate")
            assert complaint.count("Traceback") == 1
        else:
            assert complaint == ""
        for record in provider.connections:
            record.wait_closed(1)


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_loop_that_is_never_closed_brings_no_complaint_of_ours(tls: bool) -> None:
    program = "loop = new_loop()\nloop.run_until_complete(whole())\nloop = None"
    with ScriptedProvider(complete(), tls=tls) as provider:
        code, complaint = run_program(program, provider, "asyncio")
        assert code == 0
        assert "unclosed event loop" in complaint
        assert "transport" not in complaint
        assert "GuardedSocket" not in complaint
