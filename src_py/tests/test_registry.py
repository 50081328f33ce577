"""Which client speaks for a model: names, aliases, the environment, and what is said when none does."""

from __future__ import annotations

import pytest

from mmsp import AutoLLMClient, MMSPError, RoutingError
from mmsp.base_client import LLMClient
from mmsp.registry import ALIASES, CLIENTS, FAMILIES, find_client
from mmsp.testing import Answer, ScriptedProvider


@pytest.fixture(autouse=True)
def no_client_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLIENT_TYPE", raising=False)


@pytest.mark.parametrize("client_type", CLIENTS)
def test_every_entry_leads_to_its_client(client_type: str) -> None:
    entry = find_client("any-model", client_type)
    client = entry.load()
    assert issubclass(client, LLMClient)
    assert client.client_type == client_type == entry.client_type
    assert client.__name__ == entry.class_name
    made = AutoLLMClient("any-model", "a-key", client_type=client_type)
    assert (made.model, made.client_type) == ("any-model", client_type)


@pytest.mark.parametrize("alias", ALIASES)
def test_every_alias_leads_to_a_client(alias: str) -> None:
    assert find_client("any-model", alias) is CLIENTS[ALIASES[alias]]
    assert alias not in CLIENTS


@pytest.mark.parametrize("name", ["OpenAI-Chat", "OPENAI", " openai-chat "])
def test_a_client_type_may_be_written_in_any_case(name: str) -> None:
    assert find_client("any-model", name).client_type == "openai-chat"


@pytest.mark.parametrize("argument", [None, ""])
def test_the_environment_names_the_client_when_the_argument_does_not(
    argument: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_TYPE", "OpenAI")
    assert find_client("any-model", argument).client_type == "openai-chat"


def test_the_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_TYPE", "no-such-type")
    assert find_client("any-model", "openai-chat").client_type == "openai-chat"


@pytest.mark.parametrize("named", ["no-such-type", "open ai", " "])
def test_an_unknown_client_type_is_told_with_those_there_are(named: str) -> None:
    with pytest.raises(RoutingError) as caught:
        AutoLLMClient("any-model", "a-key", client_type=named)
    assert (caught.value.model, caught.value.client_type) == ("any-model", named)
    assert isinstance(caught.value, MMSPError)
    assert "a-key" not in str(caught.value)
    for client_type in CLIENTS:
        assert client_type in str(caught.value)


def test_the_nearest_client_type_is_named() -> None:
    with pytest.raises(RoutingError, match=r"did you mean 'openai-chat'\?"):
        find_client("m", "openai_chat")


def test_an_unknown_client_type_of_the_environment_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLIENT_TYPE", "no-such-type")
    with pytest.raises(RoutingError) as caught:
        find_client("any-model")
    assert caught.value.client_type == "no-such-type"


FAMILY_MODELS = {
    "gpt-6.1-sol": "openai-official",
    "GPT-5.5": "openai-official",
    "text-embedding-3-large": "openai-embedding",
    "claude-opus-5-5": "anthropic-official",
    "gemini-3.8-flash": "google-official",
    "glm-5.3": "zai-official",
    "kimi-k3.1-pro": "moonshot-official",
    "deepseek-flash": "deepseek-official",
    "MiniMax-M3": "minimax-official",
}


@pytest.mark.parametrize("model", FAMILY_MODELS)
def test_a_model_of_a_known_family_finds_its_vendors_client(model: str) -> None:
    assert find_client(model).client_type == FAMILY_MODELS[model]
    assert AutoLLMClient(model, "a-key").client_type == FAMILY_MODELS[model]


def test_every_family_has_its_client() -> None:
    assert set(FAMILIES.values()) <= set(CLIENTS)
    assert all(CLIENTS[each].official for each in FAMILIES.values())


def test_a_named_client_wins_over_the_family_and_serves_embeddings_where_it_must() -> None:
    assert find_client("claude-opus-5-5", "openai-chat").client_type == "openai-chat"
    assert (
        find_client("text-embedding-3-small", "openai-official").client_type == "openai-embedding"
    )
    assert find_client("text-embedding-3-small", "openai-chat").client_type == "openai-chat"


@pytest.mark.parametrize("named", [True, False])
async def test_models_are_listed_of_the_family_that_was_found_by_the_id(
    named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [{"id": each} for each in ("gpt-5.5", "text-embedding-3-small", "claude-x", "o3")]
    with ScriptedProvider(Answer.json({"data": listed})) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        client = AutoLLMClient("gpt-5.5", "a-key", client_type="openai-official" if named else None)
        models = await client.list_models()
        assert models == [each["id"] for each in (listed if named else listed[:2])]


@pytest.mark.parametrize("model", ["some-model", "openai/gpt-5.5", "qwen3", "o3", ""])
@pytest.mark.parametrize("variable", [None, ""])
def test_a_model_of_no_known_family_is_told(
    model: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("CLIENT_TYPE", variable)
    with pytest.raises(RoutingError) as caught:
        AutoLLMClient(model, "a-key")
    assert (caught.value.model, caught.value.client_type) == (model, None)
    assert "client_type" in str(caught.value)
    assert "CLIENT_TYPE" in str(caught.value)
