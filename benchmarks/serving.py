"""What the server costs: events relayed, memory of streams that wait, and callers that leave.

The server, the provider and this process with its callers are three processes on one machine; callers are
bare sockets, so that they cost next to nothing. `relay` is wall time, which the three share.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mmsp.testing import Answer, ProviderProcess, chat, say, stall

from .figures import Figure
from .rig import milliseconds, now_ns, percentile, text_answer

__all__ = ["measure"]

MODEL = "relayed"
SILENT = Answer(say(chat.text("Hel")), stall())
PAGE = 4096 / 1024  # KB
QUESTION = [{"role": "user", "content_items": [{"type": "text.done", "text": "Say something."}]}]
BODY = json.dumps({"model": MODEL, "messages": QUESTION}).encode()
REQUEST = (
    b"POST /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY)
) + BODY


def measure(*, full: bool, uvloop: bool) -> list[Figure]:
    return [*_relay(full=full), *_leave(full=full), *_open(full=full)]


# ---- the server


@dataclass
class Server:
    process: subprocess.Popen[str]
    port: int

    def memory(self) -> float:
        """KB that are resident."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    def ask(self) -> socket.socket:
        caller = socket.create_connection(("127.0.0.1", self.port))
        caller.sendall(REQUEST)
        return caller


@contextlib.contextmanager
def _server(provider: ProviderProcess) -> Iterator[Server]:
    row = {"model_id": MODEL, "server_model_id": MODEL, "api_key": "scripted"}
    row |= {"base_url": provider.base_url, "client_type": "openai-chat"}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "server.json")
        config.write_text(json.dumps({"models": [row]}))
        command = [sys.executable, "-m", "mmsp.integration.server", "--port", "0"]
        command += ["--config", str(config), "--grace", "0"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        with process, process.stdout:
            try:
                yield Server(process, _port_in(process.stdout.readline()))
            finally:
                process.terminate()
                process.wait()


def _port_in(line: str) -> int:
    """Of the first line that the server prints, which has its URL."""
    return int(line.split("://")[1].split(":")[1].split("/")[0])


# ---- relaying


def _relay(*, full: bool) -> list[Figure]:
    events, runs = (100_000, 7) if full else (50_000, 3)
    figures = []
    with ProviderProcess(text_answer(events)) as provider, _server(provider) as server:
        for callers in (1, 4):
            _relay_once(server, callers)  # warms up
            took = [_relay_once(server, callers) / events / callers * 1e6 for _ in range(runs)]
            name = f"relay, {callers} at a time"
            figures.append(Figure.of_runs(name, took, "µs/event", target=1e6 / 120_000))
    return figures


def _relay_once(server: Server, callers: int) -> float:
    with ThreadPoolExecutor(callers) as pool:
        begun = time.perf_counter()
        list(pool.map(lambda _: _read_whole(server), range(callers)))
        return time.perf_counter() - begun


def _read_whole(server: Server) -> None:
    tail = b""
    with server.ask() as caller:
        while b"[DONE]" not in tail:
            data = caller.recv(1 << 18)
            if not data:
                raise RuntimeError(f"the relayed answer was cut: {tail!r}")
            tail = (tail + data)[-100:]


# ---- leaving


def _leave(*, full: bool) -> list[Figure]:
    times = 1000 if full else 200
    with ProviderProcess(SILENT) as provider, _server(provider) as server:
        took = [_leave_once(provider, server) for _ in range(times)]
    name = "caller leaves → provider closed"
    return [
        Figure(name=f"{name}, p50", value=percentile(took, 50), unit="ms"),
        Figure(name=f"{name}, p99", value=percentile(took, 99), unit="ms", target=5.0),
    ]


def _leave_once(provider: ProviderProcess, server: Server) -> float:
    provider.forget()
    caller = server.ask()
    caller.recv(65536)
    provider.wait("stalled")
    time.sleep(0.001)
    left = now_ns()
    caller.close()
    [closed] = provider.wait_closed()
    return milliseconds(left, closed)


# ---- many that wait


CALLERS = """
import socket, sys
port, count, request = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
callers = []
for _ in range(count):
    caller = socket.create_connection(("127.0.0.1", port))
    caller.sendall(request)
    callers.append(caller)
for caller in callers:
    caller.recv(65536)
print("open", flush=True)
sys.stdin.read()
"""


def _open(*, full: bool) -> list[Figure]:
    count = 2000
    with ProviderProcess(SILENT) as provider, _server(provider) as server:
        _open_once(provider, server, 50)  # what the first streams bring with them
        before = server.memory()
        held, took = _open_once(provider, server, count)
    return [
        Figure(name="a silent stream", value=(held - before) / count, unit="KB", target=60),
        Figure(name=f"{count:,} callers vanish → all closed", value=took, unit="ms", target=2000),
    ]


def _open_once(provider: ProviderProcess, server: Server, count: int) -> tuple[float, float]:
    """KB that the server holds with so many streams, and ms until all were closed after their callers'
    process was killed."""
    provider.forget()
    command = [sys.executable, "-c", CALLERS, str(server.port), str(count), REQUEST.hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as callers:
        assert callers.stdout is not None
        callers.stdout.readline()
        provider.wait("stalled", count, timeout=60)
        held = server.memory()
        left = now_ns()
        callers.kill()
    closed = provider.wait_closed(count, timeout=60)
    return held, milliseconds(left, max(closed))
