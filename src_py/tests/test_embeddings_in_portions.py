"""More inputs than a provider takes at once: several requests, one call.

For every client that embeds. The portions are small here, so that tests stay short.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mmsp import (
    AutoLLMClient,
    IncompleteStreamError,
    MMSPError,
    ProviderStreamError,
    StreamProtocolError,
    Timeouts,
    UpstreamConnectionError,
    UpstreamError,
    UpstreamTimeoutError,
)
from mmsp.codecs.encoding import portions
from mmsp.dialects.embedding import EmbeddingDialect
from mmsp.testing import Answer, ScriptedProvider, cut, embeddings, reset, say, stall
from mmsp.types import UniMessage
from tests.accounts import token, vertex_client
from tests.asking import events_of, shown
from tests.interruption_table import Way, question
from tests.stopping import LIMIT_NS, STOPS, stop

MODEL = "some-embedding"
TOGETHER = 2  # in a portion


def plain_client(client_type: str) -> Callable[..., AutoLLMClient]:
    def made(provider: ScriptedProvider, **settings: Any) -> AutoLLMClient:
        client = AutoLLMClient(MODEL, "a-key", provider.base_url, client_type, **settings)
        inner: Any = client._client
        name = "inputs" if client_type == "openai-embedding" else "embeddings"
        inner.codec = replace(inner.codec, dialect=replace(inner.codec.dialect, **{name: TOGETHER}))
        return client

    return made


@dataclass(frozen=True)
class Wire:
    """How a client is made, how its provider answers with vectors, which texts a request holds."""

    client: Callable[..., AutoLLMClient]
    answer: Callable[[list[float], int], dict[str, Any]]
    texts: Callable[[Any], list[str]]
    together: int = TOGETHER


def openai_answer(numbers: list[float], used: int) -> dict[str, Any]:
    whole = embeddings.completion(vectors=[(each,) for each in numbers])
    whole["data"].reverse()  # each says its own place
    return {**whole, "usage": {"prompt_tokens": used}}


def google_answer(numbers: list[float], used: int) -> dict[str, Any]:
    vectors = [{"values": [each]} for each in numbers]
    return {"embeddings": vectors, "usageMetadata": {"promptTokenCount": used}}


def vertex_answer(numbers: list[float], used: int) -> dict[str, Any]:
    (number,) = numbers
    return {"embedding": {"values": [number]}, "usageMetadata": {"promptTokenCount": used}}


def _google_texts(body: Any) -> list[str]:
    return [part["text"] for each in body["requests"] for part in each["content"]["parts"]]


WIRES = {
    "openai-embedding": Wire(
        plain_client("openai-embedding"), openai_answer, lambda body: list(body["input"])
    ),
    "google-genai": Wire(plain_client("google-genai"), google_answer, _google_texts),
    "google-official": Wire(plain_client("google-official"), google_answer, _google_texts),
    "Vertex AI": Wire(
        lambda provider, **settings: vertex_client(provider, TOKENS[0], MODEL, **settings),
        vertex_answer,
        lambda body: [part["text"] for part in body["content"]["parts"]],
        1,
    ),
}
EVERY_WIRE = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
TOKENS: list[ScriptedProvider] = []


@pytest.fixture(autouse=True)
def tokens() -> Iterator[None]:
    with ScriptedProvider(token()) as provider:
        TOKENS[:] = [provider]
        yield
        TOKENS.clear()


def questions(count: int) -> list[UniMessage]:
    return [question(f"text {number}") for number in range(count)]


def answers(wire: Wire, count: int) -> list[Answer]:
    """Those to so many questions: the n-th question's vector is [n]."""
    numbers = [float(number) for number in range(count)]
    parts = [numbers[at : at + wire.together] for at in range(0, count, wire.together)]
    return [Answer.json(wire.answer(part, 10 + at)) for at, part in enumerate(parts)]


# ---- the whole of it


