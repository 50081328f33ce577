"""What a Chat Completions server is sent."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mmsp import errors
from mmsp.codecs.base import Codec, Decoder
from mmsp.codecs.openai_chat import ChatCodec
from mmsp.dialects.chat import ChatDialect
from mmsp.dialects.openai_compatible import DIALECT, ENDPOINT
from mmsp.grammar import Assembler
from tests.chat_words import CODEC, OURS, TARGET, Json, encode, messages_of, part, picture
from tests.message_words import assistant, image, result, thinking, tool_call, user


def test_the_request() -> None:
    request = CODEC.encode("gpt-x", [user("hi")], {}, TARGET, client="C")
    assert (request.method, request.url) == ("POST", "https://api.example/v1/chat/completions")
    assert dict(request.headers) == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Authorization": "Bearer k",
    }
    assert json.loads(request.body) == {
        "model": "gpt-x",
        "stream": True,
        "messages": [{"role": "user", "content": [part("hi")]}],
        "stream_options": {"include_usage": True},
    }


def test_the_codec_is_a_codec() -> None:
    codec: Codec = CODEC
    decoder: Decoder = codec.decoder(Assembler(client="C"), client="C", target=TARGET)
    assert codec.name == "openai_chat"
    assert not decoder.terminal
    assert ENDPOINT.key_variable == "OPENAI_API_KEY"


def test_the_models() -> None:
    request = CODEC.list_models(TARGET)
    assert (request.method, request.url, request.body) == (
        "GET",
        "https://api.example/v1/models",
        b"",
    )
    listed = {"object": "list", "data": [{"id": "a"}, {"id": 1}, "x"]}
    assert CODEC.models(listed) == (["a"], "")
    assert CODEC.models([{"id": "a"}]) == (["a"], "")


@pytest.mark.parametrize("answer", [{"data": None}, {"data": 5}, {}, "x", None, 3])
def test_what_is_no_list_of_models_is_refused(answer: Any) -> None:
    with pytest.raises((LookupError, TypeError)):
        CODEC.models(answer)


def test_every_config_key() -> None:
    tools = [{"name": "f", "description": "d", "parameters": {"type": "object"}}, {"name": "g"}]
    body = encode(
        user("hi"),
        max_tokens=0,
        temperature=0.5,
        top_p=0.9,
        stop_sequences=["x"],
        seed=7,
        tools=tools,
        tool_choice="required",
        output_schema={"title": "My answer!", "type": "object"},
        system_prompt="be brief",
        fast_mode=True,
        prompt_caching="enable",
        thinking_level="high",
        thinking_summary=True,
        image_config={},
        trace_id="t",
        extra_body={"temperature": 1, "user": "u"},
    )
    assert body.pop("messages")[0] == {"role": "system", "content": "be brief"}
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 0,
        "temperature": 1,
        "top_p": 0.9,
        "stop": ["x"],
        "seed": 7,
        "tools": [
            {"type": "function", "function": tools[0]},
            {"type": "function", "function": {"name": "g"}},
        ],
        "tool_choice": "required",
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "My_answer_",
                "schema": {"title": "My answer!", "type": "object"},
                "strict": True,
            },
        },
        "service_tier": "priority",
        "user": "u",
    }


def test_null_is_absent_and_empty_is_not() -> None:
    absent = encode(user("hi"), max_tokens=None, tools=None, fast_mode=False, system_prompt="")
    assert absent == encode(user("hi"))
    assert encode(user("hi"), tools=[])["tools"] == []
    assert (
        encode(user("hi"), output_schema={})["response_format"]["json_schema"]["name"] == "output"
    )


def test_a_list_of_tool_names_is_allowed_tools() -> None:
    assert encode(user("hi"), tool_choice=["f"])["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "auto",
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
    }


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("prompt_caching", "disable"),
        ("prompt_caching", "enhance"),
        ("extra_body", {"stream": False}),
        ("extra_body", {"n": 2, "messages": []}),
    ],
)
def test_what_is_refused_is_refused_before_any_message_is_looked_at(
    parameter: str, value: Any
) -> None:
    with pytest.raises(errors.UnsupportedParameterError, match=parameter) as caught:
        encode(user(), **{parameter: value})
    assert (caught.value.client, caught.value.parameter) == ("C", parameter)


def test_a_dialect_changes_the_body() -> None:
    dialect = ChatDialect(
        max_tokens="max_tokens",
        always={"tool_stream": True},
        asks_for_usage=False,
        refuses=(("", frozenset({"fast_mode", "seed", "tool_choice=list"})),),
        levels=(
            ("qwen", {"none": {"think": False}, "low": {"think": True}}),
            ("", {"none": {"x": 1}}),
        ),
    )
    codec = ChatCodec(dialect)
    body = encode(user("hi"), codec=codec, model="Big-QWEN", max_tokens=5, thinking_level="none")
    del body["messages"]
    expected = {"model": "Big-QWEN", "stream": True, "tool_stream": True, "max_tokens": 5}
    assert body == {**expected, "think": False}
    assert "think" not in encode(user("hi"), codec=codec, model="qwen", thinking_level="max")
    assert encode(user("hi"), codec=codec, thinking_level="none")["x"] == 1
    assert encode(user("hi"), codec=codec, fast_mode=False, tool_choice="auto")
    for refused in ({"fast_mode": True}, {"seed": 0}, {"tool_choice": ["f"]}):
        with pytest.raises(errors.UnsupportedParameterError):
            encode(user("hi"), codec=codec, **refused)


def test_text_keeps_its_characters() -> None:
    request = CODEC.encode("m", [user("né\u2028日本")], {}, TARGET, client="C")
    assert "né\u2028日本".encode() in request.body
    assert messages_of(user(""))[0]["content"] == [part("")]


def test_tool_results_come_first_and_their_pictures_go_to_the_user() -> None:
    encoded = messages_of(
        user("a", result("c1", "one", images=["data:1"]), "b", result("c2", "two"), image("data:2"))
    )
    assert encoded == [
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {
            "role": "user",
            "content": [part("a"), picture("data:1"), part("b"), picture("data:2")],
        },
    ]
    assert messages_of(user(result())) == [{"role": "tool", "tool_call_id": "c1", "content": "r"}]


def test_calls_are_json_text() -> None:
    (message,) = messages_of(assistant(tool_call(arguments={"ü": [1, 2**70]})))
    assert message == {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "f", "arguments": '{"ü":[1,1180591620717411303424]}'},
            }
        ],
    }


@pytest.mark.parametrize(
    ("fidelity", "fields"),
    [
        ([{}], ("reasoning_content", "reasoning")),
        ([{"reasoning_field": "reasoning", **OURS}] * 2, ("reasoning",)),
        ([{"reasoning_field": "reasoning"}], ("reasoning",)),
        ([{"reasoning_field": "reasoning"}, {}], ("reasoning_content", "reasoning")),
        ([{"reasoning_field": "role", **OURS}], ("reasoning_content", "reasoning")),
        (
            [{"reasoning_field": "reasoning", **OURS, "host": "x"}],
            ("reasoning_content", "reasoning"),
        ),
        (
            [{"reasoning_field": "reasoning", **OURS, "wire": "x"}],
            ("reasoning_content", "reasoning"),
        ),
    ],
)
def test_thinking_goes_back_where_it_came_from(fidelity: list[Json], fields: Sequence[str]) -> None:
    items = [thinking("t", **each) for each in fidelity]
    (message,) = messages_of(assistant(*items, "a"))
    expected = dict.fromkeys(fields, "t" * len(items))
    assert message == {"role": "assistant", "content": [part("a")], **expected}


def test_thinking_that_came_as_parts_goes_back_as_parts() -> None:
    came = thinking("t", reasoning_field="content", **OURS)
    (message,) = messages_of(assistant(came, "a", tool_call()))
    thought = {"type": "thinking", "thinking": [part("t")]}
    assert message["content"] == [thought, part("a")]
    assert message.keys() == {"role", "content", "tool_calls"}


def test_after_thinking_a_turn_that_calls_tools_has_the_field_even_if_empty() -> None:
    conversation = [
        user("q"),
        assistant(tool_call("c0")),
        user(result("c0")),
        assistant(thinking("t", reasoning_field="reasoning", **OURS), tool_call("c1")),
        user(result("c1")),
        assistant(tool_call("c2")),
        user(result("c2")),
        assistant("no call"),
    ]
    roles = [m for m in messages_of(*conversation) if m["role"] == "assistant"]
    assert [message.get("reasoning") for message in roles] == [None, "t", "", None]
    assert not any("reasoning_content" in message for message in roles)
    codec = ChatCodec(replace(DIALECT, replays_empty_reasoning=False))
    roles = [m for m in messages_of(*conversation, codec=codec) if m["role"] == "assistant"]
    assert [message.get("reasoning") for message in roles] == [None, "t", None, None]


def test_hidden_reasoning_goes_back_in_its_blocks_and_to_its_host_alone() -> None:
    hidden = thinking("", encrypted_content="E", format="F", reasoning_id="R", **OURS)
    unnamed = thinking("", encrypted_content="E", format="F", **OURS)
    signed = thinking("t", reasoning_signature="S", format="F", **OURS)
    old = thinking("u", reasoning_details=[{"type": "x"}])
    foreign = thinking("", encrypted_content="E", format="F", wire="openai_chat", host="x")
    (message,) = messages_of(assistant(hidden, unnamed, signed, old, foreign, "a"))
    assert message["reasoning_details"] == [
        {"type": "reasoning.encrypted", "data": "E", "format": "F", "id": "R"},
        {"type": "reasoning.encrypted", "data": "E", "format": "F"},
        {"type": "reasoning.text", "text": "t", "signature": "S", "format": "F"},
        {"type": "x"},
    ]
    codec = ChatCodec(replace(DIALECT, reasoning_details=False))
    (message,) = messages_of(assistant(hidden, "a"), codec=codec)
    assert message == {"role": "assistant", "content": [part("a")]}


@pytest.mark.parametrize(
    ("message", "item_type"),
    [
        (user(), None),
        (assistant(thinking("t")), None),
        (assistant(thinking("t", reasoning_field="content", **OURS)), None),
        (user({"type": "inline_data.done", "data": b"", "mime_type": "x"}), "inline_data.done"),
        (assistant({"type": "inline_thinking.done"}), "inline_thinking.done"),
        (assistant({"type": "embedding.done", "embedding": []}), "embedding.done"),
        (user({"type": "text"}), "text"),
        (user(tool_call()), "tool_call.done"),
        (assistant(result()), "tool_result.done"),
        (user(result("")), "tool_result"),
        (user(image("ftp://x")), "image_url"),
    ],
)
def test_a_message_that_cannot_be_sent(message: Any, item_type: str | None) -> None:
    with pytest.raises(errors.InvalidMessageError, match=r"messages\[1\]") as caught:
        encode(user("a"), message)
    assert (caught.value.item_type, caught.value.message_index) == (item_type, 1)


@pytest.mark.parametrize(
    "message", [user("\ud83d"), assistant(tool_call(arguments={"a": ["\ud83d"]}))]
)
def test_half_a_character_cannot_be_sent(message: Any) -> None:
    with pytest.raises(errors.InvalidMessageError, match="JSON cannot carry"):
        encode(message)


def test_the_scheme_of_a_picture_may_be_written_in_capitals() -> None:
    (message,) = messages_of(user(image("DATA:image/png;base64,AA==")))
    assert message["content"] == [picture("DATA:image/png;base64,AA==")]


def test_pictures_are_needed_inline() -> None:
    first, second = "https://x/a.png", "HTTP://x/b.png"
    messages = [user(image(first), image("data:x"), "a"), user(result(images=[second, first]))]
    assert CODEC.needs(messages) == [first, second]
    encoded = messages_of(*messages, images={first: "data:1", second: "data:2"})
    assert encoded[0]["content"][0] == picture("data:1")
    assert encoded[2]["content"] == [picture("data:2"), picture("data:1")]


def test_very_large_pictures_ask_for_high_detail() -> None:
    def url(side: int) -> str:
        head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + side.to_bytes(4, "big") * 2
        return "data:image/png;base64," + base64.b64encode(head).decode()

    def detail(model: str, side: int) -> Any:
        (message,) = messages_of(user(image(url(side))), model=model)
        return message["content"][0]["image_url"].get("detail")

    assert detail("x/GPT-5.6-mini", 6000) == "high"
    assert detail("x/GPT-5.6-mini", 600) is None
    assert detail("gpt-5.5", 6000) is None
