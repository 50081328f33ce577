"""One connection's life: TLS hello, CONNECT, requests, and the answers played to it one after the
other.

What arrives goes to the one stage the connection is in: waiting for a TLS hello, reading HTTP, or
deaf. A write is followed by the next step of the script only when the kernel has taken it.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from . import checks, tls
from .channel import Channel
from .loop import Loop
from .play import Action, End, Silence, play
from .records import ConnectionRecord, ReceivedRequest, State
from .request import Begun, Head, ReadEvent, RequestReader, Tunnel, Unreadable, Whole
from .script import Answer, Cut, Gate, Pause, Reset, Stall

Hello = Literal["answer", "ignore"]
Connect = Literal["answer", "ignore", "refuse"]

WRITES_IN_A_TURN = 16
"""A long answer makes way after so many writes, so that an end of any connection is seen when it
comes.
"""

TLS_HANDSHAKE_BYTE = 0x16


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How a provider treats connections before and around its answers."""

    host: str = "127.0.0.1"
    tls: bool = False
    tls_hello: Hello = "answer"
    connect: Connect = "answer"
    tunnel_tls: Hello = "answer"
    read_body: bool = True
    ignore_eof: bool = False

    def __post_init__(self) -> None:
        checks.name("host", self.host)
        for flag in ("tls", "read_body", "ignore_eof"):
            checks.flag(flag, getattr(self, flag))
        for way, ways in (("tls_hello", Hello), ("connect", Connect), ("tunnel_tls", Hello)):
            checks.choice(way, getattr(self, way), get_args(ways))


class Backstage(Protocol):
    """What a connection needs of its provider."""

    loop: Loop
    manners: Manners

    def answer_for(self, request: ReceivedRequest) -> Answer:
        """Record the request and take the answer whose turn it is."""
        ...

    def when_open(self, gate: str, callback: Callable[[], None]) -> None:
        """Run the callback when the gate is opened, or in the next turn if it is open."""

    def left(self, connection: Connection) -> None:
        """The connection has ended."""


class Connection:
    def __init__(self, sock: socket.socket, record: ConnectionRecord, stage: Backstage) -> None:
        manners = stage.manners
        self._record = record
        self._stage = stage
        self._manners = manners
        self._reader = RequestReader()
        self._waiting: deque[Whole] = deque()
        self._script: Iterator[Action] | None = None
        self._hello: tuple[State, Hello, str] = ("tls", manners.tls_hello, manners.host)
        self._receive = self._read_hello if manners.tls else self._read_http
        self._channel = Channel(
            sock,
            stage.loop,
            self,
            record,
            read_size=65536 if manners.read_body else 2048,
            ignore_eof=manners.ignore_eof,
        )

    def close(self, *, reset: bool = False) -> None:
        self._channel.close(reset=reset)

    def received(self, data: bytes) -> None:
        self._receive(data)

    def drained(self) -> None:
        self._play()

    def broken(self, fault: str) -> None:
        self._record.fault = fault
        self.close()

    def ended(self) -> None:
        self._script = None
        self._receive = self._ignore
        self._stage.left(self)

    def _ignore(self, data: bytes) -> None:
        pass

    def _read_hello(self, data: bytes) -> None:
        state, policy, name = self._hello
        if state == "tunnel_tls" and data[0] != TLS_HANDSHAKE_BYTE:
            self._receive = self._read_http  # a client that tunnels plain HTTP
            self._read_http(data)
            return
        self._enter(state)
        if policy == "ignore":
            self._receive = self._ignore
        else:
            self._receive = self._read_http
            self._channel.start_tls(tls.server_context(name), data)

    def _read_http(self, data: bytes) -> None:
        for event in self._reader.feed(data):
            if self._receive == self._read_http:
                self._take(event)

    def _take(self, event: ReadEvent) -> None:
        match event:
            case Begun():
                if self._script is None:
                    self._enter("head")
            case Head(request):
                self._take_head(request)
            case Whole(request, body):
                request.body = body
                self._waiting.append(event)
                self._answer_next()
            case Tunnel(request, rest):
                self._take_connect(request, rest)
            case Unreadable(fault):
                self._channel.send(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                self.broken(fault)

    def _take_head(self, request: ReceivedRequest) -> None:
        self._note_proxy(request)
        if self._script is None:
            self._enter("body")
        if not self._manners.read_body:
            self._receive = self._ignore
            self._channel.stop_reading()
            self._arrive(request)
        elif (request.header("expect") or "").lower() == "100-continue":
            self._channel.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _arrive(self, request: ReceivedRequest) -> Answer:
        request.arrived_ns = time.monotonic_ns()
        self._record.requests.append(request)
        return self._stage.answer_for(request)

    def _note_proxy(self, request: ReceivedRequest) -> None:
        credentials = request.header("proxy-authorization")
        if credentials is not None:
            self._record.proxy_authorization = credentials

    def _take_connect(self, request: ReceivedRequest, rest: bytes) -> None:
        self._note_proxy(request)
        self._record.connect_target = request.target
        self._enter("connect")
        match self._manners.connect:
            case "ignore":
                self._receive = self._ignore
            case "refuse":
                self._refuse_tunnel()
            case "answer":
                self._open_tunnel(request.target, rest)

    def _refuse_tunnel(self) -> None:
        asks = self._record.proxy_authorization is None
        status = "407 Proxy Authentication Required" if asks else "403 Forbidden"
        challenge = 'proxy-authenticate: Basic realm="scripted"\r\n' if asks else ""
        head = f"HTTP/1.1 {status}\r\n{challenge}content-length: 0\r\nconnection: close\r\n\r\n"
        self._channel.send(head.encode())
        self.close()

    def _open_tunnel(self, target: str, rest: bytes) -> None:
        self._channel.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self._reader = RequestReader()
        self._hello = ("tunnel_tls", self._manners.tunnel_tls, _host_of(target))
        self._receive = self._read_hello
        if rest:
            self._read_hello(rest)

    def _answer_next(self) -> None:
        """Begin the next answer, unless one is being played."""
        if self._script is not None or not self._waiting:
            return
        whole = self._waiting.popleft()
        answer = self._arrive(whole.request)
        if self._channel.far_side_gone:
            return
        self._enter("answering")
        bodiless = whole.request.method == "HEAD"
        self._script = play(answer, close=not whole.keep_alive, bodiless=bodiless)
        self._play()

    def _play(self) -> None:
        """Carry out the script up to the next silence, end, or write the kernel has no room for."""
        writes = 0
        while self._script is not None and not self._channel.writing:
            if writes == WRITES_IN_A_TURN:
                self._stage.loop.soon(self._play)
                return
            action = next(self._script, None)
            if isinstance(action, bytes):
                self._channel.send(action)
                writes += 1
            elif action is None:
                self._end_answer()
                return
            else:
                self._perform(action)
                return

    def _perform(self, action: Silence | End) -> None:
        match action:
            case Pause(seconds):
                self._stage.loop.after(seconds, self._play)
            case Gate(name):
                self._enter("stalled")
                self._stage.when_open(name, self._resume)
            case Stall():
                self._enter("stalled")
            case Cut():
                self.close()
            case Reset():
                self.close(reset=True)

    def _resume(self) -> None:
        if self._script is not None:
            self._enter("answering")
            self._play()

    def _end_answer(self) -> None:
        self._script = None
        self._enter("idle")
        if self._waiting:
            self._stage.loop.soon(self._answer_next)

    def _enter(self, state: State) -> None:
        self._record.enter(state, time.monotonic_ns())


def _host_of(target: str) -> str:
    return target.rpartition(":")[0].strip("[]") or target
