"""The server as a process of its own, started as its users start it, with warnings as errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmsp.testing import ScriptedProvider
from tests.serving import KEY, Place, request, row

__all__ = ["ServerProcess", "environment", "eventually", "server", "start", "write_config"]

SOURCES = Path(__file__).parent.parent
LIMIT = 30.0  # s, for what has to happen and may be slow

# What Python, asyncio and uvicorn say of things that were not ended well.
COMPLAINTS = (
    "Exception",
    "ResourceWarning",
    "RuntimeWarning",
    "Task was destroyed",
    "Traceback",
    "never awaited",
    "never retrieved",
)


def environment(**variables: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MMSP_")}
    return {**kept, "PYTHONPATH": str(SOURCES), **variables}


def write_config(
    folder: Path, *rows: Mapping[str, Any], keys: tuple[str, ...] = (KEY,), name: str = "table.json"
) -> Path:
    path = folder / name
    path.write_text(json.dumps({"models": rows, "api_keys": keys}))
    return path


async def eventually(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """What `condition` returns, once that is true."""
    async with asyncio.timeout(LIMIT):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.01)
    raise AssertionError(f"{what} did not come")


@dataclass
class ServerProcess:
    """A server that runs."""

    process: asyncio.subprocess.Process
    said: list[str] = field(default_factory=list)  # on stdout
    log: list[str] = field(default_factory=list)  # on stderr
    _readers: list[asyncio.Task[None]] = field(default_factory=list)

    def follow(self) -> None:
        pairs = ((self.process.stdout, self.said), (self.process.stderr, self.log))
        self._readers = [asyncio.ensure_future(_follow(*pair)) for pair in pairs]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return self.said[0].split(": ", 1)[1]

    @property
    def place(self) -> Place:
        found = re.search(r":(\d+)/v1$", self.url)
        assert found is not None
        return Place(int(found[1]))

    @property
    def workers(self) -> list[int]:
        """The processes that serve, where there are several."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"spawn_main" in _command_line(pid)]

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code."""
        code = await asyncio.wait_for(self.process.wait(), LIMIT)
        await asyncio.gather(*self._readers)
        return code

    async def stop(self) -> None:
        """End it as a service manager does, and see that all was well."""
        if self.process.returncode is None:
            self.send(signal.SIGTERM)
        code = await self.ended()
        assert code == 0, self.log
        assert self.complaints == [], self.log

    @property
    def complaints(self) -> list[str]:
        return [line for line in self.log if any(each in line for each in COMPLAINTS)]

    async def logged(self, text: str, times: int = 1) -> str:
        """The line of the log that holds `text`, the last of so many."""

        def found() -> list[str] | None:
            lines = [line for line in self.log if text in line]
            return lines if len(lines) >= times else None

        lines = await eventually(found, text)
        return str(lines[-1])


async def _follow(stream: asyncio.StreamReader | None, lines: list[str]) -> None:
    assert stream is not None
    async for line in stream:
        lines.append(line.decode().rstrip("\n"))


def _command_line(pid: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


async def start(*arguments: str, command: tuple[str, ...] = (), **env: str) -> ServerProcess:
    """Start it, without waiting for anything."""
    command = command or ("-m", "mmsp.integration.server")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-X", "dev", "-W", "error", *command, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**env),
        start_new_session=True,
    )
    running = ServerProcess(process)
    running.follow()
    return running


@contextlib.asynccontextmanager
async def server(
    config: Path | ScriptedProvider, *options: str, command: tuple[str, ...] = (), **env: str
) -> AsyncIterator[ServerProcess]:
    """A server that answers, and that has ended well in the end if it was not ended before."""
    with contextlib.ExitStack() as stack:
        if isinstance(config, ScriptedProvider):
            folder = stack.enter_context(_temporary_folder())
            config = write_config(folder, row(config))
        running = await start(
            *("--config", str(config), "--port", "0", *options), command=command, **env
        )
        try:
            await eventually(
                lambda: len(running.said) >= 2 or running.process.returncode is not None
            )
            assert running.process.returncode is None, running.log
            if running.url.startswith("http:") and "[" not in running.url:
                await eventually(lambda: is_ready(running.place))
            yield running
            if running.process.returncode is None:
                await running.stop()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)  # the group that was made for it
            await running.process.wait()


async def is_ready(place: Place) -> bool:
    try:
        return (await request(place, "GET", "/readyz", key=None)).status == 200
    except (OSError, EOFError):
        return False


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
