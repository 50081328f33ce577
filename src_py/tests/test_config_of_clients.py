"""What each client makes of each config key: the table in docs/clients.md, and the words of a refusal.

A key is sent if it changes the request, refused if the call raises, and without effect otherwise. Where
values of one key, or models of one client, differ, the cell names what is told apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mmsp.errors import InvalidMessageError, UnsupportedParameterError
from mmsp.registry import CLIENTS
from mmsp.request import Target
from mmsp.types import UniConfig

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"

TOOLS = [{"name": name, "parameters": {"type": "object"}} for name in ("look", "find")]
QUESTION: Any = [{"role": "user", "content_items": [{"type": "text.done", "text": "Hello"}]}]

# A key, its values that may be told apart, and the keys that have to stand beside it.
VALUES: dict[str, tuple[dict[str, Any], Mapping[str, Any]]] = {
    "system_prompt": ({"": "Be brief."}, {}),
    "max_tokens": ({"": 100}, {}),
    "temperature": ({"": 0.5}, {}),
    "top_p": ({"": 0.5}, {}),
    "seed": ({"": 7}, {}),
    "stop_sequences": ({"": ["END"]}, {}),
    "tools": ({"": TOOLS}, {}),
    "tool_choice": (
        {"none": "none", "required": "required", "a name": ["look"], "names": ["look", "find"]},
        {"tools": TOOLS},
    ),
    "output_schema": ({"": {"type": "object"}}, {}),
    "thinking_level": ({"": "low"}, {}),
    "thinking_summary": ({"": True}, {"thinking_level": "low"}),
    "fast_mode": ({"": True}, {}),
    "prompt_caching": ({each: each for each in ("enable", "disable", "enhance")}, {}),
    "image_config": ({"": {"aspect_ratio": "1:1", "image_size": "1K"}}, {}),
    "tts_config": ({"": [{"voice": "Kore"}]}, {}),
    "embedding_config": ({"": {"dimensions": 8}}, {}),
    "extra_body": ({"": {"x_own": 1}}, {}),
    "trace_id": ({"": "today"}, {}),
}

# Models of each client whose config differs, as far as the table tells; the first is the usual one.
MODELS = {
    "openai-official": ("gpt-5.5",),
    "anthropic-official": ("claude-opus-5-5",),
    "google-official": ("gemini-3.8-flash",),
    "zai-official": ("glm-5",),
    "moonshot-official": ("kimi-k3",),
    "deepseek-official": ("deepseek-v4-pro",),
    "minimax-official": ("minimax-m3",),
    "openai-responses": ("some-model",),
    "openai-chat": ("some-model",),
    "openai-chat-vllm-adapter": ("qwen3.5-9b",),
    "openai-embedding": ("some-model",),
    "ant-messages": ("some-model",),
    "google-genai": ("gemini-3.8-flash",),
    "mmsp": ("some-model",),
}
ORDER = ("sent", "–", "refused")


def requests_of(client_type: str, model: str, config: Mapping[str, Any]) -> Any:
    client = CLIENTS[client_type].load()
    codec = client.codec
    given: UniConfig = dict(config)  # type: ignore[assignment]
    found = codec.requests(
        model, QUESTION, given, Target("https://api.test/v1"), client=client.__name__
    )
    return [(each.url, each.headers, each.body) for each in found]


def what_becomes_of(client_type: str, model: str, key: str, value: Any) -> str:
    beside = {
        each: given
        for each, given in VALUES[key][1].items()
        if what_becomes_of(client_type, model, each, given) != "refused"
    }
    without = requests_of(client_type, model, beside)
    refused = refusal_of(client_type, model, {**beside, key: value})
    if refused is not None:
        assert refused.parameter == key
        return "refused"
    return "–" if requests_of(client_type, model, {**beside, key: value}) == without else "sent"


def refusal_of(
    client_type: str, model: str, config: Mapping[str, Any]
) -> UnsupportedParameterError | None:
    try:
        requests_of(client_type, model, config)
    except UnsupportedParameterError as error:
        return error
    return None


def cell(client_type: str, key: str) -> str:
    """`sent`, or `enable: –; disable, enhance: refused`."""
    (model, *_) = MODELS[client_type]
    found = {
        name: what_becomes_of(client_type, model, key, value)
        for name, value in VALUES[key][0].items()
    }
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    groups = {what: [name for name in found if found[name] == what] for what in ORDER}
    return "; ".join(f"{', '.join(names)}: {what}" for what, names in groups.items() if names)


def row(key: str, client_types: list[str]) -> str:
    return f"| `{key}` | " + " | ".join(cell(each, key) for each in client_types) + " |"


def heads() -> list[list[str]]:
    """The client types of each table on the page, in its order."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| config key |"):
            found.append(re.findall(r"`([a-z-]+)`", line))
    return found


def test_the_tables_have_every_client_and_every_key() -> None:
    assert sorted(each for head in heads() for each in head) == sorted(CLIENTS)
    assert set(VALUES) == set(UniConfig.__annotations__)


@pytest.mark.parametrize("key", VALUES)
def test_the_page_says_what_becomes_of_a_key(key: str) -> None:
    page = PAGE.read_text(encoding="utf-8").splitlines()
    missing = [made for head in heads() if (made := row(key, head)) not in page]
    assert missing == [], "these rows belong into docs/clients.md"


@pytest.mark.parametrize("client_type", CLIENTS)
def test_a_refusal_says_who_what_why_and_what_to_do(client_type: str) -> None:
    name, (model, *_) = CLIENTS[client_type].class_name, MODELS[client_type]
    codec: Any = CLIENTS[client_type].load().codec
    ours = {"extra_body": dict.fromkeys(codec.ours)}
    asked = [
        {**beside, key: value}
        for key, (values, beside) in VALUES.items()
        for value in values.values()
    ]
    found = [refusal_of(client_type, model, config) for config in [ours, *asked]]
    assert (found[0] is not None) == bool(codec.ours)
    for error in filter(None, found):
        assert error.client == name
        pattern = rf"{name} does not take config\.{error.parameter}=.+: .+\. [A-Z].+\."
        assert re.fullmatch(pattern, str(error)), error


@pytest.mark.parametrize("client_type", ["openai-chat", "openai-responses", "ant-messages"])
def test_an_item_that_a_wire_has_no_place_for_names_the_client(client_type: str) -> None:
    client = CLIENTS[client_type].load()
    item = {"type": "inline_data.done", "data": b"a", "mime_type": "application/x-own"}
    messages: Any = [{"role": "user", "content_items": [item]}]
    target = Target("https://api.test/v1")
    with pytest.raises(InvalidMessageError, match=f"which {client.__name__} cannot send: leave it"):
        client.codec.requests("some-model", messages, {}, target, client=client.__name__)
