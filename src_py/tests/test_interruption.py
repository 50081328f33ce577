"""Every way to stop × every phase × every client type × plain and TLS × stateless and stateful.

On real sockets, against a provider that falls silent in the phase. Each cell: the far side sees the
connection close within 200 ms; what had arrived is delivered, then the error that belongs to the way; no
`.done`, no `stop`; nothing is recorded, the client is free, the next call works. `conftest.py` adds: no
task, thread, descriptor, warning or loop error afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import threading
import time
from collections.abc import AsyncIterator, Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest

from mmsp import AbortError, AbortSignal, AutoLLMClient, Stream
from mmsp.registry import CLIENTS
from mmsp.testing import ScriptedProvider, embeddings
from mmsp.types import UniEvent
from tests.interruption_table import (
    COMPLETE,
    EXHAUSTIVE,
    NAMED_PHASES,
    PHASES,
    REQUIRED_PHASES,
    REQUIRED_WAYS,
    SECURITIES,
    WAYS,
    WIRES,
    Phase,
    Security,
    Way,
    is_chosen,
    question,
    texts,
)
from tests.stopping import abort_as

LIMIT = 0.2  # s, the contract's
REASON = {"any": "object"}

MEASURED: dict[str, list[float]] = {}


class Cell(NamedTuple):
    client_type: str
    phase: Phase
    security: Security
    way: Way
    stateful: bool


def cells(*clients: str) -> list[Any]:
    return [
        pytest.param(
            Cell(client, phase, security, way, stateful),
            id=f"{client}-{phase.name}-{security}-{way}-{kind}",
        )
        for client in clients
        for phase in PHASES
        if phase.why_not_for(client) is None
        for security in SECURITIES
        if phase.why_not_on(security) is None
        for way in WAYS
        if phase.why_not(way) is None
        for stateful, kind in ((False, "stateless"), (True, "stateful"))
    ]


def cell_of(param: Any) -> Cell:
    (cell,) = param.values
    assert isinstance(cell, Cell)
    return cell


FIRST, *OTHERS = sorted(CLIENTS, key=lambda client: client != "openai-chat")
CELLS = cells(FIRST)
CHOSEN = [each for each in cells(*OTHERS) if is_chosen(*cell_of(each))]
EXHAUSTING = [
    each for each in cells(*OTHERS) if cell_of(each)[0] in EXHAUSTIVE and each not in CHOSEN
]


def test_every_client_type_speaks_to_a_provider_here() -> None:
    assert set(WIRES) == set(CLIENTS)


def test_every_phase_of_the_contract_has_its_row() -> None:
    names = {phase.name for phase in PHASES}
    assert names >= set(REQUIRED_PHASES)


def test_every_way_is_tried_in_every_phase_or_says_why_not() -> None:
    """Looks at the cells themselves, from the contract's lists: none may be lost on the way."""
    every = [*map(cell_of, [*CELLS, *CHOSEN, *EXHAUSTING])]
    tried = {(client, phase.name, way, state) for client, phase, _, way, state in every}
    phases = {phase.name: phase for phase in PHASES}
    for client, name, way, state in product(
        EXHAUSTIVE, REQUIRED_PHASES, REQUIRED_WAYS, (False, True)
    ):
        reason = phases[name].why_not(way)
        assert ((client, name, way, state) in tried) is (reason is None)
        assert reason is None or len(reason) > 20


@pytest.mark.parametrize("client", OTHERS)
def test_every_client_is_tried_in_every_phase_and_where_the_contract_says_in_every_way(
    client: str,
) -> None:
    chosen = [each for each in map(cell_of, CHOSEN) if each[0] == client]
    tried = {(phase.name, way, state) for _, phase, _, way, state in chosen}
    for phase in PHASES:
        reason = phase.why_not_for(client)
        assert (phase.name in {name for name, _, _ in tried}) is (reason is None)
        assert reason is None or len(reason) > 20
        if phase.name in NAMED_PHASES and reason is None:
            wanted = [way for way in WAYS if phase.why_not(way) is None]
            assert {(phase.name, *each) for each in product(wanted, (False, True))} <= tried
    untried = set(WAYS) - {way for _, way, _ in tried}
    assert all(phase.why_not_for(client) for phase in PHASES for way in untried if phase.reads)
    assert len(untried) < 3
    assert {state for _, _, state in tried} == {False, True}


def test_every_phase_is_tried_plain_and_over_tls_or_says_why_not() -> None:
    tried = {(phase.name, security) for _, phase, security, _, _ in map(cell_of, CELLS)}
    for phase, security in product(PHASES, SECURITIES):
        reason = phase.why_not_on(security)
        assert ((phase.name, security) in tried) is (reason is None), (phase.name, security)
        assert reason is None or len(reason) > 20


