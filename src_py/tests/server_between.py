"""An answer as a server of ours passes it on: what came out there has to come out here."""

from __future__ import annotations

import json
import random
from typing import Any

from mmsp.codecs.error_wire import error_to_wire
from mmsp.registry import CLIENTS
from mmsp.request import Target
from mmsp.wire import to_wire
from tests.reading import Told, told

CLIENT = CLIENTS["mmsp"].load()
TARGET = Target("https://mmsp.example/v1")
DONE = b"data: [DONE]\n\n"


def sent(items: list[Any], stop: Any = None, error: BaseException | None = None) -> bytes:
    """What a server sends for these items and this end, as bytes."""
    events: list[Any] = [{"event_type": "delta", "content_items": [each]} for each in items]
    if stop is not None:
        events.append({"event_type": "stop", "content_items": [], **stop})
    written = [to_wire(each) for each in events]
    if error is not None:
        written.append({"error": error_to_wire(error)})
    return b"".join(map(_event, written)) + DONE


def assert_passed_on(there: Told) -> None:
    """The items to the last fidelity, the stop, the error; whole and however it is cut."""
    body = sent(there.items, there.stop, there.error)
    dice = random.Random(len(body))
    places = sorted(dice.choices(range(len(body) + 1), k=20))
    cut = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    for pieces in ([body], cut):
        here = told(CLIENT, TARGET, pieces)
        assert here.items == there.items
        assert json.dumps(to_wire(here.items)) == json.dumps(to_wire(there.items))
        assert here.stop == there.stop
        assert type(here.error) is type(there.error)
        assert str(here.error) == str(there.error)


def _event(value: Any) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()
