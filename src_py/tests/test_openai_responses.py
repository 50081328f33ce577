"""What a Responses server is sent. What differs by vendor is in `test_dialects_of_responses`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmsp import errors
from mmsp.codecs.base import Codec, Decoder
from mmsp.codecs.openai_responses import ResponsesCodec
from mmsp.dialects.responses import ResponsesDialect
from mmsp.grammar import Assembler
from tests.message_words import assistant, image, result, text, thinking, tool_call, user
from tests.responses_words import (
    OURS,
    PLAIN,
    TARGET,
    Json,
    call_item,
    encode,
    input_of,
    message,
    picture,
    summarized,
    thought,
)

CODEC = ResponsesCodec(PLAIN)
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q"}}


def test_the_request() -> None:
    request = CODEC.encode("gpt-x", [user("hi")], {}, TARGET, client="C")
    assert (request.method, request.url) == ("POST", "https://api.example/v1/responses")
    assert dict(request.headers) == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Authorization": "Bearer k",
    }
    assert json.loads(request.body) == {
        "model": "gpt-x",
        "stream": True,
        "store": False,
        "input": [message("user", "hi")],
    }


def test_the_codec_is_a_codec() -> None:
    codec: Codec = CODEC
    decoder: Decoder = codec.decoder(Assembler(client="C"), client="C", target=TARGET)
    assert codec.name == "openai_responses"
    assert not decoder.terminal
    assert codec.needs([user(image("https://x/a.png"))]) == []


def test_the_models() -> None:
    request = CODEC.list_models(TARGET)
    assert (request.method, request.url, request.body) == (
        "GET",
        "https://api.example/v1/models",
        b"",
    )
    assert CODEC.models({"object": "list", "data": [{"id": "a"}, {"id": 1}, "x"]}) == (["a"], "")


def test_every_config_key() -> None:
    tools: list[Json] = [
        {"name": "f", "description": "d", "parameters": {"type": "object"}},
        {"name": "g"},
    ]
    body = encode(
        user("hi"),
        max_tokens=0,
        temperature=0.5,
        top_p=0.9,
        tools=tools,
        tool_choice="required",
        output_schema={"title": "My answer!", "type": "object"},
        system_prompt="be brief",
        fast_mode=True,
        prompt_caching="enable",
        thinking_level="high",
        thinking_summary=True,
        image_config={},
        tts_config=[],
        embedding_config={},
        trace_id="t",
        extra_body={"temperature": 1, "user": "u"},
    )
    del body["input"]
    assert body == {
        "model": "m",
        "stream": True,
        "store": False,
        "instructions": "be brief",
        "max_output_tokens": 0,
        "temperature": 1,
        "top_p": 0.9,
        "reasoning": {"effort": "high", "summary": "concise"},
        "tools": [{"type": "function", **tools[0]}, {"type": "function", "name": "g"}],
        "tool_choice": "required",
        "text": {
            "format": {
                "type": "json_schema",
                "name": "My_answer_",
                "schema": {"title": "My answer!", "type": "object"},
                "strict": True,
            }
        },
        "service_tier": "priority",
        "user": "u",
    }


def test_null_is_absent_and_empty_is_not() -> None:
    absent = encode(user("hi"), max_tokens=None, tools=None, fast_mode=False, system_prompt=None)
    assert absent == encode(user("hi"))
    assert encode(user("hi"), system_prompt="")["instructions"] == ""
    assert encode(user("hi"), tools=[])["tools"] == []
    assert encode(user("hi"), output_schema={})["text"]["format"]["name"] == "output"


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_tool_choice_in_a_word_stays_that_word(choice: str) -> None:
    assert encode(user("hi"), tool_choice=choice)["tool_choice"] == choice


def test_a_list_of_tool_names_is_allowed_tools() -> None:
    assert encode(user("hi"), tool_choice=["f", "g"])["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}],
    }


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("prompt_caching", "disable"),
        ("prompt_caching", "enhance"),
        ("seed", 0),
        ("stop_sequences", ["x"]),
        *(("extra_body", {key: None}) for key in ("model", "stream", "input", "n", "store")),
    ],
)
def test_what_is_refused_is_refused_before_any_message_is_looked_at(
    parameter: str, value: Any
) -> None:
    with pytest.raises(errors.UnsupportedParameterError, match=parameter) as caught:
        encode(user(), **{parameter: value})
    assert (caught.value.client, caught.value.parameter) == ("C", parameter)


# ---- messages


def test_texts_and_pictures_share_a_message_and_nothing_else_does() -> None:
    assert input_of(
        user("a", image("https://x/p.png"), result("c0"), "b", image("data:image/png;base64,AA==")),
        assistant("c", "", thinking("t"), "d", tool_call(), "e", image("https://x/q.png")),
    ) == [
        message("user", "a", picture("https://x/p.png")),
        {"type": "function_call_output", "call_id": "c0", "output": "r"},
        message("user", "b", picture("data:image/png;base64,AA==")),
        message("assistant", "c", ""),
        thought("t"),
        message("assistant", "d"),
        call_item(),
        message("assistant", "e", picture("https://x/q.png")),
    ]


def test_a_change_of_phase_ends_the_run_and_no_phase_keeps_it() -> None:
    def phased(words: str, phase: str, **origin: str) -> Any:
        return text(words, phase=phase, **(origin or OURS))

    answer = assistant(
        "0",
        phased("1", "commentary"),
        "2",
        tool_call(),
        "3",
        phased("4", "commentary"),
        phased("5", "final_answer"),
        phased("6", "commentary", wire="openai_responses", host="elsewhere"),
    )
    expected = [
        message("assistant", "0"),
        message("assistant", "1", "2", phase="commentary"),
        call_item(),
        message("assistant", "3", "4", phase="commentary"),
        message("assistant", "5", "6", phase="final_answer"),
    ]
    assert input_of(answer, user("q"), assistant("a")) == [
        *expected,
        message("user", "q"),
        message("assistant", "a"),  # the phase is remembered within its message alone
    ]
    assert input_of(user(phased("q", "commentary"))) == [message("user", "q")]


SEAL = {"encrypted_content": "E", "signature": "S", "format": "F"}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (thinking("t"), thought("t")),
        (thinking(""), thought()),
        (thinking("t", channel="summary", **OURS), summarized("t")),
        (thinking("", channel="summary", **OURS), thought()),
        (thinking("t", channel="content", **OURS), thought("t")),
        (thinking("t", channel="summary", **SEAL, **OURS), summarized("t", **SEAL)),
        (thinking("t", **SEAL, **OURS), thought("t", **SEAL)),
        (thinking("", encrypted_content="E", format=None, **OURS), thought(encrypted_content="E")),
        (thinking("t", channel="summary", **SEAL), summarized("t", **SEAL)),
        (thinking("t", channel="summary", **SEAL, **OURS | {"host": "x"}), thought("t")),
        (thinking("t", channel="summary", **SEAL, **OURS | {"wire": "x"}), thought("t")),
        (thinking("t", channel="summary", **SEAL, wire="openai_responses"), thought("t")),
        (thinking("t", signature="S", wire="anthropic_messages", host="x"), thought("t")),
    ],
)
def test_thinking_goes_back_into_its_channel_and_its_seal_to_its_host_alone(
    item: Any, expected: Json
) -> None:
    assert input_of(assistant(item, "a")) == [expected, message("assistant", "a")]


def test_a_dialect_may_take_sealed_thinking_for_a_summary() -> None:
    official = ResponsesDialect(sealed_is_summary=True)

    def sent(**fidelity: Any) -> Any:
        return input_of(assistant(thinking("t", **fidelity, **OURS), "a"), dialect=official)[0]

    assert sent(encrypted_content="E") == summarized("t", encrypted_content="E")
    assert sent(encrypted_content=None, signature="S") == thought("t", signature="S")
    assert sent(encrypted_content="E", channel="content") == thought("t", encrypted_content="E")


def test_built_in_tools_items_go_back_before_the_item_they_came_with() -> None:
    items = [
        thinking("t", beside=[SEARCH], encrypted_content="E", **OURS),
        "a",
        text("b", beside=[SEARCH, SEARCH], phase="final_answer", **OURS),
        tool_call("c1", beside=[SEARCH], **OURS),
        text("", beside=[SEARCH], **OURS),
    ]
    assert input_of(assistant(*items)) == [
        SEARCH,
        thought("t", encrypted_content="E"),
        message("assistant", "a"),
        SEARCH,
        SEARCH,
        message("assistant", "b", phase="final_answer"),
        SEARCH,
        call_item(),
        SEARCH,
    ]


@pytest.mark.parametrize(
    "beside",
    [5, "x", {"type": "web_search_call"}, [5, None, {}, {"type": []}, {"type": "message"}]],
)
def test_what_is_no_built_in_tools_item_is_not_sent(beside: Any) -> None:
    sent = input_of(assistant(text("a", beside=beside)))
    assert sent == [message("assistant", "a")]
    foreign = text("a", beside=[SEARCH], wire="openai_responses", host="elsewhere")
    assert input_of(assistant(foreign)) == [message("assistant", "a")]


def test_calls_and_results() -> None:
    assert input_of(
        assistant(tool_call(arguments={"ü": [1, 2**70]})),
        user(result("c1", "r", images=["https://x/a.png", "data:,x"]), result("c2", images=[])),
    ) == [
        call_item(arguments='{"ü":[1,1180591620717411303424]}'),
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "r"},
                picture("https://x/a.png"),
                picture("data:,x"),
            ],
        },
        {"type": "function_call_output", "call_id": "c2", "output": "r"},
    ]


def test_text_keeps_its_characters() -> None:
    request = CODEC.encode("m", [user("né\u2028日本")], {}, TARGET, client="C")
    assert "né\u2028日本".encode() in request.body


@pytest.mark.parametrize(
    ("bad", "item_type"),
    [
        (user(), None),
        (assistant(thinking("t")), None),
        (assistant(thinking("t", encrypted_content="E", **OURS), thinking("u")), None),
        (user({"type": "inline_data.done", "data": b"", "mime_type": "x"}), "inline_data.done"),
        (assistant({"type": "inline_thinking.done"}), "inline_thinking.done"),
        (assistant({"type": "embedding.done", "embedding": []}), "embedding.done"),
        (user({"type": "text"}), "text"),
        (user(result("")), "tool_result"),
        (user({"type": "tool_result.done", "text": "r"}), "tool_result"),
        (user(image("ftp://x")), "image_url"),
        (user(result(images=["file:///x"])), "image_url"),
    ],
)
def test_a_message_that_cannot_be_sent(bad: Any, item_type: str | None) -> None:
    with pytest.raises(errors.InvalidMessageError, match=r"messages\[1\]") as caught:
        encode(user("a"), bad)
    assert (caught.value.item_type, caught.value.message_index) == (item_type, 1)


@pytest.mark.parametrize("bad", [user("\ud83d"), assistant(tool_call(arguments={"a": "\ud83d"}))])
def test_half_a_character_cannot_be_sent(bad: Any) -> None:
    with pytest.raises(errors.InvalidMessageError, match="JSON cannot carry"):
        encode(bad)
