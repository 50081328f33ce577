"""Vertex AI with a service account's key: one token for all calls, and a fetch that stops with its call.

The key is a real one, made for the run; the token's server and Vertex AI are scripted ones on sockets.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mmsp import (
    AbortError,
    AbortSignal,
    AutoLLMClient,
    MMSPError,
    ProviderStreamError,
    StreamAbortedError,
    StreamProtocolError,
    Timeouts,
    UpstreamConnectionError,
    UpstreamError,
    UpstreamTimeoutError,
)
from mmsp.testing import Answer, ScriptedProvider, generate_content, pause, say, stall
from tests.accounts import EMAIL, TOKEN, account, claims_of, token, vertex_client
from tests.asking import QUESTION, WHOLE, events_of, shown
from tests.calling import ask
from tests.interruption_table import Way
from tests.stopping import LIMIT_NS, STOPS, stop
from tests.test_interruption import slow_name_server

PATH = (
    "/v1beta1/projects/a-project/locations/global/publishers/google/models/gemini-x"
    ":streamGenerateContent?alt=sse"
)
UNAUTHORIZED = Answer.json(
    {"error": {"code": 401, "message": "expired", "status": "UNAUTHENTICATED"}}, status=401
)


def whole() -> Answer:
    return Answer(say(generate_content.answer("All is well")))


@pytest.fixture
def vertex() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(whole()) as provider:
        yield provider


def shown_tokens(provider: ScriptedProvider) -> list[str | None]:
    return [each.header("authorization") for each in provider.requests]


# ---- the token


async def test_a_signed_assertion_becomes_a_token_which_all_calls_show(
    vertex: ScriptedProvider, tls: bool
) -> None:
    with ScriptedProvider(token(), tls=tls) as tokens:
        client = vertex_client(vertex, tokens)
        assert await ask(client) == await ask(client) == WHOLE
        (request,) = tokens.requests
    assert (request.method, request.target) == ("POST", "/token")
    assert request.header("content-type") == "application/x-www-form-urlencoded"
    header, claims = claims_of(request)
    assert header == {"alg": "RS256", "typ": "JWT", "kid": "kid-1"}
    assert abs(claims.pop("iat") - time.time()) < 5
    assert abs(claims.pop("exp") - time.time() - 3600) < 5
    assert claims == {
        "iss": EMAIL,
        "aud": "https://oauth2.googleapis.com/token",
        "scope": "https://www.googleapis.com/auth/cloud-platform",
    }
    assert [each.target for each in vertex.requests] == [PATH] * 2
    assert shown_tokens(vertex) == [f"Bearer {TOKEN}"] * 2
    assert vertex.requests[0].header("x-goog-api-key") is None


async def test_the_list_of_models_shows_it_too() -> None:
    pages = [
        Answer.json(
            {"publisherModels": [{"name": "publishers/google/models/a"}], "nextPageToken": "n"}
        ),
        Answer.json({"publisherModels": [{"name": "publishers/google/models/b"}]}),
    ]
    with ScriptedProvider(token()) as tokens, ScriptedProvider(*pages) as vertex:
        assert await vertex_client(vertex, tokens).list_models() == ["a", "b"]
        path = "/v1beta1/publishers/google/models"
        assert [each.target for each in vertex.requests] == [path, f"{path}?pageToken=n"]
        assert shown_tokens(vertex) == [f"Bearer {TOKEN}"] * 2
        assert len(tokens.requests) == 1


async def test_a_caller_who_shows_something_else_needs_no_token(vertex: ScriptedProvider) -> None:
    with ScriptedProvider(token()) as tokens:
        mine = {"authorization": "Bearer mine"}
        assert await ask(vertex_client(vertex, tokens, default_headers=mine)) == WHOLE
        assert shown_tokens(vertex) == ["Bearer mine"]
        vertex.answers = [UNAUTHORIZED]
        with pytest.raises(UpstreamError, match="401"):
            await ask(vertex_client(vertex, tokens, default_headers=mine))
        assert tokens.connections == []
        assert len(vertex.requests) == 2


@pytest.mark.parametrize("expires_in", [0.4, "0.4", 225.2])
async def test_a_token_is_renewed_shortly_before_its_end(
    vertex: ScriptedProvider, expires_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [token("first", expires_in), token("second", 3600)]
    with ScriptedProvider(*answers) as tokens:
        client = vertex_client(vertex, tokens)
        await ask(client)
        await ask(client)
        now = time.monotonic() + min(float(expires_in), 113)
        monkeypatch.setattr("mmsp.tokens.time.monotonic", lambda: now)
        await ask(client)
        assert len(tokens.requests) == 2
        now += 3600 - 226
        await ask(client)
        assert len(tokens.requests) == 2
        now += 2
        await ask(client)
        assert len(tokens.requests) == 3
    first, second = "Bearer first", "Bearer second"
    assert shown_tokens(vertex) == [first, first, second, second, second]


@pytest.mark.parametrize("expires_in", [None, "soon", -1, 0, [], "nan", "inf", 10**400])
async def test_a_token_that_does_not_say_how_long_it_lasts_lasts_as_asked(
    vertex: ScriptedProvider, expires_in: Any
) -> None:
    with ScriptedProvider(token(expires_in=expires_in)) as tokens:
        client = vertex_client(vertex, tokens)
        await ask(client)
        await ask(client)
        assert len(tokens.requests) == 1


async def test_a_token_that_is_not_taken_is_thrown_away_once() -> None:
    answers = [token("first"), token("second"), token("third")]
    with (
        ScriptedProvider(*answers) as tokens,
        ScriptedProvider(UNAUTHORIZED, whole()) as vertex,
    ):
        client = vertex_client(vertex, tokens)
        assert await ask(client) == WHOLE
        assert shown_tokens(vertex) == ["Bearer first", "Bearer second"]
        vertex.answers = [UNAUTHORIZED]
        with pytest.raises(UpstreamError, match="HTTP 401: expired") as caught:
            await ask(client)
        assert caught.value.status == 401
        assert len(vertex.requests) == 4
        assert len(tokens.requests) == 3


async def test_a_list_of_models_with_a_token_that_is_not_taken_asks_again() -> None:
    listed = Answer.json({"publisherModels": []})
    with ScriptedProvider(token()) as tokens, ScriptedProvider(UNAUTHORIZED, listed) as vertex:
        assert await vertex_client(vertex, tokens).list_models() == []
        assert (len(tokens.requests), len(vertex.requests)) == (2, 2)


# ---- several calls


async def until(looked_for: Any) -> None:
    while not looked_for():
        await asyncio.sleep(0.001)


async def test_calls_at_the_same_time_share_one_fetch(vertex: ScriptedProvider) -> None:
    with ScriptedProvider(Answer(*token().steps, head_gate="go", framing="length")) as tokens:
        client = vertex_client(vertex, tokens)
        calls = [asyncio.create_task(ask(client)) for _ in range(20)]
        await tokens.until("stalled")
        await asyncio.sleep(0.02)
        tokens.open("go")
        assert await asyncio.gather(*calls) == [WHOLE] * 20
        assert len(tokens.connections) == len(tokens.requests) == 1


async def test_calls_at_the_same_time_share_one_failure(vertex: ScriptedProvider) -> None:
    denied = Answer.json(
        {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, status=400
    )
    with ScriptedProvider(Answer(pause(0.05), *denied.steps, status=400)) as tokens:
        client = vertex_client(vertex, tokens)
        found = await asyncio.gather(*(ask(client) for _ in range(5)), return_exceptions=True)
        assert len(tokens.requests) == 1
        tokens.answers = [token()]
        assert await ask(client) == WHOLE  # the next call tries again
    assert len({id(each) for each in found}) == 5
    for error in found:
        assert isinstance(error, UpstreamError)
        assert error.status == 400
        assert error.error_type == "invalid_grant"
        assert str(error) == ("No access token: HTTP 400: invalid_grant: Invalid JWT Signature.")


async def test_a_failure_keeps_no_call_alive(vertex: ScriptedProvider) -> None:
    """Its traceback holds frames, and a frame that held the error would keep them all."""
    with ScriptedProvider(Answer.error(400, "no")) as tokens:
        client = vertex_client(vertex, tokens)
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(UpstreamError):
                await client.list_models()
            await asyncio.sleep(0)
            inner: Any = client._client
            assert inner._calls == {}
        finally:
            gc.enable()


async def test_one_who_waits_fetches_when_the_one_who_fetched_is_stopped(
    vertex: ScriptedProvider,
) -> None:
    with ScriptedProvider(Answer(head_gate="never"), token()) as tokens:
        client = vertex_client(vertex, tokens)
        first = client.streaming_response([QUESTION])
        reading = asyncio.ensure_future(anext(first))
        await tokens.until("stalled")
        others = [asyncio.create_task(ask(client)) for _ in range(5)]
        await asyncio.sleep(0.02)
        assert len(tokens.requests) == 1
        first.abort("why")
        with pytest.raises(AbortError):
            await reading
        assert await asyncio.gather(*others) == [WHOLE] * 5
        assert len(tokens.requests) == 2
        await tokens.connections[0].until_closed(0.2)


async def test_a_call_whose_time_is_over_leaves_the_fetch_to_those_who_wait(
    vertex: ScriptedProvider,
) -> None:
    with ScriptedProvider(Answer(head_gate="never"), token()) as tokens:
        client = vertex_client(vertex, tokens, timeouts=Timeouts(total=0.3))
        first = asyncio.create_task(ask(client))
        await tokens.until("stalled")
        await asyncio.sleep(0.15)
        second = asyncio.create_task(ask(client))
        with pytest.raises(UpstreamTimeoutError):
            await first
        assert await second == WHOLE


@pytest.mark.parametrize("way", STOPS)
async def test_one_who_waits_stops_alone(vertex: ScriptedProvider, way: Way) -> None:
    with ScriptedProvider(Answer(*token().steps, head_gate="go", framing="length")) as tokens:
        client = vertex_client(vertex, tokens)
        first = asyncio.create_task(ask(client))
        await tokens.until("stalled")
        started = time.monotonic_ns()
        await stop(client.streaming_response([QUESTION]), way)
        assert time.monotonic_ns() - started < LIMIT_NS
        tokens.open("go")
        assert await first == WHOLE
        assert len(vertex.requests) == 1


async def test_calls_on_loops_of_several_threads_share_one_fetch(vertex: ScriptedProvider) -> None:
    with ScriptedProvider(Answer(*token().steps, head_gate="go", framing="length")) as tokens:
        client = vertex_client(vertex, tokens)
        found: list[list[str]] = []

        def program() -> None:
            found.append(asyncio.run(ask(client)))

        threads = [threading.Thread(target=program) for _ in range(4)]
        for each in threads:
            each.start()
        await tokens.until("stalled")
        await asyncio.sleep(0.1)
        tokens.open("go")
        await until(lambda: not any(each.is_alive() for each in threads))
        assert found == [WHOLE] * 4
        assert len(tokens.requests) == 1


# ---- a token that does not come


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (Answer.error(403, f"no {TOKEN}"), UpstreamError, "No access token: HTTP 403"),
        (Answer(status=302, headers={"location": "https://b.example/"}), UpstreamError, "b.example"),
        (Answer.json({"error": "invalid_grant"}), ProviderStreamError, "invalid_grant"),
        (Answer.json({"id_token": "a-secret"}), StreamProtocolError, "holds no access_token"),
        (Answer.json({"access_token": "a-secret\r\nx: y"}), StreamProtocolError, "no access_token"),
        (Answer.json({"access_token": "a-secret\u20ac"}), StreamProtocolError, "no access_token"),
        (Answer.json({"access_token": ""}), StreamProtocolError, "no access_token"),
        (Answer.json({"access_token": 7}), StreamProtocolError, "no access_token"),
        (Answer.json(["a-secret"]), StreamProtocolError, "no access_token"),
        (Answer(say("<html>a-secret")), StreamProtocolError, "no access_token"),
        (Answer(), StreamProtocolError, "no access_token"),
        (Answer(say("[" * 5000), framing="length"), StreamProtocolError, "no access_token"),
        (Answer(say("x" * 70_000), framing="length"), StreamProtocolError, "longer than 65,536"),
    ],
)  # fmt: skip
async def test_what_is_no_token_has_its_error(
    vertex: ScriptedProvider, answer: Answer, error: type[MMSPError], said: str
) -> None:
    with ScriptedProvider(answer) as tokens:
        client = vertex_client(vertex, tokens, max_retries=0)
        with pytest.raises(error, match="No access token") as caught:
            await ask(client)
        assert said in str(caught.value)
        assert "a-secret" not in str(caught.value)
        with pytest.raises(error, match="No access token"):
            await client.list_models()
        assert client.get_history() == []
    assert vertex.connections == []


async def test_a_passing_failure_of_the_tokens_server_is_tried_again(
    vertex: ScriptedProvider,
) -> None:
    busy = Answer.error(503, headers={"retry-after-ms": "1"})
    with ScriptedProvider(busy, busy, token()) as tokens:
        assert await ask(vertex_client(vertex, tokens)) == WHOLE
        assert len(tokens.requests) == 3


async def test_a_tokens_server_that_nobody_serves_is_told(vertex: ScriptedProvider) -> None:
    with ScriptedProvider() as tokens:
        client = vertex_client(vertex, tokens, max_retries=0)
    with pytest.raises(UpstreamConnectionError, match="No access token") as caught:
        await ask(client)
    assert caught.value.phase == "connect"


async def test_a_tokens_server_that_is_late_times_out(vertex: ScriptedProvider) -> None:
    with ScriptedProvider(Answer(head_gate="never")) as tokens:
        client = vertex_client(vertex, tokens, timeouts=Timeouts(first_event=0.1))
        with pytest.raises(UpstreamTimeoutError, match="No access token") as caught:
            await ask(client)
        assert caught.value.phase == "first_event"
        await tokens.connections[0].until_closed(0.2)


# ---- stops while it is fetched

# What a token's server sends is no part of the answer, even if it looks like one.
NO_ANSWER = Answer(say(generate_content.text("no")), stall(), headers={"x-request-id": "tokens"})

PHASES: dict[str, tuple[dict[str, Any], list[Answer]]] = {
    "TCP connect not accepted": ({"never_accept": True}, []),
    "TLS hello unanswered": ({"tls": True, "tls_hello": "ignore"}, []),
    "headers late": ({}, [Answer(head_gate="never")]),
    "headers late over TLS": ({"tls": True}, [Answer(head_gate="never")]),
    "inside the body": ({}, [NO_ANSWER]),
    "inside the body over TLS": ({"tls": True}, [Answer(say('{"access_token":'), stall())]),
    "sleeping before a retry": ({}, [Answer.error(429, headers={"retry-after": "30"})]),
}


async def reached(tokens: ScriptedProvider, phase: str) -> None:
    if phase == "TCP connect not accepted":
        await until(tokens.pending_connects)
    elif phase == "TLS hello unanswered":
        await tokens.until("tls")
    else:
        await tokens.until("idle" if phase.startswith("sleeping") else "stalled")


@pytest.mark.every_loop
@pytest.mark.parametrize("stateful", [False, True], ids=["stateless", "stateful"])
@pytest.mark.parametrize("way", STOPS)
@pytest.mark.parametrize("phase", PHASES)
async def test_a_stop_while_the_token_is_fetched_closes_that_connection_and_sends_no_more(
    vertex: ScriptedProvider, phase: str, way: Way, stateful: bool
) -> None:
    options, answers = PHASES[phase]
    with ScriptedProvider(*answers, token(), **options) as tokens:
        client = vertex_client(vertex, tokens)
        ask = client.streaming_response_stateful(QUESTION) if stateful else None
        stream = ask or client.streaming_response([QUESTION])
        stopped = await stop(stream, way, until=reached(tokens, phase))
        assert stopped.events == []
        if tokens.connections and not phase.startswith("sleeping"):
            closed_ns = await tokens.connections[-1].until_closed(1.0)
            assert closed_ns - stopped.at_ns <= LIMIT_NS
        await asyncio.sleep(0.02)
        assert not tokens.pending_connects()
        assert len(tokens.requests) <= 1
        assert vertex.connections == []
        assert stream.partial_message() is None
        assert stream.request_id is None
        client.clear_history()  # raises while a call holds the client
        if answers:  # the next call has a token
            client_works = await events_of(client.streaming_response([QUESTION]))
            assert shown(client_works) == WHOLE


@pytest.mark.parametrize("way", STOPS)
async def test_a_stop_while_a_refused_token_is_renewed_sends_no_more(way: Way) -> None:
    with ScriptedProvider(token(), NO_ANSWER) as tokens, ScriptedProvider(UNAUTHORIZED) as vertex:
        stream = vertex_client(vertex, tokens).streaming_response([QUESTION])
        stopped = await stop(stream, way, until=tokens.until("stalled"))
        assert stopped.events == []
        closed_ns = await tokens.connections[-1].until_closed(1.0)
        assert closed_ns - stopped.at_ns <= LIMIT_NS
        assert stream.partial_message() is None
        assert stream.request_id is None
        await asyncio.sleep(0.02)
        assert len(vertex.requests) == 1


@pytest.mark.parametrize("way", STOPS)
@pytest.mark.parametrize("answered", [False, True], ids=["headers late", "inside the answer"])
async def test_a_stop_after_the_token_closes_the_request_itself(answered: bool, way: Way) -> None:
    late = Answer(head_gate="never")
    begun = Answer(say(generate_content.text("a")), stall())
    with ScriptedProvider(token()) as tokens, ScriptedProvider(begun if answered else late) as it:
        stream = vertex_client(it, tokens).streaming_response([QUESTION])
        if answered:
            assert shown([await anext(stream)]) == ["text.delta a"]
        stopped = await stop(stream, way, until=it.until("stalled"))
        assert stopped.events == []
        closed_ns = await it.connections[-1].until_closed(1.0)
        assert closed_ns - stopped.at_ns <= LIMIT_NS
        await asyncio.sleep(0.02)
        assert (len(it.requests), len(tokens.requests)) == (1, 1)


@pytest.mark.parametrize("way", STOPS)
async def test_a_stop_while_the_tokens_server_is_looked_up_connects_to_nothing(
    vertex: ScriptedProvider, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    with ScriptedProvider(token(), host="localhost") as tokens:
        slow_name_server(monkeypatch, release)
        try:
            started = time.monotonic_ns()
            await stop(vertex_client(vertex, tokens).streaming_response([QUESTION]), way)
            assert time.monotonic_ns() - started < LIMIT_NS
        finally:
            release.set()
        await asyncio.sleep(0.02)
        assert tokens.connections == vertex.connections == []


@pytest.mark.parametrize("way", STOPS)
@pytest.mark.parametrize(
    ("reached", "options"),
    [("connect", {"connect": "ignore"}), ("tunnel_tls", {"tunnel_tls": "ignore"})],
    ids=["proxy CONNECT unanswered", "TLS behind a proxy stalled"],
)
async def test_a_stop_before_the_tokens_server_is_reached_through_a_proxy_closes_it(
    reached: str, options: Any, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedProvider(token(), **options) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.proxy_url)
        key = account("https://tokens.example/token")
        client = AutoLLMClient(
            "gemini-x", key, client_type="google-genai", ssl_context=proxy.ssl_context
        )
        stream = client.streaming_response([QUESTION])
        stopped = await stop(stream, way, until=proxy.until(reached))
        closed_ns = await proxy.connections[-1].until_closed(1.0)
        assert closed_ns - stopped.at_ns <= LIMIT_NS
        await asyncio.sleep(0.02)
        assert len(proxy.connections) == 1


@pytest.mark.no_debug
@pytest.mark.every_loop
async def test_an_abort_from_a_thread_closes_the_fetch_while_the_loop_is_blocked(
    vertex: ScriptedProvider,
) -> None:
    with ScriptedProvider(Answer(head_gate="never")) as tokens:
        stream = vertex_client(vertex, tokens).streaming_response([QUESTION])
        reading = asyncio.ensure_future(anext(stream))
        await tokens.until("stalled")
        aborted: list[int] = []

        def abort() -> None:
            aborted.append(time.monotonic_ns())
            stream.abort()

        timer = threading.Timer(0.05, abort)
        timer.start()
        time.sleep(0.6)
        timer.join()
        closed_ns = await tokens.connections[0].until_closed(1.0)
        assert closed_ns - aborted[0] <= LIMIT_NS
        with pytest.raises(AbortError):
            await reading
        assert vertex.connections == []


@pytest.mark.parametrize("way", STOPS)
async def test_a_stop_while_the_token_for_a_later_part_is_fetched_sends_no_more(way: Way) -> None:
    """Embeddings at Vertex AI are a request each: a token may end between two of them."""
    one = Answer.json({"embedding": {"values": [1.0]}})
    with ScriptedProvider(token(expires_in=0.01), NO_ANSWER) as tokens, ScriptedProvider(one) as it:
        client = vertex_client(it, tokens, "gemini-embedding-2")
        stream = client.streaming_response([QUESTION, QUESTION])
        await anext(stream)
        await asyncio.sleep(0.02)
        stopped = await stop(stream, way, until=tokens.until("stalled"))
        assert stopped.events == []
        assert stream.request_id is None
        closed_ns = await tokens.connections[-1].until_closed(1.0)
        assert closed_ns - stopped.at_ns <= LIMIT_NS
        await asyncio.sleep(0.02)
        assert len(it.requests) == 1


@pytest.mark.parametrize("way", ["abort", "cancel"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_stop_of_a_list_of_models_stops_its_token(
    vertex: ScriptedProvider, phase: str, way: str
) -> None:
    options, answers = PHASES[phase]
    signal = AbortSignal()
    with ScriptedProvider(*answers, **options) as tokens:
        task = asyncio.create_task(vertex_client(vertex, tokens).list_models(signal))
        await reached(tokens, phase)
        await asyncio.sleep(0.01)
        stopped = time.monotonic_ns()
        if way == "abort":
            signal.abort()
        else:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic_ns() - stopped < LIMIT_NS
        if tokens.connections and not phase.startswith("sleeping"):
            assert await tokens.connections[-1].until_closed(1.0) - stopped <= LIMIT_NS
        assert vertex.connections == []


async def test_closing_the_client_stops_who_fetches_and_who_waits(vertex: ScriptedProvider) -> None:
    with ScriptedProvider(Answer(head_gate="never")) as tokens:
        client = vertex_client(vertex, tokens)
        first = client.streaming_response([QUESTION])
        reading = asyncio.ensure_future(anext(first))
        await tokens.until("stalled")
        lists = [asyncio.create_task(client.list_models()) for _ in range(3)]
        await asyncio.sleep(0.02)
        await client.aclose()
        with pytest.raises(StopAsyncIteration):
            await reading
        for each in lists:
            with pytest.raises(StreamAbortedError):
                await each
        await tokens.connections[0].until_closed(0.2)
        assert len(tokens.connections) == 1
        assert vertex.connections == []


async def test_a_client_that_is_left_while_its_token_is_fetched_leaves_nothing(
    vertex: ScriptedProvider,
) -> None:
    with ScriptedProvider(Answer(head_gate="never")) as tokens:
        client: AutoLLMClient | None = vertex_client(vertex, tokens)
        assert client is not None
        task = asyncio.create_task(ask(client))
        await tokens.until("stalled")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del client, task
        await tokens.connections[0].until_closed(0.2)
