"""Which client speaks for a model: names, aliases, the environment, and what is said when none does."""

from __future__ import annotations

import pytest

from mmsp import AutoLLMClient, MMSPError, RoutingError
from mmsp.base_client import LLMClient
from mmsp.registry import ALIASES, CLIENTS, find_client


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


def test_an_unknown_client_type_of_the_environment_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLIENT_TYPE", "no-such-type")
    with pytest.raises(RoutingError) as caught:
        find_client("any-model")
    assert caught.value.client_type == "no-such-type"


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
