"""What an event costs, in calls of functions: the same on every machine, however busy it is.

`benchmarks/` measures time. This keeps what is paid for each event from growing unseen: a call more is
about a twentieth of a microsecond. A bound is what was counted, and one call more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from mmsp import Limits
from mmsp.grammar import Assembler
from mmsp.reader import AnswerReader
from mmsp.registry import CLIENTS
from mmsp.request import Target
from tests.interruption_table import EXHAUSTIVE, WIRES

COUNT = 1000
TARGET = Target("https://host.example/v1")

# Calls an event, of Python's functions and of others, from the bytes to the item: text, thinking,
# arguments.
BOUNDS: dict[str, tuple[float, float, float | None]] = {
    "openai-chat": (15.4, 14.4, 15.4),
    "openai-responses": (15.4, 16.4, 16.5),
    "ant-messages": (13.4, 13.4, 13.5),
    "google-genai": (16.4, 16.4, None),
    "google-official": (16.4, 17.4, 12.5),
    "mmsp": (12.4, 14.4, 14.4),
}


def pieces(wire: Any, kind: str) -> list[bytes]:
    if kind == "text":
        return [wire.text(f"word{number} ") for number in range(COUNT)]
    if kind == "thinking":
        return [wire.thinking(f"word{number} ") for number in range(COUNT)]
    numbers = ", ".join(map(str, range(COUNT))).split(" ")
    began = wire.tool_call(0, "call_1", "add")
    return [began, *(wire.arguments(0, each) for each in ["[", *numbers, "]"])]


def calls_an_event(client_type: str, kind: str) -> float:
    """Reading `COUNT` events costs so many calls each; what an answer costs once is left out."""
    codec = CLIENTS[client_type].load().codec
    assembler = Assembler(client="C", wire=codec.name, host=TARGET.host, strict=False)
    reader = AnswerReader(
        client="C",
        limits=Limits(),
        assembler=assembler,
        decoder=codec.decoder(assembler, client="C", target=TARGET),
    )
    made = pieces(WIRES[client_type], kind)
    read(reader, made[: COUNT // 2])
    return counted(lambda: read(reader, made[COUNT // 2 :])) / (len(made) - COUNT // 2)


def read(reader: AnswerReader, events: list[bytes]) -> None:
    for start in range(0, len(events), 50):
        reader.receive(b"".join(events[start : start + 50]))
        while reader.decode():
            reader.out.clear()
    assert reader.failure is None


def counted(work: Callable[[], None]) -> int:
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", ["text", "thinking", "arguments"])
@pytest.mark.parametrize("client_type", EXHAUSTIVE)
def test_an_event_costs_no_more_calls_than_it_did(client_type: str, kind: str) -> None:
    bound = BOUNDS[client_type][["text", "thinking", "arguments"].index(kind)]
    if bound is None:
        return  # it comes whole
    assert calls_an_event(client_type, kind) <= bound
