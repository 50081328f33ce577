"""Plays scenes: brings a call into its phase, stops it, and writes down what everybody saw."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import socket
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from mmsp import AbortError, AutoLLMClient, Stream
from mmsp.testing import ProviderProcess

from .leftovers import Before, complaints
from .rig import WAYS, Ways, client_of, environment, milliseconds, now_ns, question, run
from .scenes import Scene

__all__ = ["Cell", "play"]

ENOUGH = "enough"
LONGEST = 3.0  # s, for a close or a reader; what takes longer counts as never
AT_REST = 0.02  # s, for both sides to fall silent in the phase
SYN_SENT = 2  # of TCP_INFO


@dataclass
class Cell:
    """What all stops of one phase in one way showed."""

    closed: list[float] = field(default_factory=list)  # ms
    freed: list[float] = field(default_factory=list)  # ms, until the reader had its error
    waited_for_loop: int = 0  # closes that came only when a blocked loop was free again
    ended_by: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def fault(self, what: str) -> None:
        if what not in self.faults:
            self.faults.append(what)


def play(scene: Scene, way: str, *, tls: bool, runs: int, uvloop: bool) -> Cell:
    """So many stops of one phase, on a loop of their own."""
    cell = Cell()
    with ExitStack() as stack:
        provider = stack.enter_context(_provider(scene, tls))
        if scene.reach == "https proxy":  # proxies are known by the system's certificates
            stack.enter_context(environment(SSL_CERT_FILE=provider.ca_file))
        names = stack.enter_context(_HeldNames())
        ways = stack.enter_context(Ways())
        stack.enter_context(complaints(cell.fault))
        run(asyncio.sleep(0), uvloop=uvloop)  # what a process has once
        before = Before()
        stage = _Stage(scene, provider, _client(scene, provider, tls), ways, names)
        run(_repeat(stage, way, cell, runs), uvloop=uvloop)
        del stage
        gc.collect()
        for each in before.left():
            cell.fault(f"left behind by the closed loop: {each}")
    return cell


def _provider(scene: Scene, tls: bool) -> ProviderProcess:
    """With `tls` towards whoever connects; behind a plain proxy the tunnel speaks it anyway."""
    hears_tls = scene.reach == "https proxy" or (tls and scene.reach != "proxy")
    host = "localhost" if scene.reach == "name" else "127.0.0.1"
    return ProviderProcess(*scene.answers, tls=hears_tls, host=host, **scene.manners)


def _client(scene: Scene, provider: ProviderProcess, tls: bool) -> AutoLLMClient:
    if "proxy" not in scene.reach:
        return client_of(provider)
    url = f"{'https' if tls else 'http'}://provider.example/v1"
    return client_of(provider, base_url=url, proxy=provider.proxy_url)


@dataclass
class _Stage:
    """One client against one provider."""

    scene: Scene
    provider: ProviderProcess
    client: AutoLLMClient
    ways: Ways
    names: _HeldNames

    def prepare(self) -> None:
        self.ways.free_at = None
        self.provider.forget()
        if len(self.scene.answers) > 1:
            self.provider.set_answers(*self.scene.answers)

    async def reach(self) -> None:
        """Wait until the call is in the phase, and both sides are at rest in it."""
        if self.scene.reach == "name":
            await self.ways.elsewhere(self.names.wait)
        elif self.scene.state:
            await self.ways.elsewhere(lambda: self.provider.wait(self.scene.state))
        await asyncio.sleep(AT_REST)
        if self.scene.state == "answering":
            await self._until_blocked()

    async def _until_blocked(self) -> None:
        """Until the provider's writes have filled every buffer."""
        before = -1
        while before != (sent := self.provider.connections[0].bytes_sent):
            before = sent
            await asyncio.sleep(0.05)

    async def see_close(self, at: int, given_up: int | None, cell: Cell) -> None:
        match self.scene.seen:
            case "provider":
                await self._see_provider(at, cell)
            case "kernel":
                cell.closed.append(milliseconds(at, given_up) if given_up else math.inf)
            case "reader":
                await self._see_silence(cell)

    async def _see_provider(self, at: int, cell: Cell) -> None:
        try:
            await self.ways.elsewhere(lambda: self.provider.wait_closed(timeout=LONGEST))
        except TimeoutError:
            cell.closed.append(math.inf)
            return
        for connection in self.provider.connections:
            if connection.closed_ns is None:
                cell.fault("a second connection was opened, and stayed")
            else:
                cell.closed.append(milliseconds(at, connection.closed_ns))
                free_at = self.ways.free_at
                if free_at is not None:
                    cell.waited_for_loop += at < free_at < connection.closed_ns
                cell.ended_by.add(connection.closed_by or "the provider")

    async def _see_silence(self, cell: Cell) -> None:
        """Nothing was open when the stop came: nothing may be sent afterwards."""
        before = len(self.provider.requests), len(self.provider.connections)
        self.names.let_go()
        await asyncio.sleep(AT_REST)
        if before != (len(self.provider.requests), len(self.provider.connections)):
            cell.fault("something was sent after the stop")


