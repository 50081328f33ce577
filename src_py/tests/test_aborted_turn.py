"""A turn is aborted at each of its deltas: what the next request holds, for a caller who goes on asking.

Whatever the caller does with the aborted turn (forgets it, keeps what can be kept, keeps finished calls
and gives their results), the provider is never sent a call without its result, a result without its call,
an empty message or half a signature, and what was said before the turn is sent as it was.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mmsp import AbortError, AutoLLMClient, Stream
from mmsp.codecs.openai_chat import ChatCodec
from mmsp.registry import CLIENTS
from mmsp.request import Target
from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from mmsp.types import UniMessage
from tests.asking import complete, events_of
from tests.reading import told

SIGNED = {"type": "reasoning.text", "format": "F", "index": 0, "text": "Let me see."}
SIGNATURE = "c2lnbmF0dXJl"
TURN = (
    chat.role(),
    chat.chunk({"reasoning_details": [SIGNED]}),
    chat.chunk({"reasoning_details": [{**SIGNED, "text": None, "signature": SIGNATURE}]}),
    chat.text(" "),
    chat.text("Two"),
    chat.text(" calls."),
    chat.tool_call(0, "call-one", "f", '{"a"'),
    chat.arguments(0, ":1}"),
    chat.tool_call(1, "call-two", "g", '{"b"'),
    chat.arguments(1, ":2}"),
    chat.text("So"),
    chat.text(" far."),
    chat.finish("tool_calls"),
    chat.usage(),
)
FINISH = TURN.index(chat.finish("tool_calls"))

CHAT_CLIENTS = [
    client_type
    for client_type, entry in CLIENTS.items()
    if isinstance(entry.load().codec, ChatCodec)
]


def question(words: str, *results: Any) -> UniMessage:
    said: Any = {"type": "text.done", "text": words}
    return {"role": "user", "content_items": [*results, said]}


@pytest.mark.parametrize("keeps", ["nothing", "what can be kept", "finished calls too"])
@pytest.mark.parametrize("client_type", CHAT_CLIENTS)
@pytest.mark.parametrize("length", range(len(TURN) + 1))
async def test_the_request_after_a_turn_that_was_aborted(
    length: int, client_type: str, keeps: str
) -> None:
    half = Answer(*(say(each) for each in TURN[:length]), stall())
    with ScriptedProvider(complete(), half, complete()) as provider:
        client = AutoLLMClient("some-model", "a-key", provider.base_url, client_type)
        await events_of(client.streaming_response_stateful(question("First?")))
        before = client.get_history()
        stream = client.streaming_response_stateful(question("Second?"))
        await abort_after(stream, deltas_of(length, client_type), provider)
        assert client.get_history() == before

        kept = stream.partial_message(tool_calls=keeps == "finished calls too")
        if keeps != "nothing" and kept is not None:
            client.set_history([*before, question("Second?"), kept])
        calls = calls_of(client.get_history())
        await events_of(client.streaming_response_stateful(question("Third?", *calls)))

        first, second, third = (request.json()["messages"] for request in provider.requests)
        assert third[: len(second) - 1] == second[:-1]
        assert_fit_to_be_sent(third)
        assert [message["role"] for message in second] == ["user", "assistant", "user"]
        assert second[0] == first[0]
        assert len(client.get_history()) == len(before) + 2 + 2 * (
            keeps != "nothing" and bool(kept)
        )
        if keeps == "finished calls too" and length > TURN.index(chat.text("So")):
            assert len(calls) == 2


async def abort_after(stream: Stream, deltas: int, provider: ScriptedProvider) -> None:
    """Read so many events, which is all that comes, then abort in the read after them."""
    for _ in range(deltas):
        await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await provider.until("stalled")
    stream.abort("enough")
    with pytest.raises(AbortError):
        await waiting


def deltas_of(length: int, client_type: str) -> int:
    """How many events the first so many chunks of the turn make, up to its finish."""
    target = Target("https://api.example/v1")
    return len(told(CLIENTS[client_type].load(), target, TURN[: min(length, FINISH)]).items)


def calls_of(history: list[UniMessage]) -> list[Any]:
    """The results that the last message's calls are owed."""
    return [
        {"type": "tool_result.done", "text": "r", "tool_call_id": item["tool_call_id"]}
        for item in history[-1]["content_items"]
        if item["type"] == "tool_call.done"
    ]


def assert_fit_to_be_sent(messages: list[Any]) -> None:
    owed: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == owed.pop(0)
            continue
        assert not owed, "a call without its result"
        content, calls = message.get("content", []), message.get("tool_calls", [])
        assert content or calls, "an empty message"
        assert all(part["text"].strip() for part in content)
        owed = [call["id"] for call in calls]
        assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
        for block in message.get("reasoning_details", []):
            assert (block["text"], block["signature"]) == (SIGNED["text"], SIGNATURE)
    assert not owed
    assert messages[-1]["role"] == "user"
