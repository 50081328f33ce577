"""Short words for tests of the server: it runs in the test's own loop, on a real socket, and is asked by
raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import uvicorn

from mmsp.integration.server import create_server_app
from mmsp.integration.server.app import ServerApp
from mmsp.testing import ScriptedProvider
from tests.asking import QUESTION

__all__ = ["KEY", "Caller", "Reply", "app_for", "row", "run_uvicorn", "served"]

KEY = "team-key-1"
MODEL = "fast"


def row(provider: ScriptedProvider, **cells: Any) -> dict[str, Any]:
    return {
        "model_id": "some-model",
        "api_key": "a-key",
        "server_model_id": MODEL,
        "base_url": provider.base_url,
        "client_type": "openai-chat",
        **cells,
    }


def app_for(provider: ScriptedProvider, *keys: str, **settings: Any) -> ServerApp:
    return create_server_app([row(provider)], keys, **settings)


@contextlib.asynccontextmanager
async def run_uvicorn(app: Any, http: str = "h11", **options: Any) -> AsyncIterator[int]:
    """uvicorn with `app` on this loop; its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    config = uvicorn.Config(
        app, http=http, lifespan="off", log_config=None, timeout_graceful_shutdown=3, **options
    )
    server = uvicorn.Server(config)
    setattr(server, "capture_signals", contextlib.nullcontext)  # noqa: B010 - the tests' signals
    running = asyncio.ensure_future(server.serve([listener]))
    while not server.started and not running.done():
        await asyncio.sleep(0.001)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await running


@contextlib.asynccontextmanager
async def served(app: Any, http: str = "h11") -> AsyncIterator[int]:
    """The app under uvicorn, closed at the end."""
    async with run_uvicorn(app, http) as port:
        yield port
        if isinstance(app, ServerApp):
            await app.aclose()


@dataclass
class Reply:
    """The head of an answer and its body, as far as it was read."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json()["error"]
        return found

    @property
    def events(self) -> list[Any]:
        """The data of the events so far, decoded, `[DONE]` as it is."""
        parts = [each for each in self.body.decode().split("\n\n") if each.startswith("data: ")]
        return [_decoded(each.removeprefix("data: ")) for each in parts]


def _decoded(data: str) -> Any:
    return data if data == "[DONE]" else json.loads(data)


@dataclass
class Caller:
    """One connection to the server, which can hang up at any moment."""

    port: int
    reader: asyncio.StreamReader = field(init=False)
    writer: asyncio.StreamWriter = field(init=False)
    chunked: bool = False

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()

    async def hang_up(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        self.writer.transport.abort()

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = KEY,
        headers: Mapping[str, str] | None = None,
        version: str = "1.1",
    ) -> None:
        text = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        fields = {"Host": "127.0.0.1", "Content-Length": str(len(text))}
        if text:
            fields["Content-Type"] = "application/json"
        if key is not None:
            fields["Authorization"] = f"Bearer {key}"
        fields |= headers or {}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.writer.write(f"{method} {path} HTTP/{version}\r\n{head}\r\n".encode("latin-1") + text)
        await self.writer.drain()

    async def ask(self, **changes: Any) -> None:
        """`POST /v1/stream`."""
        options = {
            name: changes.pop(name) for name in ("key", "headers", "version") if name in changes
        }
        body = {"model": MODEL, "messages": [QUESTION], **changes}
        await self.send("POST", "/v1/stream", body, **options)

    async def head(self) -> Reply:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        self.chunked = fields.get("transfer-encoding") == "chunked"
        self.length = int(fields.get("content-length", "-1"))
        return Reply(int(lines[0].split()[1]), fields)

    async def piece(self) -> bytes:
        """The next piece of the body; empty at its end."""
        if not self.chunked:
            return await self.reader.read(65536)
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return data

    async def whole(self) -> Reply:
        """The head and all of the body."""
        reply = await self.head()
        if not self.chunked and self.length >= 0:
            reply.body = await self.reader.readexactly(self.length)
            return reply
        while data := await self.piece():
            reply.body += data
        return reply

    async def until_event(self, reply: Reply, count: int = 1) -> None:
        while len(reply.events) < count:
            data = await self.piece()
            assert data, f"the body ended: {reply.body!r}"
            reply.body += data


async def request(port: int, method: str, path: str, body: Any = None, **options: Any) -> Reply:
    async with Caller(port) as caller:
        await caller.send(method, path, body, **options)
        return await caller.whole()
