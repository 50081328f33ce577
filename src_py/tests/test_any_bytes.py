"""Whatever bytes a server sends, on every wire: events, or one documented error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmsp import MMSPError, dumps, loads
from mmsp.base_client import LLMClient
from mmsp.checks import checked_messages
from mmsp.registry import CLIENTS
from mmsp.request import Target
from tests.asking import QUESTION
from tests.interruption_table import WIRES
from tests.reading import told
from tests.test_moving_histories import TURNS

TARGET = Target("https://host.example/v1")
ODD: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
WORDS = st.sampled_from(
    ["", "a", "{}", '{"k":', "1}", "\ud83d", "\ude00", "STOP", "tool_use", "AA=="]
)


def mangled(value: Any, draw: Any) -> Any:
    """The same JSON with a few of its parts dropped, doubled, or of another kind."""
    luck = draw(st.integers(0, 30))
    if luck == 0:
        return draw(ODD)
    if luck == 1 and isinstance(value, str):
        return draw(WORDS)
    if isinstance(value, dict):
        kept = {key: mangled(part, draw) for key, part in value.items()}
        if kept and luck == 2:
            kept.pop(draw(st.sampled_from(sorted(kept))))
        return kept
    if isinstance(value, list):
        made = [mangled(part, draw) for part in value]
        return made * 2 if luck == 3 else made
    return value


def frames(wire: Any) -> list[tuple[bytes, Any]]:
    """The events of a turn as (what stands before the data, the data)."""
    found = []
    for each in b"".join(TURNS[wire.__name__]).split(b"\n\n"):
        head, _, data = each.partition(b"data: ")
        if data.startswith(b"{"):
            found.append((head, json.loads(data)))
    return found


@st.composite
def bodies(draw: Any, wire: Any) -> bytes:
    chosen = draw(st.lists(st.sampled_from(frames(wire)), max_size=12))
    written = [head + b"data: " + json.dumps(mangled(data, draw)).encode() for head, data in chosen]
    return b"\n\n".join([*written, draw(st.sampled_from([b"", b"data: [DONE]\n\n"]))])


def check(client_type: str, body: bytes, cuts: list[int]) -> None:
    client = CLIENTS[client_type].load()
    places = sorted({cut % (len(body) + 1) for cut in cuts})
    pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    for strict in (False, True):
        whole = told(client, TARGET, [body], strict=strict)
        again = told(client, TARGET, pieces, strict=strict)
        assert again.items == whole.items
        assert repr(again.error) == repr(whole.error)
        assert isinstance(whole.error, MMSPError | None)
        dumps([item for item in whole.items if item["type"].endswith(".done")])
        if whole.message is not None:
            check_that_it_can_be_sent_back(client, whole.message)


def check_that_it_can_be_sent_back(client: type[LLMClient], answer: Any) -> None:
    """A turn that was recorded is saved, loaded, and sent on the same wire with the next question."""
    if any(item["type"] == "embedding.done" for item in answer["content_items"]):
        return
    assert loads(dumps(answer)) == answer
    calls = [each for each in answer["content_items"] if each["type"] == "tool_call.done"]
    results = [
        {"type": "tool_result.done", "text": "7", "tool_call_id": each["tool_call_id"]}
        for each in calls
    ]
    question = {"role": "user", "content_items": [*results, {"type": "text.done", "text": "On."}]}
    messages = checked_messages([QUESTION, answer, question], client="C", now=1)
    for request in client.codec.requests("some-model", messages, {}, TARGET, client="C"):
        json.loads(request.body)


@pytest.mark.parametrize("client_type", CLIENTS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_bytes_give_events_or_one_documented_error(client_type: str, data: Any) -> None:
    cuts = data.draw(st.lists(st.integers(0, 10_000), max_size=4))
    check(client_type, data.draw(st.binary(max_size=200)), cuts)
    if WIRES[client_type].__name__ in TURNS:
        check(client_type, data.draw(bodies(WIRES[client_type])), cuts)
