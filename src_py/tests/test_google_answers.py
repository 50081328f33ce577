"""What an answer of Google's becomes, on both of its wires."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from mmsp import AbortError, AutoLLMClient, errors
from mmsp.google_genai.client import GoogleGenAIClient
from mmsp.google_official.client import GoogleOfficialClient
from mmsp.request import Target
from mmsp.testing import Answer, ScriptedProvider, say, stall
from mmsp.testing import generate_content as content
from mmsp.testing import interactions as steps
from mmsp.testing.sse import event
from tests.asking import QUESTION, shown
from tests.reading import Told, told

HOST = "generativelanguage.googleapis.com"
TARGET = Target(f"https://{HOST}")
CONTENT = {"wire": "google_generate_content", "host": HOST}
STEPS = {"wire": "google_interactions", "host": HOST}
END = content.finish() + content.usage()
DATA = base64.b64encode(b"\x89PNG").decode()
PNG = {"type": "inline_data.done", "data": b"\x89PNG", "mime_type": "image/png"}


def answer(*events: bytes, client: Any = GoogleGenAIClient, strict: bool = False) -> Told:
    return told(client, TARGET, events, strict=strict)


def interaction(*events: bytes, strict: bool = False) -> Told:
    return answer(*events, client=GoogleOfficialClient, strict=strict)


def done(seen: Told) -> list[Any]:
    assert seen.error is None, seen.error
    return [item for item in seen.items if item["type"].endswith(".done")]


def text(words: str, origin: Any = CONTENT, **fidelity: Any) -> dict[str, Any]:
    item = {"type": "text.done", "text": words}
    return item | ({"fidelity": {**fidelity, **origin}} if fidelity else {})


def thinking(words: str, origin: Any = CONTENT, **fidelity: Any) -> dict[str, Any]:
    item = {"type": "thinking.done", "thinking": words}
    return item | ({"fidelity": {**fidelity, **origin}} if fidelity else {})


def call(name: str, call_id: str, origin: Any = CONTENT, **fidelity: Any) -> dict[str, Any]:
    item = {"type": "tool_call.done", "name": name, "arguments": {"q": 1}, "tool_call_id": call_id}
    return item | ({"fidelity": {**fidelity, **origin}} if fidelity else {})


# generateContent


def test_thinking_text_and_calls() -> None:
    seen = answer(
        content.chunk({"text": "pl", "thought": True}),
        content.chunk({"text": "an", "thought": True}, {"text": "Let me "}),
        content.text("look."),
        content.chunk(
            {"functionCall": {"id": "x", "name": "w", "args": {"q": 1}}, "thoughtSignature": "S"},
            {"functionCall": {"name": "w", "args": {"q": 1}}},
            {"functionCall": {"name": "w", "args": {"q": 1}}},
        ),
        content.finish(),
        event({"usageMetadata": {"promptTokenCount": 9, "cachedContentTokenCount": 1,
                                 "thoughtsTokenCount": 3, "candidatesTokenCount": 4}}),
    )  # fmt: skip
    assert done(seen) == [
        thinking("plan"),
        text("Let me look."),
        call("w", "x", signature="S"),
        call("w", "w"),
        call("w", "w_2"),
    ]
    assert seen.stop == {
        "finish_reason": "tool_call",
        "usage_metadata": {
            "cached_tokens": 1,
            "prompt_tokens": 8,
            "thoughts_tokens": 3,
            "response_tokens": 4,
        },
    }


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("MODEL_ARMOR", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "unknown"),
        ("OTHER", "unknown"),
    ],
)
def test_why_it_ended(word: str, reason: str) -> None:
    assert answer(content.text("a"), content.finish(word)).stop["finish_reason"] == reason


def test_a_reason_on_every_chunk_and_on_empty_ones_ends_nothing() -> None:
    stop = {"finishReason": "STOP"}
    seen = answer(
        content.chunk(**stop),
        content.chunk({"text": ""}, **stop),
        *(content.chunk({"text": each}, **stop) for each in "abc"),
        content.usage(),
    )
    assert done(seen) == [text("abc")]
    assert [item["type"] for item in seen.items].count("text.delta") == 3


async def test_an_abort_among_chunks_that_all_say_stop_loses_none() -> None:
    chunks = [content.chunk({"text": each}, finishReason="STOP") for each in "abcde"]
    with ScriptedProvider(Answer(say(chunks), stall())) as provider:
        client = AutoLLMClient("m", "a-key", provider.base_url, "google-genai")
        stream = client.streaming_response([QUESTION])
        seen = [await anext(stream)]
        stream.abort()
        with pytest.raises(AbortError):
            async for each in stream:
                seen.append(each)
        assert shown(seen) == [f"text.delta {each}" for each in "abcde"]


def test_signatures_end_what_they_stand_on() -> None:
    seen = answer(
        content.text("a"),
        content.text("", thoughtSignature="S1"),
        content.text("b", thoughtSignature="S2"),
        content.text("c"),
        content.chunk({"thoughtSignature": "S3"}),
        END,
    )
    assert done(seen) == [
        text("a", signature="S1"),
        text("b", signature="S2"),
        text("c", signature="S3"),
    ]


def test_pictures_are_items_and_sound_comes_in_pieces() -> None:
    sound = {"inlineData": {"mimeType": "audio/L16;rate=24000", "data": "AAE="}}
    drawn = {"inlineData": {"mimeType": "image/png", "data": DATA}}
    seen = answer(content.chunk(drawn, drawn), content.chunk(sound), content.chunk(sound), END)
    assert done(seen) == [
        PNG,
        PNG,
        {"type": "inline_data.done", "data": b"\0\1\0\1", "mime_type": "audio/L16;rate=24000"},
    ]
    seen = answer(content.chunk({**drawn, "thought": True}), content.text("a"), END)
    assert done(seen)[0] == {**PNG, "type": "inline_thinking.done"}
    unnamed = content.chunk({"inlineData": {"data": "AA=="}})
    assert done(answer(unnamed, END))[0]["mime_type"] == "application/octet-stream"


@pytest.mark.parametrize("data", ["\u00e9", "A"])
def test_data_that_is_no_base64_breaks_the_protocol(data: str) -> None:
    drawn = {"inlineData": {"mimeType": "image/png", "data": data}}
    for seen in (answer(content.chunk(drawn)), interaction(steps.delta(0, "image", data=data))):
        assert isinstance(seen.error, errors.StreamProtocolError)
        assert "no base64" in str(seen.error)


def test_what_was_run_rides_with_the_item_that_follows() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1+1"}, "thoughtSignature": "S0"}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
    seen = answer(
        content.text("Counting"), content.chunk(code), content.chunk(result), content.text("Two."),
        content.text("", thoughtSignature="S"), END,
    )  # fmt: skip
    assert done(seen) == [
        text("Counting"),
        text("Two.", beside=[code, result]),
        text("", signature="S"),
    ]


@pytest.mark.parametrize("reason", ["SAFETY", "JAILBREAK"])
def test_a_blocked_prompt_names_its_reason(reason: str) -> None:
    for blocked in (
        event({"promptFeedback": {"blockReason": reason}}),
        json.dumps({"promptFeedback": {"blockReason": reason}}).encode(),
    ):
        seen = answer(blocked)
        assert isinstance(seen.error, errors.EmptyResponseError)
        assert seen.error.finish_reason == "content_filter"
        assert reason in str(seen.error)


def test_usage_without_counts_is_none() -> None:
    traffic = event({"usageMetadata": {"trafficType": "ON_DEMAND"}})
    seen = answer(traffic, content.text("a"), content.finish(), content.usage(5, 10))
    assert seen.stop["usage_metadata"]["prompt_tokens"] == 10
    assert set(
        answer(traffic, content.text("a"), content.finish()).stop["usage_metadata"].values()
    ) == {None}


@pytest.mark.parametrize("as_list", [False, True])
def test_a_failure_is_the_providers(as_list: bool) -> None:
    error: Any = {"error": {"code": 503, "message": "Busy", "status": "UNAVAILABLE"}}
    body = [error] if as_list else error
    for events in ([content.text("a"), event(body)], [json.dumps(body).encode()]):
        seen = answer(*events)
        assert isinstance(seen.error, errors.ProviderStreamError)
        assert (seen.error.code, seen.error.error_type) == (503, "UNAVAILABLE")
        assert seen.error.retryable


def test_an_answer_that_is_no_stream_of_events_is_taken_whole() -> None:
    chunks = [
        {"candidates": [{"content": {"parts": [{"text": "a"}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "b"}]}, "finishReason": "STOP"}]},
    ]
    assert done(answer(json.dumps(chunks).encode())) == [text("ab")]
    assert done(answer(json.dumps(chunks[1]).encode())) == [text("b")]


def test_embeddings_are_items() -> None:
    for client in (GoogleGenAIClient, GoogleOfficialClient):
        seen = answer(b'{"embeddings":[{"values":[0.5,1]},{"values":[]}]}', client=client)
        assert [item["embedding"] for item in done(seen)] == [[0.5, 1.0], []]
        assert seen.stop["finish_reason"] == "stop"
        odd = answer(b'{"embeddings":[{"values":"x"}]}', client=client)
        assert isinstance(odd.error, errors.StreamProtocolError)


@pytest.mark.parametrize("part", [{"fileData": {"fileUri": "u"}}, {"novelty": 1}])
def test_a_part_nobody_knows_is_skipped_unless_read_strictly(part: Any) -> None:
    assert done(answer(content.chunk(part), content.text("a"), END)) == [text("a")]
    assert isinstance(answer(content.chunk(part), strict=True).error, errors.UnknownEventError)


def test_only_the_first_candidate_counts() -> None:
    two = [
        {"index": 1, "content": {"parts": [{"text": "b"}]}},
        {"content": {"parts": [{"text": "a"}]}},
    ]
    assert done(answer(event({"candidates": two}), END)) == [text("a")]


# Interactions


def test_steps_become_items() -> None:
    seen = interaction(
        event({"event_type": "interaction.created", "interaction": {"status": "in_progress"}}),
        steps.step_start(0, "thought"),
        steps.thinking("hm"),
        steps.signature("S"),
        steps.step_stop(0),
        steps.step_start(1, "model_output"),
        steps.text("Let me ", 1),
        steps.text("look.", 1),
        steps.step_stop(1),
        steps.tool_call(2, "fc1", "add", '{"q":'),
        steps.arguments(2, "1}"),
        steps.step_stop(2),
        steps.usage(4, 9, "requires_action"),
        steps.done(),
    )
    assert done(seen) == [
        thinking("hm", STEPS, signature="S"),
        text("Let me look."),
        call("add", "fc1"),
    ]
    assert seen.stop["finish_reason"] == "tool_call"
    assert seen.stop["usage_metadata"]["prompt_tokens"] == 9


@pytest.mark.parametrize(
    ("status", "reason"),
    [("completed", "stop"), ("incomplete", "length"), ("failed", "unknown"), ("novel", "unknown")],
)
def test_how_it_ended(status: str, reason: str) -> None:
    assert interaction(steps.text("a"), steps.usage(status=status)).stop["finish_reason"] == reason


def test_a_step_may_say_several_things() -> None:
    seen = interaction(
        steps.step_start(0, "thought"),
        steps.thinking("one"),
        steps.delta(0, "thought_summary", content={"type": "image", "data": DATA}),
        steps.thinking("two"),
        steps.signature("S"),
        steps.step_stop(0),
        steps.text("a", 1),
        steps.delta(1, "image", data=DATA, mime_type="image/png"),
        steps.text("b", 1),
        steps.signature("T", 1),
        steps.step_stop(1),
        steps.usage(),
    )
    assert done(seen) == [
        thinking("one"),
        {**PNG, "type": "inline_thinking.done", "mime_type": "image/jpeg"},
        thinking("two", STEPS, signature="S"),
        text("a"),
        PNG,
        text("b", STEPS, signature="T"),
    ]


def test_a_signature_alone_is_a_thought() -> None:
    seen = interaction(
        steps.step_start(0, "thought"), steps.signature("S"), steps.step_stop(0), steps.text("a", 1),
        steps.usage(),
    )  # fmt: skip
    assert done(seen)[0] == thinking("", STEPS, signature="S")


def test_sound_says_its_rate() -> None:
    piece = steps.delta(
        0, "audio", data="AAE=", mime_type="audio/l16", sample_rate=24000, channels=1
    )
    assert done(interaction(piece, piece, steps.usage())) == [
        {
            "type": "inline_data.done",
            "data": b"\0\1\0\1",
            "mime_type": "audio/l16; rate=24000; channels=1",
        }
    ]


def test_a_call_whole_in_its_start() -> None:
    begun = steps.step_start(0, "function_call", id="c", name="f", arguments={"q": 1})
    assert done(interaction(begun, steps.step_stop(0), steps.usage())) == [call("f", "c")]


def test_steps_of_built_in_tools_ride_with_the_item_that_follows() -> None:
    search = {"type": "google_search_call", "id": "s", "arguments": {"q": "x"}}
    begun = event({"event_type": "step.start", "index": 0, "step": search})
    seen = interaction(begun, steps.step_stop(0), steps.text("a", 1), steps.usage())
    assert done(seen) == [text("a", STEPS, beside=[search])]


def test_errors_and_heartbeats() -> None:
    seen = interaction(steps.text("a"), steps.error("Busy", 503))
    assert isinstance(seen.error, errors.ProviderStreamError)
    assert seen.error.code == 503
    heartbeat = event({"event_type": "error"}, "error")
    assert done(interaction(heartbeat, steps.text("a"), steps.usage())) == [text("a")]


def test_an_interaction_that_is_no_stream_is_taken_whole() -> None:
    whole = steps.completion("a")
    whole["steps"].insert(0, {"type": "thought", "signature": "S", "summary": [{"text": "hm"}]})
    seen = interaction(json.dumps(whole).encode())
    assert done(seen) == [thinking("hm", STEPS, signature="S"), text("a")]


@pytest.mark.parametrize(
    "odd", [steps.delta(0, "novel", novelty=1), event({"event_type": "novel.event"})]
)
def test_what_nobody_knows_is_skipped_or_an_error(odd: bytes) -> None:
    assert done(interaction(odd, steps.text("a", 1), steps.usage())) == [text("a")]
    assert isinstance(interaction(odd, strict=True).error, errors.UnknownEventError)


@pytest.mark.parametrize("client", [GoogleGenAIClient, GoogleOfficialClient])
@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b'{"steps"', b'"x"'])
def test_what_is_no_answer_has_its_error(client: Any, body: bytes) -> None:
    seen = answer(body, client=client)
    assert isinstance(seen.error, errors.StreamProtocolError | errors.IncompleteStreamError)
