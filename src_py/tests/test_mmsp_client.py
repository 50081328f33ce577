"""The client of a server of ours, on a real socket: what it sends, and what comes back of a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mmsp import (
    AutoLLMClient,
    IncompleteStreamError,
    InvalidMessageError,
    MMSPError,
    ProviderStreamError,
    StreamAbortedError,
    UpstreamError,
    dumps,
)
from mmsp.call import Call
from mmsp.codecs.error_wire import error_to_wire
from mmsp.errors import UpstreamConnectionError
from mmsp.http_call import HttpCall
from mmsp.testing import Answer, ScriptedProvider, cut, mmsp_wire, say, stall
from mmsp.types import UniConfig, UniMessage
from tests.asking import QUESTION, client_of, events_of, shown
from tests.test_error_wire import CLASSES, filled

WHOLE = Answer(*map(say, mmsp_wire.answer("All is well")))
CONVERSATION: list[UniMessage] = [
    {
        "role": "user",
        "content_items": [
            {"type": "text.done", "text": "Né 😀?"},
            {"type": "image_url.done", "image_url": "https://a.test/b.png"},
            {"type": "inline_data.done", "data": b"\0\xff\xfe", "mime_type": "image/png"},
        ],
        "created_at": 1,
    },
    {
        "role": "assistant",
        "content_items": [
            {"type": "thinking.done", "thinking": "hm", "fidelity": {"data": "kept", "wire": "w"}},
            {"type": "inline_thinking.done", "data": b"\1", "mime_type": "image/png"},
            {"type": "tool_call.done", "name": "f", "arguments": {"data": "x"}, "tool_call_id": "1"},
        ],
        "created_at": 2,
    },
    {
        "role": "user",
        "content_items": [
            {"type": "tool_result.done", "text": "7", "tool_call_id": "1", "images": ["https://c.test"]}
        ],
        "created_at": 3,
    },
]  # fmt: skip
CONFIG: UniConfig = {
    "max_tokens": 5,
    "extra_body": {"model": "mine", "a": {"b": None}},
    "trace_id": "a/b",
    "tools": [{"name": "f"}],
    "tool_choice": ["f"],
    "prompt_caching": "enhance",
    "fast_mode": True,
    "embedding_config": {"dimensions": 3},
}


def refusal(said: Any, status: int, **headers: str) -> Answer:
    return Answer.json({"error": said}, status=status, headers=headers)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits before retries, none of which is waited for."""
    waits: list[float] = []

    async def note(call: Call, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(HttpCall, "_sleep", note)
    return waits


async def failure_of(client: AutoLLMClient) -> list[MMSPError]:
    """What a stream and a list of models fail with."""
    failures: list[MMSPError] = []
    for call in (client.streaming_response([QUESTION]).message(), client.list_models()):
        with pytest.raises(MMSPError) as caught:
            await call
        failures.append(caught.value)
    return failures


# ---- what is sent


async def test_messages_and_config_travel_as_they_are(tls: bool) -> None:
    with ScriptedProvider(WHOLE, tls=tls) as provider:
        client = client_of(provider, "mmsp")
        await client.streaming_response(CONVERSATION, CONFIG).message()
        (request,) = provider.requests  # no picture was fetched
    assert (request.method, request.target) == ("POST", "/v1/stream")
    assert request.header("accept") == "text/event-stream"
    assert request.header("content-type") == "application/json"
    assert request.header("authorization") == "Bearer a-key"
    assert request.json() == {
        "model": "some-model", "messages": json.loads(dumps(CONVERSATION)), "config": CONFIG,
    }  # fmt: skip
    assert "Né 😀?".encode() in request.body


async def test_without_a_key_none_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMSP_API_KEY", "of-another-server")
    with ScriptedProvider(WHOLE) as provider:
        client = AutoLLMClient("m", base_url=provider.base_url, client_type="mmsp")
        await client.streaming_response([QUESTION]).message()
        assert provider.requests[0].header("authorization") is None


async def test_an_environment_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedProvider(WHOLE) as provider:
        monkeypatch.setenv("MMSP_BASE_URL", provider.base_url)
        monkeypatch.setenv("MMSP_API_KEY", "its-key")
        client = AutoLLMClient("m", client_type="mmsp")
        await client.streaming_response([QUESTION]).message()
        assert provider.requests[0].header("authorization") == "Bearer its-key"


async def test_the_trace_is_left_to_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMSP_CACHE_DIR", str(tmp_path))
    with ScriptedProvider(WHOLE) as provider:
        stream = client_of(provider, "mmsp").streaming_response([QUESTION], {"trace_id": "a"})
        assert await stream.message()
        assert provider.requests[0].json()["config"] == {"trace_id": "a"}
    assert list(tmp_path.iterdir()) == []


async def test_a_fidelity_goes_back_to_the_server_as_it_came() -> None:
    seal = {"signature": "c2Vh", "wire": "anthropic_messages", "host": "api.anthropic.com"}
    turn = [
        mmsp_wire.thinking("hm"),
        mmsp_wire.thinking("", seal),
        mmsp_wire.delta("thinking.done", seal, thinking="hm"),
        *mmsp_wire.answer("yes"),
    ]
    with ScriptedProvider(Answer(*map(say, turn))) as provider:
        client = client_of(provider, "mmsp")
        await client.streaming_response_stateful(QUESTION).message()
        await client.streaming_response_stateful(QUESTION).message()
        body = provider.requests[1].body.decode()
        assert body.count(json.dumps(seal, separators=(",", ":"))) == 1


async def test_the_id_of_the_stream_is_known_from_the_head() -> None:
    headers = {"mmsp-stream-id": "s-1", "x-request-id": "of-a-proxy"}
    with ScriptedProvider(Answer(say(mmsp_wire.text("a")), stall(), headers=headers)) as provider:
        async with client_of(provider, "mmsp").streaming_response([QUESTION]) as stream:
            await anext(stream)
            assert stream.request_id == "s-1"


async def test_the_models_are_those_that_the_server_serves() -> None:
    rows = [
        {"id": name, "object": "model", "created": 1, "owned_by": "mmsp"} for name in ("b", "a")
    ]
    with ScriptedProvider(Answer.json({"object": "list", "data": rows})) as provider:
        assert await client_of(provider, "mmsp").list_models() == ["b", "a"]
        assert provider.requests[0].target == "/v1/models"


# ---- refusals


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 502])
async def test_a_refusal_is_the_class_it_was(kind: type[MMSPError], status: int, tls: bool) -> None:
    error = filled(kind)
    with ScriptedProvider(refusal(error_to_wire(error), status), tls=tls) as provider:
        for found in await failure_of(client_of(provider, "mmsp", max_retries=0)):
            assert type(found) is kind
            assert str(found) == str(error)
            assert vars(found) == vars(error)


