"""Token counts on every wire that streams: whatever a server counts, a count is a number or not known."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mmsp.registry import CLIENTS
from mmsp.request import Target
from tests.interruption_table import WIRES
from tests.reading import told

TARGET = Target("https://host.example/v1")
STREAMING = [each for each in CLIENTS if each != "openai-embedding"]
ODD: list[Any] = [-5, True, 2.5, "x", None, [1], {}]


def counted(value: Any, change: Callable[[int], Any]) -> Any:
    """The same JSON with every count of tokens changed."""
    if isinstance(value, dict):
        return {
            key: change(part)
            if "token" in key.lower() and isinstance(part, int)
            else counted(part, change)
            for key, part in value.items()
        }
    return [counted(each, change) for each in value] if isinstance(value, list) else value


def usage_of(client_type: str, change: Callable[[int], Any]) -> dict[str, int | None]:
    pieces = []
    for event in b"".join(WIRES[client_type].answer("All is well")).split(b"\n\n"):
        head, _, data = event.partition(b"data: ")
        if data.startswith(b"{"):
            data = json.dumps(counted(json.loads(data), change)).encode()
        pieces.append(head + b"data: " + data + b"\n\n")
    seen = told(CLIENTS[client_type].load(), TARGET, pieces)
    assert seen.error is None
    found: dict[str, int | None] = seen.stop["usage_metadata"]
    return found


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("client_type", STREAMING)
def test_a_count_is_a_number_or_not_known(client_type: str, odd: Any) -> None:
    for count in usage_of(client_type, lambda _: odd).values():
        assert count is None or (type(count) is int and count >= 0)


@pytest.mark.parametrize("client_type", STREAMING)
def test_a_part_that_is_more_than_the_whole_leaves_nothing_below_zero(client_type: str) -> None:
    falling = iter(range(1, 100))
    counts = usage_of(client_type, lambda _: next(falling))
    assert all(count is None or count >= 0 for count in counts.values())


@pytest.mark.parametrize("client_type", STREAMING)
def test_a_count_as_text_or_as_a_whole_float_is_read(client_type: str) -> None:
    whole = usage_of(client_type, lambda count: count)
    assert usage_of(client_type, str) == whole
    assert usage_of(client_type, float) == whole
