"""What a stopped turn leaves in the conversation: nothing, wherever it was stopped. And what a whole turn
leaves there goes back to its provider byte by byte, also after it was saved.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from mmsp import Limits, dumps, loads
from mmsp.grammar import Assembler
from mmsp.reader import AnswerReader
from mmsp.registry import CLIENTS
from mmsp.request import Target
from mmsp.testing import (
    Answer,
    ScriptedProvider,
    chat,
    generate_content,
    interactions,
    messages,
    mmsp_wire,
    responses,
    say,
    stall,
)
from mmsp.types import UniMessage
from tests.asking import client_of, shown
from tests.ends_table import ENDS, Ends
from tests.interruption_table import EXHAUSTIVE, STREAMING, WIRES, Way
from tests.stopping import STOPS, stop

QUESTION: UniMessage = {
    "role": "user",
    "content_items": [{"type": "text.done", "text": "Hello?"}],
    "created_at": 1,  # given, because a server of ours is sent it
}
SIGNATURE = "c2lnbmF0dXJl/+==" * 40

pytestmark = pytest.mark.no_debug


def rich_turn(ends: Ends) -> list[bytes]:
    """Thinking, text and two tool calls, an event for each piece."""
    wire = ends.wire
    turn = [wire.thinking("hm "), wire.thinking("yes"), wire.text("Let me "), wire.text("look.")]
    for index, name in enumerate(("find", "add")):
        if ends.arguments_in_pieces:
            turn.append(wire.tool_call(index, f"c{index}", name))
            turn += [wire.arguments(index, piece) for piece in ('{"q":', "1}")]
        else:
            turn.append(wire.tool_call(index, f"c{index}", name, '{"q": 1}'))
    return turn


def events_of_the_turn(client_type: str) -> int:
    """How many events it makes before the provider falls silent."""
    codec = CLIENTS[client_type].load().codec
    assembler = Assembler(client="C")
    decoder = codec.decoder(assembler, client="C", target=Target("https://host.test/v1"))
    reader = AnswerReader(client="C", limits=Limits(), assembler=assembler, decoder=decoder)
    reader.receive(b"".join(rich_turn(ENDS[WIRES[client_type].__name__])))
    count = 0
    while reader.decode():
        count += len(reader.out)
        reader.out.clear()
    return count


# how many events the reader has taken when the turn is stopped
CELLS = [
    pytest.param(client_type, taken, way, id=f"{client_type}-{taken}-{way}")
    for client_type in EXHAUSTIVE
    for taken in range(1, events_of_the_turn(client_type) + 1)
    for way in STOPS
]


@pytest.mark.parametrize(("client_type", "taken", "way"), CELLS)
async def test_a_turn_stopped_at_any_event_is_not_in_the_next_request(
    client_type: str, taken: int, way: Way
) -> None:
    ends = ENDS[WIRES[client_type].__name__]
    whole = Answer(*map(say, ends.wire.answer("All is well")))
    turn = Answer(*map(say, rich_turn(ends)), stall())
    plain = Answer(*map(say, ends.wire.answer("All is well")))
    with ScriptedProvider(whole, turn, plain, whole, plain) as provider:
        client, other = client_of(provider, client_type), client_of(provider, client_type)
        await client.streaming_response_stateful(QUESTION).message()
        before = client.get_history()
        stream = client.streaming_response_stateful(QUESTION)
        for _ in range(taken):
            await anext(stream)
        await provider.until("stalled")
        if way == "cancel":
            await _cancel(stream)
        else:
            await stop(stream, way, waiting=False)
        assert client.get_history() == before
        await client.streaming_response_stateful(QUESTION).message()
        # the same as of a client that never began the turn
        other.set_history(before)
        await other.streaming_response_stateful(QUESTION).message()
        assert provider.requests[2].json() == provider.requests[3].json()
        assert [message["role"] for message in client.get_history()] == ["user", "assistant"] * 2


async def _cancel(stream: Any) -> None:
    """Cancel the reads until none is left to be had at once."""
    while True:
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.01)
        if reading.done():
            continue
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        return


@pytest.mark.parametrize(
    ("client_type", "taken"),
    [(each, taken) for each in EXHAUSTIVE for taken in range(events_of_the_turn(each) + 1)],
)
async def test_what_a_caller_keeps_of_a_stopped_turn_can_be_sent(
    client_type: str, taken: int
) -> None:
    """No blank message, no call without its result, nothing unsigned that must be signed."""
    ends = ENDS[WIRES[client_type].__name__]
    turn = Answer(*map(say, rich_turn(ends)), stall())
    whole = Answer(*map(say, ends.wire.answer("All is well")))
    with ScriptedProvider(turn, whole) as provider:
        client = client_of(provider, client_type)
        stream = client.streaming_response_stateful(QUESTION)
        lines = shown([await anext(stream) for _ in range(taken)])
        kept = stream.partial_message()
        await stream.aclose()
        if kept is None:
            assert not any(line.startswith("text") for line in lines)
            return
        *thinking, last = kept["content_items"]
        assert last["type"] == "text.done"
        assert last["text"].strip()
        assert all(item["type"] == "thinking.done" and item.get("fidelity") for item in thinking)
        client.set_history([QUESTION, kept])
        await client.streaming_response_stateful(QUESTION).message()
        assert len(client.get_history()) == 4


# signatures


@dataclass(frozen=True)
class Signed:
    """A wire's thinking with `SIGNATURE`, and what of it must come back in a request, as JSON holds it."""

    thinking: bytes
    comes_back: str


