"""What is sent to a provider, and what never is: redirects, cookies, netrc, keys of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmsp import (
    AutoLLMClient,
    UpstreamConnectionError,
    UpstreamError,
)
from mmsp.registry import CLIENTS
from mmsp.testing import Answer, ScriptedProvider, say
from tests.asking import BODY, WHOLE, client_of, complete
from tests.calling import ask, failure_of
from tests.interruption_table import WIRES
from tests.raw_server import RawServer


@pytest.mark.every_loop
async def test_a_request_carries_these_headers_and_no_others(tls: bool) -> None:
    with ScriptedProvider(complete(), tls=tls) as provider:
        await ask(client_of(provider))
        (request,) = provider.requests
        assert dict(request.headers) == {
            "Host": f"127.0.0.1:{provider.port}",
            "User-Agent": "mmsp",
            "Accept-Encoding": "identity",
            "Accept": "text/event-stream",
            "Authorization": "Bearer a-key",
            "Content-Type": "application/json",
            "Content-Length": str(len(request.body)),
        }


async def test_the_callers_headers_win() -> None:
    headers = {
        "authorization": "Basic mine",
        "USER-AGENT": "mine",
        "x-tenant": "é",
        "Content-Length": "3",
        "Transfer-Encoding": "chunked",
    }
    with ScriptedProvider(complete()) as provider:
        assert await ask(client_of(provider, default_headers=headers)) == WHOLE
        (request,) = provider.requests
        names = [name.lower() for name, _ in request.headers]
        assert len(names) == len(set(names))
        assert request.header("authorization") == "Basic mine"
        assert request.header("user-agent") == "mine"
        assert request.header("x-tenant") == "é"
        assert request.header("content-length") == str(len(request.body))  # ours alone
        assert request.header("transfer-encoding") is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_error_that_names_its_host(status: int, tls: bool) -> None:
    with ScriptedProvider(complete(), tls=tls) as second:
        headers = {"location": f"{second.base_url.replace('127.0.0.1', 'localhost')}?key=secret"}
        answer = Answer(status=status, headers=headers)
        with ScriptedProvider(answer, tls=tls) as first:
            client = client_of(first, default_headers={"x-api-key": "another"})
            error, _ = await failure_of(client)
            assert isinstance(error, UpstreamError)
            assert (error.status, error.retryable) == (status, False)
            assert "'localhost'" in str(error)
            assert "secret" not in str(error)
            assert len(first.requests) == 1
        assert second.connections == []


async def test_no_cookie_is_kept(tls: bool) -> None:
    answer = Answer(say(BODY), headers={"set-cookie": "tenant=one; Path=/"})
    with ScriptedProvider(answer, tls=tls) as provider:
        client = client_of(provider)
        await ask(client)
        await ask(client)
        assert [request.header("cookie") for request in provider.requests] == [None, None]


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".netrc"
    file.write_text("machine 127.0.0.1 login someone password secret\n")
    file.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(file))


@pytest.mark.parametrize("headers", [{}, {"Authorization": ""}], ids=["a key", "no key"])
async def test_netrc_is_not_read(netrc: None, headers: dict[str, str]) -> None:
    with ScriptedProvider(complete()) as provider:
        await ask(client_of(provider, default_headers=headers))
        (request,) = provider.requests
        assert request.header("authorization") == headers.get("Authorization", "Bearer a-key")


async def test_a_query_of_the_base_url_is_kept_and_quoted() -> None:
    with ScriptedProvider(complete()) as provider:
        client = AutoLLMClient(
            "m", "a-key", f"{provider.origin}/my%20v1/ü/?api-version=2&name=日本", "openai-chat"
        )
        await ask(client)
        assert provider.requests[0].target == (
            "/my%20v1/%C3%BC/chat/completions?api-version=2&name=%E6%97%A5%E6%9C%AC"
        )


# the same for every client


def whole(client_type: str, **headers: str) -> Answer:
    pieces = WIRES[client_type].answer("All is well")
    return Answer(*(say(each) for each in pieces), headers=headers)


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_no_clients_key_follows_a_redirect(client_type: str) -> None:
    with ScriptedProvider(whole(client_type)) as second:
        place = second.base_url.replace("127.0.0.1", "localhost")
        with ScriptedProvider(Answer(status=307, headers={"location": place})) as first:
            client = client_of(first, client_type)
            for answer in (ask(client), client.list_models()):
                with pytest.raises(UpstreamError, match="'localhost'"):
                    await answer
            assert len(first.requests) == 2
        assert second.connections == []


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_no_client_keeps_a_cookie_or_reads_netrc(netrc: None, client_type: str) -> None:
    with ScriptedProvider(whole(client_type, **{"set-cookie": "tenant=one; Path=/"})) as provider:
        client = client_of(provider, client_type)
        await ask(client)
        await ask(client)
        for request in provider.requests:
            assert request.header("cookie") is None
            assert not any("secret" in value for _, value in request.headers)
            assert any("a-key" in value for _, value in request.headers)


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_a_proxy_that_is_asked_for_a_tunnel_is_shown_no_clients_key(
    client_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RawServer(b"HTTP/1.1 403 Forbidden\r\n\r\n") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        client = AutoLLMClient("m", "a-key", "https://api.test/v1", client_type, max_retries=0)
        with pytest.raises(UpstreamConnectionError):
            await ask(client)
        assert proxy.requests == [b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n"]
