"""What a provider's refusal tells its caller, whatever its body; and that no error shows the key."""

from __future__ import annotations

from typing import Any

import pytest

from mmsp import (
    AutoLLMClient,
    MMSPError,
    UpstreamConnectionError,
    UpstreamError,
)
from mmsp.testing import Answer, ScriptedProvider, chat, reset, say, stall
from tests.asking import QUESTION, client_of
from tests.calling import failure_of
from tests.raw_server import RawServer


async def test_a_refusal_carries_what_the_provider_said(tls: bool) -> None:
    answer = Answer.json(
        {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rpm"}},
        status=429,
        headers={"retry-after": "99", "x-request-id": "req-1"},
    )
    with ScriptedProvider(answer, tls=tls) as provider:
        error, delivered = await failure_of(client_of(provider))
        assert isinstance(error, UpstreamError)
        assert str(error) == "HTTP 429: slow down"
        assert error.status == 429
        assert error.error_type == "rate_limit_error"
        assert error.request_id == "req-1"
        assert error.retry_after == 99
        assert error.retryable
        assert error.error["error"]["code"] == "rpm"
        assert error.client == "OpenAIChatClient"
        assert delivered == []


@pytest.mark.parametrize(
    ("steps", "framing", "said"),
    [
        ([say("plain words")], "chunked", "HTTP 400: plain words"),
        ([say("<html>Bad Request</html>")], "close", "HTTP 400: <html>Bad Request</html>"),
        ([], "length", "HTTP 400: the provider gave no reason"),
        ([say('{"error": {"message": "cut h')], "short", 'HTTP 400: {"error": {"message": "cut h'),
        ([say('{"detail": "no"}'), reset()], "chunked", "HTTP 400"),
        ([say(b"x" * 5_000_000)], "chunked", "HTTP 400: " + "x" * 200),
    ],
    ids=["text", "HTML", "nothing", "short", "reset", "huge"],
)
async def test_a_refusal_is_told_whatever_its_body_is(
    steps: list[Any], framing: Any, said: str, tls: bool
) -> None:
    answer = Answer(*steps, status=400, framing=framing, content_type=None)
    with ScriptedProvider(answer, tls=tls) as provider:
        error, _ = await failure_of(client_of(provider))
        assert isinstance(error, UpstreamError)
        assert str(error).startswith(said)


async def test_a_refusal_whose_body_never_ends_is_told_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmsp.http_call._ERROR_BODY_WAIT", 0.1)
    answer = Answer(say('{"error": {"message": "no"}}'), stall(), status=400)
    with ScriptedProvider(answer) as provider:
        error, _ = await failure_of(client_of(provider))
        assert str(error) == "HTTP 400: no"
        await provider.connections[0].until_closed(0.2)


# the key stays here

KEY = "sk-very-secret"


def everything(error: BaseException) -> str:
    """All that a log or a wire could show of an error."""
    return " ".join([str(error), repr(error), repr(error.args), repr(vars(error))])


@pytest.mark.parametrize(
    "answer",
    [
        Answer.error(401, f"Incorrect API key provided: {KEY}", type=KEY),
        Answer(say(f"bad key {KEY}"), status=401, content_type=None),
        Answer.json({KEY: [KEY, {"message": KEY}]}, status=403),
        Answer.json(
            {"error": {"message": "no", "code": KEY, "param": f"Bearer {KEY}"}}, status=400
        ),
        Answer(status=302, headers={"location": f"https://else.test/?key={KEY}"}),
    ],
    ids=["message", "text", "anywhere", "code", "redirect"],
)
async def test_a_key_that_a_refusal_echoes_is_masked(answer: Answer) -> None:
    with ScriptedProvider(answer) as provider:
        client = AutoLLMClient("m", KEY, provider.base_url, "openai-chat")
        error, _ = await failure_of(client)
        assert isinstance(error, UpstreamError)
        assert KEY not in everything(error)
        assert provider.requests[0].header("authorization") == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(say(chat.error(f"Incorrect API key provided: {KEY}"))),
        Answer.json({"error": {"message": f"Incorrect API key provided: {KEY}", "type": KEY}}),
        Answer(say(f"<html>{KEY}</html>")),
        Answer(say(f"data: {KEY}\n\n")),
    ],
    ids=["error event", "JSON error", "HTML", "frame"],
)
async def test_a_key_that_an_answer_echoes_is_masked(answer: Answer) -> None:
    with ScriptedProvider(answer) as provider:
        client = AutoLLMClient("m", KEY, provider.base_url, "openai-chat")
        error, _ = await failure_of(client)
        assert isinstance(error, MMSPError)
        assert KEY not in everything(error)


async def test_a_key_is_in_no_error_of_the_connection_and_in_no_repr() -> None:
    async with RawServer(b"SSH-2.0\r\n") as server:
        client = AutoLLMClient("m", KEY, server.base_url, "openai-chat", max_retries=0)
        error, _ = await failure_of(client)
        stream = client.streaming_response([QUESTION])
        shown = [everything(error), repr(client), repr(client._client), repr(stream)]
        shown += [repr(client._client._target), repr(client._client._connector)]
        assert KEY not in " ".join(shown)
    assert isinstance(error, UpstreamConnectionError)