class Scene:
    """One client and its provider in one phase; knows how to reach the phase and what must hold after."""

    def __init__(self, cell: Cell, provider: ScriptedProvider) -> None:
        self.phase = cell.phase
        self.provider = provider
        self.complete: dict[str, Any] = {"type": "text.done", "text": COMPLETE}
        if WIRES[cell.client_type] is embeddings:
            self.complete = {"type": "embedding.done", "embedding": list(embeddings.VECTOR)}
        self.stateful = cell.stateful
        self.signal = AbortSignal()
        self.release_names = threading.Event()
        self.events: list[UniEvent] = []
        behind_proxy = cell.security == "TLS behind a proxy"
        base_url = "https://far.example/v1" if behind_proxy else provider.base_url
        self.client = AutoLLMClient(
            "some-model",
            "a-key",
            base_url,
            cell.client_type,
            ssl_context=None if cell.security == "plain" else provider.ssl_context,
        )

    def make(self, size: int = 0) -> Stream:
        message = question("x" * size if size else "Hello?")
        if self.stateful:
            return self.client.streaming_response_stateful(message, signal=self.signal)
        return self.client.streaming_response([message], signal=self.signal)

    async def take(self, stream: Stream) -> None:
        """Read up to the phase."""
        for _ in range(self.phase.reads):
            self.events.append(await anext(stream))
        self.provider.open("half")

    async def reached(self) -> None:
        if self.phase.reached is not None:
            await self.provider.until(self.phase.reached)
        elif self.phase.ends == "closed":
            while not self.provider.pending_connects():
                await asyncio.sleep(0.001)
        for _ in range(5):  # so that the reader is at rest
            await asyncio.sleep(0.001)

    async def check_far_side(self, stopped_ns: int) -> None:
        """The request is over for the provider, within the limit."""
        phase, provider = self.phase, self.provider
        if phase.ends == "closed" and provider.connections:
            closed_ns = await provider.connections[-1].until_closed(1.0)
            took = (closed_ns - stopped_ns) / 1e9
            MEASURED.setdefault(phase.name, []).append(took)
            assert took <= LIMIT
        elif phase.ends == "closed":
            assert not provider.pending_connects()
            assert (time.monotonic_ns() - stopped_ns) / 1e9 <= LIMIT
        elif phase.ends == "nothing connects":
            self.release_names.set()
            await asyncio.sleep(0.01)  # what the look-up brings is not used
            assert provider.connections == []
        else:
            assert len(provider.requests) == 1

    def check_events(self, *, delivered: bool) -> None:
        count = self.phase.reads + (self.phase.rest if delivered else 0)
        items = [item for event in self.events for item in event["content_items"]]
        assert [event["event_type"] for event in self.events] == ["delta"] * len(self.events)
        assert [item["type"] for item in items] == ["text.delta"] * len(items)
        assert [item["text"] for item in items if item["type"] == "text.delta"] == texts(count)

    async def check_afterwards(self) -> None:
        """Nothing was recorded, nobody is subscribed, and the client takes the next call."""
        assert self.client.get_history() == []
        assert not self.signal._listeners
        self.client.clear_history()  # raises while a call holds the client
        self.signal = AbortSignal()
        if self.phase.recovers:
            message = await self.make().message()
            assert message["content_items"] == [self.complete]
            assert len(self.client.get_history()) == (2 if self.stateful else 0)
        else:
            await self._get_as_far_again()

    async def _get_as_far_again(self) -> None:
        async with self.make(self.phase.body) as stream:
            pending = asyncio.ensure_future(anext(stream))
            if self.phase.reached is not None:
                await self.provider.until(self.phase.reached, count=2)
            pending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pending


