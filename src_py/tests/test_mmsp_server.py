"""The server on real sockets: what callers get, and that the provider's connection closes when they leave,
wherever the app runs."""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from mmsp import AutoLLMClient
from mmsp.integration.server import create_server_app
from mmsp.integration.server.relay import Pace
from mmsp.registry import CLIENTS
from mmsp.testing import Answer, ScriptedProvider, chat, generate_content, pause, say, stall
from tests.asking import QUESTION, complete
from tests.serving import KEY, MODEL, ROUTES, Caller, Place, app_for, request, row, served
from tests.stopping import LIMIT_NS

# What the provider does when the caller leaves, and what it has to have done before.
SILENT_HEAD = Answer(say(chat.text("late")), head_gate="never")
SILENT = Answer(stall())
MID_ITEM = Answer(say(chat.text("One")), stall())
FLOOD = Answer(say([chat.text("x" * 1000)] * 20_000), stall())  # 20 MB
PHASES = {"headers late": SILENT_HEAD, "before the first event": SILENT, "mid-item": MID_ITEM}

Left = Callable[[Caller], Any]


async def hang_up(caller: Caller) -> None:
    caller.writer.close()


async def reset(caller: Caller) -> None:
    caller.writer.transport.abort()


async def closed_after(provider: ScriptedProvider, since_ns: int) -> int:
    """ns from then until the provider saw its connection close."""
    return await provider.connections[-1].until_closed() - since_ns


async def waiting_for(provider: ScriptedProvider, caller: Caller, phase: str) -> None:
    """Until the caller has got what there is to get."""
    if phase == "mid-item":
        reply = await caller.head()
        await caller.until_event(reply)
    await provider.until("answering" if phase == "headers late" else "stalled")


# ---- leaving


@pytest.mark.parametrize("leave", [hang_up, reset])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("route", ROUTES)
async def test_a_caller_that_leaves_closes_the_providers_connection(
    route: str, phase: str, leave: Left
) -> None:
    with ScriptedProvider(PHASES[phase]) as provider:
        app = app_for(provider, KEY)
        async with served(app, route) as place, Caller(place) as caller:
            await caller.ask()
            await waiting_for(provider, caller, phase)
            left_ns = time.monotonic_ns()
            await leave(caller)
            assert await closed_after(provider, left_ns) < LIMIT_NS
            await asyncio.wait_for(app.streams.none_left(), 5)


@pytest.mark.parametrize("client_type", [each for each in CLIENTS if each != "mmsp"])
async def test_a_caller_that_leaves_closes_the_connection_of_every_kind_of_client(
    client_type: str,
) -> None:
    """Embeddings too, which do not stream, and are asked for in several requests."""
    with ScriptedProvider(SILENT_HEAD) as provider:
        app = create_server_app([row(provider, client_type=client_type)], [KEY])
        async with served(app) as place, Caller(place) as caller:
            await caller.ask(
                messages=[QUESTION] * 3000 if "embedding" in client_type else [QUESTION]
            )
            await provider.until("answering")
            left_ns = time.monotonic_ns()
            await hang_up(caller)
            assert await closed_after(provider, left_ns) < LIMIT_NS
            await asyncio.wait_for(app.streams.none_left(), 5)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("leave", [hang_up, reset, None])
async def test_a_caller_that_has_sent_another_request_ahead_is_heard_too(
    leave: Left | None,
) -> None:
    """Or rather hung up on, as soon as it does."""
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY)
        async with served(app, "our runner") as place, Caller(place) as caller:
            await caller.ask()
            await waiting_for(provider, caller, "mid-item")
            left_ns = time.monotonic_ns()
            await caller.ask()
            if leave is not None:
                await leave(caller)
            assert await closed_after(provider, left_ns) < LIMIT_NS
            await asyncio.wait_for(app.streams.none_left(), 5)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("path", ["/v1/models/", "//v1/models", "/V1/models", "/v1/../v1/models"])
async def test_a_path_that_is_nearly_a_route_is_none(path: str) -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY)) as place:
            assert (await request(place, "GET", path)).status == 404


@pytest.mark.parametrize("path", ["/v1%2Fmodels", "/%76%31/models", "/v1/%6dodels"])
async def test_a_path_that_is_written_otherwise_needs_a_key_too(path: str) -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY)) as place:
            assert (await request(place, "GET", path, key=None)).status == 401


