"""What an embeddings server is sent, and what its answer becomes."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsp import AutoLLMClient, dumps, errors
from mmsp.codecs.base import Codec, Decoder
from mmsp.codecs.openai_embedding import EmbeddingCodec, vector
from mmsp.grammar import Assembler
from mmsp.testing import Answer, ScriptedProvider, embeddings
from tests.asking import events_of, shown
from tests.message_words import assistant, image, result, thinking, tool_call, user
from tests.responses_words import TARGET, Json

CODEC = EmbeddingCodec()


def encode(*messages: Any, **config: Any) -> Json:
    taken: Any = config
    body: Json = json.loads(CODEC.encode("m", messages, taken, TARGET, client="C").body)
    return body


def packed(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def read(answer: Any) -> Assembler:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    assembler = Assembler(client="C", wire=CODEC.name, host=TARGET.host)
    decoder = CODEC.decoder(assembler, client="C", target=TARGET)
    decoder.whole(body)
    assert decoder.terminal
    assembler.out.extend(assembler.complete(terminal=True))
    return assembler


def vectors(answer: Any) -> list[Any]:
    return [item["embedding"] for item in read(answer).message()["content_items"]]


def entry(embedding: Any, index: Any = 0) -> Json:
    return {"object": "embedding", "index": index, "embedding": embedding}


# ---- the request


def test_the_request() -> None:
    request = CODEC.encode(
        "text-embedding-3",
        [user("a", "b"), assistant("c"), user("né\u2028")],
        {"embedding_config": {"dimensions": 256}},
        TARGET,
        client="C",
    )
    assert (request.method, request.url) == ("POST", "https://api.example/v1/embeddings")
    assert dict(request.headers) == {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Authorization": "Bearer k",
    }
    assert json.loads(request.body) == {
        "model": "text-embedding-3",
        "input": ["ab", "c", "né\u2028"],
        "encoding_format": "base64",
        "dimensions": 256,
    }


def test_the_codec_is_a_codec() -> None:
    codec: Codec = CODEC
    decoder: Decoder = codec.decoder(Assembler(client="C"), client="C", target=TARGET)
    assert (codec.name, codec.needs([user("a")])) == ("openai_embedding", [])
    assert not decoder.terminal
    assert codec.list_models(TARGET).url == "https://api.example/v1/models"
    assert codec.models({"data": [{"id": "a"}]}) == (["a"], "")


def test_settings_of_other_models_are_ignored() -> None:
    bare = encode(user("a"))
    ignored = {
        "max_tokens": 5,
        "temperature": 2,
        "top_p": 0.5,
        "tools": [{"name": "f"}],
        "tool_choice": "none",
        "thinking_level": "high",
        "thinking_summary": True,
        "system_prompt": "s",
        "prompt_caching": "disable",
        "fast_mode": False,
        "image_config": {},
        "tts_config": [],
        "embedding_config": {"dimensions": None},
        "trace_id": "t",
    }
    assert encode(user("a"), **ignored) == bare
    assert encode(user("a"), extra_body={"user": "u"}) == bare | {"user": "u"}


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("fast_mode", True),
        *(("extra_body", {key: None}) for key in ("model", "input", "encoding_format")),
    ],
)
def test_what_is_refused_is_refused_before_any_message_is_looked_at(
    parameter: str, value: Any
) -> None:
    with pytest.raises(errors.UnsupportedParameterError) as caught:
        encode(user(), **{parameter: value})
    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    "item",
    [
        image("https://x/a.png"),
        result(),
        thinking("t"),
        tool_call(),
        {"type": "inline_data.done", "data": b"", "mime_type": "x"},
        {"type": "inline_thinking.done", "data": b"", "mime_type": "x"},
        {"type": "embedding.done", "embedding": []},
    ],
)
def test_only_text_can_be_embedded(item: Any) -> None:
    with pytest.raises(errors.UnsupportedContentError, match=r"messages\[1\]") as caught:
        encode(user("a"), user("b", item))
    assert caught.value.item_type == item["type"]


@pytest.mark.parametrize("empty", [user(), user(""), assistant("", "")])
def test_an_empty_message_cannot_be_embedded(empty: Any) -> None:
    with pytest.raises(errors.InvalidMessageError, match=r"messages\[1\]") as caught:
        encode(user("a"), empty)
    assert (caught.value.message_index, caught.value.item_type) == (1, None)


# ---- the answer


def test_vectors_go_out_one_by_one_in_the_order_of_the_messages() -> None:
    assembler = read(
        {
            "object": "list",
            "data": [entry(packed(3.0), 2), entry([], 1), entry([0.5, -1, 2**60], 0)],
            "usage": {"prompt_tokens": 4, "total_tokens": 4},
        }
    )
    assert [item["type"] for item in assembler.out] == ["embedding.delta", "embedding.done"] * 3
    message = assembler.message()
    assert message["content_items"] == [
        {"type": "embedding.done", "embedding": [0.5, -1.0, float(2**60)]},
        {"type": "embedding.done", "embedding": []},
        {"type": "embedding.done", "embedding": [3.0]},
    ]
    assert message["finish_reason"] == "stop"
    assert message["usage_metadata"] == {
        "cached_tokens": None,
        "prompt_tokens": 4,
        "thoughts_tokens": None,
        "response_tokens": None,
    }


def test_base64_holds_little_endian_32_bit_floats() -> None:
    assert vector("AACAPwAAAL8=", client="C") == [1.0, -0.5]
    assert vector("", client="C") == []
    assert vectors({"data": [entry(packed(0.1))]}) == [[struct.unpack("<f", b"\xcd\xcc\xcc=")[0]]]


@pytest.mark.parametrize(
    ("indexes", "order"),
    [([1, 0], [1, 0]), ([None, None], [0, 1]), (["x", {}], [0, 1]), ([1.0, 0.0], [1, 0])],
)
def test_without_indexes_the_order_stays(indexes: list[Any], order: list[int]) -> None:
    data = [entry([place], index) for place, index in enumerate(indexes)]
    assert vectors({"data": data}) == [[place] for place in order]


@pytest.mark.parametrize(
    "indexes", [[0, 0], [1, 2], [-1, 0], [0, None], [True, 0], [0, 5], [0.5, 0]]
)
def test_indexes_that_do_not_tell_are_a_fault(indexes: list[Any]) -> None:
    data = [entry([place], index) for place, index in enumerate(indexes)]
    with pytest.raises(errors.StreamProtocolError, match="which input each is of"):
        vectors({"data": data})


@pytest.mark.parametrize("inputs", [1, 3])
@pytest.mark.parametrize("client_type", ["openai-embedding", "google-genai"])
async def test_as_many_embeddings_come_as_were_asked_for(client_type: str, inputs: int) -> None:
    """Here two: nobody could tell whose one would be that is missing, or too many."""
    entries = {"data": [entry([1.0], 0), entry([2.0], 1)], "embeddings": [{"values": [1.0]}] * 2}
    with ScriptedProvider(Answer.json(entries)) as provider:
        client = AutoLLMClient("gemini-embedding-2", "k", provider.base_url, client_type)
        texts = [{"role": "user", "content_items": [{"type": "text.done", "text": "a"}]}] * inputs
        with pytest.raises(errors.StreamProtocolError, match=f"2 items for the {inputs}"):
            await client.streaming_response(texts).message()  # type: ignore[arg-type]


@pytest.mark.parametrize("usage", [None, 5, {}, {"prompt_tokens": "x"}, {"prompt_tokens": True}])
def test_no_usage_is_no_failure(usage: Any) -> None:
    counts = read({"data": [entry([1])], "usage": usage}).message()["usage_metadata"]
    assert counts["prompt_tokens"] is None


@pytest.mark.parametrize(
    "embedding",
    [
        None,
        5,
        True,
        {"1": 2},
        "A",
        "AAAA",
        "!!!!",
        "é",
        ["1"],
        [None],
        [[1]],
        [True],
        [1e999],
        [10**400],
        packed(float("nan")),
        packed(float("inf")),
    ],
)
def test_what_is_no_list_of_numbers_is_an_error(embedding: Any) -> None:
    body = json.dumps({"data": [entry(embedding)]}).replace("Infinity", "1e999").encode()
    with pytest.raises(errors.StreamProtocolError):
        read(body)


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        (b'{"error":{"message":"oh","code":"x"}}', errors.ProviderStreamError, "oh"),
        (b'{"detail":"oh"}', errors.ProviderStreamError, "oh"),
        (b"<html>oh", errors.StreamProtocolError, "<html>oh"),
        (b'{"data":{"0":[]}}', errors.StreamProtocolError, "data"),
        (b'{"data":[5]}', errors.StreamProtocolError, "data"),
        (b"[]", errors.StreamProtocolError, r"\[\]"),
        (b"", errors.StreamProtocolError, "''"),
        (b'{"data":[]}', errors.EmptyResponseError, "nothing"),
    ],
)
def test_an_answer_that_is_no_list_of_embeddings(
    body: bytes, error: type[errors.MMSPError], said: str
) -> None:
    with pytest.raises(error, match=said):
        read(body)


def test_an_event_is_read_as_the_whole_answer_and_once() -> None:
    assembler = Assembler(client="C")
    decoder = CODEC.decoder(assembler, client="C", target=TARGET)
    decoder.feed("", json.dumps({"data": [entry([1])]}).encode())
    decoder.feed("", b"[DONE]")
    assert len(assembler.out) == 1


SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
ENTRIES = st.fixed_dictionaries({}, optional={"index": VALUES, "embedding": VALUES})
ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "data": st.one_of(st.lists(st.one_of(ENTRIES, VALUES), max_size=3), VALUES),
        "usage": st.one_of(st.dictionaries(st.just("prompt_tokens"), VALUES), VALUES),
        "error": st.one_of(st.none(), VALUES),
    },
)


@given(st.one_of(ANSWERS.map(lambda it: json.dumps(it).encode()), st.binary(max_size=30)))
def test_any_body_gives_vectors_or_one_documented_error(body: bytes) -> None:
    try:
        message = read(body).message()
    except (
        errors.StreamProtocolError,
        errors.ProviderStreamError,
        errors.EmptyResponseError,
    ):
        return
    assert dumps(message)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_numbers_and_base64_say_the_same(numbers: list[float]) -> None:
    assert vector(packed(*numbers), client="C") == vector(numbers, client="C") == numbers


# ---- with a socket


@pytest.mark.parametrize("client_type", ["openai-embedding", "openai-official"])
async def test_a_client_asks_once_and_gets_a_vector_for_each_message(client_type: str) -> None:
    answer = embeddings.completion(vectors=[(0.5, -0.25), (1.0,)])
    with ScriptedProvider(Answer.json(answer)) as provider:
        client = AutoLLMClient("text-embedding-3-small", "k", provider.base_url, client_type)
        events = await events_of(client.streaming_response([user("a"), user("b")]))
        (request,) = provider.requests
    assert request.json()["input"] == ["a", "b"]
    assert shown(events) == [
        "embedding.delta [0.5, -0.25]",
        "embedding.done [0.5, -0.25]",
        "embedding.delta [1.0]",
        "embedding.done [1.0]",
        "stop stop",
    ]
