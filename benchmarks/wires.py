"""µs per event on every wire: text, thinking and tool arguments, each a stream of deltas.

As in `decoding.py`, which measures Chat Completions beside its floor; here the wires stand side by side.
What a wire does not send in pieces (the arguments of generateContent) has no figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mmsp.testing import (
    ProviderProcess,
    chat,
    generate_content,
    interactions,
    messages,
    mmsp_wire,
    responses,
)

from .decoding import read
from .figures import Figure
from .rig import client_of, in_chunks, run

__all__ = ["measure"]

TARGET = 3.5
COUNT = 20_000

WIRES: dict[str, tuple[str, Any]] = {
    "Chat Completions": ("openai-chat", chat),
    "Responses": ("openai-responses", responses),
    "Messages": ("ant-messages", messages),
    "generateContent": ("google-genai", generate_content),
    "Interactions": ("google-official", interactions),
    "MMSP": ("mmsp", mmsp_wire),
}


def _text(wire: Any) -> Iterable[bytes]:
    return [wire.text(f"word{number} ") for number in range(COUNT)]


def _thinking(wire: Any) -> Iterable[bytes]:
    return [*(wire.thinking(f"word{number} ") for number in range(COUNT)), wire.text("So.")]


def _arguments(wire: Any) -> Iterable[bytes]:
    numbers = ", ".join(map(str, range(COUNT))).split(" ")
    pieces = ["{", '"numbers": [', *numbers, "]}"]
    began = wire.tool_call(0, "call_1", "add")
    return [began, *(wire.arguments(0, piece) for piece in pieces)]


KINDS: dict[str, Callable[[Any], Iterable[bytes]]] = {
    "text": _text,
    "thinking": _thinking,
    "tool arguments": _arguments,
}


def measure(*, full: bool, uvloop: bool) -> list[Figure]:
    runs = 9 if full else 3
    figures = []
    with ProviderProcess() as provider:
        for name, (client_type, wire) in WIRES.items():
            for kind, make in KINDS.items():
                if kind == "tool arguments" and not hasattr(wire, "arguments"):
                    continue
                provider.set_answers(in_chunks([*make(wire), *wire.ending()]))
                work = _several(provider, client_type, runs)
                figures.append(
                    Figure.of_runs(
                        f"{name}, {kind}", run(work, uvloop=uvloop), "µs/event", target=TARGET
                    )
                )
    return figures


async def _several(provider: ProviderProcess, client_type: str, runs: int) -> list[float]:
    """The µs per event of each run; a first one warms up."""
    client = client_of(provider, client_type=client_type)
    found = []
    for _ in range(runs + 1):
        seconds, events = await read(client)
        found.append(seconds / events * 1e6)
    return found[1:]