async def test_a_provider_that_goes_on_writing_holds_nobody_up() -> None:
    words = [step for _ in range(300) for step in (say(chat.text("x" * 1000)), pause(0.005))]
    with ScriptedProvider(Answer(*words, stall()), ignore_eof=True) as provider:
        app = app_for(provider, KEY)
        async with served(app) as place, Caller(place) as caller:
            await caller.ask()
            reply = await caller.head()
            await caller.until_event(reply)
            left_ns = time.monotonic_ns()
            await hang_up(caller)
            await asyncio.wait_for(app.streams.none_left(), 5)
            assert time.monotonic_ns() - left_ns < LIMIT_NS


@pytest.mark.parametrize("route", ROUTES)
async def test_a_caller_that_does_not_read_slows_the_provider_and_can_leave(route: str) -> None:
    with ScriptedProvider(FLOOD) as provider:
        app = app_for(provider, KEY)
        async with served(app, route) as place, Caller(place) as caller:
            caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await caller.ask()
            await provider.until(lambda it: it.connections and it.connections[0].bytes_sent)
            sent = await no_longer_growing(provider)
            assert sent < 18_000_000
            left_ns = time.monotonic_ns()
            await reset(caller)
            assert await closed_after(provider, left_ns) < LIMIT_NS


async def no_longer_growing(provider: ScriptedProvider) -> int:
    sent, before = provider.connections[0].bytes_sent, -1
    while sent != before:
        await asyncio.sleep(0.3)
        before, sent = sent, provider.connections[0].bytes_sent
    return sent


async def test_a_caller_that_leaves_is_heard_without_the_collector_and_at_once() -> None:
    """The stream is referenced and nothing collects it."""
    gc.disable()
    try:
        with ScriptedProvider(MID_ITEM) as provider:
            app = app_for(provider, KEY)
            async with served(app) as place, Caller(place) as caller:
                await caller.ask()
                await waiting_for(provider, caller, "mid-item")
                (running,) = app.streams
                left_ns = time.monotonic_ns()
                await hang_up(caller)
                assert await closed_after(provider, left_ns) < LIMIT_NS
                assert running.stream.outcome == "closed"
    finally:
        gc.enable()


@pytest.mark.parametrize("route", ROUTES)
async def test_a_caller_that_speaks_http_1_0_is_heard_when_it_leaves(route: str) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with served(app_for(provider, KEY), route) as place, Caller(place) as caller:
            await caller.ask(version="1.0")
            reply = await caller.head()
            while b"One" not in reply.body:
                reply.body += await caller.piece()
            left_ns = time.monotonic_ns()
            await hang_up(caller)
            assert await closed_after(provider, left_ns) < LIMIT_NS


@pytest.mark.parametrize("route", ROUTES)
async def test_a_place_is_free_again_when_its_caller_has_left(route: str) -> None:
    with ScriptedProvider(SILENT, complete()) as provider:
        app = app_for(provider, KEY, max_streams=1)
        async with served(app, route) as place:
            async with Caller(place) as caller:
                await caller.ask()
                await provider.until("stalled")
                async with Caller(place) as second:
                    await second.ask()
                    refused = await second.whole()
                    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
            await asyncio.wait_for(app.streams.none_left(), 5)
            async with Caller(place) as third:
                await third.ask()
                assert (await third.whole()).events[-1] == "[DONE]"


async def test_a_caller_that_leaves_before_its_request_is_whole_asks_nobody() -> None:
    with ScriptedProvider(complete()) as provider:
        app = app_for(provider, KEY)
        async with served(app) as place, Caller(place) as caller:
            await caller.send("POST", "/v1/stream", b"{", headers={"Content-Length": "1000"})
            await hang_up(caller)
        assert provider.requests == []
        assert len(app.streams) == 0


async def test_a_stream_that_is_left_is_counted_as_left_and_not_as_a_failure() -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY)
        async with served(app) as place:
            async with Caller(place) as caller:
                await caller.ask()
                await waiting_for(provider, caller, "mid-item")
            await asyncio.wait_for(app.streams.none_left(), 5)
            counts = (await request(place, "GET", "/v1/metrics")).json()
    assert (counts["requests"], counts["disconnects"], counts["failures"]) == (1, 1, 0)
    assert (counts["in_flight"], counts["success_rate"], counts["errors"]) == (0, None, [])
    assert len(provider.requests) == 1


# ---- what a caller gets


@pytest.mark.parametrize("route", ROUTES)
async def test_a_caller_gets_the_events_and_the_end_mark(route: str) -> None:
    with ScriptedProvider(complete("All is wéll")) as provider:
        async with served(app_for(provider, KEY), route) as place, Caller(place) as caller:
            await caller.ask()
            reply = await caller.whole()
            assert reply.status == 200
            assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert reply.headers["cache-control"] == "no-cache"
            assert len(reply.headers["mmsp-stream-id"]) == 32
            *deltas, stop, done = reply.events
            assert [each["content_items"][0]["text"] for each in deltas] == [
                *("All", " is", " wéll"),
                "All is wéll",
            ]
            assert (stop["event_type"], stop["finish_reason"], done) == ("stop", "stop", "[DONE]")
            assert stop["usage_metadata"]["prompt_tokens"] == 10
            assert "wéll".encode() in reply.body