async def test_a_refusal_of_several_layers_is_the_class_it_was() -> None:
    """A server of ours that asks a server of ours, whose provider sent a page of 60 KiB."""
    error = UpstreamError("HTTP 500: x", client="C", status=500, error={"page": "x" * 60_000})
    outer = error_to_wire(error)
    with ScriptedProvider(refusal(outer, 500)) as provider:
        found = (await failure_of(client_of(provider, "mmsp", max_retries=0)))[0]
        assert error_to_wire(found) == outer


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (401, "AuthenticationError"),
        (400, "InvalidRequestError"),
        (413, "InvalidRequestError"),
        (404, "NotFoundError"),
        (500, "KeyError"),
    ],
)
async def test_a_refusal_of_the_server_itself_is_an_upstream_error(status: int, name: str) -> None:
    said = {"type": name, "message": "no"}
    with ScriptedProvider(refusal(said, status, **{"x-request-id": "r"})) as provider:
        for found in await failure_of(client_of(provider, "mmsp", max_retries=0)):
            assert type(found) is UpstreamError
            assert str(found) == f"HTTP {status}: no"
            assert (found.status, found.error_type, found.error) == (status, name, said)
            assert (found.client, found.request_id) == ("MMSPClient", "r")
            assert found.retryable == (status == 500)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<html>Bad gateway</html>", "HTTP 502: <html>Bad gateway</html>"),
        ('{"error":"down"}', "HTTP 502: down"),
        ('{"error":{"type":7}}', "HTTP 502"),
        ('{"error":{"type":"MMSPError","message":"m"}}', "HTTP 502: m"),
        ('{"error":[]}', "HTTP 502"),
        ('{"error":{"type":"UpstreamError"', 'HTTP 502: {"error"'),
        ("", "HTTP 502: the provider gave no reason"),
    ],
)
async def test_a_refusal_of_somebody_in_between_is_an_upstream_error(body: str, said: str) -> None:
    with ScriptedProvider(Answer(say(body), status=502, content_type=None)) as provider:
        for found in await failure_of(client_of(provider, "mmsp", max_retries=0)):
            assert type(found) is UpstreamError
            assert found.status == 502
            assert str(found).startswith(said)


