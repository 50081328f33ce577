"""Thousands of open streams in one server process, whose callers all vanish at once."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmsp.testing import Answer, ProviderProcess, chat, say, stall
from tests.asking import QUESTION

STREAMS = 2000
LIMIT_NS = 2_000_000_000
SILENT = Answer(say(chat.text("One")), stall())

BODY = json.dumps({"model": "fast", "messages": [QUESTION]})
REQUEST = (
    "POST /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(BODY)}\r\n\r\n{BODY}"
)
CALLERS = """
import socket, sys
port, count, request = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
callers = []
for _ in range(count):
    callers.append(socket.create_connection(("127.0.0.1", port)))
    callers[-1].sendall(request)
for caller in callers:
    while b"One" not in caller.recv(65536):
        pass
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """The provider and the callers hold as many sockets as the server."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def server(provider: ProviderProcess, folder: Path) -> Iterator[tuple[int, int]]:
    """A server process: its id and port."""
    row = {"model_id": "m", "server_model_id": "fast", "api_key": "a-key"}
    row |= {"base_url": provider.base_url, "client_type": "openai-chat"}
    config = folder / "server.json"
    config.write_text(json.dumps({"models": [row]}))
    command = [sys.executable, "-m", "mmsp.integration.server", "--port=0", "--grace=0"]
    process = subprocess.Popen(
        [*command, f"--config={config}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout:
        try:
            port = int(process.stdout.readline().split("://")[1].split(":")[1].split("/")[0])
            yield process.pid, port
        finally:
            process.terminate()
            assert process.wait(20) == 0


def vanish(provider: ProviderProcess, port: int, count: int) -> int:
    """Open so many streams and kill their callers; ns until the last provider's connection was closed."""
    provider.forget()
    command = [sys.executable, "-c", CALLERS, str(port), str(count), REQUEST]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as callers:
        assert callers.stdout is not None
        callers.stdout.readline()
        provider.wait("stalled", count, timeout=50)
        left_ns = time.monotonic_ns()
        callers.kill()
    return max(provider.wait_closed(count, timeout=50)) - left_ns


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory(pid: int) -> int:
    """Bytes that are resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_callers_that_vanish_together_close_every_providers_connection(
    tmp_path: Path, many_descriptors: None, report_at_the_end: list[str]
) -> None:
    with ProviderProcess(SILENT) as provider, server(provider, tmp_path) as (pid, port):
        vanish(provider, port, 50)  # what the first streams bring with them
        idle = descriptors(pid)
        took = vanish(provider, port, STREAMS)
        assert took < LIMIT_NS
        wait_until_back(pid, idle)
        report_at_the_end.append(
            f"{STREAMS:,} streams through a server, all callers killed: closed after {took / 1e6:.0f} ms"
        )


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_server_does_not_grow_with_the_streams_it_has_served(
    tmp_path: Path, many_descriptors: None, report_at_the_end: list[str]
) -> None:
    with ProviderProcess(SILENT) as provider, server(provider, tmp_path) as (pid, port):
        sizes = []
        for _ in range(6):
            vanish(provider, port, 300)
            sizes.append(memory(pid))
        assert sizes[-1] < sizes[0] * 1.25
        report_at_the_end.append(
            "memory of a server after each of 6 × 300 streams: "
            + ", ".join(f"{each / 1e6:.1f}" for each in sizes)
            + " MB"
        )


def wait_until_back(pid: int, idle: int) -> None:
    give_up = time.monotonic() + 20
    while descriptors(pid) > idle:
        assert time.monotonic() < give_up, f"{descriptors(pid)} descriptors instead of {idle}"
        time.sleep(0.01)