@pytest.mark.parametrize("route", ROUTES)
async def test_the_providers_refusal_is_the_status_of_the_answer(route: str) -> None:
    refusal = Answer.error(400, "too long", "context_length_exceeded", {"x-request-id": "req-1"})
    with ScriptedProvider(refusal) as provider:
        async with served(app_for(provider, KEY), route) as place, Caller(place) as caller:
            await caller.ask()
            reply = await caller.whole()
            assert reply.status == 400
            assert reply.headers["x-should-retry"] == "false"
            assert reply.error["type"] == "UpstreamError"
            assert reply.error["error_type"] == "context_length_exceeded"
            assert reply.error["request_id"] == "req-1"


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, 502),
        (403, 502),
        (404, 404),
        (413, 413),
        (429, 429),
        (500, 502),
        (503, 503),
        (302, 502),
    ],
)
async def test_a_providers_status_is_passed_on_where_it_is_about_the_request(
    status: int, told: int
) -> None:
    """What it thinks of the server's key is no word on the caller's."""
    headers = {"retry-after": "3600"} if status in (429, 503) else {"x-should-retry": "false"}
    with ScriptedProvider(Answer.error(status, "no", headers=headers)) as provider:
        async with served(app_for(provider, KEY)) as place, Caller(place) as caller:
            await caller.ask()
            reply = await caller.whole()
            assert (reply.status, reply.error["status"]) == (told, status)
            assert reply.headers.get("retry-after") == headers.get("retry-after")


async def test_an_error_after_the_first_event_is_an_event() -> None:
    with ScriptedProvider(Answer(say([chat.text("A"), chat.error("broken", 500)]))) as provider:
        async with served(app_for(provider, KEY)) as place, Caller(place) as caller:
            await caller.ask()
            reply = await caller.whole()
            assert reply.status == 200
            delta, error, done = reply.events
            assert delta["content_items"][0]["text"] == "A"
            assert (error["error"]["type"], error["error"]["code"]) == ("ProviderStreamError", 500)
            assert done == "[DONE]"


async def test_a_cut_answer_is_told_as_cut() -> None:
    with ScriptedProvider(Answer(say(chat.text("A")), framing="short")) as provider:
        async with served(app_for(provider, KEY)) as place, Caller(place) as caller:
            await caller.ask()
            assert (await caller.whole()).events[-2]["error"]["type"] == "IncompleteStreamError"


async def test_silence_is_filled_and_the_head_comes_before_the_answer() -> None:
    with ScriptedProvider(Answer(stall())) as provider:
        app = app_for(provider, KEY, pace=Pace(head=0.05, keep_alive=0.05))
        async with served(app) as place, Caller(place) as caller:
            await caller.ask()
            reply = await caller.head()
            while reply.body.count(b": keep-alive\n\n") < 3:
                reply.body += await caller.piece()
            assert reply.status == 200
            left_ns = time.monotonic_ns()
            await hang_up(caller)
            assert await closed_after(provider, left_ns) < LIMIT_NS


async def test_an_error_after_the_head_that_silence_sent_is_an_event() -> None:
    answer = Answer.error(400, "no")
    answer.head_gate = "late"
    with ScriptedProvider(answer) as provider:
        app = app_for(provider, KEY, pace=Pace(head=0.05))
        async with served(app) as place, Caller(place) as caller:
            await caller.ask()
            reply = await caller.head()
            provider.open("late")
            await caller.until_event(reply, 2)
            assert (reply.events[0]["error"]["type"], reply.events[1]) == (
                "UpstreamError",
                "[DONE]",
            )


async def test_bytes_cross_as_base64_both_ways() -> None:
    asked, drawn = (
        base64.b64encode(each).decode() for each in (b"\x89PNG asked", b"\x89PNG drawn")
    )
    item = {"type": "inline_data.done", "data": asked, "mime_type": "image/png"}
    drawn_part = {"inlineData": {"mimeType": "image/png", "data": drawn}}
    answer = [generate_content.chunk(drawn_part), *generate_content.ending()]
    with ScriptedProvider(Answer(say(answer))) as provider:
        app = create_server_app([row(provider, client_type="google-genai")], [KEY])
        async with served(app) as place, Caller(place) as caller:
            await caller.ask(messages=[{"role": "user", "content_items": [item]}])
            reply = await caller.whole()
            assert asked in provider.requests[0].body.decode()
            assert reply.events[0]["content_items"][0]["data"] == drawn


