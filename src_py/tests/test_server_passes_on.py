"""A conversation through the server is the one that its client would have had by itself: the same events
and history here, the same requests there, with sealed thinking, a call and its result, for every client."""

from __future__ import annotations

from typing import Any

import pytest

from mmsp import AutoLLMClient, UniMessage
from mmsp.integration.server import create_server_app
from mmsp.testing import Answer, ScriptedProvider, say
from tests.interruption_table import STREAMING, WIRES
from tests.serving import KEY, MODEL, row, served
from tests.test_moving_histories import QUESTION, RESULT, TURNS

ASKED_FOR = [each for each in STREAMING if each != "mmsp"]


def answers(client_type: str) -> list[Answer]:
    wire = WIRES[client_type]
    return [Answer(*map(say, TURNS[wire.__name__])), Answer(*map(say, wire.answer("No rain.")))]


async def conversation(client: AutoLLMClient) -> tuple[list[Any], list[Any]]:
    """The events and the history of two turns, without their times."""
    events: list[Any] = []
    for message in (QUESTION, RESULT):
        stamped: UniMessage = {**message, "created_at": 1}
        events += [event async for event in client.streaming_response_stateful(stamped)]
    return timeless(events), timeless(client.get_history())


def timeless(things: list[Any]) -> list[Any]:
    return [{key: part for key, part in each.items() if key != "created_at"} for each in things]


@pytest.mark.parametrize("client_type", ASKED_FOR)
async def test_a_conversation_through_the_server_is_the_same(client_type: str) -> None:
    with ScriptedProvider(*answers(client_type)) as provider:
        direct = await conversation(
            AutoLLMClient("some-model", "a-key", provider.base_url, client_type)
        )
        first = [each.json() for each in provider.requests]
        provider.forget()
        provider.answers = answers(client_type)
        app = create_server_app([row(provider, client_type=client_type)], [KEY])
        async with served(app) as place:
            crossed = await conversation(AutoLLMClient(MODEL, KEY, place.base_url, "mmsp"))
        assert crossed == direct
        assert [each.json() for each in provider.requests] == first
