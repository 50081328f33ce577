"""Z.AI and Moonshot: what their models take and want, on the wire of Chat Completions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmsp import AutoLLMClient, StreamProtocolError, errors
from mmsp.codecs.openai_chat import ChatCodec
from mmsp.dialects import moonshot, zai
from mmsp.request import Target
from mmsp.testing import Answer, ScriptedProvider, chat, say
from tests.asking import QUESTION, events_of

ZAI, KIMI = ChatCodec(zai.DIALECT), ChatCodec(moonshot.DIALECT)
TARGET = Target("https://host.example/v1")
LEVELS = ("none", "low", "medium", "high", "xhigh", "max")


def body(codec: ChatCodec, model: str, messages: Any = None, **config: Any) -> dict[str, Any]:
    made: Any = config
    request = codec.encode(model, messages or [QUESTION], made, TARGET, client="C")
    found: dict[str, Any] = json.loads(request.body)
    return found


def test_the_endpoints_are_the_vendors() -> None:
    assert zai.ENDPOINT.default_url == "https://api.z.ai/api/paas/v4/"
    assert moonshot.ENDPOINT.default_url == "https://api.moonshot.cn/v1"
    target = Target(zai.ENDPOINT.default_url)
    request = ZAI.encode("glm-5.3", [QUESTION], {}, target, client="C")
    assert request.url == "https://api.z.ai/api/paas/v4/chat/completions"


def test_what_every_request_says() -> None:
    made = body(ZAI, "glm-5.3", max_tokens=5, temperature=0.3)
    assert (made["tool_stream"], made["max_tokens"], made["temperature"]) == (True, 5, 0.3)
    assert "stream_options" not in made
    made = body(KIMI, "kimi-k3.1-pro", max_tokens=5, temperature=1.0)
    assert made["stream_options"] == {"include_usage": True}
    assert made["max_completion_tokens"] == 5
    assert "temperature" not in made


ON = {"type": "enabled", "clear_thinking": False}


@pytest.mark.parametrize(
    ("model", "thinking", "efforts"),
    [
        ("GLM-5.3-flash", [ON] * 6, ["low", "low", "high", "high", "max", "max"]),
        ("glm-5.2", [{"type": "disabled"}, *[ON] * 5], [None, *LEVELS[1:]]),
        ("glm-4.6", [{"type": "disabled"}, *[ON] * 5], [None, *LEVELS[1:]]),
    ],
)
def test_glm_thinks_unless_told_not_to(model: str, thinking: Any, efforts: Any) -> None:
    for level, switch, effort in zip(LEVELS, thinking, efforts, strict=True):
        made = body(ZAI, model, thinking_level=level)
        assert (made["thinking"], made.get("reasoning_effort")) == (switch, effort)
    assert "thinking" not in body(ZAI, model)


def test_kimi_knows_a_switch_or_efforts() -> None:
    for level, effort in zip(LEVELS, ("none", "low", "high", "high", "max", "max"), strict=True):
        made = body(KIMI, "kimi-k3.1-pro", thinking_level=level)
        assert (made.get("thinking"), made["reasoning_effort"]) == (None, effort)
        made = body(KIMI, "Kimi-K2.7-code", thinking_level=level)
        switch = {"type": "disabled"} if level == "none" else {"type": "enabled", "keep": "all"}
        assert (made["thinking"], made.get("reasoning_effort")) == (switch, None)


def test_kimi_caches_by_key_or_for_an_hour() -> None:
    assert body(KIMI, "kimi-k2.6", trace_id="t")["prompt_cache_key"] == "t"
    assert "prompt_cache_key" not in body(KIMI, "kimi-k3", trace_id="t")
    hour = {"mode": "implicit", "ttl": "1h"}
    assert body(KIMI, "kimi-k3", prompt_caching="enhance")["prompt_cache_options"] == hour


REFUSED: list[tuple[ChatCodec, str, dict[str, Any], str]] = [
    *((ZAI, "glm-5.3", {"tool_choice": choice}, "tool_choice") for choice in ("none", "required", ["f"])),
    (ZAI, "glm-5.3", {"fast_mode": True}, "fast_mode"),
    (ZAI, "glm-5.3", {"prompt_caching": "disable"}, "prompt_caching"),
    (ZAI, "glm-5.3", {"prompt_caching": "enhance"}, "prompt_caching"),
    (KIMI, "kimi-k3", {"temperature": 0.5}, "temperature"),
    (KIMI, "kimi-k3", {"tool_choice": ["f"]}, "tool_choice"),
    (KIMI, "kimi-k2.6", {"tool_choice": "required"}, "tool_choice"),
    (KIMI, "kimi-k3", {"fast_mode": True}, "fast_mode"),
    (KIMI, "kimi-k3", {"prompt_caching": "disable"}, "prompt_caching"),
    (KIMI, "kimi-k2.6", {"prompt_caching": "enhance"}, "prompt_caching"),
]  # fmt: skip


@pytest.mark.parametrize(("codec", "model", "config", "parameter"), REFUSED)
def test_what_a_model_does_not_take_is_refused(
    codec: ChatCodec, model: str, config: dict[str, Any], parameter: str
) -> None:
    with pytest.raises(errors.UnsupportedParameterError) as caught:
        body(codec, model, **config)
    assert caught.value.parameter == parameter


def test_what_they_do_take_is_sent() -> None:
    assert body(ZAI, "glm-5.3", tool_choice="auto")["tool_choice"] == "auto"
    assert body(KIMI, "kimi-k3", tool_choice="required")["tool_choice"] == "required"
    assert body(KIMI, "kimi-k2.6", tool_choice="none")["tool_choice"] == "none"


def picture(in_a_result: bool) -> list[Any]:
    url = "https://a/b.png"
    item: dict[str, Any] = {"type": "image_url.done", "image_url": url}
    if in_a_result:
        item = {"type": "tool_result.done", "text": "", "tool_call_id": "c", "images": [url]}
    return [{"role": "user", "content_items": [item]}]


@pytest.mark.parametrize(("in_a_result", "kind"), [(False, "image_url"), (True, "tool_result")])
def test_one_glm_sees_pictures_and_fetches_them_itself(in_a_result: bool, kind: str) -> None:
    messages = picture(in_a_result)
    assert ZAI.needs(messages) == []
    assert KIMI.needs(messages) == ["https://a/b.png"]
    assert "https://a/b.png" in json.dumps(body(ZAI, "GLM-5.3-Flash", messages))
    with pytest.raises(errors.UnsupportedContentError) as caught:
        body(ZAI, "glm-5.3", messages)
    assert caught.value.item_type == kind


@pytest.mark.parametrize("codec", [ZAI, KIMI])
def test_no_reasoning_is_made_up_on_the_way_back(codec: ChatCodec) -> None:
    call = {"type": "tool_call.done", "name": "f", "arguments": {}, "tool_call_id": "c"}
    thought = {"type": "thinking.done", "thinking": "hm"}
    said = {"type": "text.done", "text": "a"}
    messages: list[Any] = [
        {"role": "assistant", "content_items": [thought, said]},
        {"role": "assistant", "content_items": [call]},
    ]
    first, second = body(codec, "glm-5.3", messages)["messages"]
    assert first["reasoning_content"] == first["reasoning"] == "hm"
    assert not {"reasoning_content", "reasoning", "reasoning_details"} & second.keys()


@pytest.mark.parametrize("client_type", ["zai-official", "moonshot-official"])
async def test_a_call_without_an_id_breaks_the_wires_rules(client_type: str) -> None:
    piece = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
    answer = Answer(say([chat.chunk({"tool_calls": [piece]}), *chat.ending()]))
    with ScriptedProvider(answer) as provider:
        client = AutoLLMClient("some-model", "a-key", provider.base_url, client_type)
        with pytest.raises(StreamProtocolError, match="without an id"):
            await events_of(client.streaming_response([QUESTION]))