async def test_a_large_request_is_checked_and_served() -> None:
    message = {"role": "user", "content_items": [{"type": "text.done", "text": "x" * 3_000_000}]}
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY)) as place:
            async with Caller(place) as caller:
                await caller.ask(messages=[message])
                assert (await caller.whole()).status == 200
            async with Caller(place) as caller:
                await caller.ask(messages=[message, {"role": "nobody"}])
                assert (await caller.whole()).status == 400


# ---- refusals


ASKED = {"model": MODEL, "messages": [QUESTION]}
FAULTS = [
    (b"no JSON", 400, "InvalidRequestError", "the body is no JSON"),
    ([], 400, "InvalidRequestError", "the body is a list"),
    ({"messages": []}, 400, "InvalidRequestError", "model is null"),
    ({"model": MODEL}, 400, "InvalidRequestError", "messages is null"),
    (ASKED | {"config": []}, 400, "InvalidRequestError", "config is a list"),
    (ASKED | {"model": "none"}, 404, "NotFoundError", "no model 'none' is served here"),
    (ASKED | {"messages": []}, 400, "InvalidMessageError", "messages is empty"),
    (ASKED | {"messages": [1]}, 400, "InvalidRequestError", "messages[0] is"),
    (
        ASKED
        | {
            "messages": [
                {"role": "user", "content_items": [{"type": "inline_data.done", "data": "é"}]}
            ]
        },
        400,
        "InvalidRequestError",
        "messages[0].content_items[0].data is no base64",
    ),
    (
        ASKED
        | {"messages": [QUESTION, {"role": "assistant", "content_items": [{"type": "text"}]}]},
        400,
        "InvalidMessageError",
        "messages[1].content_items[0].type",
    ),
    (ASKED | {"config": {"temprature": 1}}, 400, "UnsupportedParameterError", "'temperature'"),
    (ASKED | {"config": {"extra_body": {"n": 2}}}, 400, "InvalidRequestError", "config.extra_body"),
]


@pytest.mark.parametrize(
    ("body", "status", "kind", "told"), FAULTS, ids=[each[3] for each in FAULTS]
)
async def test_a_bad_request_is_refused_with_the_path_of_its_fault(
    body: Any, status: int, kind: str, told: str
) -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY)) as place:
            reply = await request(place, "POST", "/v1/stream", body)
            counts = (await request(place, "GET", "/v1/metrics")).json()
        assert (reply.status, reply.error["type"]) == (status, kind)
        assert told in reply.error["message"]
        assert provider.requests == []
        assert counts["requests"] == 0
        assert counts["refused"]["unknown_model" if status == 404 else "invalid_request"] == 1


@pytest.mark.parametrize("key", [None, "", "wrong", KEY + "x", KEY[:-1], f"{KEY} "])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/stream"),
        ("GET", "/v1/models"),
        ("GET", "/v1/metrics"),
        ("GET", "/v1/streams"),
        ("DELETE", "/v1/streams/abcdefghijklmnop"),
        ("GET", "/v1/nothing"),
    ],
)
async def test_everything_below_v1_needs_a_key(method: str, path: str, key: str | None) -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, "another", KEY)) as place:
            reply = await request(
                place, method, path, ASKED, headers={"Authorization": f"Bearer {key}"}
            )
            if key == f"{KEY} ":  # HTTP itself takes the blank away
                assert reply.status != 401
                return
            assert (reply.status, reply.error["type"]) == (401, "AuthenticationError")
            assert reply.headers["www-authenticate"] == "bearer"
            assert KEY not in reply.body.decode()
    assert provider.requests == []


@pytest.mark.parametrize(
    "authorization", [f"bearer {KEY}", f"Basic {KEY}", KEY, f"Bearer  {KEY}", f"Bearer {KEY}, x"]
)
async def test_a_key_is_shown_in_one_form(authorization: str) -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY)) as place:
            options = {"headers": {"Authorization": authorization}}
            assert (await request(place, "GET", "/v1/models", **options)).status == 401


async def test_what_has_no_route_is_told_with_the_routes() -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY)) as place:
            unknown = await request(place, "GET", "/v2/chat")
            assert unknown.status == 404
            assert "GET /v2/chat" in unknown.error["message"]
            assert "POST /v1/stream" in unknown.error["message"]
            wrong = await request(place, "GET", "/v1/stream")
            assert (wrong.status, wrong.headers["allow"]) == (405, "post")
            assert wrong.error["type"] == "MethodNotAllowedError"


