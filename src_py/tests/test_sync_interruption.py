"""Every client type, stopped without an event loop in each phase and each way, on a real socket.

The phases are those of `test_interruption.py`. The reader is the main thread. Where it waits, another
thread stops it, or sends it a signal; where it is busy, it stops itself too, and leaves in all the ways in
which a caller leaves.

What must hold: the provider sees its connection end within 200 ms of the stop, and the reader is free
within 200 ms; after an abort the deltas that had arrived, in order, then `Aborted` with the very reason,
once; no `.done`, no `stop`; nothing is recorded, the client is free, the next call works. `conftest.py`
adds: no task, thread, descriptor, warning or loop error afterwards.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import threading
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, Literal, NamedTuple

import pytest

from mmsp import AbortSignal
from mmsp.registry import CLIENTS
from mmsp.sync import Aborted, AutoLLMClient, Stream
from mmsp.testing import Answer, ScriptedProvider, chat, embeddings, say, stall
from mmsp.types import UniEvent
from tests.interruption_table import (
    COMPLETE,
    NAMED_PHASES,
    PHASES,
    REQUIRED_PHASES,
    SECURITIES,
    WIRES,
    Phase,
    Security,
    question,
    texts,
)
from tests.sync_asking import elsewhere, handled, interrupt_main, rest
from tests.test_interruption import slow_name_server

pytestmark = pytest.mark.usefixtures("own_driver")

Way = Literal[
    "abort from a thread",
    "abort in a signal handler",
    "close from a thread",
    "interrupt",
    "abort",
    "close",
    "leave the block",
    "break",
    "an exception",
    "del",
]
WHILE_WAITING: tuple[Way, ...] = (
    "abort from a thread",
    "abort in a signal handler",
    "close from a thread",
    "interrupt",
)
WHILE_BUSY: tuple[Way, ...] = (
    *WHILE_WAITING,
    "abort",
    "close",
    "leave the block",
    "break",
    "an exception",
    "del",
)
UNREAD: tuple[Way, ...] = (
    "abort from a thread",
    "abort in a signal handler",
    "abort",
    "close",
    "del",
)
LIMIT = 0.2  # s, the contract's
REASON = {"any": "object"}

CLOSED: dict[str, list[float]] = {}
FREED: dict[str, list[float]] = {}


class Cell(NamedTuple):
    client_type: str
    phase: Phase
    security: Security
    way: Way
    stateful: bool


def ways_in(phase: Phase) -> tuple[Way, ...]:
    if not phase.started:
        return UNREAD
    return WHILE_WAITING if phase.waiting else WHILE_BUSY


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
        for way in ways_in(phase)
        for stateful, kind in ((False, "stateless"), (True, "stateful"))
    ]


def cell_of(param: Any) -> Cell:
    (cell,) = param.values
    assert isinstance(cell, Cell)
    return cell


def is_chosen(cell: Cell) -> bool:
    """For the clients after the first: where the contract names the phase all ways, else one, on one
    security and for one kind of call, which differ from client to client."""
    client = list(WIRES).index(cell.client_type)
    number = PHASES.index(cell.phase)
    securities = [each for each in SECURITIES if cell.phase.why_not_on(each) is None]
    if cell.security != securities[(client + number) % len(securities)]:
        return False
    place = ways_in(cell.phase).index(cell.way) + client + number
    if cell.stateful is not bool(place % 2):
        return False
    return cell.phase.name in NAMED_PHASES or place % len(ways_in(cell.phase)) < 2


FIRST, *OTHERS = sorted(CLIENTS, key=lambda client: client != "openai-chat")
CELLS = cells(FIRST)
CHOSEN = [each for each in cells(*OTHERS) if is_chosen(cell_of(each))]


def test_every_phase_is_tried_in_every_way_in_which_its_reader_can_be_stopped() -> None:
    """Looks at the cells themselves, from the contract's lists: none may be lost on the way."""
    tried = {(cell.phase.name, cell.way, cell.stateful) for cell in map(cell_of, CELLS)}
    phases = {phase.name: phase for phase in PHASES}
    for name, state in product(REQUIRED_PHASES, (False, True)):
        assert {(name, way, state) for way in ways_in(phases[name])} <= tried
    assert {way for _, way, _ in tried} == {*WHILE_WAITING, *WHILE_BUSY, *UNREAD}


