"""An answer of another wire than the client's is told as such, whoever reads it and whoever wrote it."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from mmsp import IncompleteStreamError, MMSPError, StreamProtocolError
from mmsp.codecs.marks import BY_WIRE, wrong_wire
from mmsp.registry import CLIENTS
from mmsp.testing import (
    Answer,
    ScriptedProvider,
    chat,
    embeddings,
    generate_content,
    interactions,
    messages,
    mmsp_wire,
    responses,
    say,
)
from tests.asking import QUESTION, client_of
from tests.interruption_table import WIRES

SPEAKERS: dict[str, ModuleType] = {
    "openai_chat": chat,
    "openai_responses": responses,
    "openai_embedding": embeddings,
    "anthropic_messages": messages,
    "google_generate_content": generate_content,
    "google_interactions": interactions,
    "mmsp": mmsp_wire,
}


def wire_of(client_type: str) -> str:
    return CLIENTS[client_type].load().codec.name


async def outcome(client_type: str, answer: Answer) -> MMSPError | None:
    with ScriptedProvider(answer) as provider:
        client = client_of(provider, client_type, max_retries=0)
        try:
            await client.streaming_response([QUESTION]).message()
        except MMSPError as error:
            return error
    return None


def answers(speaker: ModuleType) -> dict[str, Answer]:
    """The same answer as a stream, as a stream without its first event, and whole."""
    events = speaker.answer("All is well")
    return {
        "stream": Answer(*map(say, events)),
        "behind a heartbeat": Answer(say(b": wait\n\ndata: \n\n"), *map(say, events)),
        "from its second event on": Answer(*map(say, events[1:])),
        "whole": Answer.json(speaker.completion("All is well")),
    }


def test_every_wire_has_its_marks_and_a_client_that_reads_it() -> None:
    wires = {wire_of(client_type) for client_type in CLIENTS}
    assert wires == set(BY_WIRE) == set(SPEAKERS)
    for wire, (_, client_type) in BY_WIRE.items():
        assert wire_of(client_type) == wire
        assert WIRES[client_type] is SPEAKERS[wire]


@pytest.mark.parametrize("wire", SPEAKERS)
@pytest.mark.parametrize("client_type", CLIENTS)
async def test_an_answer_of_another_wire_asks_for_the_client_type(
    client_type: str, wire: str
) -> None:
    ours = wire_of(client_type)
    for form, answer in answers(SPEAKERS[wire]).items():
        if wire == "openai_embedding" and form in (
            "behind a heartbeat",
            "from its second event on",
        ):
            continue  # it has no events
        error = await outcome(client_type, answer)
        if wire == ours:
            assert form == "from its second event on" or error is None, (form, error)
            assert "client_type" not in str(error)
        else:
            assert type(error) is StreamProtocolError, (form, error)
            assert not error.retryable
            assert BY_WIRE[wire][0] in str(error)
            assert f"client_type={BY_WIRE[wire][1]!r}" in str(error)
            assert BY_WIRE[ours][0] in str(error)


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_a_list_of_chunks_without_events_is_known_too(client_type: str) -> None:
    body = [generate_content.completion("All is well")] * 2
    error = await outcome(client_type, Answer.json(body))
    if wire_of(client_type) != "google_generate_content":
        assert type(error) is StreamProtocolError
        assert "client_type='google-genai'" in str(error)


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_an_answer_without_marks_or_cut_after_some_text_stays_what_it_is(
    client_type: str,
) -> None:
    speaker = WIRES[client_type]
    unknown = await outcome(client_type, Answer(say('data: {"what": "ever"}\n\n')))
    assert unknown is not None
    assert "client_type" not in str(unknown)
    if speaker is not embeddings:
        foreign = messages.text("of another") if speaker is chat else chat.text("of another")
        cut_short = await outcome(client_type, Answer(say(foreign), say(speaker.text("some"))))
        assert type(cut_short) is IncompleteStreamError


@pytest.mark.parametrize(
    "reported", [chat.error("down"), messages.error("down"), responses.error("down")]
)
@pytest.mark.parametrize("client_type", CLIENTS)
async def test_a_failure_that_another_wire_reports_is_that_failure(
    client_type: str, reported: bytes
) -> None:
    error = await outcome(client_type, Answer(say(reported)))
    assert error is not None
    assert "client_type" not in str(error)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"3", b"[" * 100_000, b'{"type": 3}', b'{"object": null}']
)
def test_what_has_no_mark_is_of_no_wire(data: bytes) -> None:
    assert all(wrong_wire(data, wire) is None for wire in BY_WIRE)


def test_an_answer_with_marks_of_its_own_wire_and_another_is_of_its_own() -> None:
    both: dict[str, Any] = {"object": "chat.completion", "candidates": []}
    for wire in ("openai_chat", "google_generate_content"):
        assert wrong_wire(json.dumps(both).encode(), wire) is None
    assert wrong_wire(json.dumps(both).encode(), "anthropic_messages") is not None
