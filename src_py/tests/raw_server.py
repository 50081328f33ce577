"""A server that says bytes as they are, for answers no HTTP library would write."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from typing import Self

from mmsp.testing import tls

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
BETWEEN_WRITES = 0.005


def head(*fields: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    """A head with those header lines."""
    return "\r\n".join([status, *fields, "", ""]).encode("latin-1")


def whole(body: bytes, *fields: str) -> bytes:
    """An answer with its Content-Length."""
    return head(f"content-length: {len(body)}", "content-type: text/event-stream", *fields) + body


class RawServer:
    """Serves on the running loop. The n-th request of a connection gets the n-th of `answers`; a tuple
    of bytes is written piece by piece. After the last the connection is closed, or left open."""

    def __init__(
        self,
        *answers: bytes | tuple[bytes, ...],
        secure: bool = False,
        stays_open: bool = False,
        reads_bodies: bool = True,
        between: float = BETWEEN_WRITES,
    ) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.ended = asyncio.Event()  # a connection was closed by the far side
        self._answers = [each if isinstance(each, tuple) else (each,) for each in answers]
        self._secure = secure
        self._stays_open = stays_open
        self._reads_bodies = reads_bodies
        self._between = between
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        context = tls.server_context("127.0.0.1") if self._secure else None
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0)

    @property
    def base_url(self) -> str:
        return f"{'https' if self._secure else 'http'}://127.0.0.1:{self.port}/v1"

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        return tls.client_context() if self._secure else None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            for answer in self._answers:
                await self._take_request(reader)
                for number, piece in enumerate(answer):
                    if number:
                        await asyncio.sleep(self._between)
                    writer.write(piece)
                    await writer.drain()
            if self._stays_open:
                while await reader.read(65536):
                    pass
                self.ended.set()
        except (OSError, RuntimeError, asyncio.IncompleteReadError):  # RuntimeError is uvloop's
            self.ended.set()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._writers.discard(writer)

    async def _take_request(self, reader: asyncio.StreamReader) -> None:
        top = await reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(top) if self._reads_bodies else None
        body = await reader.readexactly(int(length[1])) if length else b""
        self.requests.append(top + body)
