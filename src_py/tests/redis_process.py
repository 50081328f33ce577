"""A real Redis for a test, on a Unix socket in a folder of its own."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

__all__ = ["RedisProcess", "redis_process"]

LIMIT = 20.0  # s


class RedisProcess:
    """It forgets everything when it ends, and may be started again at the same place."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "redis.sock"
        self._folder = folder
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._socket.unlink(missing_ok=True)
        options = ("--port", "0", "--unixsocket", str(self._socket), "--dir", str(self._folder))
        self._process = subprocess.Popen(
            ["redis-server", *options, "--save", "", "--appendonly", "no"],
            stdout=subprocess.DEVNULL,
        )
        end = time.monotonic() + LIMIT
        while True:
            try:
                with self.client() as client:
                    client.ping()
            except (redis.RedisError, OSError):
                assert time.monotonic() < end, "redis-server does not answer"
                time.sleep(0.01)
            else:
                return

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        client = redis.Redis.from_url(self.url, socket_timeout=LIMIT)
        try:
            yield client
        finally:
            client.close()

    def names(self, pattern: str = "*") -> set[str]:
        with self.client() as client:
            return {key.decode() for key in client.keys(pattern)}

    def dump(self) -> bytes:
        """All that is in it, keys and values."""
        said = []
        with self.client() as client:
            for key in client.keys("*"):
                said += [key, client.dump(key)]
                if client.type(key) == b"string":
                    said.append(client.get(key))
                elif client.type(key) == b"zset":
                    said += client.zrange(key, 0, -1)
        return b"\n".join(said)


@contextlib.contextmanager
def redis_process(folder: Path) -> Iterator[RedisProcess]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    running = RedisProcess(folder)
    running.start()
    try:
        yield running
    finally:
        with contextlib.suppress(AssertionError):
            running.send(signal.SIGCONT)
        running.kill()
