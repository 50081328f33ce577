"""Messages as a request: what each key of the config and each item becomes, for both dialects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmsp import errors
from mmsp.codecs.anthropic_messages import MessagesCodec
from mmsp.codecs.anthropic_messages_decoder import REDACTED
from mmsp.dialects import anthropic, messages_compatible
from mmsp.request import HttpRequest, Target
from mmsp.types import UniMessage

COMPATIBLE = MessagesCodec(messages_compatible.DIALECT)
OFFICIAL = MessagesCodec(anthropic.DIALECT)
TARGET = Target("https://api.anthropic.com")
OWN = {"wire": "anthropic_messages", "host": "api.anthropic.com"}
HI: list[Any] = [{"role": "user", "content_items": [{"type": "text.done", "text": "hi"}]}]


def request(
    messages: list[Any] = HI,
    codec: MessagesCodec = COMPATIBLE,
    model: str = "claude-x",
    target: Target = TARGET,
    images: Any = None,
    **config: Any,
) -> HttpRequest:
    made: Any = config
    return codec.encode(model, messages, made, target, client="C", images=images or {})


def body(messages: list[Any] = HI, **given: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(request(messages, **given).body)
    return made


def blocks(role: str, *items: Any, **given: Any) -> list[dict[str, Any]]:
    message = {"role": role, "content_items": list(items)}
    (encoded,) = body([message], **given)["messages"]
    assert encoded["role"] == role
    content: list[dict[str, Any]] = encoded["content"]
    return content


def thinking(text: str, **fidelity: Any) -> dict[str, Any]:
    item = {"type": "thinking.done", "thinking": text}
    return item | ({"fidelity": fidelity} if fidelity else {})


TEXT = {"type": "text.done", "text": "a"}


# the request


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/", "https://api.anthropic.com/v1/messages"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/messages"),
        ("https://a.example/anthropic?x=1", "https://a.example/anthropic/v1/messages?x=1"),
    ],
)
def test_the_url_has_the_version_once(base: str, url: str) -> None:
    assert request(target=Target(base)).url == url
    assert request(target=Target(base)).method == "POST"


def test_the_headers_name_the_version_and_fast_mode_its_beta() -> None:
    headers = dict(request().headers)
    assert headers["anthropic-version"] == "2026-10-21"
    assert "anthropic-beta" not in headers
    fast = request(fast_mode=True)
    assert dict(fast.headers)["anthropic-beta"] == "fast-mode-2026-02-01"
    assert json.loads(fast.body)["speed"] == "fast"


def test_the_key_goes_to_both_places_or_to_anthropics_alone() -> None:
    both = dict(messages_compatible.ENDPOINT.auth("k"))
    assert both == {"X-Api-Key": "k", "Authorization": "Bearer k"}
    assert dict(anthropic.ENDPOINT.auth("k")) == {"X-Api-Key": "k"}


def test_the_models_come_in_pages() -> None:
    first, second = COMPATIBLE.list_models(TARGET), COMPATIBLE.list_models(TARGET, "m/2")
    assert first.url == "https://api.anthropic.com/v1/models"
    assert second.url == "https://api.anthropic.com/v1/models?after_id=m/2"
    page = {"data": [{"id": "a"}, {"id": "b"}], "has_more": True, "last_id": "b"}
    assert COMPATIBLE.models(page) == (["a", "b"], "b")
    assert COMPATIBLE.models({**page, "has_more": False}) == (["a", "b"], "")
    unnamed = {"data": page["data"], "has_more": True}
    assert COMPATIBLE.models(unnamed) == (["a", "b"], "b")  # as the last id is what it is called by
    assert COMPATIBLE.models({"data": [], "has_more": True}) == ([], "")


# config


def test_a_bare_request_says_what_the_wire_demands() -> None:
    assert body() == {
        "model": "claude-x",
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "max_tokens": 64_000,
    }


SCHEMA = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"system_prompt": "Be brief."}, {"system": "Be brief."}),
        ({"temperature": 0.5}, {"temperature": 0.5}),
        ({"top_p": 0.9}, {"top_p": 0.9}),
        ({"stop_sequences": ["END"]}, {"stop_sequences": ["END"]}),
        (
            {"tools": [{"name": "f", "description": "d", "parameters": SCHEMA}, {"name": "g"}]},
            {
                "tools": [
                    {"name": "f", "description": "d", "input_schema": SCHEMA},
                    {"name": "g", "input_schema": {"type": "object"}},
                ]
            },
        ),
        ({"tool_choice": "auto"}, {"tool_choice": {"type": "auto"}}),
        ({"tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
        ({"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        ({"tool_choice": ["f"]}, {"tool_choice": {"type": "tool", "name": "f"}}),
        ({"prompt_caching": "enable"}, {}),
        ({"thinking_level": "none"}, {"thinking": {"type": "disabled"}}),
        (
            {"thinking_level": "max"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
        ),
        (
            {"thinking_summary": True},
            {"thinking": {"type": "adaptive", "display": "summarized"}},
        ),
        (
            {"thinking_level": "low", "thinking_summary": False},
            {
                "thinking": {"type": "adaptive", "display": "omitted"},
                "output_config": {"effort": "low"},
            },
        ),
        (
            {"thinking_level": "none", "thinking_summary": True},
            {"thinking": {"type": "disabled"}},
        ),
        (
            {"output_schema": SCHEMA, "thinking_level": "high"},
            {
                "thinking": {"type": "adaptive"},
                "output_config": {
                    "effort": "high",
                    "format": {"type": "json_schema", "schema": SCHEMA},
                },
            },
        ),
        ({"extra_body": {"metadata": {"user_id": "u"}}}, {"metadata": {"user_id": "u"}}),
        ({"fast_mode": False, "image_config": {}, "trace_id": "t"}, {}),
    ],
)
def test_a_setting_becomes_its_field(config: dict[str, Any], expected: dict[str, Any]) -> None:
    assert body(**config) == {**body(), **expected}


@pytest.mark.parametrize(
    ("config", "parameter"),
    [
        ({"seed": 1}, "seed"),
        ({"prompt_caching": "disable"}, "prompt_caching"),
        ({"prompt_caching": "enhance"}, "prompt_caching"),
        ({"tool_choice": ["f", "g"]}, "tool_choice"),
        ({"extra_body": {"model": "m"}}, "extra_body"),
    ],
)
def test_what_the_wire_has_no_place_for_is_refused(config: dict[str, Any], parameter: str) -> None:
    with pytest.raises(errors.UnsupportedParameterError) as caught:
        request([], **config)
    assert (caught.value.client, caught.value.parameter) == ("C", parameter)


# Anthropic's own models

LEAST = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}


@pytest.mark.parametrize(
    ("model", "level", "expected"),
    [
        *(
            (model, "none", LEAST)
            for model in ("claude-opus-5-5", "claude-fable-5-1", "Claude-Haiku-5-5")
        ),
        ("claude-sonnet-5-5", "none", {"thinking": {"type": "between_tools"}}),
        ("claude-opus-5", "none", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-4-6", "xhigh", {**LEAST, "output_config": {"effort": "high"}}),
        ("claude-opus-5-5", "xhigh", {**LEAST, "output_config": {"effort": "xhigh"}}),
    ],
)
def test_levels_are_the_nearest_a_model_has(
    model: str, level: str, expected: dict[str, Any]
) -> None:
    made = body(codec=OFFICIAL, model=model, thinking_level=level)
    assert {key: made[key] for key in expected} == expected
    assert ("output_config" in made) is ("output_config" in expected)


def test_nothing_is_shown_of_thinking_between_tools() -> None:
    made = body(
        codec=OFFICIAL, model="claude-sonnet-5-5", thinking_level="none", thinking_summary=True
    )
    assert made["thinking"] == {"type": "between_tools"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"type": "ephemeral"}),
        ({"prompt_caching": "enable"}, {"type": "ephemeral"}),
        ({"prompt_caching": "enhance"}, {"type": "ephemeral", "ttl": "1h"}),
        ({"prompt_caching": "disable"}, None),
    ],
)
def test_anthropic_is_asked_to_cache(config: dict[str, Any], expected: Any) -> None:
    assert body(codec=OFFICIAL, **config).get("cache_control") == expected


@pytest.mark.parametrize(
    ("model", "config", "parameter"),
    [
        ("claude-x", {"temperature": 0.5}, "temperature"),
        ("claude-x", {"top_p": 0.5}, "top_p"),
        *(
            (model, {"tool_choice": choice}, "tool_choice")
            for model in ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-1")
            for choice in ("required", ["f"])
        ),
        *(
            (model, {"fast_mode": True}, "fast_mode")
            for model in ("claude-opus-4-6", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-1")
        ),
    ],
)  # fmt: skip
def test_what_a_model_does_not_take_is_refused(
    model: str, config: dict[str, Any], parameter: str
) -> None:
    with pytest.raises(errors.UnsupportedParameterError) as caught:
        request(codec=OFFICIAL, model=model, **config)
    assert caught.value.parameter == parameter


def test_the_only_temperature_is_taken_and_not_sent() -> None:
    assert "temperature" not in body(codec=OFFICIAL, temperature=1.0)
    assert body(codec=OFFICIAL, model="claude-opus-5-5", fast_mode=True)["speed"] == "fast"


# messages


def test_tool_results_come_first_and_hold_their_pictures() -> None:
    result = {"type": "tool_result.done", "text": "7", "tool_call_id": "c1"}
    drawn = {**result, "text": "", "tool_call_id": "c2", "images": ["https://a/b.png"]}
    assert blocks("user", TEXT, result, drawn) == [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "7"}]},
        {
            "type": "tool_result",
            "tool_use_id": "c2",
            "content": [{"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}],
        },
        {"type": "text", "text": "a"},
    ]


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("https://a/b.png", {"type": "url", "url": "https://a/b.png"}),
        ("data:image/png;base64,AA==", {"type": "base64", "media_type": "image/png", "data": "AA=="}),
        (
            "data:image/svg+xml;charset=utf-8;base64,AA==",
            {"type": "base64", "media_type": "image/svg+xml", "data": "AA=="},
        ),
    ],
)  # fmt: skip
def test_a_picture_goes_by_url_or_inline(url: str, source: dict[str, Any]) -> None:
    (block,) = blocks("user", {"type": "image_url.done", "image_url": url})
    assert block == {"type": "image", "source": source}


@pytest.mark.parametrize("url", ["data:image/png,raw", "data:,x", "ftp://a/b"])
def test_a_picture_in_another_form_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidMessageError) as caught:
        blocks("user", {"type": "image_url.done", "image_url": url})
    assert (caught.value.item_type, caught.value.message_index) == ("image_url", 0)


def test_a_call_is_a_tool_use() -> None:
    call = {"type": "tool_call.done", "name": "f", "arguments": {"q": "é"}, "tool_call_id": "c"}
    assert blocks("assistant", call) == [
        {"type": "tool_use", "id": "c", "name": "f", "input": {"q": "é"}}
    ]


@pytest.mark.parametrize(
    ("item", "compatible", "official"),
    [
        (
            thinking("hm", signature="S", **OWN),
            [{"type": "thinking", "thinking": "hm", "signature": "S"}],
            [{"type": "thinking", "thinking": "hm", "signature": "S"}],
        ),
        (
            thinking("hm", signature="S"),
            [{"type": "thinking", "thinking": "hm", "signature": "S"}],
            [{"type": "thinking", "thinking": "hm", "signature": "S"}],
        ),
        (thinking("hm"), [{"type": "thinking", "thinking": "hm"}], []),
        (
            thinking("hm", signature="S", wire="anthropic_messages", host="other.example"),
            [{"type": "thinking", "thinking": "hm"}],
            [],
        ),
        (
            thinking("hm", signature="S", wire="google_generate_content", host="api.anthropic.com"),
            [{"type": "thinking", "thinking": "hm"}],
            [],
        ),
        (
            thinking(REDACTED, signature="D", **OWN),
            [{"type": "redacted_thinking", "data": "D"}],
            [{"type": "redacted_thinking", "data": "D"}],
        ),
        (thinking(REDACTED, signature="D", wire="x", host="y"), [], []),
        (thinking("", signature="S", **OWN), [{"type": "thinking", "thinking": "", "signature": "S"}],
         [{"type": "thinking", "thinking": "", "signature": "S"}]),
    ],
)  # fmt: skip
def test_thinking_goes_back_to_who_signed_it(item: Any, compatible: Any, official: Any) -> None:
    rest = [{"type": "text", "text": "a"}]
    assert blocks("assistant", item, TEXT) == compatible + rest
    assert blocks("assistant", item, TEXT, codec=OFFICIAL) == official + rest


def test_what_server_side_tools_left_goes_back_in_front_of_its_item() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}}
    item = {**TEXT, "fidelity": {"beside": [search], **OWN}}
    assert blocks("assistant", item) == [search, {"type": "text", "text": "a"}]
    foreign = {**TEXT, "fidelity": {"beside": [search], **OWN, "host": "b"}}
    assert blocks("assistant", foreign) == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize(
    ("items", "codec"),
    [
        ([thinking("hm", signature="S", **OWN)], COMPATIBLE),
        ([thinking("hm")], OFFICIAL),
        ([{"type": "text.done", "text": ""}], COMPATIBLE),
    ],
)
def test_a_message_that_leaves_nothing_to_send_is_refused(
    items: list[Any], codec: MessagesCodec
) -> None:
    later: UniMessage = {"role": "assistant", "content_items": items}
    with pytest.raises(errors.InvalidMessageError, match=r"messages\[1\] leaves nothing") as caught:
        request([*HI, later], codec=codec)
    assert caught.value.message_index == 1


@pytest.mark.parametrize("kind", ["inline_data.done", "inline_thinking.done", "embedding.done"])
def test_what_the_wire_does_not_carry_is_refused_by_its_type(kind: str) -> None:
    item = {"type": kind, "data": b"", "mime_type": "a/b", "embedding": []}
    with pytest.raises(errors.InvalidMessageError) as caught:
        blocks("assistant", item)
    assert caught.value.item_type == kind