def _details(**fields: Any) -> bytes:
    return chat.chunk({"reasoning_details": [{"index": 0, "format": "f", **fields}]})


SIGNED = {
    chat.__name__: Signed(
        _details(type="reasoning.text", text="hm")
        + _details(type="reasoning.text", signature=SIGNATURE),
        SIGNATURE,
    ),
    messages.__name__: Signed(
        messages.block(0, "thinking", thinking="")
        + messages.thinking("hm")
        + messages.signature(SIGNATURE)
        + messages.block_stop(),
        SIGNATURE,
    ),
    responses.__name__: Signed(
        responses.item_added(0, "reasoning", id="rs_0", summary=[])
        + responses.thinking("hm")
        + responses.item_done(
            0,
            "reasoning",
            id="rs_0",
            summary=[{"type": "summary_text", "text": "hm"}],
            encrypted_content=SIGNATURE,
        ),
        SIGNATURE,
    ),
    generate_content.__name__: Signed(
        generate_content.thinking("hm") + generate_content.thinking("", thoughtSignature=SIGNATURE),
        SIGNATURE,
    ),
    interactions.__name__: Signed(
        interactions.step_start(0, "thought")
        + interactions.thinking("hm")
        + interactions.signature(SIGNATURE)
        + interactions.step_stop(),
        SIGNATURE,
    ),
    mmsp_wire.__name__: Signed(
        mmsp_wire.thinking("hm")
        + mmsp_wire.thinking("", {"signature": SIGNATURE, "wire": "w", "host": "h"}),
        SIGNATURE,
    ),
}


def test_every_wire_says_how_it_signs_or_that_it_does_not() -> None:
    assert {WIRES[client_type].__name__ for client_type in STREAMING} == set(SIGNED)


@pytest.mark.parametrize("client_type", EXHAUSTIVE)
@pytest.mark.parametrize("saved", [False, True], ids=["as it is", "saved and loaded"])
async def test_a_signature_goes_back_as_it_came(client_type: str, saved: bool) -> None:
    wire = WIRES[client_type]
    signed = SIGNED[wire.__name__]
    body = [signed.thinking, *wire.answer("All is well")]
    with ScriptedProvider(Answer(say(body))) as provider:
        client = client_of(provider, client_type)
        await client.streaming_response_stateful(QUESTION).message()
        history: list[UniMessage] = client.get_history()
        if saved:
            history = loads(dumps(history))
            assert history == client.get_history()
        again = client_of(provider, client_type)
        again.set_history(history)
        await again.streaming_response_stateful(QUESTION).message()
        sent = provider.requests[1].json()
        assert [each for each in _strings(sent) if each == signed.comes_back] == [signed.comes_back]
        await client.streaming_response_stateful(QUESTION).message()
        assert provider.requests[2].json() == sent


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for part in parts for found in _strings(part)]
