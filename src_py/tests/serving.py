"""Short words for tests of the server: it runs in the test's own loop, on a real socket, and is asked by
raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import hypercorn
import hypercorn.asyncio
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from mmsp.integration.server import create_server_app
from mmsp.integration.server.app import ServerApp
from mmsp.integration.server.protocol import OneAtATime
from mmsp.testing import ScriptedProvider
from tests.asking import QUESTION

__all__ = [
    "KEY",
    "MODEL",
    "ROUTES",
    "Caller",
    "Place",
    "Reply",
    "app_for",
    "request",
    "row",
    "run_uvicorn",
    "served",
]

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
async def run_uvicorn(app: Any, http: Any = "h11", **options: Any) -> AsyncIterator[int]:
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
async def run_hypercorn(app: Any) -> AsyncIterator[int]:
    """The same of another ASGI server, whose `send` never raises."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    config = hypercorn.Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.errorlog = None
    config.graceful_timeout = 1
    stopped = asyncio.Event()
    running = asyncio.ensure_future(
        hypercorn.asyncio.serve(app, config, shutdown_trigger=stopped.wait, mode="asgi")
    )
    port = listener.getsockname()[1]
    listener.detach()  # it is hypercorn's now
    try:
        yield port
    finally:
        stopped.set()
        await running


@contextlib.asynccontextmanager
async def run_behind_nginx(app: Any, folder: Path) -> AsyncIterator[int]:
    """A real nginx in front of uvicorn, set up as the docs say."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    async with run_uvicorn(app) as upstream:
        port = _free_port()
        (folder / "nginx.conf").write_text(
            _NGINX.format(folder=folder, port=port, upstream=upstream)
        )
        command = ("nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf"))
        nginx = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        try:
            await _answers(port)
            yield port
        finally:
            nginx.terminate()
            await nginx.wait()


_NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{upstream};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 1h;
    }}
  }}
}}
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def _answers(port: int) -> None:
    for _ in range(500):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return
    raise AssertionError(f"nobody listens on {port}")


class Through(BaseHTTPMiddleware):
    """Middleware that does nothing, in the form that hides most of ASGI from what is behind it."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


def mounted(app: ServerApp, path: str) -> Starlette:
    return Starlette(routes=[Mount(path, app)])


ROUTES = (
    "our runner",
    "uvicorn h11",
    "uvicorn httptools",
    "hypercorn",
    "middleware twice",
    "mounted",
    "nginx",
)


@contextlib.asynccontextmanager
async def served(app: Any, route: str = "uvicorn h11") -> AsyncIterator[Place]:
    """The app where `route` says, closed at the end."""
    runner: Any
    if route == "hypercorn":
        runner = run_hypercorn(app)
    elif route == "nginx":
        folder = tempfile.TemporaryDirectory()
        runner = run_behind_nginx(app, Path(folder.name))
    elif route == "middleware twice":
        runner = run_uvicorn(Through(Through(app)))
    elif route == "our runner":
        runner = run_uvicorn(app, OneAtATime)
    elif route == "mounted":
        runner = run_uvicorn(mounted(app, "/llm"))
    else:
        runner = run_uvicorn(app, route.removeprefix("uvicorn "))
    async with runner as port:
        yield Place(port, "/llm" if route == "mounted" else "")
        if isinstance(app, ServerApp):
            await app.aclose()
    if route == "nginx":
        folder.cleanup()


class Place(NamedTuple):
    """Where a server is."""

    port: int
    path: str = ""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}/v1"


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

    place: Place
    reader: asyncio.StreamReader = field(init=False)
    writer: asyncio.StreamWriter = field(init=False)
    chunked: bool = False

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.place.port)
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
        self.writer.write(
            f"{method} {self.place.path}{path} HTTP/{version}\r\n{head}\r\n".encode("latin-1")
            + text
        )
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
        if reply.status == 204:
            return reply
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


async def request(place: Place, method: str, path: str, body: Any = None, **options: Any) -> Reply:
    async with Caller(place) as caller:
        await caller.send(method, path, body, **options)
        return await caller.whole()
