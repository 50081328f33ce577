"""Which key goes where: the table of `mmsp.credentials`, row by row."""

from __future__ import annotations

import pytest

from mmsp import ApiKeyRequiredError, AutoLLMClient, RoutingError
from mmsp.credentials import resolve_credentials, same_endpoint
from mmsp.dialects.endpoint import Endpoint, bearer
from mmsp.registry import CLIENTS, credentials_for
from mmsp.testing import Answer, ScriptedProvider, say
from tests.calling import ask
from tests.interruption_table import WIRES

DEFAULT = "https://api.vendor.test/v1"
VENDOR = Endpoint(DEFAULT, "VENDOR_API_KEY", "VENDOR_BASE_URL")
OPEN = Endpoint(
    "http://127.0.0.1:8000/v1",
    "OPEN_API_KEY",
    "OPEN_BASE_URL",
    open_server=True,
    placeholder_key="EMPTY",
)
KEYLESS = Endpoint("http://127.0.0.1:1/v1", "BARE_API_KEY", "BARE_BASE_URL", open_server=True)
ELSEWHERE = "https://elsewhere.test/v1"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for endpoint in (VENDOR, OPEN, KEYLESS, *(entry.load().endpoint for entry in CLIENTS.values())):
        monkeypatch.delenv(endpoint.key_variable, raising=False)
        monkeypatch.delenv(endpoint.url_variable, raising=False)
    return monkeypatch


def resolve(endpoint: Endpoint, key: str | None, url: str | None) -> tuple[str, str]:
    return resolve_credentials(endpoint, key, url, client="SomeClient", client_type="some-type")


NOTHING = [None, ""]


# the rows of an ordinary client