@pytest.mark.parametrize("client", OTHERS)
def test_every_client_is_tried_in_every_phase(client: str) -> None:
    tried = [cell for cell in map(cell_of, CHOSEN) if cell.client_type == client]
    for phase in PHASES:
        ways = {cell.way for cell in tried if cell.phase is phase}
        possible = phase.why_not_for(client) is None
        assert bool(ways) is possible
        if possible and phase.name in NAMED_PHASES:
            assert ways == set(ways_in(phase))
    assert {cell.stateful for cell in tried} == {False, True}


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
        self.stopped_ns = 0
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

    def take(self, stream: Stream) -> None:
        """Read up to the phase."""
        for _ in range(self.phase.reads):
            self.events.append(next(stream))
        self.provider.open("half")

    def reached(self, stream: Stream) -> None:
        """The reader waits, and its request is in the phase."""
        while not stream._readers:
            time.sleep(0.001)
        if self.phase.reached is not None:
            self.provider.wait(self.phase.reached)
        elif self.phase.ends == "closed":
            while not self.provider.pending_connects():
                time.sleep(0.001)
        rest()

    def now(self) -> None:
        self.stopped_ns = time.monotonic_ns()

    def abort(self) -> None:
        self.now()
        self.signal.abort(REASON)

    def interrupt(self) -> None:
        """As a signal handler."""
        self.now()
        raise KeyboardInterrupt(REASON)

    def check_reader_is_free(self) -> None:
        took = (time.monotonic_ns() - self.stopped_ns) / 1e9
        FREED.setdefault(self.phase.name, []).append(took)
        assert took <= LIMIT

    def check_far_side(self) -> None:
        """The request is over for the provider, within the limit."""
        phase, provider = self.phase, self.provider
        if phase.ends == "closed" and provider.connections:
            took = (provider.connections[-1].wait_closed(1.0) - self.stopped_ns) / 1e9
            CLOSED.setdefault(phase.name, []).append(took)
            assert took <= LIMIT
        elif phase.ends == "closed":
            while provider.pending_connects():  # the driver closes the socket that was shut
                assert (time.monotonic_ns() - self.stopped_ns) / 1e9 <= LIMIT
                time.sleep(0.0005)
        elif phase.ends == "nothing connects":
            self.release_names.set()
            time.sleep(0.01)  # what the look-up brings is not used
            assert provider.connections == []
        else:
            assert len(provider.requests) == 1

    def check_events(self, *, delivered: bool) -> None:
        count = self.phase.reads + (self.phase.rest if delivered else 0)
        items = [item for event in self.events for item in event["content_items"]]
        assert [event["event_type"] for event in self.events] == ["delta"] * len(self.events)
        assert [item["type"] for item in items] == ["text.delta"] * len(items)
        assert [item["text"] for item in items if item["type"] == "text.delta"] == texts(count)

    def check_afterwards(self) -> None:
        """Nothing was recorded, nobody is subscribed, and the client takes the next call."""
        assert self.client.get_history() == []
        assert not self.signal._listeners
        self.client.clear_history()  # raises while a call holds the client
        self.signal = AbortSignal()
        if self.phase.recovers:
            message = self.make().message()
            assert message["content_items"] == [self.complete]
            assert len(self.client.get_history()) == (2 if self.stateful else 0)
        else:
            self._get_as_far_again()

    def _get_as_far_again(self) -> None:
        stream = self.make(self.phase.body)

        def close() -> None:
            if self.phase.reached is not None:
                self.provider.wait(self.phase.reached, count=2)
            rest()
            stream.close()

        with elsewhere(close):
            assert list(stream) == []


