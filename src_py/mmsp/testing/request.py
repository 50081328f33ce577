"""Requests out of bytes, by httptools.

Pure: bytes in, events out. A CONNECT ends the reading: what follows it is not HTTP of ours, and a
new reader is made for what comes out of the tunnel.
"""

from __future__ import annotations

from dataclasses import dataclass

import httptools

from .records import ReceivedRequest


@dataclass(frozen=True, slots=True)
class Begun:
    """The first bytes of a request."""


@dataclass(frozen=True, slots=True)
class Head:
    request: ReceivedRequest


@dataclass(frozen=True, slots=True)
class Whole:
    request: ReceivedRequest
    body: bytes
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A CONNECT request, and the bytes that came behind it."""

    request: ReceivedRequest
    rest: bytes


@dataclass(frozen=True, slots=True)
class Unreadable:
    fault: str


ReadEvent = Begun | Head | Whole | Tunnel | Unreadable


class RequestReader:
    """Feed it what arrives; each feed returns what that completed. The `on_` methods are
    httptools'.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._events: list[ReadEvent] = []
        self._target = b""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._request = ReceivedRequest("", "", [])

    def feed(self, data: bytes) -> list[ReadEvent]:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._leave(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._events.append(Unreadable(f"not HTTP: {error}"))
        events, self._events = self._events, []
        return events

    def on_message_begin(self) -> None:
        self._target, self._headers, self._body = b"", [], []
        self._events.append(Begun())

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        method = self._parser.get_method().decode("latin-1")
        self._request = ReceivedRequest(method, self._target.decode("latin-1"), self._headers)
        if method != "CONNECT":
            self._events.append(Head(self._request))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._request.method != "CONNECT":
            keep_alive = self._parser.should_keep_alive()
            self._events.append(Whole(self._request, b"".join(self._body), keep_alive))

    def _leave(self, rest: bytes) -> None:
        if self._request.method == "CONNECT":
            self._events.append(Tunnel(self._request, rest))
        else:  # an `Upgrade:` header we do not follow: the next request is plain HTTP again
            self._parser = httptools.HttpRequestParser(self)
            if rest:
                self._parser.feed_data(rest)