@EVERY_WIRE
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
async def test_the_vectors_come_in_the_order_of_the_messages_and_the_usage_is_added_up(
    wire: Wire, count: int
) -> None:
    given = answers(wire, count)
    with ScriptedProvider(*given) as provider:
        stream = wire.client(provider).streaming_response(questions(count))
        events = await events_of(stream)
        asked = [wire.texts(each.json()) for each in provider.requests]
        assert len(provider.connections) == 1
    assert [text for part in asked for text in part] == [f"text {n}" for n in range(count)]
    assert all(len(part) <= wire.together for part in asked)
    lines = [f"embedding.{event} [{float(n)}]" for n in range(count) for event in ("delta", "done")]
    assert shown(events) == [*lines, "stop stop"]
    used = sum(10 + at for at in range(len(given)))
    expected = {
        "cached_tokens": None,
        "prompt_tokens": used,
        "thoughts_tokens": None,
        "response_tokens": None,
    }
    assert events[-1]["usage_metadata"] == stream.usage == expected


@EVERY_WIRE
async def test_a_part_goes_out_before_the_next_is_asked_for(wire: Wire) -> None:
    with ScriptedProvider(*answers(wire, 3)) as provider:
        stream = wire.client(provider).streaming_response(questions(3))
        assert shown([await anext(stream)]) == ["embedding.delta [0.0]"]
        await asyncio.sleep(0.05)
        assert len(provider.requests) == 1
        assert stream.usage is not None
        assert stream.usage["prompt_tokens"] == 10
        await stream.aclose()
        await asyncio.sleep(0.02)
        assert len(provider.requests) == 1


