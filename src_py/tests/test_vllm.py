"""vLLM's own server: how each model's chat template is told to think, and that no key is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmsp import AutoLLMClient
from mmsp.codecs.openai_chat import ChatCodec
from mmsp.dialects.vllm import DIALECT, ENDPOINT
from mmsp.request import Target
from mmsp.testing import ScriptedProvider
from tests.asking import QUESTION, complete
from tests.calling import ask

LEVELS = ("none", "low", "medium", "high", "xhigh", "max")
OFF, ON = {"enable_thinking": False}, {"enable_thinking": True}
THINK = {"thinking": True}


def efforts(first: Any, *words: str, **switches: Any) -> list[Any]:
    return [first, *({**switches, "reasoning_effort": word} for word in words)]


TABLE: dict[str, list[Any]] = {
    "Qwen/Qwen3.8-Flash-Next": efforts(OFF, "low", "medium", "xhigh", "xhigh", "xhigh"),
    "qwen3.8-27b-instruct": efforts(OFF, "low", "medium", "xhigh", "xhigh", "xhigh"),
    "qwen3.6-35b-a3b": [OFF, ON, ON, ON, ON, ON],
    "qwen3.5-0.8b": [OFF, ON, ON, ON, ON, ON],
    "qwen3.5-9b": [OFF, ON, ON, ON, ON, ON],
    "deepseek-v4-flash-vision-exp": efforts(None, "low", "high", "high", "high", "max", **THINK),
    "deepseek-v4-pro": efforts(None, "high", "high", "high", "high", "max", **THINK),
    "deepseek-v4-flash": efforts(None, "high", "high", "high", "high", "max", **THINK),
    "somebody/else": [OFF, ON, ON, ON, ON, ON],
}


def body(model: str, config: Any) -> dict[str, Any]:
    target = Target("http://127.0.0.1:8000/v1")
    request = ChatCodec(DIALECT).encode(model, [QUESTION], config, target, client="C")
    made: dict[str, Any] = json.loads(request.body)
    return made


@pytest.mark.parametrize("model", TABLE)
def test_a_level_is_said_as_the_models_template_wants_it(model: str) -> None:
    for level, expected in zip(LEVELS, TABLE[model], strict=True):
        made = body(model, {"thinking_level": level})
        assert made.get("chat_template_kwargs") == expected
    assert "chat_template_kwargs" not in body(model, {})


def test_extra_body_comes_last() -> None:
    extra = {"chat_template_kwargs": {"mine": 1}, "top_k": 20}
    made = body("qwen3.5-9b", {"thinking_level": "low", "extra_body": extra})
    assert made["chat_template_kwargs"] == {"mine": 1}
    assert made["top_k"] == 20


async def test_a_server_without_a_key_is_shown_a_placeholder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "of-the-environment")
    with ScriptedProvider(complete()) as provider:
        await ask(AutoLLMClient("m", None, provider.base_url, "openai-chat-vllm-adapter"))
        assert provider.requests[0].header("authorization") == "Bearer EMPTY"
    assert ENDPOINT.default_url == "http://127.0.0.1:8000/v1"
    assert AutoLLMClient("m", client_type="openai-chat-vllm-adapter").model == "m"