async def _repeat(stage: _Stage, way: str, cell: Cell, runs: int) -> None:
    await _stop_once(stage, way, Cell())  # what a loop has once
    for _ in range(runs):
        before = Before()
        await _stop_once(stage, way, cell)
        await before.settled(cell.fault)


async def _stop_once(stage: _Stage, way: str, cell: Cell) -> None:
    stage.prepare()
    before = Before()
    stream = stage.client.streaming_response(question("x" * stage.scene.body))
    stopped = asyncio.Event()
    reader = asyncio.create_task(_read(stream, stage.scene, stopped))
    try:
        await stage.reach()
    except TimeoutError as error:
        cell.fault(f"the phase was not reached: {error}")
    kernel = _Kernel(before if stage.scene.seen == "kernel" else None)

    def stop() -> None:
        stream.abort(ENOUGH)
        kernel.look()

    at = await WAYS[way](stage.ways, stop)
    kernel.close()
    stopped.set()
    await _see_reader(reader, at, cell)
    await stage.see_close(at, kernel.given_up, cell)


async def _see_reader(reader: asyncio.Task[tuple[int, str]], at: int, cell: Cell) -> None:
    await asyncio.wait([reader], timeout=LONGEST)
    if reader.done():
        freed, told = reader.result()
        cell.freed.append(milliseconds(at, freed))
        if told:
            cell.fault(told)
    else:
        cell.fault(f"the reader was not freed within {LONGEST:g} s")
        reader.cancel()


async def _read(stream: Stream, scene: Scene, stopped: asyncio.Event) -> tuple[int, str]:
    """Read as the scene says, to the end; when the end came, and what was wrong with it."""
    after = 0
    try:
        for _ in range(scene.takes):
            await anext(stream)
        if scene.busy:
            await stopped.wait()
        async for event in stream:
            after += 1
            if event["event_type"] == "stop":
                return now_ns(), "the reader got a stop"
    except AbortError as error:
        at = now_ns()
        if error.reason != ENOUGH:
            return at, f"the error's reason is {error.reason!r}"
        if scene.leaves not in (None, after):
            return at, f"the reader got {after} more events, not {scene.leaves}"
        return at, ""
    except Exception as error:  # whatever it is, the table tells it
        return now_ns(), f"the reader got {error!r}"
    return now_ns(), "the stream ended without an error"


class _Kernel:
    """The sockets that are connecting: no far side knows of them, but the kernel does.

    It looks through descriptors of its own, in the very call that stops.
    """

    def __init__(self, before: Before | None) -> None:
        self.given_up: int | None = None
        self._socks: list[socket.socket] = []
        for each in before.new_descriptors() if before is not None else ():
            number, what = each.split(" ", 1)
            if what.startswith("socket:"):
                self._socks.append(socket.socket(fileno=os.dup(int(number))))

    def look(self) -> None:
        if self._socks and not any(map(_is_connecting, self._socks)):
            self.given_up = now_ns()

    def close(self) -> None:
        for sock in self._socks:
            sock.close()


def _is_connecting(sock: socket.socket) -> bool:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == SYN_SENT


class _HeldNames:
    """Look-ups of the name localhost do not end before they are let go."""

    def __init__(self) -> None:
        self._real = socket.getaddrinfo
        self._asked = threading.Event()
        self._held = threading.Event()

    def __enter__(self) -> _HeldNames:
        socket.getaddrinfo = self._look_up
        return self

    def __exit__(self, *_: object) -> None:
        socket.getaddrinfo = self._real
        self.let_go()

    def wait(self) -> None:
        if not self._asked.wait(LONGEST):
            raise TimeoutError("no name was looked up")

    def let_go(self) -> None:
        held, self._held = self._held, threading.Event()
        self._asked.clear()
        held.set()

    def _look_up(self, host: Any, *args: Any, **more: Any) -> Any:
        if host == "localhost":
            held = self._held
            self._asked.set()
            held.wait()
        return self._real(host, *args, **more)