@EVERY_WIRE
async def test_a_stateful_call_records_all_parts_at_once(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMSP_CACHE_DIR", str(tmp_path))
    with ScriptedProvider(*answers(wire, 3)) as provider:
        client = wire.client(provider)
        client.set_history(questions(2))
        stream = client.streaming_response_stateful(question("text 2"), {"trace_id": "t"})
        async for event in stream:
            if shown([event])[0].startswith("embedding.delta"):
                assert len(client.get_history()) == 2
                assert not list(tmp_path.rglob("*.json"))
        *_, answer = client.get_history()
        assert len(client.get_history()) == 4
        items: list[Any] = list(answer["content_items"])
        assert [item["embedding"] for item in items] == [[0.0], [1.0], [2.0]]
        assert len(list(tmp_path.rglob("*.json"))) == 1


async def test_openais_limits_are_of_inputs_and_of_their_bytes() -> None:
    limits = EmbeddingDialect()
    body = {"model": "m", "input": ["a"] * (limits.inputs * 2 + 1)}
    sizes = [size for _, size in portions(body, "input", limits.inputs, limits.bytes)]
    assert sizes == [2048, 2048, 1]
    third = limits.bytes // 3
    for text in ("x" * third, "é" * (third // 2)):
        long = [text, text, text, "y", text * 4, "z"]
        made = portions({"input": long}, "input", limits.inputs, limits.bytes)
        assert [size for _, size in made] == [3, 1, 1, 1]
        assert [each for part, _ in made for each in part["input"]] == long


def test_google_takes_a_hundred_at_once() -> None:
    client: Any = AutoLLMClient(MODEL, "k", client_type="google-genai")._client
    made = client._try_to_encode(questions(201), {"extra_body": {"x": 1}})
    assert [each.owed for each in made] == [100, 100, 1]
    assert all(b'"x":1' in each.body for each in made)
    (one,) = client._try_to_encode(questions(100), {})
    assert one.owed == 100


def test_vertex_ai_is_asked_for_one_vector_at_a_time() -> None:
    client: Any = vertex_client(TOKENS[0], TOKENS[0], "gemini-embedding-2")._client
    config = {"embedding_config": {"dimensions": 8}}
    one, two = client._try_to_encode(questions(2), config)
    assert one.url.endswith("/publishers/google/models/gemini-embedding-2:embedContent")
    assert one.url == two.url
    assert one.body == (
        b'{"content":{"role":"user","parts":[{"text":"text 0"}]},'
        b'"embedContentConfig":{"outputDimensionality":8}}'
    )


# ---- a later part fails

FAILURES: dict[str, tuple[Callable[[Any], Answer], type[MMSPError]]] = {
    "a refusal": (lambda whole: Answer.error(400, "no"), UpstreamError),
    "an error": (lambda whole: Answer.json({"error": {"message": "no"}}), ProviderStreamError),
    "a page": (lambda whole: Answer(say("<html>")), StreamProtocolError),
    "nothing": (lambda whole: Answer(), IncompleteStreamError),
    "too few": (lambda whole: Answer.json({"embeddings": [], "data": []}), StreamProtocolError),
    "a cut body": (lambda whole: Answer(say(whole[:9]), cut()), IncompleteStreamError),
    "a reset": (lambda whole: Answer(say(whole[:9]), reset()), IncompleteStreamError),
    "no answer": (lambda whole: Answer(reset()), IncompleteStreamError),
    "a connection that is lost": (lambda whole: Answer(reset(), head_gate="x"), UpstreamTimeoutError),
}  # fmt: skip


@EVERY_WIRE
@pytest.mark.parametrize(("answer", "error"), FAILURES.values(), ids=FAILURES)
async def test_a_failure_in_a_later_part_fails_the_call_and_nothing_is_recorded(
    wire: Wire, answer: Any, error: type[MMSPError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMSP_CACHE_DIR", str(tmp_path))
    first, second, third = answers(wire, 3 * wire.together)
    (whole,) = (step.data for step in second.steps if hasattr(step, "data"))
    with ScriptedProvider(first, answer(whole), third) as provider:
        client = wire.client(provider, max_retries=0, timeouts=Timeouts(first_event=0.2))
        before = questions(3 * wire.together)
        client.set_history(before[:-1])
        stream = client.streaming_response_stateful(before[-1], {"trace_id": "t"})
        events = []
        with pytest.raises(error):
            async for event in stream:
                events.append(event)
        assert "stop stop" not in shown(events)
        assert len(client.get_history()) == len(before) - 1
        client.clear_history()  # the client is free
        assert stream.outcome == "failed"
        await asyncio.sleep(0.02)
        assert len(provider.requests) == 2
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


@pytest.mark.parametrize("name", [each for each in WIRES if WIRES[each].together > 1])
async def test_more_vectors_than_were_asked_for_are_an_error(name: str) -> None:
    """Which of them belongs to which message, nobody could tell."""
    wire = WIRES[name]
    one, two = answers(wire, 4)
    more = Answer.json(wire.answer([0.0, 1.0, 2.0], 1))
    for given in ([more, two], [one, more]):
        with ScriptedProvider(*given) as provider:
            stream = wire.client(provider).streaming_response(questions(4))
            with pytest.raises(StreamProtocolError, match="items for the"):
                await events_of(stream)


@EVERY_WIRE
async def test_a_passing_failure_of_a_later_part_is_tried_again(wire: Wire) -> None:
    first, second = answers(wire, 2 * wire.together)
    busy = Answer.error(503, headers={"retry-after-ms": "1"})
    with ScriptedProvider(first, busy, second) as provider:
        message = (
            await wire.client(provider).streaming_response(questions(2 * wire.together)).message()
        )
        assert len(message["content_items"]) == 2 * wire.together
        asked = [wire.texts(each.json()) for each in provider.requests]
        assert asked[1] == asked[2]


@EVERY_WIRE
async def test_a_server_that_is_not_there_any_more_for_a_later_part_is_told(wire: Wire) -> None:
    first, *_ = answers(wire, 2 * wire.together)
    first.keep_alive = False
    with ScriptedProvider(first) as provider:
        stream = wire.client(provider, max_retries=0).streaming_response(
            questions(2 * wire.together)
        )
        await anext(stream)
    with pytest.raises(UpstreamConnectionError):
        await events_of(stream)


# ---- a stop between or inside


def stalled(wire: Wire, place: str) -> list[Answer]:
    first, second, third = answers(wire, 3 * wire.together)
    (whole,) = (step.data for step in second.steps if hasattr(step, "data"))
    late = {
        "headers late": Answer(head_gate="never"),
        "inside the body": Answer(say(whole[: len(whole) // 2]), stall()),
        "before the end of the body": Answer(say(whole), stall()),
        "sleeping before a retry": Answer.error(429, headers={"retry-after": "30"}),
    }
    return [first, late[place], third]


@pytest.mark.every_loop
@EVERY_WIRE
@pytest.mark.parametrize("way", STOPS)
@pytest.mark.parametrize(
    "place",
    ["headers late", "inside the body", "before the end of the body", "sleeping before a retry"],
)
async def test_a_stop_inside_a_later_part_closes_it_and_sends_no_more(
    wire: Wire, place: str, way: Way
) -> None:
    with ScriptedProvider(*stalled(wire, place)) as provider:
        client = wire.client(provider)
        messages = questions(3 * wire.together)
        client.set_history(messages[:-1])
        stream = client.streaming_response_stateful(messages[-1])
        for _ in range(2 * wire.together - 1):  # the last one's `.done` comes with the next item
            await anext(stream)
        asleep = place.startswith("sleeping")
        second = provider.until((lambda it: len(it.requests) == 2) if asleep else "stalled")
        stopped = await stop(stream, way, until=second)
        assert stopped.events == []
        if not asleep:
            closed_ns = await provider.connections[-1].until_closed(1.0)
            assert closed_ns - stopped.at_ns <= LIMIT_NS
        await asyncio.sleep(0.02)
        assert len(provider.requests) == 2
        assert len(client.get_history()) == len(messages) - 1
        client.clear_history()


@EVERY_WIRE
@pytest.mark.parametrize("way", ["abort", "abort from a thread", "close"])
async def test_a_stop_between_two_parts_sends_no_later_one(wire: Wire, way: Way) -> None:
    with ScriptedProvider(*answers(wire, 3 * wire.together)) as provider:
        client = wire.client(provider)
        stream = client.streaming_response(questions(3 * wire.together))
        for _ in range(2 * wire.together - 1):
            await anext(stream)
        stopped = await stop(stream, way, waiting=False)
        assert stopped.events == []
        await asyncio.sleep(0.02)
        assert len(provider.requests) == 1


# ---- answers in the form of events


def as_event(answer: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(answer)}\n\n".encode()


@pytest.mark.parametrize("forms", ["event, whole", "whole, event", "event, event"])
async def test_each_part_may_come_in_another_form(forms: str) -> None:
    wire = WIRES["openai-embedding"]
    made = {"event": lambda it: Answer(say(as_event(it))), "whole": Answer.json}
    parts = [wire.answer([0.0, 1.0], 1), wire.answer([2.0, 3.0], 1)]
    given = [made[form](part) for form, part in zip(forms.split(", "), parts, strict=True)]
    with ScriptedProvider(*given) as provider:
        message: Any = await wire.client(provider).streaming_response(questions(4)).message()
    assert [item["embedding"] for item in message["content_items"]] == [[0.0], [1.0], [2.0], [3.0]]


async def test_a_part_whose_body_does_not_end_is_left_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmsp.silence._LINGER", 0.05)
    wire = WIRES["openai-embedding"]
    first = Answer(say(as_event(wire.answer([0.0, 1.0], 1))), stall())
    with ScriptedProvider(first, Answer.json(wire.answer([2.0, 3.0], 1))) as provider:
        stream = wire.client(provider).streaming_response(questions(4))
        events = [await anext(stream) for _ in range(5)]
        assert shown(events)[-1] == "embedding.delta [2.0]"
        await provider.connections[0].until_closed(1.0)
        assert shown(await events_of(stream))[-1] == "stop stop"
