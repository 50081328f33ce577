"""What is sent to a provider, and what never is: redirects, cookies, netrc, keys of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmsp import (
    AutoLLMClient,
    UpstreamError,
)
from mmsp.testing import Answer, ScriptedProvider, say
from tests.asking import BODY, WHOLE, client_of, complete
from tests.calling import ask, failure_of


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