async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY, body_limit=1000)) as place:
            async with Caller(place) as caller:
                await caller.send("POST", "/v1/stream", b"{", headers={"Content-Length": "1001"})
                assert (await caller.whole()).status == 413
            async with Caller(place) as caller:  # one that does not tell its length
                headers = {"Transfer-Encoding": "chunked"}
                await caller.send("POST", "/v1/stream", b"3e9\r\n" + b"x" * 1001, headers=headers)
                assert (await caller.whole()).status == 413


async def test_a_body_that_does_not_go_on_is_refused_and_its_sender_hung_up_on() -> None:
    with ScriptedProvider(complete()) as provider:
        app = app_for(provider, KEY, pace=Pace(body=0.1))
        async with served(app, "our runner") as place, Caller(place) as caller:
            await caller.send("POST", "/v1/stream", b"{", headers={"Content-Length": "1000"})
            reply = await caller.whole()
            assert (reply.status, reply.error["type"]) == (408, "RequestTimeoutError")
            assert await caller.reader.read() == b""
    assert provider.requests == []


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
async def test_a_body_that_does_not_say_that_it_is_json_is_refused(kind: str) -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY)) as place:
            reply = await request(
                place, "POST", "/v1/stream", ASKED, headers={"Content-Type": kind}
            )
            assert (reply.status, reply.error["type"]) == (400, "InvalidRequestError")
            assert "Content-Type" in reply.error["message"]


async def test_models_are_listed_in_the_tables_order() -> None:
    with ScriptedProvider(complete()) as provider:
        rows = [row(provider, server_model_id=each) for each in ("b", "a", "c")]
        async with served(create_server_app(rows, [KEY])) as place:
            listed = (await request(place, "GET", "/v1/models")).json()
            assert [each["id"] for each in listed["data"]] == ["b", "a", "c"]
            assert {each["owned_by"] for each in listed["data"]} == {"mmsp"}


async def test_an_open_server_needs_no_key() -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider)) as place:
            assert (await request(place, "GET", "/v1/models", key=None)).status == 200
            assert (await request(place, "GET", "/v1/streams", key=None)).status == 403


# ---- what a row allows


async def test_a_rows_extra_body_goes_to_the_provider_where_it_is_allowed() -> None:
    with ScriptedProvider(complete()) as provider:
        rows = [row(provider, allow=["extra_body"])]
        async with served(create_server_app(rows, [KEY])) as place:
            body = ASKED | {"config": {"extra_body": {"priority": 1}}}
            assert (await request(place, "POST", "/v1/stream", body)).status == 200
            assert provider.requests[0].json()["priority"] == 1


async def test_callers_traces_have_a_folder_of_their_key_where_they_are_allowed(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMSP_CACHE_DIR", str(tmp_path))
    body = ASKED | {"config": {"trace_id": "mine"}}
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY)) as place:
            assert (await request(place, "POST", "/v1/stream", body)).status == 200
            assert list(tmp_path.rglob("*")) == []
        rows = [row(provider, allow=["trace_id"])]
        async with served(create_server_app(rows, [KEY, "other"])) as place:
            for key in (KEY, "other"):
                assert (await request(place, "POST", "/v1/stream", body, key=key)).status == 200
            climbing = ASKED | {"config": {"trace_id": "../up"}}
            assert (await request(place, "POST", "/v1/stream", climbing)).status == 400
    files = [each.relative_to(tmp_path) for each in tmp_path.rglob("*.json")]
    assert len({each.parent for each in files}) == 2
    assert {each.name for each in files} == {"mine.json"}
    assert not any(KEY in str(each) for each in files)


# ---- stopping by id


ID = "chosen-by-the-caller"
CHOSEN = {"mmsp-stream-id": ID}


async def test_a_stream_is_stopped_by_its_id_and_its_caller_is_told() -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with served(app_for(provider, KEY)) as place, Caller(place) as caller:
            await caller.ask()
            reply = await caller.head()
            await caller.until_event(reply)
            path = f"/v1/streams/{reply.headers['mmsp-stream-id']}"
            stopped_ns = time.monotonic_ns()
            stopped = await request(place, "DELETE", path, {"reason": {"why": ["budget"]}})
            assert stopped.status == 204
            assert await closed_after(provider, stopped_ns) < LIMIT_NS
            await caller.until_event(reply, 3)
            error = reply.events[1]["error"]
            assert (error["type"], error["reason"]) == ("StreamAbortedError", {"why": ["budget"]})
            assert reply.events[2] == "[DONE]"
            assert (await request(place, "DELETE", path)).status == 404
            counts = (await request(place, "GET", "/v1/metrics")).json()
            assert (counts["aborted"], counts["failures"], counts["disconnects"]) == (1, 0, 0)


