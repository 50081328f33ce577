"""The usual mistakes about where a client goes: what is said of them, when it is made or when it fails."""

from __future__ import annotations

from typing import Any

import pytest

from mmsp import AutoLLMClient, InvalidMessageError, UpstreamError
from mmsp.registry import ALIASES, CLIENTS
from mmsp.testing import Answer, ScriptedProvider
from tests.asking import QUESTION, client_of

KEY = "sk-very-secret"
BASE = "https://api.test/v1"
# What each wire's requests go to, below the base URL.
ENDS = {
    "openai_chat": ["/chat/completions"],
    "openai_responses": ["/responses"],
    "openai_embedding": ["/embeddings"],
    "anthropic_messages": ["/messages"],
    "google_interactions": ["/interactions"],
    "mmsp": ["/stream"],
    "google_generate_content": [
        "/models/some-model:generateContent",
        "/models/some-model:streamGenerateContent",
        "/models/some-model:batchEmbedContents",
    ],
}
EVERYWHERE = ["/chat/completions", "/models/some-model:generateContent"]


def made(client_type: str = "openai-chat", key: str = KEY, base_url: Any = BASE) -> AutoLLMClient:
    return AutoLLMClient("some-model", key, base_url, client_type)


@pytest.mark.parametrize("client_type", CLIENTS)
@pytest.mark.parametrize("rest", ["", "/", "?api-version=3&key=sk-very-secret", "/?a=b"])
def test_a_base_url_that_names_the_endpoint_itself_is_refused_with_what_to_write(
    client_type: str, rest: str
) -> None:
    for end in ENDS[CLIENTS[client_type].load().codec.name] + EVERYWHERE:
        with pytest.raises(ValueError, match="which the client adds itself") as caught:
            made(client_type, base_url=BASE + end + rest)
        assert f"base_url ends with {end}" in str(caught.value)
        assert str(caught.value).endswith(f"write base_url={BASE!r}")
        assert KEY not in str(caught.value)


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_the_end_that_is_refused_is_the_one_that_requests_go_to(client_type: str) -> None:
    with ScriptedProvider(Answer.error(400, "enough")) as provider:
        stream = client_of(provider, client_type, max_retries=0).streaming_response([QUESTION])
        with pytest.raises(UpstreamError):
            await stream.message()
        target = provider.requests[0].target.partition("?")[0]
    with pytest.raises(ValueError, match="which the client adds itself"):
        made(client_type, base_url="https://api.test" + target)


@pytest.mark.parametrize("client_type", CLIENTS)
@pytest.mark.parametrize(
    "base_url",
    [BASE, "https://api.test", "https://messages.test", "https://api.test/responses/v1",
     "https://api.test/chat", "https://api.test/models", "https://api.test/mymessages"],
)  # fmt: skip
def test_a_base_url_that_only_looks_like_an_endpoint_is_taken(
    client_type: str, base_url: str
) -> None:
    made(client_type, base_url=base_url)


@pytest.mark.parametrize("client_type", CLIENTS)
def test_the_environments_base_url_is_held_to_the_same(
    client_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = CLIENTS[client_type].load().endpoint.url_variable
    monkeypatch.setenv(variable, BASE + "/chat/completions")
    with pytest.raises(ValueError, match="which the client adds itself"):
        made(client_type, base_url=None)


@pytest.mark.parametrize(
    "key", ["https://api.test/v1", "HTTP://a:secret@b", " https://a.test?k=secret"]
)
@pytest.mark.parametrize("client_type", CLIENTS)
def test_a_url_is_no_key(client_type: str, key: str) -> None:
    for base_url in (BASE, None, KEY):
        with pytest.raises(ValueError, match="api_key is a URL") as caught:
            made(client_type, key, base_url)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "name", [*CLIENTS, *(each for each in ALIASES if "-" in each), " OpenAI-Chat"]
)
def test_a_client_type_is_neither_a_key_nor_a_url(name: str) -> None:
    with pytest.raises(ValueError, match="api_key is the name of a client type"):
        AutoLLMClient("gpt-5.5", name)
    with pytest.raises(ValueError, match="base_url is the name of a client type") as caught:
        AutoLLMClient("gpt-5.5", KEY, name)
    assert KEY not in str(caught.value)


def test_a_key_that_people_make_up_for_their_own_server_is_taken() -> None:
    for key in ("openai", "EMPTY", "none", "http"):
        made(key=key)


# ---- what a 404 may mean


def lacks_version(client_type: str) -> bool:
    return "/v" in CLIENTS[client_type].load().endpoint.default_url


@pytest.mark.parametrize("client_type", CLIENTS)
@pytest.mark.parametrize(
    ("path", "status"),
    [("", 404), ("/", 404), ("/v1", 404), ("/api/v3/x", 404), ("", 400), ("/openai", 404)],
)
async def test_a_404_asks_for_the_version_that_the_base_url_lacks(
    client_type: str, path: str, status: int
) -> None:
    with ScriptedProvider(Answer.error(status, "Not Found.")) as provider:
        url = provider.base_url.removesuffix("/v1") + path
        client = AutoLLMClient("some-model", KEY, url, client_type, max_retries=0)
        said = []
        for call in (client.streaming_response([QUESTION]).message(), client.list_models()):
            with pytest.raises(UpstreamError) as caught:
                await call
            assert caught.value.status == status
            said.append(str(caught.value))
    version = "/v4" if client_type == "zai-official" else "/v1"
    if status == 404 and lacks_version(client_type) and "/v" not in path:
        assert said == [f"HTTP 404: Not Found. Does the base_url lack {version}?"] * 2
    else:
        assert said == [f"HTTP {status}: Not Found."] * 2


def test_most_clients_have_a_version_in_their_own_base_url() -> None:
    assert {each for each in CLIENTS if not lacks_version(each)} == {
        "anthropic-official", "ant-messages", "google-official", "google-genai", "deepseek-official",
    }  # fmt: skip


async def test_a_picture_that_is_not_there_asks_for_no_version() -> None:
    with ScriptedProvider(Answer.error(404, "no picture")) as provider:
        url = provider.base_url.removesuffix("/v1")
        client = AutoLLMClient(
            "some-model", KEY, url, "openai-chat", allow_private_image_urls=True, max_retries=0
        )
        picture: Any = {"type": "image_url.done", "image_url": f"{url}/a.png"}
        with pytest.raises(InvalidMessageError) as caught:
            await client.streaming_response(
                [{"role": "user", "content_items": [picture]}]
            ).message()
        assert "no picture" in str(caught.value)
        assert "base_url" not in str(caught.value)
