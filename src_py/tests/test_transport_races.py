"""Cuts that race connections which end at that moment: nobody else is ever hit."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mmsp import AbortError, AbortSignal
from mmsp.request import HttpRequest
from mmsp.settings import Limits
from mmsp.testing import Answer, ScriptedProvider, chat, pause, say
from mmsp.transport import Exchange, Pool, Proxies, Route, guarded
from mmsp.transport.connection import Connection
from mmsp.transport.guarded import GuardedSocket
from tests.asking import QUESTION, client_of, complete
from tests.calling import ask

CUTS = 1000
AT_ONCE = 20


def answers(seed: int) -> Iterator[Answer]:
    """Answers that end at any moment of a millisecond or two, in every way that ends one."""
    rng = random.Random(seed)
    for _ in range(2 * CUTS):
        start, end = say(chat.text("Hel")), say(chat.ending())
        yield Answer(
            start,
            pause(rng.choice([0, 0.001, 0.001, 0.002])),
            end,
            framing=rng.choice(["chunked", "chunked", "length", "close"]),
        )


class Strangers(threading.Thread):
    """Descriptors of the process that are opened and closed all the time, so that numbers are reused.

    Each socket pair carries a byte both ways before it goes. `hit` says what happened to one.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.hit: list[str] = []
        self.served = 0
        self._folder = folder
        self._enough = threading.Event()

    def run(self) -> None:
        kept: list[tuple[socket.socket, socket.socket]] = []
        while not self._enough.is_set():
            one, other = socket.socketpair()
            kept.append((one, other))
            self._file(self._folder / "stranger")
            if len(kept) == 50:
                for pair in kept:
                    self._talk(*pair)
                kept.clear()
            time.sleep(0)
        for pair in kept:
            self._talk(*pair)

    def stop(self) -> None:
        self._enough.set()
        self.join()

    def _talk(self, *pair: socket.socket) -> None:
        for here, there in (pair, reversed(pair)):
            try:
                here.sendall(b"x")
                if there.recv(1) != b"x":
                    self.hit.append("a stranger's socket was shut")
            except OSError as error:
                self.hit.append(f"a stranger's socket: {error}")
        for sock in pair:
            sock.close()
        self.served += 1

    def _file(self, path: Path) -> None:
        try:
            with path.open("wb") as file:
                file.write(b"x")
                os.fsync(file.fileno()) if self.served % 100 == 0 else None
        except OSError as error:
            self.hit.append(f"a stranger's file: {error}")


