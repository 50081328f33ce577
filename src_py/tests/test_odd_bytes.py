"""Bytes that are rare and meant well: line ends of every kind, characters that some parsers take for
line ends, heartbeats inside data, lines of many megabytes. Through the real client, whole, byte by byte
and at random cuts.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from mmsp import AbortError, Limits, StreamProtocolError
from mmsp.testing import Answer, ScriptedProvider, Step, drip, gate, say, stall
from tests.asking import QUESTION, client_of, events_of, shown
from tests.interruption_table import EXHAUSTIVE, WIRES

# What `str.splitlines` and others take for line ends, and an event stream does not. JSON wants the control
# characters escaped; servers send them as they are.
SEPARATORS = "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e"

Rewrite = Callable[[bytes], bytes]


def _mixed(body: bytes) -> bytes:
    """Any line end behind any line; but a LF right behind a CR would belong to it."""
    chance, mixed = random.Random(3), b""
    for line in body.split(b"\n")[:-1]:
        may_be_lf = line or not mixed.endswith(b"\r")
        mixed += line + chance.choice([b"\r\n", b"\r", *([b"\n"] if may_be_lf else [])])
    return mixed


def _in_lines(body: bytes) -> bytes:
    """Each event's data in several `data:` lines, cut where JSON may have white space."""
    return body.replace(b'"choices":', b'\ndata: "choices":').replace(b":{", b":\ndata:{")


def _before_events(text: bytes) -> Rewrite:
    return lambda body: text + body.replace(b"\n\n", b"\n\n" + text)


FORMS: dict[str, Rewrite] = {
    "LF": lambda body: body,
    "CRLF": lambda body: body.replace(b"\n", b"\r\n"),
    "CR": lambda body: body.replace(b"\n", b"\r"),
    "mixed": _mixed,
    "a byte order mark": lambda body: b"\xef\xbb\xbf" + body,
    "no space behind data": lambda body: body.replace(b"data: ", b"data:"),
    "several data lines": _in_lines,
    "comments": _before_events(b": comment\n\n:\n"),
    "ids and retries": _before_events(b"id: 7\nretry: 500\nunknown: x\n"),
    "empty data": _before_events(b"data:\n\ndata: \n\ndata\n\n"),
    "heartbeats inside data": _before_events(b"data: : keepalive\n\n"),
    "a gateway's heartbeats": _before_events(b"data: : OPENROUTER PROCESSING\n\n"),
    "blank lines": _before_events(b"\n\n\n"),
}


def in_pieces(body: bytes, how: str) -> list[Step]:
    if how == "whole":
        return [say(body)]
    if how == "byte by byte":
        return [drip(body, 1, 0)]
    chance = random.Random(f"{how}")
    places = sorted(chance.sample(range(1, len(body)), 12))
    return [
        say(body[start:end]) for start, end in zip([0, *places], [*places, len(body)], strict=True)
    ]


def readable(client_type: str, words: str) -> bytes:
    """An answer of one text event, whose JSON holds its characters raw."""
    wire = WIRES[client_type]
    body: str = wire.text(words).decode()
    for each in words:
        body = body.replace(json.dumps(each)[1:-1], each)
    return body.encode() + b"".join(wire.ending())


@pytest.mark.parametrize("pieces", ["whole", "byte by byte", "cut 1", "cut 2", "cut 3"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("client_type", EXHAUSTIVE)
async def test_the_form_of_a_stream_changes_nothing_of_its_text(
    client_type: str, form: str, pieces: str
) -> None:
    words = f"naïve {SEPARATORS} 🦜 end"
    body = readable(client_type, words)
    assert all(each.encode() in body for each in SEPARATORS)  # raw, not as an escape
    answer = Answer(*in_pieces(FORMS[form](body), pieces))
    with ScriptedProvider(answer) as provider:
        events = await events_of(client_of(provider, client_type).streaming_response([QUESTION]))
    assert shown(events) == [f"text.delta {words}", f"text.done {words}", "stop stop"]


@pytest.mark.parametrize("said", ["hello there", "<html>", "{", "keepalive", "x" * 5000])
@pytest.mark.parametrize("client_type", EXHAUSTIVE)
async def test_data_that_is_no_json_is_one_error_that_shows_its_beginning(
    client_type: str, said: str
) -> None:
    wire = WIRES[client_type]
    body = [wire.text("a"), f"data: {said}\n\n", wire.text("b"), *wire.ending()]
    with ScriptedProvider(Answer(say(body))) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION])
        assert shown([await anext(stream)]) == ["text.delta a"]
        with pytest.raises(StreamProtocolError) as caught:
            await anext(stream)
        assert repr(said[:200]) in str(caught.value)
        assert said[:201] == said[:200] or said[:201] not in str(caught.value)
        assert await events_of(stream) == []


# long lines


def of_size(wire: Any, size: int) -> Answer:
    event: bytes = wire.text("x" * size)
    pieces = [event[at : at + 16_384] for at in range(0, len(event), 16_384)]
    return Answer(*map(say, pieces), say(wire.ending()))


@pytest.mark.slow
@pytest.mark.no_debug
@pytest.mark.parametrize("client_type", EXHAUSTIVE)
async def test_a_line_of_20_megabytes_is_delivered_in_linear_time(client_type: str) -> None:
    took: dict[int, float] = {}
    for size in (2_000_000, 20_000_000):
        with ScriptedProvider(of_size(WIRES[client_type], size)) as provider:
            best = 99.0
            for _ in range(3):
                before = time.process_time()
                stream = client_of(provider, client_type).streaming_response([QUESTION])
                assert [len(piece) async for piece in stream.text()] == [size]
                best = min(best, time.process_time() - before)
            took[size] = best
    assert took[20_000_000] < 10 * took[2_000_000] * 3 + 0.2  # ten times the size, not a hundred


@pytest.mark.parametrize("client_type", EXHAUSTIVE)
@pytest.mark.parametrize("ends", [True, False], ids=["that ends", "without an end"])
async def test_a_line_over_the_limit_is_a_typed_error_that_names_it(
    client_type: str, ends: bool
) -> None:
    wire = WIRES[client_type]
    long: bytes = wire.text("x" * 200_000)
    body = [wire.text("a"), long if ends else long[:-100]]
    with ScriptedProvider(Answer(say(body), stall())) as provider:
        client = client_of(provider, client_type, limits=Limits(event_bytes=100_000))
        stream = client.streaming_response_stateful(QUESTION)
        assert shown([await anext(stream)]) == ["text.delta a"]
        with pytest.raises(StreamProtocolError, match=r"100,000 bytes \(Limits.event_bytes\)"):
            await anext(stream)
        await provider.connections[0].until_closed(0.2)
        assert client.get_history() == []


@pytest.mark.no_debug
@pytest.mark.parametrize("client_type", EXHAUSTIVE)
async def test_an_abort_inside_a_line_of_20_megabytes_is_at_once(
    client_type: str, tls: bool
) -> None:
    event: bytes = WIRES[client_type].text("x" * 20_000_000)
    answer = Answer(gate("half"), say(event[:10_000_000]), stall())
    with ScriptedProvider(answer, tls=tls) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION])
        reading = asyncio.create_task(stream.__anext__())
        await provider.until("stalled")
        provider.open("half")
        while provider.connections[0].bytes_sent < 1_000_000:
            await asyncio.sleep(0.001)
        started = time.monotonic_ns()
        stream.abort("why")
        with pytest.raises(AbortError):
            await reading
        assert await provider.connections[0].until_closed(1) - started < 200_000_000