def test_a_given_key_and_url_are_used(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("VENDOR_API_KEY", "env-key")
    environment.setenv("VENDOR_BASE_URL", "https://env.test")
    assert resolve(VENDOR, "mine", ELSEWHERE) == ("mine", ELSEWHERE)


@pytest.mark.parametrize("url", [*NOTHING, "  "])
def test_a_given_key_alone_goes_to_the_environments_url_or_the_default(
    url: str | None, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("VENDOR_API_KEY", "env-key")
    assert resolve(VENDOR, "mine", url) == ("mine", DEFAULT)
    environment.setenv("VENDOR_BASE_URL", " https://env.test ")
    assert resolve(VENDOR, "mine", url) == ("mine", "https://env.test")
    environment.setenv("VENDOR_BASE_URL", "")
    assert resolve(VENDOR, "mine", url) == ("mine", DEFAULT)


@pytest.mark.parametrize("key", NOTHING)
@pytest.mark.parametrize("url", NOTHING)
def test_nothing_given_is_all_from_the_environment(
    key: str | None, url: str | None, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("VENDOR_API_KEY", "env-key")
    assert resolve(VENDOR, key, url) == ("env-key", DEFAULT)
    environment.setenv("VENDOR_BASE_URL", "https://env.test")
    assert resolve(VENDOR, key, url) == ("env-key", "https://env.test")


@pytest.mark.parametrize("key", NOTHING)
@pytest.mark.parametrize(
    "url", [DEFAULT, f"{DEFAULT}//", f"  {DEFAULT} ", "HTTPS://API.Vendor.TEST/v1/"]
)
def test_the_default_url_written_out_takes_the_environments_key(
    key: str | None, url: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("VENDOR_API_KEY", "env-key")
    environment.setenv("VENDOR_BASE_URL", "https://env.test")
    assert resolve(VENDOR, key, url) == ("env-key", url.strip())


@pytest.mark.parametrize("key", NOTHING)
@pytest.mark.parametrize(
    "url",
    [
        ELSEWHERE,
        "http://api.vendor.test/v1",
        "https://api.vendor.test:8443/v1",
        "https://api.vendor.test",
        "https://api.vendor.test/v1/more",
        "https://api.vendor.test/V1",
        f"{DEFAULT}?x=1",
        f"{DEFAULT}#x",
        "https://api.vendor.test.evil.test/v1",
        "https://api.vendor.test@evil.test/v1",
        "https://env.test",
        "api.vendor.test/v1",
    ],
)
def test_the_environments_key_goes_to_no_other_url(
    key: str | None, url: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("VENDOR_API_KEY", "env-key")
    environment.setenv("VENDOR_BASE_URL", "https://env.test")
    with pytest.raises(ApiKeyRequiredError) as caught:
        resolve(VENDOR, key, url)
    error = caught.value
    assert (error.client, error.client_type) == ("SomeClient", "some-type")
    assert (error.api_key_env, error.base_url_env) == ("VENDOR_API_KEY", "VENDOR_BASE_URL")
    assert error.base_url == url
    assert "env-key" not in str(error)
    assert "VENDOR_API_KEY" in str(error)


@pytest.mark.parametrize("url", [None, DEFAULT])
@pytest.mark.parametrize("found", [None, ""])
def test_no_key_at_all_is_told(
    url: str | None, found: str | None, environment: pytest.MonkeyPatch
) -> None:
    if found is not None:
        environment.setenv("VENDOR_API_KEY", found)
    with pytest.raises(ApiKeyRequiredError) as caught:
        resolve(VENDOR, None, url)
    assert caught.value.base_url is None
    assert "VENDOR_API_KEY" in str(caught.value)


# the rows of an open server


def test_an_open_servers_key_variable_is_not_read_for_a_url_that_is_given(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("OPEN_API_KEY", "env-key")
    environment.setenv("BARE_API_KEY", "env-key")
    for url in (ELSEWHERE, OPEN.default_url):
        assert resolve(OPEN, None, url) == ("EMPTY", url)
        assert resolve(KEYLESS, "", url) == ("", url)
        assert resolve(OPEN, "mine", url) == ("mine", url)


def test_an_open_server_takes_a_call_without_a_key(environment: pytest.MonkeyPatch) -> None:
    assert resolve(OPEN, None, None) == ("EMPTY", OPEN.default_url)
    assert resolve(KEYLESS, None, None) == ("", KEYLESS.default_url)
    environment.setenv("OPEN_API_KEY", "env-key")
    environment.setenv("OPEN_BASE_URL", "http://env.test")
    assert resolve(OPEN, None, None) == ("env-key", "http://env.test")


def test_no_key_is_no_authorization() -> None:
    assert bearer("") == ()
    assert bearer("k") == (("Authorization", "Bearer k"),)


# equality of endpoints


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.test", "https://A.TEST/", True),
        ("https://a.test/v1", "https://a.test/v1///", True),
        ("https://a.test:443", "https://a.test", False),
        ("https://a.test/v1?q=1", "https://a.test/v1?q=1", True),
        ("https://a.test/v1?q=1", "https://a.test/v1?Q=1", False),
        ("https://a.test/v1#f", "https://a.test/v1", False),
        ("a.test", "a.test", False),
        ("", "", False),
        (" https://a.test ", "https://a.test", True),
    ],
)
def test_when_two_endpoints_are_the_same(one: str, other: str, same: bool) -> None:
    assert same_endpoint(one, other) is same
    assert same_endpoint(other, one) is same


# every client


@pytest.mark.parametrize("client_type", CLIENTS)
def test_every_client_keeps_the_environments_key_to_itself(
    client_type: str, environment: pytest.MonkeyPatch
) -> None:
    endpoint = CLIENTS[client_type].load().endpoint
    environment.setenv(endpoint.key_variable, "env-key")
    if endpoint.open_server:
        client = AutoLLMClient("m", base_url=ELSEWHERE, client_type=client_type)
        assert "env-key" not in repr(client._client._target.headers)
        return
    with pytest.raises(ApiKeyRequiredError) as caught:
        AutoLLMClient("m", base_url=ELSEWHERE, client_type=client_type)
    assert caught.value.client_type == client_type
    assert caught.value.client == CLIENTS[client_type].class_name


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_every_client_shows_the_environments_key_to_the_environments_url(
    client_type: str, environment: pytest.MonkeyPatch
) -> None:
    endpoint = CLIENTS[client_type].load().endpoint
    whole = Answer(*(say(each) for each in WIRES[client_type].answer("All is well")))
    with ScriptedProvider(whole) as provider:
        environment.setenv(endpoint.key_variable, "env-key")
        environment.setenv(endpoint.url_variable, provider.base_url)
        await ask(AutoLLMClient("m", client_type=client_type))
        (request,) = provider.requests
        assert any("env-key" in value for _, value in request.headers)


# what else the environment says of OpenAI's endpoint

OF_OPENAI = ("openai-official", "openai-responses", "openai-chat", "openai-embedding")


@pytest.mark.parametrize("client_type", CLIENTS)
@pytest.mark.parametrize("given", [False, True])
async def test_the_environments_headers_go_to_the_environments_endpoint_alone(
    client_type: str, given: bool, environment: pytest.MonkeyPatch
) -> None:
    endpoint = CLIENTS[client_type].load().endpoint
    environment.setenv("OPENAI_ORG_ID", "my-org")
    environment.setenv("OPENAI_PROJECT_ID", "my-project")
    environment.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: yes\nAuthorization: Bearer stolen\nbroken")
    environment.setenv("OPENAI_ADMIN_KEY", "admin-key")
    environment.setenv("OPENAI_WEBHOOK_SECRET", "webhook-secret")
    whole = Answer(*(say(each) for each in WIRES[client_type].answer("All is well")))
    with ScriptedProvider(whole) as provider:
        environment.setenv(endpoint.url_variable, provider.base_url)
        url = provider.base_url if given else None
        await ask(AutoLLMClient("m", "a-key", url, client_type))
        (request,) = provider.requests
        expected = client_type in OF_OPENAI and not given
        assert request.header("openai-organization") == ("my-org" if expected else None)
        assert request.header("openai-project") == ("my-project" if expected else None)
        assert request.header("x-mine") == ("yes" if expected else None)
        values = " ".join(value for _, value in request.headers)
        assert "a-key" in values
        assert not any(word in values for word in ("stolen", "admin-key", "webhook-secret"))


# what pages ask


@pytest.mark.parametrize("client_type", CLIENTS)
def test_what_a_client_would_do_without_a_key(
    client_type: str, environment: pytest.MonkeyPatch
) -> None:
    endpoint = CLIENTS[client_type].load().endpoint
    needed = {"kind": "required", "key": endpoint.key_variable, "base_url": endpoint.url_variable}
    keyless = {"kind": "keyless"}
    without = keyless if endpoint.open_server else needed
    assert credentials_for(client_type) == without
    assert credentials_for(client_type.upper(), ELSEWHERE) == without
    environment.setenv(endpoint.key_variable, "a-key")
    env = {"kind": "env", "key": endpoint.key_variable}
    assert credentials_for(client_type) == {**env, "base_url": endpoint.url_variable}
    default = keyless if endpoint.open_server else env
    assert credentials_for(client_type, endpoint.default_url) == default
    assert credentials_for(client_type, ELSEWHERE) == without
    assert credentials_for("no-such-type") is None


# keys and URLs that are none


@pytest.mark.parametrize("named", [False, True])
async def test_a_service_accounts_key_is_not_sent_where_it_means_nothing(
    named: bool, environment: pytest.MonkeyPatch
) -> None:
    client_type = "google-official"
    account = ' {"type": "service_account", "private_key": "very-secret"}'
    environment.setenv("GEMINI_API_KEY", account)
    with pytest.raises(RoutingError, match="Vertex AI") as caught:
        AutoLLMClient("gemini-x", account if named else None, client_type=client_type)
    assert caught.value.client_type == client_type
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://[bad/v1", "https://a:port/v1", "bedrock://us-east-1", "a b"]
)
@pytest.mark.parametrize("key", [None, "a-key"])
def test_a_url_that_is_none_is_told(url: str, key: str | None) -> None:
    with pytest.raises(ValueError, match=r"base_url|reserved"):
        AutoLLMClient("m", key, url, "openai-chat")
    assert credentials_for("openai-chat", url) is not None


@pytest.mark.parametrize(
    "url", ["https://api.op\tenai.com/v1", "https://api.openai.com/v1?", "\x00://"]
)
def test_a_url_that_only_looks_the_same_is_another(url: str) -> None:
    assert not same_endpoint(url, "https://api.openai.com/v1")