async def test_a_stream_whose_id_the_caller_chose_is_stopped_before_its_first_byte() -> None:
    with ScriptedProvider(SILENT_HEAD) as provider:
        async with served(app_for(provider, KEY)) as place, Caller(place) as caller:
            await caller.ask(headers=CHOSEN)
            await provider.until("answering")
            assert (await request(place, "DELETE", f"/v1/streams/{ID}")).status == 204
            reply = await caller.whole()
            assert (reply.status, reply.headers["x-should-retry"]) == (503, "false")
            assert (reply.error["type"], reply.error["reason"]) == ("StreamAbortedError", None)
    assert len(provider.requests) == 1


async def test_an_id_that_is_running_is_refused_and_free_again_afterwards() -> None:
    with ScriptedProvider(MID_ITEM, complete()) as provider:
        app = app_for(provider, KEY)
        async with served(app) as place:
            async with Caller(place) as caller:
                await caller.ask(headers=CHOSEN)
                await waiting_for(provider, caller, "mid-item")
                second = await request(place, "POST", "/v1/stream", ASKED, headers=CHOSEN)
                assert (second.status, second.error["type"]) == (409, "ConflictError")
            await asyncio.wait_for(app.streams.none_left(), 5)
            third = await request(place, "POST", "/v1/stream", ASKED, headers=CHOSEN)
            assert (third.status, third.headers["mmsp-stream-id"]) == (200, ID)


@pytest.mark.parametrize("id", ["short", "x" * 129, "sixteen letters!", "../../../../etc/passwd"])
async def test_a_chosen_id_has_a_form(id: str) -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY)) as place:
            headers = {"mmsp-stream-id": id}
            reply = await request(place, "POST", "/v1/stream", ASKED, headers=headers)
            assert reply.status == 400
            assert "mmsp-stream-id" in reply.error["message"]
    assert provider.requests == []


async def test_a_key_sees_and_stops_its_own_streams_only() -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY, "other")
        async with served(app) as place, Caller(place) as caller:
            await caller.ask(headers=CHOSEN)
            await waiting_for(provider, caller, "mid-item")
            mine = (await request(place, "GET", "/v1/streams")).json()
            assert [(each["id"], each["model"]) for each in mine["data"]] == [(ID, MODEL)]
            assert (await request(place, "GET", "/v1/streams", key="other")).json()["data"] == []
            theirs = await request(place, "DELETE", f"/v1/streams/{ID}", key="other")
            unknown = await request(place, "DELETE", "/v1/streams/nobody-has-this-id", key="other")
            assert theirs.status == unknown.status == 404
            assert theirs.error["message"].replace(ID, "") == unknown.error["message"].replace(
                "nobody-has-this-id", ""
            )
            assert len(app.streams) == 1


async def test_the_id_alone_is_the_right_to_stop_on_an_open_server() -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with served(app_for(provider)) as place, Caller(place) as caller:
            await caller.ask(key=None)
            reply = await caller.head()
            path = f"/v1/streams/{reply.headers['mmsp-stream-id']}"
            assert (await request(place, "DELETE", path, key=None)).status == 204


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b'{"cause": 1}', b'{"reason": ' + b"[" * 5000])
async def test_a_reason_has_a_form(body: bytes) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY)
        async with served(app) as place, Caller(place) as caller:
            await caller.ask(headers=CHOSEN)
            await waiting_for(provider, caller, "mid-item")
            assert (await request(place, "DELETE", f"/v1/streams/{ID}", body)).status == 400
            assert len(app.streams) == 1


async def test_several_workers_without_redis_cannot_know_what_runs_elsewhere() -> None:
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY, workers=2)) as place:
            reply = await request(place, "DELETE", "/v1/streams/in-another-worker")
            assert reply.status == 503
            assert "--redis" in reply.error["message"]
            listed = (await request(place, "GET", "/v1/streams")).json()
            assert listed["complete"] is False


async def test_all_streams_end_together_and_each_caller_is_told() -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY)
        async with served(app) as place:
            callers = [await Caller(place).__aenter__() for _ in range(20)]
            for each in callers:
                await each.ask()
            replies = [await each.head() for each in callers]
            for caller, reply in zip(callers, replies, strict=True):
                await caller.until_event(reply)
            stopped_ns = time.monotonic_ns()
            app.abort_all("maintenance")
            for connection in provider.connections:
                assert await connection.until_closed() - stopped_ns < LIMIT_NS
            for caller, reply in zip(callers, replies, strict=True):
                await caller.until_event(reply, 3)
                error = reply.events[1]["error"]
                assert (error["type"], error["reason"]) == ("StreamAbortedError", "maintenance")
                await caller.hang_up()


