"""A conversation moves from any client to any other, and what only its provider can read stays with it.

Each client makes a turn over a real socket: thinking that its provider sealed, text, and a tool call. The
history is saved and loaded, gets the tool's result, and is sent on by every client.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmsp import AutoLLMClient, dumps, loads
from mmsp.codecs.google_codec import stand_in_signature
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
)
from mmsp.types import UniMessage
from tests.interruption_table import STREAMING, WIRES

QUESTION: UniMessage = {"role": "user", "content_items": [{"type": "text.done", "text": "Rain?"}]}
RESULT: UniMessage = {
    "role": "user",
    "content_items": [{"type": "tool_result.done", "text": "No.", "tool_call_id": "call-7"}],
}
SEAL = "c2VhbGVk"  # what a provider sealed, in base64 as all of them send it
ARGUMENTS = '{"city":"Bergen"}'

TURNS: dict[str, list[bytes]] = {
    chat.__name__: [
        chat.chunk(
            {"reasoning_details": [
                {"type": "reasoning.text", "text": "Hm.", "signature": SEAL, "format": "f"}]}
        ),
        chat.text("Let me look."),
        chat.tool_call(0, "call-7", "forecast", ARGUMENTS),
        chat.finish("tool_calls"),
        chat.usage(),
        chat.done(),
    ],
    messages.__name__: [
        messages.start(),
        messages.block(0, "thinking", thinking=""),
        messages.thinking("Hm.", 0),
        messages.signature(SEAL, 0),
        messages.block_stop(0),
        messages.block(1, "text", text=""),
        messages.text("Let me look.", 1),
        messages.block_stop(1),
        messages.tool_call(2, "call-7", "forecast", ARGUMENTS),
        messages.block_stop(2),
        messages.finish("tool_use"),
        messages.done(),
    ],
    responses.__name__: [
        responses.item_added(0, "reasoning", id="rs_0"),
        responses.thinking("Hm.", 0),
        responses.item_done(
            0,
            "reasoning",
            id="rs_0",
            content=[{"type": "reasoning_text", "text": "Hm."}],
            summary=[],
            encrypted_content=SEAL,
        ),
        responses.item_added(1, "message", id="msg_1", phase="commentary"),
        responses.text("Let me look.", 1),
        responses.tool_call(2, "call-7", "forecast", ARGUMENTS),
        responses.item_done(
            2, "function_call", call_id="call-7", name="forecast", arguments=ARGUMENTS
        ),
        responses.usage(),
    ],
    generate_content.__name__: [
        generate_content.thinking("Hm."),
        generate_content.text("Let me look."),
        generate_content.chunk(
            {
                "functionCall": {"id": "call-7", "name": "forecast", "args": {"city": "Bergen"}},
                "thoughtSignature": SEAL,
            }
        ),
        generate_content.finish(),
        generate_content.usage(),
    ],
    interactions.__name__: [
        interactions.step_start(0, "thought"),
        interactions.thinking("Hm.", 0),
        interactions.signature(SEAL, 0),
        interactions.step_stop(0),
        interactions.text("Let me look.", 1),
        interactions.step_stop(1),
        interactions.tool_call(2, "call-7", "forecast", ARGUMENTS),
        interactions.step_stop(2),
        interactions.usage(status="requires_action"),
        interactions.done(),
    ],
    mmsp_wire.__name__: [
        mmsp_wire.thinking("Hm."),
        mmsp_wire.thinking("", {"signature": SEAL, "wire": "anthropic_messages", "host": "a.test"}),
        mmsp_wire.delta("thinking.done", {"signature": SEAL, "wire": "anthropic_messages",
                                          "host": "a.test"}, thinking="Hm."),
        mmsp_wire.text("Let me look."),
        mmsp_wire.delta("text.done", text="Let me look."),
        mmsp_wire.tool_call(2, "call-7", "forecast", ARGUMENTS),
        mmsp_wire.delta("tool_call.done", name="forecast", arguments={"city": "Bergen"},
                        tool_call_id="call-7"),
        mmsp_wire.usage(finish_reason="tool_call"),
        mmsp_wire.done(),
    ],
}  # fmt: skip

# What a dialect keeps of the reasoning, where that is less than its wire has.
FORGETS = ("zai-official", "moonshot-official", "deepseek-official", "minimax-official")


async def made_by(client_type: str) -> tuple[list[UniMessage], str]:
    """The history of a turn, saved and loaded, and the host it came from."""
    with ScriptedProvider(Answer(*map(say, TURNS[WIRES[client_type].__name__]))) as provider:
        client = AutoLLMClient("some-model", "a-key", provider.base_url, client_type)
        message = await client.streaming_response_stateful(QUESTION).message()
        assert message.get("finish_reason") == "tool_call"
        history: list[UniMessage] = loads(dumps(client.get_history()))
        assert history == client.get_history()
        return history, provider.base_url


async def sent_by(client_type: str, history: list[UniMessage], base_url: str | None) -> Any:
    """The request with which a client goes on; to `base_url` or to a host of its own."""
    answer = Answer(*map(say, WIRES[client_type].answer("No rain.")))
    with ScriptedProvider(answer) as provider:
        client = AutoLLMClient("some-model", "a-key", base_url or provider.base_url, client_type)
        if base_url is not None:  # nobody is there any more: only the request is looked at
            requests = client._client._try_to_encode([*history, RESULT], {})
            assert requests is not None
            (request,) = requests
            return json.loads(request.body)
        client.set_history(history)
        await client.streaming_response_stateful(RESULT).message()
        return provider.requests[0].json()


def found(request: Any, name: str) -> list[Any]:
    """Every value under that key, at any depth."""
    if isinstance(request, list):
        return [value for each in request for value in found(each, name)]
    if isinstance(request, dict):
        here = [request[name]] if name in request else []
        return here + [value for each in request.values() for value in found(each, name)]
    return []


@pytest.mark.parametrize("to", STREAMING)
@pytest.mark.parametrize("maker", STREAMING)
async def test_a_history_made_by_one_client_is_sent_on_by_another(maker: str, to: str) -> None:
    history, _ = await made_by(maker)
    request = await sent_by(to, history, None)  # another host, whoever it is
    if WIRES[to] is mmsp_wire:
        assert loads(json.dumps(request["messages"])) == passed_on(history, request)
        return
    text = json.dumps(request)
    assert SEAL not in text
    assert found(request, "fidelity") == found(request, "wire") == found(request, "host") == []
    assert "Let me look." in text
    assert "Bergen" in text
    if "Hm." in text:
        assert "thinking" in text or "reason" in text or "thought" in text
    check_calls(WIRES[to].__name__, request)
    if WIRES[to] is generate_content:
        assert found(request, "thoughtSignature") == [stand_in_signature]
    if WIRES[to] is interactions:
        assert stand_in_signature in found(request, "signature")


def passed_on(history: list[UniMessage], request: Any) -> list[UniMessage]:
    """What a server of ours is sent: everything as it stands, for it asks the provider."""
    created_at = request["messages"][-1]["created_at"]
    return [*history, {**RESULT, "created_at": created_at}]


def check_calls(wire: str, request: Any) -> None:
    """Each call has its result, and a result its call."""
    if wire == chat.__name__:
        calls = [each["id"] for made in found(request, "tool_calls") for each in made]
        results = found(request, "tool_call_id")
    elif wire == messages.__name__:
        content = [
            block for made in found(request, "content") for block in made if isinstance(block, dict)
        ]
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        results = found(request, "tool_use_id")
    elif wire == responses.__name__:
        calls = [each["call_id"] for each in request["input"] if each["type"] == "function_call"]
        results = [each["call_id"] for each in request["input"] if "output" in each]
    elif wire == generate_content.__name__:
        calls = [each["id"] for each in found(request, "functionCall")]
        results = [each["id"] for each in found(request, "functionResponse")]
    else:
        calls = [each["id"] for each in request["input"] if each["type"] == "function_call"]
        results = found(request, "call_id")
    assert calls == results == ["call-7"]


@pytest.mark.parametrize("client_type", [each for each in STREAMING if each not in FORGETS])
async def test_what_was_sealed_goes_back_to_its_provider_as_it_came(client_type: str) -> None:
    history, base_url = await made_by(client_type)
    request = await sent_by(client_type, history, base_url)
    assert json.dumps(request).count(SEAL) == 1
    assert stand_in_signature not in json.dumps(request)
    if WIRES[client_type] is mmsp_wire:
        assert found(request, "fidelity") == [
            {"signature": SEAL, "wire": "anthropic_messages", "host": "a.test"}
        ]
        return
    assert found(request, "wire") == found(request, "host") == []
    if WIRES[client_type] is responses:
        assert found(request, "phase") == ["commentary"]


@pytest.mark.parametrize("client_type", FORGETS)
async def test_a_vendor_that_wants_nothing_back_is_sent_nothing(client_type: str) -> None:
    history, base_url = await made_by(client_type)
    assert SEAL not in json.dumps(await sent_by(client_type, history, base_url))