@contextlib.asynccontextmanager
async def scene_of(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    with cell.phase.provider(WIRES[cell.client_type], cell.security) as provider:
        if cell.security == "TLS behind a proxy":
            monkeypatch.setenv("HTTPS_PROXY", provider.proxy_url)
        scene = Scene(cell, provider)
        if cell.phase.name == "resolving the name":
            slow_name_server(monkeypatch, scene.release_names)
        try:
            yield scene
        finally:
            scene.release_names.set()


def slow_name_server(monkeypatch: pytest.MonkeyPatch, release: threading.Event) -> None:
    """The first look-up takes until the event is set; later ones are answered."""
    real = socket.getaddrinfo
    asked: list[object] = []

    def getaddrinfo(*args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        if len(asked) == 1:
            release.wait(10)
        return real(*args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.every_loop
@pytest.mark.parametrize("cell", CELLS)
async def test_a_stop_closes_the_connection_and_leaves_nothing(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_cell(cell, monkeypatch)


@pytest.mark.parametrize("cell", CHOSEN)
async def test_a_stop_closes_the_connection_of_every_client(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_cell(cell, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cell", EXHAUSTING)
async def test_a_stop_closes_the_connection_on_every_wire(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_cell(cell, monkeypatch)


async def check_cell(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene_of(cell, monkeypatch) as scene:
        if cell.way.startswith("abort"):
            await check_abort(scene, cell.way)
        elif cell.way == "close":
            await check_close(scene)
        elif cell.way == "leave":
            await check_leave(scene)
        elif cell.phase.waiting:
            await check_cancelled_read(scene)
        else:
            await check_cancelled_body(scene)
        await scene.check_afterwards()


async def check_abort(scene: Scene, way: Way) -> None:
    stream = scene.make(scene.phase.body)
    task: asyncio.Task[None] | None = None
    caught: list[AbortError] = []
    cancelling: list[int] = []

    async def read_on() -> None:
        try:
            async for event in stream:
                scene.events.append(event)
        except AbortError as error:
            caught.append(error)
        current = asyncio.current_task()
        assert current is not None
        cancelling.append(current.cancelling())

    await scene.take(stream)
    if scene.phase.waiting:
        task = asyncio.create_task(read_on())
        await scene.reached()
    stopped_ns = abort_as(way, lambda: scene.signal.abort(REASON))
    if scene.stateful:
        scene.client.clear_history()  # the claim is free in the line after the abort
    await (task if task is not None else read_on())
    await scene.check_far_side(stopped_ns)
    assert (time.monotonic_ns() - stopped_ns) / 1e9 < 1
    assert len(caught) == 1
    assert caught[0].reason is REASON
    assert caught[0].args == (REASON,)
    assert cancelling == [0]
    assert (stream.aborted, stream.reason) == (True, REASON)
    scene.check_events(delivered=True)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def check_close(scene: Scene) -> None:
    stream = scene.make(scene.phase.body)
    await scene.take(stream)
    pending = asyncio.ensure_future(anext(stream)) if scene.phase.waiting else None
    if scene.phase.waiting:
        await scene.reached()
    stopped_ns = time.monotonic_ns()
    await stream.aclose()
    await stream.aclose()
    if pending is not None:
        with pytest.raises(StopAsyncIteration):
            await pending
    await scene.check_far_side(stopped_ns)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert not stream.aborted
    scene.check_events(delivered=False)


async def check_leave(scene: Scene) -> None:
    if not scene.phase.started:
        stopped_ns = time.monotonic_ns()
        scene.make()
    else:
        async for event in scene.make():
            scene.events.append(event)
            if len(scene.events) == scene.phase.reads:
                stopped_ns = time.monotonic_ns()
                break
    await scene.check_far_side(stopped_ns)
    scene.check_events(delivered=False)


async def check_cancelled_read(scene: Scene) -> None:
    stream = scene.make(scene.phase.body)
    await scene.take(stream)
    pending = asyncio.ensure_future(anext(stream))
    await scene.reached()
    stopped_ns = time.monotonic_ns()
    pending.cancel("why")
    with pytest.raises(asyncio.CancelledError) as caught:
        await pending
    assert type(caught.value) is asyncio.CancelledError
    await scene.check_far_side(stopped_ns)
    assert not stream.aborted
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    scene.check_events(delivered=False)


async def check_cancelled_body(scene: Scene) -> None:
    """The task is cancelled in its loop's body; the stream closes as its frame unwinds."""
    ready = asyncio.Event()

    async def read() -> None:
        async for event in scene.make():
            scene.events.append(event)
            if len(scene.events) == scene.phase.reads:
                ready.set()
                await asyncio.sleep(60)

    task = asyncio.create_task(read())
    await ready.wait()
    stopped_ns = time.monotonic_ns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await scene.check_far_side(stopped_ns)
    scene.check_events(delivered=False)


@pytest.fixture(scope="module", autouse=True)
def medians(report_at_the_end: list[str]) -> Iterator[None]:
    yield
    report_at_the_end.append("From the stop until the provider saw its connection close:")
    for phase, times in MEASURED.items():
        middle, worst = statistics.median(times) * 1e3, max(times) * 1e3
        report_at_the_end.append(
            f"{middle:6.2f} ms, at worst {worst:6.2f}, of {len(times):3} stops · {phase}"
        )