async def test_a_server_that_is_closing_takes_no_new_stream() -> None:
    with ScriptedProvider(complete()) as provider:
        app = app_for(provider, KEY)
        async with served(app) as place:
            assert (await request(place, "GET", "/readyz")).status == 200
            await app.aclose()
            assert (await request(place, "GET", "/readyz")).status == 503
            assert (await request(place, "GET", "/healthz")).status == 200
            refused = await request(place, "POST", "/v1/stream", ASKED)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert provider.requests == []


async def test_a_key_has_its_own_limit() -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY, "other", max_streams_per_key=1)
        async with served(app) as place, Caller(place) as caller, Caller(place) as second:
            await caller.ask()
            await waiting_for(provider, caller, "mid-item")
            refused = await request(place, "POST", "/v1/stream", ASKED)
            assert (refused.status, refused.headers["retry-after"]) == (429, "1")
            await second.ask(key="other")
            assert (await second.head()).status == 200


async def test_another_table_serves_new_calls_and_leaves_running_streams_alone() -> None:
    from mmsp.integration.server.config import read_table

    with ScriptedProvider(MID_ITEM, complete()) as provider:
        app = app_for(provider, KEY)
        async with served(app) as place, Caller(place) as caller:
            await caller.ask()
            await waiting_for(provider, caller, "mid-item")
            with pytest.raises(ValueError, match=r"models\[0\]"):
                app.replace_table(read_table([row(provider, client_type="none")], ["new"]))
            app.replace_table(read_table([row(provider, server_model_id="slow")], ["new"]))
            assert len(app.streams) == 1
            assert (await request(place, "GET", "/v1/models")).status == 401
            listed = (await request(place, "GET", "/v1/models", key="new")).json()
            assert [each["id"] for each in listed["data"]] == ["slow"]
            body = ASKED | {"model": "slow"}
            assert (await request(place, "POST", "/v1/stream", body, key="new")).status == 200


# ---- web pages, metrics, the log


async def test_pages_of_an_allowed_origin_may_ask() -> None:
    origin = {"Origin": "https://app.example"}
    with ScriptedProvider(complete()) as provider:
        app = app_for(provider, KEY, allow_origins=("https://app.example",))
        async with served(app) as place:
            wanted = {
                **origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type,mmsp-stream-id",
            }
            asked = await request(place, "OPTIONS", "/v1/stream", key=None, headers=wanted)
            assert asked.status == 200
            assert asked.headers["access-control-allow-origin"] == "https://app.example"
            reply = await request(place, "POST", "/v1/stream", ASKED, headers=origin)
            assert "mmsp-stream-id" in reply.headers["access-control-expose-headers"]
            stranger = {"Origin": "https://evil.example"}
            reply = await request(place, "GET", "/v1/models", headers=stranger)
            assert "access-control-allow-origin" not in reply.headers


async def test_what_happened_is_counted_once_for_people_and_for_prometheus() -> None:
    failing = Answer(say([chat.text("A"), chat.error("broken")]))
    with ScriptedProvider(complete(), failing) as provider:
        async with served(app_for(provider, KEY)) as place:
            for _ in range(2):
                await request(place, "POST", "/v1/stream", ASKED)
            await request(place, "GET", "/v1/models", key="wrong")
            counts = (await request(place, "GET", "/v1/metrics")).json()
            text = (await request(place, "GET", "/metrics", key=None)).body.decode()
            assert (await request(place, "GET", "/v1/metrics?window=10")).status == 400
    assert (counts["requests"], counts["successes"], counts["failures"]) == (2, 1, 1)
    assert (counts["success_rate"], counts["refused"]["unauthorized"]) == (0.5, 1)
    assert counts["tokens"] == {"prompt": 10, "cached": 0, "thoughts": 0, "response": 3}
    assert counts["latency_ms"]["total"]["p50"] >= counts["latency_ms"]["first_event"]["p50"]
    (model,) = counts["models"]
    assert (model["id"], model["last_outcome"]) == (MODEL, "failure")
    assert counts["errors"][0]["message"] == model["last_error"]["message"] == "broken"
    assert f'mmsp_requests_ended_total{{model="{MODEL}",outcome="success"}} 1.0' in text
    assert 'mmsp_refused_total{reason="unauthorized"} 1.0' in text
    assert f'mmsp_streams{{model="{MODEL}"}} 0.0' in text


