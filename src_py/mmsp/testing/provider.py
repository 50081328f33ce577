"""A provider that follows a script, on a real socket, and remembers what it saw.

One daemon thread with epoll serves every connection. The rule: what is said of a connection's end
comes from its TCP socket (a FIN or a RST), and is stamped in the provider's thread when the
kernel reports it.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from . import checks, listening, tls
from .connection import Connect, Connection, Hello, Manners
from .loop import Loop
from .records import STATES, ConnectionRecord, ReceivedRequest
from .script import Answer, check_answers, gates_of
from .waiting import Bell

ACCEPTS_IN_A_TURN = 256

Awaited = str | Callable[["ScriptedProvider"], object]


class ScriptedProvider:
    """Serves `answers` to requests: the n-th request of all connections gets the n-th, the last
    one for ever.

    It listens on the loopback interface from `start()` to `stop()`; `host` is the name in
    `base_url` and in the certificate. It is an HTTP proxy as well: after a CONNECT it speaks TLS
    itself, as the host that was asked for.

    - `tls`: HTTPS. `tls_hello="ignore"`: the hello is read and never answered.
    - `never_accept`: connects stay pending for ever.
    - `connect`: what a CONNECT gets: a tunnel, silence, or a refusal (407, then 403 to one with
      credentials).
    - `tunnel_tls="ignore"`: the TLS hello behind a CONNECT is never answered.
    - `read_body=False`: only the head of a request is read, then nothing any more, so that its
      sender blocks.
    - `ignore_eof`: a FIN of the far side does not end the answer; it goes on until a write fails.
    """

    def __init__(
        self,
        *answers: Answer,
        tls: bool = False,
        never_accept: bool = False,
        tls_hello: Hello = "answer",
        connect: Connect = "answer",
        tunnel_tls: Hello = "answer",
        read_body: bool = True,
        ignore_eof: bool = False,
        host: str = "127.0.0.1",
    ) -> None:
        if not hasattr(select, "epoll"):
            raise RuntimeError("mmsp.testing.ScriptedProvider needs epoll, which only Linux has")
        self.manners = Manners(
            host=host,
            tls=tls,
            tls_hello=tls_hello,
            connect=connect,
            tunnel_tls=tunnel_tls,
            read_body=read_body,
            ignore_eof=ignore_eof,
        )
        checks.flag("never_accept", never_accept)
        self._scripted_gates: dict[str, None] = {}  # of all answers there ever were
        self._look_at(answers)
        self.connections: list[ConnectionRecord] = []
        self.requests: list[ReceivedRequest] = []
        self.loop: Loop
        self._never_accept = never_accept
        self._answers = list(answers)
        self._given = 0
        self._bell = Bell()
        self._open: set[Connection] = set()
        self._gates: set[str] = set()
        self._at_gate: dict[str, list[Callable[[], None]]] = {}
        self._fillers: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._port: int | None = None
        self._ca_file: str | None = None

    # --- life

    def start(self) -> Self:
        if self._port is not None:
            raise RuntimeError("a ScriptedProvider is started once; make a new one")
        if self.manners.tls:
            tls.authority()  # a missing package is told to the caller, not in the thread
        listener = listening.listen(
            self.manners.host,
            accepting=not self._never_accept,
            small_buffer=not self.manners.read_body,
        )
        self._port = listener.getsockname()[1]
        self._listener = listener
        self.loop = Loop(self._bell.ring)
        if self._never_accept:
            self._fillers = listening.fill_queue(listener)
        else:
            self.loop.watch(listener, select.EPOLLIN, lambda _: self._accept(listener))
        self._thread = threading.Thread(target=self._run, name="scripted-provider", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close every socket and end the thread; calling it again does nothing."""
        if self._thread is not None:
            self.loop.stop()
            self._thread.join()
            self._thread = None
            self._remove_ca_file()
            self._bell.raise_failure()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # --- where it is

    @property
    def port(self) -> int:
        if self._port is None:
            raise RuntimeError("the ScriptedProvider has not been started: use it in a `with`")
        return self._port

    @property
    def origin(self) -> str:
        host = f"[{self.manners.host}]" if ":" in self.manners.host else self.manners.host
        return f"{'https' if self.manners.tls else 'http'}://{host}:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    @property
    def proxy_url(self) -> str:
        return self.origin

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """A client's context that trusts the provider, under whatever name it speaks."""
        return tls.client_context()

    @property
    def ca_file(self) -> str:
        """The path of a PEM file with the authority's certificate; `stop()` removes it."""
        if self._ca_file is None:
            self._ca_file = tls.write_ca_file()
        return self._ca_file

    # --- the script

    @property
    def answers(self) -> list[Answer]:
        """The answers still to be given, the next one first."""
        return self._answers[min(self._given, len(self._answers) - 1) :]

    @answers.setter
    def answers(self, answers: list[Answer]) -> None:
        self._look_at(answers)
        self._answers, self._given = list(answers), 0

    def then(self, *answers: Answer) -> Self:
        """Add answers behind those there are."""
        self._look_at(answers)
        self._answers.extend(answers)
        return self

    def _look_at(self, answers: Sequence[Answer]) -> None:
        check_answers(answers)
        self._scripted_gates |= {name: None for each in answers for name in gates_of(each)}

    def open(self, gate: str) -> None:
        """Let everybody through who waits or will wait at that gate; from any thread.

        Raises ValueError for what looks like the name of another gate.
        """
        if checks.nearest(
            gate, self._scripted_gates
        ):  # any other name may belong to a later answer
            checks.known(gate, self._scripted_gates, "a gate")

        def let_through() -> None:
            self._gates.add(gate)
            for callback in self._at_gate.pop(gate, ()):
                callback()

        self.loop.call(let_through)

    # --- what it saw

    def wait(self, awaited: Awaited, count: int = 1, timeout: float = 5.0) -> None:
        """Block until `count` connections are or were in a state, or until a predicate of the
        provider is true.
        """
        ready, told = self._condition(awaited, count)
        self._bell.wait(ready, timeout, told)

    async def until(self, awaited: Awaited, count: int = 1, timeout: float = 5.0) -> None:
        """The same for asyncio."""
        ready, told = self._condition(awaited, count)
        await self._bell.until(ready, timeout, told)

    def pending_connects(self) -> int:
        """How many connects wait for this provider's kernel; with `never_accept` these are its
        only visitors.
        """
        return listening.pending_connects(self.port)

    def forget(self) -> None:
        """Drop the records. Connections still open are served on, unrecorded."""
        self.connections, self.requests = [], []

    def _condition(
        self, awaited: Awaited, count: int
    ) -> tuple[Callable[[], object], Callable[[], str]]:
        if callable(awaited):
            return lambda: awaited(self), lambda: f"{awaited} is true; {self._seen()}"
        checks.known(awaited, STATES, "a state of a connection")
        checks.count("count", count, 1)
        return (
            lambda: sum(awaited in record.since for record in self.connections) >= count,
            lambda: f"{count} connection(s) that are or were {awaited}; {self._seen()}",
        )

    def _seen(self) -> str:
        records = self.connections
        lives = "; ".join(" > ".join(record.since) for record in records[:10])
        more = f" and {len(records) - 10} more" if len(records) > 10 else ""
        return f"seen: {len(self.requests)} requests, {len(records)} connections: {lives}{more}"

    # --- in the provider's thread

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as failure:
            self._bell.fail(failure)
        finally:
            self._close_all()
            self.loop.close()
            self._bell.ring()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_IN_A_TURN):
            try:
                sock, _address = listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            record = ConnectionRecord(time.monotonic_ns(), self._bell)
            self.connections.append(record)
            self._open.add(Connection(sock, record, self))

    def _close_all(self) -> None:
        for connection in list(self._open):
            connection.close()
        for sock in (*self._fillers, self._listener):
            if sock is not None:
                sock.close()

    def _remove_ca_file(self) -> None:
        if self._ca_file is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._ca_file)
            self._ca_file = None

    def answer_for(self, request: ReceivedRequest) -> Answer:
        self.requests.append(request)
        if not self._answers:
            return Answer.error(500, "the scripted provider has no answer")
        answer = self._answers[min(self._given, len(self._answers) - 1)]
        self._given = min(self._given + 1, len(self._answers))
        return answer

    def when_open(self, gate: str, callback: Callable[[], None]) -> None:
        if gate in self._gates:
            self.loop.soon(callback)
        else:
            self._at_gate.setdefault(gate, []).append(callback)

    def left(self, connection: Connection) -> None:
        self._open.discard(connection)
