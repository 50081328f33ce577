"""Proxies of the environment: which one is taken, how it is spoken to, and what it never hears."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from typing import Any

import pytest

from mmsp import AbortError, AutoLLMClient, Timeouts, UpstreamConnectionError, UpstreamTimeoutError
from mmsp.testing import Answer, ScriptedProvider, chat, reset, say, stall, tls
from tests.asking import QUESTION, client_of, complete
from tests.calling import ask, failure_of
from tests.raw_server import RawServer

pytestmark = pytest.mark.every_loop


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(params=["http", "https"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def client_at(url: str, **settings: Any) -> AutoLLMClient:
    settings.setdefault("max_retries", 0)
    if url.startswith("https:"):
        settings.setdefault("ssl_context", tls.client_context())
    return AutoLLMClient("some-model", "a-key", url, "openai-chat", **settings)


async def works(client: AutoLLMClient) -> bool:
    return (await ask(client))[-1] == "stop stop"


# which proxy


@pytest.mark.parametrize("upper", [False, True], ids=["lower case", "upper case"])
@pytest.mark.parametrize("variable", ["{scheme}_proxy", "all_proxy"])
async def test_the_environments_proxy_is_taken(
    scheme: str, variable: str, upper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = variable.format(scheme=scheme)
    with ScriptedProvider(complete()) as proxy:
        monkeypatch.setenv(name.upper() if upper else name, proxy.proxy_url)
        assert await works(client_at(f"{scheme}://api.test/v1"))
        (record,) = proxy.connections
        (request,) = proxy.requests
        assert request.header("host") == "api.test"
        if scheme == "https":
            assert record.connect_target == "api.test:443"
            assert request.target == "/v1/chat/completions"
        else:
            assert record.connect_target is None
            assert request.target == "http://api.test/v1/chat/completions"


async def test_a_proxy_for_another_scheme_is_not_taken(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"http": "HTTPS_PROXY", "https": "HTTP_PROXY"}[scheme]
    with (
        ScriptedProvider(complete()) as proxy,
        ScriptedProvider(complete(), tls=scheme == "https") as provider,
    ):
        monkeypatch.setenv(other, proxy.proxy_url)
        assert await works(client_of(provider))
        assert proxy.connections == []


@pytest.mark.parametrize(
    ("no_proxy", "bypassed"),
    [
        ("127.0.0.1", True),
        ("*", True),
        ("elsewhere.test, 127.0.0.1", True),
        ("127.0.0.1:{port}", True),
        ("127.0.0.1:1", False),
        ("elsewhere.test", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
async def test_hosts_in_no_proxy_are_reached_directly(
    no_proxy: str, bypassed: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedProvider(complete()) as proxy, ScriptedProvider(complete()) as provider:
        monkeypatch.setenv("HTTP_PROXY", proxy.proxy_url)
        monkeypatch.setenv(name, no_proxy.format(port=provider.port))
        assert await works(client_of(provider))
        assert (len(provider.requests), len(proxy.requests)) == ((1, 0) if bypassed else (0, 1))


async def test_a_domain_in_no_proxy_stands_for_its_subdomains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedProvider(complete()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.proxy_url)
        monkeypatch.setenv("NO_PROXY", ".inner.invalid")
        error, _ = await failure_of(client_at("http://api.inner.invalid/v1"))
        assert isinstance(error, UpstreamConnectionError)
        assert error.phase == "resolve"
        assert await works(client_at("http://api.outer.invalid/v1"))


async def test_the_environment_is_read_once_for_each_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedProvider(complete()) as proxy, ScriptedProvider(complete()) as provider:
        before = client_of(provider)
        monkeypatch.setenv("HTTP_PROXY", proxy.proxy_url)
        after = client_of(provider)
        monkeypatch.delenv("HTTP_PROXY")
        assert await works(before)
        assert (len(provider.requests), len(proxy.requests)) == (1, 0)
        assert await works(after)
        assert (len(provider.requests), len(proxy.requests)) == (1, 1)


async def test_a_proxy_without_a_scheme_is_http(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedProvider(complete()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{proxy.port}")
        assert await works(client_at("http://api.test/v1"))


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("socks5://user:secret@127.0.0.1:1080", "socks5:// proxies are not supported"),
        ("SOCKS4://127.0.0.1:1080", "socks4:// proxies are not supported"),
        ("http://user:secret@127.0.0.1:99999", "malformed"),
        ("http://user:secret@127.0.0.1:port", "malformed"),
        ("http://:8080", "names no host"),
    ],
)
async def test_a_proxy_that_cannot_be_used_is_told(
    proxy: str, said: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    error, _ = await failure_of(client_at(f"{scheme}://api.test/v1", max_retries=2))
    assert isinstance(error, UpstreamConnectionError)
    assert (error.phase, error.retryable) == ("proxy", False)
    assert said in str(error)
    assert "secret" not in str(error)


# what it is told


async def test_the_password_of_a_proxy_goes_to_the_proxy_alone(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedProvider(complete()) as proxy:
        url = proxy.proxy_url.replace("http://", "http://us%40er:p%C3%A4ss%3A@")
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", url)
        client = client_at(f"{scheme}://api.test/v1")
        assert await works(client)
        expected = "Basic " + base64.b64encode("us@er:päss:".encode()).decode()
        assert proxy.connections[0].proxy_authorization == expected
        inside = proxy.requests[0].header("proxy-authorization")
        assert inside == (None if scheme == "https" else expected)
        for shown in (repr(client), repr(client._client._connector.route(f"{scheme}://api.test/"))):
            assert "p%C3%A4ss" not in shown


async def test_a_tunnel_carries_one_request_after_another(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedProvider(complete()) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.proxy_url)
        one, two = (client_at(f"{scheme}://{name}.test/v1") for name in ("one", "two"))
        for _ in range(2):
            assert await works(one)
        assert len(proxy.connections) == 1
        assert await works(two)  # another host has another tunnel
        assert len(proxy.connections) == 2


async def test_the_key_is_not_shown_to_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(b"HTTP/1.1 200 OK\r\n\r\n", stays_open=True) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        client = client_at("https://api.test/v1", timeouts=Timeouts(connect=0.2))
        await failure_of(client)
        assert proxy.requests == [b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n"]


async def test_a_proxy_may_be_reached_over_tls(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedProvider(complete(), tls=True) as proxy:
        monkeypatch.setenv("SSL_CERT_FILE", proxy.ca_file)
        monkeypatch.setenv("ALL_PROXY", proxy.proxy_url)
        client = client_at(f"{scheme}://api.test/v1")
        for _ in range(2):
            assert await works(client)
        assert len(proxy.connections) == 1
        if scheme == "https":
            assert proxy.connections[0].connect_target == "api.test:443"


async def test_an_abort_closes_a_stream_behind_a_proxy_over_tls(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedProvider(Answer(say(chat.text("Hel")), stall()), tls=True) as proxy:
        monkeypatch.setenv("SSL_CERT_FILE", proxy.ca_file)
        monkeypatch.setenv("ALL_PROXY", proxy.proxy_url)
        stream = client_at(f"{scheme}://api.test/v1").streaming_response([QUESTION])
        await anext(stream)
        stream.abort()
        proxy.connections[0].wait_closed(0.2)  # the loop does not run meanwhile
        with pytest.raises(AbortError):
            await anext(stream)


# what goes wrong


@pytest.mark.parametrize(("login", "status"), [("", "407"), ("user:secret@", "403")])
async def test_a_refused_tunnel_is_told_and_not_tried_again(
    login: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedProvider(complete(), connect="refuse") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.proxy_url.replace("http://", f"http://{login}"))
        error, _ = await failure_of(client_at("https://api.test/v1", max_retries=2))
        assert isinstance(error, UpstreamConnectionError)
        assert (error.phase, error.retryable) == ("proxy", False)
        assert status in str(error)
        assert "secret" not in str(error)
        assert len(proxy.connections) == 1


@pytest.mark.parametrize(
    ("answer", "retryable"),
    [
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", True),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, False),
        (b"HTTP/1.1 2", True),
        (b"", True),
    ],
    ids=["502", "SSH", "an endless head", "half a head", "nothing"],
)
async def test_a_proxy_that_answers_nonsense_is_told(
    answer: bytes, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RawServer(answer) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        error, _ = await failure_of(client_at("https://api.test/v1"))
        assert isinstance(error, UpstreamConnectionError)
        assert (error.phase, error.retryable) == ("proxy", retryable)


async def test_a_proxy_that_resets_is_told(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedProvider(Answer(reset())) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.proxy_url)
        error, _ = await failure_of(client_at(f"{scheme}://api.test/v1"))
        assert getattr(error, "client", None) == "OpenAIChatClient"


@pytest.mark.parametrize(
    "options",
    [{"never_accept": True}, {"connect": "ignore"}, {"tunnel_tls": "ignore"}],
    ids=["TCP", "CONNECT", "TLS behind the proxy"],
)
async def test_a_silent_proxy_is_left_at_the_connect_time_out(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedProvider(complete(), **options) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.proxy_url)
        before = time.monotonic()
        error, _ = await failure_of(
            client_at("https://api.test/v1", timeouts=Timeouts(connect=0.1))
        )
        assert isinstance(error, UpstreamTimeoutError)
        assert (error.phase, error.seconds) == ("connect", 0.1)
        assert 0.1 <= time.monotonic() - before < 0.4
        for record in proxy.connections:
            await record.until_closed(0.2)


async def test_an_abort_while_the_proxy_is_silent_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedProvider(complete(), connect="ignore") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.proxy_url)
        stream = client_at("https://api.test/v1").streaming_response([QUESTION])
        reading = asyncio.create_task(stream.__anext__())
        await proxy.until("connect")
        stream.abort()
        proxy.connections[0].wait_closed(0.2)
        with pytest.raises(AbortError):
            await reading