async def test_the_log_has_a_line_per_request_and_no_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = Answer(*complete("answered words").steps, headers={"x-request-id": "req-7"})
    with ScriptedProvider(answer) as provider:
        async with served(app_for(provider, KEY)) as place:
            await request(place, "POST", "/v1/stream", ASKED, headers=CHOSEN)
    (line,) = [each.getMessage() for each in caplog.records if each.name == "mmsp.server"]
    assert line.startswith(f"stream {ID} model={MODEL} outcome=success first_event_ms=")
    assert "request_id=req-7" in line
    for secret in (KEY, "a-key", "answered", "Hello?"):
        assert secret not in caplog.text


# ---- a scripted ASGI server


class Scripted:
    """An ASGI server by hand: what `receive` tells and what becomes of what is sent."""

    def __init__(self, version: str = "2.4", send: str = "silent") -> None:
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self.blocked = asyncio.Event()
        self._mode = send
        self._version = version
        self._asked = False

    @property
    def scope(self) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": self._version},
            "http_version": "1.1",
            "method": "POST",
            "path": "/v1/stream",
            "raw_path": b"/v1/stream",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [
                (b"content-type", b"application/json"),
                (b"authorization", f"Bearer {KEY}".encode()),
            ],
        }

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            import json

            return {"type": "http.request", "body": json.dumps(ASKED).encode(), "more_body": False}
        if self._mode == "repeats" and not self.gone.is_set():
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if self._mode == "raises" and len(self.sent) > 2:
            raise OSError("the caller is gone")
        if self._mode == "blocks" and len(self.sent) > 1:
            self.blocked.set()
            await asyncio.Event().wait()


@pytest.mark.parametrize("version", ["2.1", "2.3", "2.4", "2.5"])
@pytest.mark.parametrize("mode", ["silent", "repeats", "blocks"])
async def test_a_disconnect_is_heard_whatever_the_asgi_server_does_when_sending(
    mode: str, version: str
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY)
        server = Scripted(version, mode)
        running = asyncio.ensure_future(app(server.scope, server.receive, server.send))
        await provider.until("stalled")
        while len(server.sent) < 2:
            await asyncio.sleep(0.001)
        left_ns = time.monotonic_ns()
        server.gone.set()
        assert await closed_after(provider, left_ns) < LIMIT_NS
        await asyncio.wait_for(running, 5)
        assert len(app.streams) == 0


async def test_a_send_that_raises_ends_the_providers_work() -> None:
    words = [step for word in "abcdefgh" for step in (say(chat.text(word)), pause(0.01))]
    with ScriptedProvider(Answer(*words, stall())) as provider:
        app = app_for(provider, KEY)
        server = Scripted(send="raises")
        await asyncio.wait_for(app(server.scope, server.receive, server.send), 5)
        await provider.connections[0].until_closed()


async def test_a_request_that_the_asgi_server_cancels_leaves_nothing() -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY)
        server = Scripted()
        running = asyncio.ensure_future(app(server.scope, server.receive, server.send))
        await provider.until("stalled")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await provider.connections[0].until_closed()
        assert len(app.streams) == 0


async def test_what_is_ready_together_leaves_in_one_write() -> None:
    with ScriptedProvider(Answer(say(chat.answer("a b c d e f g h")))) as provider:
        app = app_for(provider, KEY)
        server = Scripted()
        await app(server.scope, server.receive, server.send)
        bodies = [each for each in server.sent if each["type"] == "http.response.body"]
        assert len(bodies) <= 3
        assert b"".join(each["body"] for each in bodies).count(b"data: ") == 11
        assert [each["more_body"] for each in bodies][-1] is False


# ---- a fault of the server itself


async def test_a_fault_of_the_server_is_told_without_its_inside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from mmsp import Stream

    async def fails(self: Stream) -> Any:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(Stream, "next_ready", fails)
    with ScriptedProvider(complete()) as provider:
        async with served(app_for(provider, KEY)) as place:
            reply = await request(place, "POST", "/v1/stream", ASKED)
    assert reply.status == 500
    assert "inside" not in reply.body.decode()
    assert "ZeroDivisionError: inside" in caplog.text


def test_the_table_of_routes_is_the_one_of_the_docs() -> None:
    """Every route has been asked by a test of this module."""
    from mmsp.integration.server.routes import ROUTES as TABLE

    assert [each.path for each in TABLE] == [
        "/v1/stream",
        "/v1/models",
        "/v1/metrics",
        "/v1/streams",
        "/v1/streams/{id}",
        "/metrics",
        "/healthz",
        "/readyz",
    ]


__all__ = ["AutoLLMClient", "Place"]
