"""The floor: the least code that could do the same work, to compare with on the machine of the day.

A bare `asyncio.Protocol` with httptools and a typed JSON decode: no grammar, no interruption, no
time-outs, no errors. What it costs is what sockets, the event loop, HTTP and JSON cost.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from typing import cast
from urllib.parse import urlsplit

import httptools
import msgspec

from mmsp.testing import ProviderProcess

__all__ = ["Reader", "connect", "connect_raw", "request"]


class _Function(msgspec.Struct, gc=False):
    arguments: str | None = None


class _Call(msgspec.Struct, gc=False):
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


class Reader(asyncio.Protocol):
    """Reads one answer after the other and counts the characters it says."""

    def __init__(self) -> None:
        self.characters = 0
        self.events = 0
        self.transport: asyncio.Transport
        self._ended: asyncio.Future[None]
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._rest = b""

    async def ask(self, payload: bytes) -> None:
        """Send a request and read its answer to the end."""
        self._ended = asyncio.get_running_loop().create_future()
        self.transport.write(payload)
        await self._ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        body = self._rest + b"".join(self._pieces)
        self._pieces.clear()
        *events, self._rest = body.split(b"\n\n")
        for event in events:
            self._event(event)

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._ended.set_result(None)

    def _event(self, event: bytes) -> None:
        if event == b"data: [DONE]":
            return
        self.events += 1
        for choice in _decode(event[6:]).choices or ():
            delta = choice.delta
            if delta is None:
                continue
            if delta.content:
                self.characters += len(delta.content)
            elif delta.reasoning_content:
                self.characters += len(delta.reasoning_content)
            elif delta.tool_calls:
                for call in delta.tool_calls:
                    if call.function is not None and call.function.arguments:
                        self.characters += len(call.function.arguments)


def request() -> bytes:
    """A small streaming request, as bytes."""
    message = {"role": "user", "content": "Say something."}
    body = json.dumps({"model": "scripted", "stream": True, "messages": [message]}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def connect(provider: ProviderProcess) -> Reader:
    context: ssl.SSLContext | None = None
    if provider.base_url.startswith("https:"):
        context = provider.ssl_context
    _, reader = await asyncio.get_running_loop().create_connection(
        Reader, *_address(provider), ssl=context
    )
    return reader


def connect_raw(provider: ProviderProcess) -> socket.socket:
    """A plain socket on which a request was sent."""
    sock = socket.create_connection(_address(provider))
    sock.sendall(request())
    return sock


def _address(provider: ProviderProcess) -> tuple[str, int]:
    url = urlsplit(provider.base_url)
    assert url.hostname is not None
    assert url.port is not None
    return url.hostname, url.port