async def test_a_caller_is_told_what_is_wrong_as_if_it_had_asked_the_provider_itself() -> None:
    error = InvalidMessageError(
        "messages[0] leaves nothing", client="OpenAIChatClient", message_index=0
    )
    with ScriptedProvider(refusal(error_to_wire(error), 400)) as provider:
        with pytest.raises(InvalidMessageError) as caught:
            await client_of(provider, "mmsp").streaming_response([QUESTION]).message()
        assert (caught.value.client, caught.value.message_index) == ("OpenAIChatClient", 0)
        assert len(provider.requests) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_whatever_class_a_refusal_is_its_status_says_whether_it_is_tried_again(
    status: int, waits: list[float]
) -> None:
    said = error_to_wire(UpstreamConnectionError("no", client="C", phase="tls", retryable=False))
    refused = refusal(said, status, **{"retry-after": "7"})
    with ScriptedProvider(refused, refused, WHOLE) as provider:
        message = await client_of(provider, "mmsp").streaming_response([QUESTION]).message()
        assert message["content_items"] == [{"type": "text.done", "text": "All is well"}]
        assert waits == [7, 7]
        assert len(provider.requests) == 3


async def test_after_the_last_attempt_the_refusal_is_the_class_it_was(waits: list[float]) -> None:
    error = ProviderStreamError("busy", client="C", code="busy", retryable=True)
    with ScriptedProvider(refusal(error_to_wire(error), 502)) as provider:
        with pytest.raises(ProviderStreamError, match=r"^busy$"):
            await client_of(provider, "mmsp").streaming_response([QUESTION]).message()
        assert len(provider.requests) == 3
        assert len(waits) == 2


@pytest.mark.parametrize(
    "headers", [{"x-should-retry": "false"}, {"retry-after": "99"}, {"retry-after-ms": "99000"}]
)
async def test_a_refusal_that_is_not_to_be_tried_again_is_not(
    headers: dict[str, str], waits: list[float]
) -> None:
    said = error_to_wire(UpstreamError("slow down", client="C", status=429, retryable=True))
    with ScriptedProvider(refusal(said, 429, **headers)) as provider:
        with pytest.raises(UpstreamError, match=r"^slow down$"):
            await client_of(provider, "mmsp").streaming_response([QUESTION]).message()
        assert (len(provider.requests), waits) == (1, [])


async def test_an_error_inside_a_stream_is_not_tried_again(waits: list[float]) -> None:
    error = error_to_wire(UpstreamConnectionError("no", client="C", phase="tls"))
    with ScriptedProvider(Answer(say(f"data: {json.dumps({'error': error})}\n\n"))) as provider:
        with pytest.raises(UpstreamConnectionError):
            await client_of(provider, "mmsp").streaming_response([QUESTION]).message()
        assert (len(provider.requests), waits) == (1, [])


async def test_a_key_that_the_server_echoes_is_masked() -> None:
    said = error_to_wire(UpstreamError("bad key a-key", client="C", error={"a-key": "a-key"}))
    stream = Answer(say(f"data: {json.dumps({'error': said})}\n\n"))
    for answer in (refusal(said, 401), refusal({**said, "type": "X"}, 401), stream):
        with ScriptedProvider(answer) as provider:
            with pytest.raises(UpstreamError) as caught:
                await client_of(provider, "mmsp").streaming_response([QUESTION]).message()
            assert "a-key" not in f"{caught.value} {vars(caught.value)}"
            assert "bad key ***" in str(caught.value)


# ---- ends


async def test_a_stream_that_an_operator_ends_records_nothing() -> None:
    ended = mmsp_wire.error("ended", "StreamAbortedError", client="C", reason="an operator")
    body = [
        mmsp_wire.text("All "),
        mmsp_wire.delta("text.done", text="All "),
        ended,
        mmsp_wire.done(),
    ]
    with ScriptedProvider(Answer(*map(say, body)), WHOLE) as provider:
        client = client_of(provider, "mmsp")
        stream = client.streaming_response_stateful(QUESTION)
        assert shown([await anext(stream)]) == ["text.delta All "]
        with pytest.raises(StreamAbortedError) as caught:
            await anext(stream)
        assert caught.value.reason == "an operator"
        assert await events_of(stream) == []
        assert stream.outcome == "failed"
        assert not stream.aborted
        assert client.get_history() == []
        await client.streaming_response_stateful(QUESTION).message()


@pytest.mark.parametrize(
    "end", [[], [say(mmsp_wire.done())], [cut()], [say(mmsp_wire.done()), stall()]]
)
async def test_a_stream_that_ends_without_its_stop_was_cut(end: list[Any]) -> None:
    with ScriptedProvider(Answer(say(mmsp_wire.text("a")), *end)) as provider:
        stream = client_of(provider, "mmsp").streaming_response([QUESTION])
        await anext(stream)
        with pytest.raises(IncompleteStreamError):
            await anext(stream)


async def test_keep_alives_are_no_events() -> None:
    events = [mmsp_wire.keep_alive() + each for each in mmsp_wire.answer("All is well")]
    with ScriptedProvider(Answer(*map(say, events))) as provider:
        events_seen = await events_of(client_of(provider, "mmsp").streaming_response([QUESTION]))
    assert shown(events_seen)[-2:] == ["text.done All is well", "stop stop"]