class Cutter(threading.Thread):
    """Fires signals at their time, from a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[tuple[float, AbortSignal]] = []
        self._enough = False

    def cut(self, signal: AbortSignal, after: float) -> None:
        self._due.append((time.monotonic() + after, signal))

    def run(self) -> None:
        while not self._enough:
            time.sleep(0.0002)
            now = time.monotonic()
            for entry in [entry for entry in list(self._due) if entry[0] <= now]:
                self._due.remove(entry)
                entry[1].abort()

    def stop(self) -> None:
        self._enough = True
        self.join()


@pytest.mark.slow
@pytest.mark.no_debug
@pytest.mark.every_loop
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_a_thousand_cuts_hit_nobody_else(tls: bool, tmp_path: Path) -> None:
    rng = random.Random(1)
    ends: list[str] = []
    typical = 0.02  # s a call takes
    strangers, cutter = Strangers(tmp_path), Cutter()
    with ScriptedProvider(*answers(2), tls=tls) as provider:
        client = client_of(provider, max_retries=0)

        async def stopped() -> None:
            signal = AbortSignal()
            cutter.cut(signal, rng.random() * 1.5 * typical)
            try:
                async for _ in client.streaming_response([QUESTION], signal=signal):
                    pass
                ends.append("finished")
            except AbortError:
                ends.append("aborted")

        async def neighbour() -> None:
            nonlocal typical
            before = time.monotonic()
            assert (await ask(client))[-1] == "stop stop"  # and no retry hides a failure
            typical += (time.monotonic() - before - typical) / 5

        strangers.start()
        cutter.start()
        try:
            for _ in range(CUTS // AT_ONCE):
                await asyncio.gather(*(stopped() for _ in range(AT_ONCE)), neighbour(), neighbour())
        finally:
            strangers.stop()
            cutter.stop()
        assert len(ends) == CUTS
        assert min(ends.count("finished"), ends.count("aborted")) > CUTS // 20  # it was a race
        assert strangers.hit == []
        assert strangers.served > 100


def test_a_socket_is_cut_by_its_owner_alone() -> None:
    owner, next_owner = object(), object()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = GuardedSocket(socket.AF_INET, socket.SOCK_STREAM, 0, owner)
        sock.setblocking(True)
        sock.connect(listener.getsockname())
        far, _ = listener.accept()
        with far:
            sock.own(next_owner)
            sock.cut(owner)
            sock.sendall(b"still open")
            assert far.recv(99) == b"still open"
            sock.cut(next_owner)
            assert far.recv(99) == b""
        sock.close()


@pytest.mark.parametrize("end", ["close", "detach"])
def test_a_socket_that_is_closed_is_cut_no_more(end: str) -> None:
    owner = object()
    sock = GuardedSocket(socket.AF_INET, socket.SOCK_STREAM, 0, owner)
    number = sock.fileno()
    if end == "close":
        sock.close()
    else:
        os.close(sock.detach())
    one, other = socket.socketpair()
    with one, other:
        assert number in (one.fileno(), other.fileno())  # the number was given to a stranger
        sock.cut(owner)
        one.sendall(b"x")
        assert other.recv(1) == b"x"
        other.sendall(b"x")
        assert one.recv(1) == b"x"


ENDINGS: dict[str, Callable[[GuardedSocket], object]] = {
    "closed": GuardedSocket.close,
    "detached": lambda sock: os.close(sock.detach()),
    "given to another exchange": lambda sock: sock.own(object()),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_socket_is_not_taken_away_from_a_cut_that_is_under_way(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on, done = threading.Event(), threading.Event(), threading.Event()
    owner = object()
    sock = GuardedSocket(socket.AF_INET, socket.SOCK_STREAM, 0, owner)
    numbers: list[int] = []

    def shutdown(of: socket.socket) -> None:
        inside.set()
        go_on.wait(5)
        numbers.append(of.fileno())

    def end() -> None:
        ENDINGS[ending](sock)
        done.set()

    monkeypatch.setattr(guarded, "_shutdown", shutdown)
    number = sock.fileno()
    threads = [threading.Thread(target=sock.cut, args=(owner,)), threading.Thread(target=end)]
    threads[0].start()
    assert inside.wait(5)
    threads[1].start()
    assert not done.wait(0.05)
    go_on.set()
    for thread in threads:
        thread.join()
    assert done.is_set()
    assert numbers == [number]  # the cut still had the number that it had looked up
    sock.close()


@pytest.mark.parametrize("shutdown", [guarded._find_shutdown(), guarded._shut_down])
def test_a_cut_ends_the_connection_however_the_system_is_called(
    shutdown: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded, "_shutdown", shutdown)
    owner = object()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = GuardedSocket(socket.AF_INET, socket.SOCK_STREAM, 0, owner)
        sock.cut(owner)  # not connected yet: the system refuses, and nobody is told
        sock.setblocking(True)
        sock.connect(listener.getsockname())
        far, _ = listener.accept()
        with far:
            sock.cut(owner)
            assert far.recv(99) == b""
        sock.close()


def test_without_the_c_library_the_standard_call_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert guarded._find_shutdown() is guarded._shut_down


async def test_a_socket_made_after_the_cut_is_not_used() -> None:
    """Happy eyeballs may ask for a socket between the cut and the turn of the loop that stops it."""
    with ScriptedProvider(complete()) as provider:
        request = HttpRequest("GET", f"{provider.base_url}/models")
        exchange = Exchange(
            Pool.current(), Route.to(request.url, Proxies(), None), request, Limits()
        )
        exchange.cut()
        with pytest.raises(OSError, match="cut while connecting"):
            exchange.new_socket(socket.AF_INET, socket.SOCK_STREAM, 0)


async def test_a_connection_that_comes_after_the_cut_carries_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve = Exchange._serve
    signal = AbortSignal()

    def cut_first(self: Exchange, connection: Connection) -> None:
        with (
            monkeypatch.context() as patch
        ):  # a thread raised the flag, and has yet to reach the socket
            patch.setattr(GuardedSocket, "cut", lambda sock, owner: None)
            signal.abort()
        serve(self, connection)

    monkeypatch.setattr(Exchange, "_serve", cut_first)
    with ScriptedProvider(complete()) as provider:
        with pytest.raises(AbortError):
            await client_of(provider).streaming_response([QUESTION], signal=signal).message()
        while not provider.connections:  # it may be slower to accept than we to leave
            await asyncio.sleep(0.001)
        await provider.connections[0].until_closed(1)
        assert provider.requests == []


async def test_a_connection_whose_exchange_was_cut_as_it_ended_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_go = Exchange.let_go

    def cut_first(self: Exchange, sock: GuardedSocket) -> None:
        self.is_cut = True  # a thread raised the flag, and has yet to reach the socket
        let_go(self, sock)

    monkeypatch.setattr(Exchange, "let_go", cut_first)
    with ScriptedProvider(complete(), complete()) as provider:
        client = client_of(provider)
        await ask(client)
        monkeypatch.undo()
        await ask(client)
        assert len(provider.connections) == 2