@contextlib.contextmanager
def scene_of(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
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


@pytest.mark.parametrize("cell", CELLS)
def test_a_stop_closes_the_connection_and_leaves_nothing(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_cell(cell, monkeypatch)


@pytest.mark.parametrize("cell", CHOSEN)
def test_a_stop_closes_the_connection_of_every_client(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_cell(cell, monkeypatch)


def check_cell(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene_of(cell, monkeypatch) as scene:
        if cell.phase.waiting:
            check_waiting(scene, cell.way)
        elif cell.way.startswith("abort"):
            check_busy_abort(scene, cell.way)
        elif cell.way.startswith("close"):
            check_busy_close(scene, cell.way)
        else:
            check_leaving(scene, cell.way)
        scene.check_far_side()
        scene.check_afterwards()


def check_waiting(scene: Scene, way: Way) -> None:
    """The main thread waits, and another one stops it, or has a signal handler do so."""
    stream = scene.make(scene.phase.body)
    scene.take(stream)
    caught: list[BaseException] = []

    def stop() -> None:
        scene.reached(stream)
        if way == "abort from a thread":
            scene.abort()
        elif way == "close from a thread":
            scene.now()
            stream.close()
        else:
            interrupt_main()

    handler = scene.interrupt if way == "interrupt" else scene.abort
    with handled(handler), elsewhere(stop):
        try:
            for event in stream:
                scene.events.append(event)
        except (Aborted, KeyboardInterrupt) as error:
            caught.append(error.with_traceback(None))
        finished_ns = time.monotonic_ns()
    took = (finished_ns - scene.stopped_ns) / 1e9
    FREED.setdefault(scene.phase.name, []).append(took)
    assert took <= LIMIT
    check_caught(stream, way, caught)
    scene.check_events(delivered=way.startswith("abort"))


def check_caught(stream: Stream, way: Way, caught: list[BaseException]) -> None:
    if way.startswith("abort"):
        (error,) = caught
        assert isinstance(error, Aborted)
        assert error.reason is REASON
        assert error.args == (REASON,)
        assert (stream.aborted, stream.reason, stream.outcome) == (True, REASON, "aborted")
    elif way == "interrupt":
        (error,) = caught
        assert type(error) is KeyboardInterrupt
        assert error.args == (REASON,)
        assert error.__context__ is None
        assert (stream.aborted, stream.outcome) == (False, "cancelled")
    else:
        assert caught == []
        assert (stream.aborted, stream.outcome) == (False, "closed")
    with pytest.raises(StopIteration):
        next(stream)


def check_busy_abort(scene: Scene, way: Way) -> None:
    stream = scene.make(scene.phase.body)
    scene.take(stream)
    if way == "abort":
        scene.abort()
    elif way == "abort from a thread":
        with elsewhere(scene.abort):
            pass
    else:
        with handled(scene.abort):
            interrupt_main()
    if scene.stateful:
        scene.client.clear_history()  # the claim is free in the line after the abort
    caught: list[BaseException] = []
    try:
        for event in stream:
            scene.events.append(event)
    except Aborted as error:
        caught.append(error)
    scene.check_reader_is_free()
    check_caught(stream, way, caught)
    scene.check_events(delivered=True)


def check_busy_close(scene: Scene, way: Way) -> None:
    stream = scene.make(scene.phase.body)
    scene.take(stream)
    scene.now()
    if way == "close":
        stream.close()
    else:
        with elsewhere(stream.close):
            pass
    stream.close()
    scene.check_reader_is_free()
    check_caught(stream, way, [])
    scene.check_events(delivered=False)


def check_leaving(scene: Scene, way: Way) -> None:
    if way == "del":
        stream = scene.make()
        scene.take(stream)
        scene.now()
        del stream
    elif way == "break":
        for event in scene.make():
            scene.events.append(event)
            if len(scene.events) == scene.phase.reads:
                scene.now()
                break
    elif way == "leave the block":
        with scene.make() as stream:
            scene.take(stream)
            scene.now()
        assert stream.outcome == "closed"
    else:
        leave_by_an_error(scene, way)
    scene.check_reader_is_free()
    scene.check_events(delivered=False)


def leave_by_an_error(scene: Scene, way: Way) -> None:
    """Out of the loop's body, with nothing but the frame to hold the stream."""
    kind = KeyboardInterrupt if way == "interrupt" else LookupError

    def read() -> None:
        for event in scene.make():
            scene.events.append(event)
            if len(scene.events) == scene.phase.reads:
                if way == "interrupt":
                    interrupt_main()
                    time.sleep(1)
                scene.now()
                raise LookupError(REASON)

    with handled(scene.interrupt), pytest.raises(kind) as caught:
        read()
    caught.value.__traceback__ = None  # which holds the frame, and with it the stream
    assert caught.value.args == (REASON,)


# what a table of one stop does not show


@pytest.mark.parametrize("way", WHILE_WAITING)
def test_a_stop_at_any_moment_of_a_read_ends_it_once_and_leaves_nothing(way: Way) -> None:
    """Hundreds of stops, each a little later after the reader's first step than the one before."""
    cell = Cell(
        "openai-chat", PHASES_BY_NAME["mid-item while the caller waits"], "plain", way, True
    )
    with ScriptedProvider(Answer(say(chat.text("t0 ")), stall())) as provider:
        for number in range(200):
            scene = Scene(cell, provider)
            stop_after(scene, way, number * 2e-5)
            assert scene.client.get_history() == []
            scene.client.clear_history()
            assert not scene.signal._listeners
        for record in provider.connections:
            record.wait_closed()


def stop_after(scene: Scene, way: Way, seconds: float) -> None:
    begun = threading.Event()
    stream = scene.make()
    sent_ns: list[int] = []
    caught: list[BaseException] = []

    def stop() -> None:
        begun.wait()
        time.sleep(seconds)
        sent_ns.append(time.monotonic_ns())
        if way == "abort from a thread":
            scene.abort()
        elif way == "close from a thread":
            stream.close()
        else:
            interrupt_main()

    handler = scene.interrupt if way == "interrupt" else scene.abort
    with handled(handler), elsewhere(stop):
        try:
            begun.set()
            for event in stream:
                scene.events.append(event)
        except (Aborted, KeyboardInterrupt) as error:
            caught.append(error.with_traceback(None))
        assert (time.monotonic_ns() - sent_ns[0]) / 1e9 < 2  # one that was lost would wait for ever
    assert [type(each) for each in caught] == ERRORS.get(way, [])
    if way != "interrupt":  # which may find the reader between two reads
        assert stream.outcome == ("closed" if way.startswith("close") else "aborted")
    stream.close()
    assert stream.outcome in ("aborted", "closed", "cancelled")


ERRORS: dict[Way, list[type[BaseException]]] = {
    "abort from a thread": [Aborted],
    "abort in a signal handler": [Aborted],
    "interrupt": [KeyboardInterrupt],
}
PHASES_BY_NAME = {phase.name: phase for phase in PHASES}


@pytest.fixture(scope="module", autouse=True)
def medians(report_at_the_end: list[str]) -> Iterator[None]:
    yield
    gc.collect()
    for what, measured in (
        ("From a stop without an event loop until the provider saw its connection close:", CLOSED),
        ("From a stop without an event loop until its reader was free:", FREED),
    ):
        report_at_the_end.append(what)
        for phase, times in measured.items():
            middle, worst = statistics.median(times) * 1e3, max(times) * 1e3
            report_at_the_end.append(
                f"{middle:6.2f} ms, at worst {worst:6.2f}, of {len(times):3} stops · {phase}"
            )
