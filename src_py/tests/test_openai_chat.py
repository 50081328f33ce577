"""Chat Completions: what goes out, and what comes in."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsp import errors
from mmsp.codecs.base import Codec, Decoder
from mmsp.codecs.openai_chat import ChatCodec
from mmsp.codecs.openai_chat_decoder import ChatDecoder
from mmsp.dialects.chat import ChatDialect
from mmsp.dialects.openai_compatible import DIALECT, ENDPOINT
from mmsp.grammar import Assembler
from mmsp.request import Target

Json = dict[str, Any]
TARGET = Target("https://api.example/v1/", (("Authorization", "Bearer k"),))
CODEC = ChatCodec(DIALECT)
OURS = {"wire": "openai_chat", "host": "api.example"}


# ---- encoding


def encode(
    *messages: Any, model: str = "m", codec: ChatCodec = CODEC, images: Any = None, **config: Any
) -> Json:
    taken: Any = config
    request = codec.encode(model, messages, taken, TARGET, client="C", images=images or {})
    body: Json = json.loads(request.body)
    return body


def user(*items: Any) -> Any:
    return {
        "role": "user",
        "content_items": [text(it) if isinstance(it, str) else it for it in items],
    }


def assistant(*items: Any) -> Any:
    return user(*items) | {"role": "assistant"}


def text(words: str) -> Any:
    return {"type": "text.done", "text": words}


def thinking(words: str, **fidelity: Any) -> Any:
    item = {"type": "thinking.done", "thinking": words}
    return {**item, "fidelity": fidelity} if fidelity else item


def tool_call(id: str = "c1", arguments: Any = None) -> Any:
    return {"type": "tool_call.done", "name": "f", "arguments": arguments or {}, "tool_call_id": id}


def result(id: str = "c1", words: str = "r", **more: Any) -> Any:
    return {"type": "tool_result.done", "text": words, "tool_call_id": id, **more}


def image(url: str) -> Any:
    return {"type": "image_url.done", "image_url": url}


def messages_of(*messages: Any, **options: Any) -> list[Any]:
    encoded: list[Any] = encode(*messages, **options)["messages"]
    return encoded


def part(words: str) -> Json:
    return {"type": "text", "text": words}


def picture(url: str, **more: str) -> Json:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def test_the_request() -> None:
    request = CODEC.encode("gpt-x", [user("hi")], {}, TARGET, client="C")
    assert (request.method, request.url) == ("POST", "https://api.example/v1/chat/completions")
    assert dict(request.headers) == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Authorization": "Bearer k",
    }
    assert json.loads(request.body) == {
        "model": "gpt-x",
        "stream": True,
        "messages": [{"role": "user", "content": [part("hi")]}],
        "stream_options": {"include_usage": True},
    }


def test_the_codec_is_a_codec() -> None:
    codec: Codec = CODEC
    decoder: Decoder = codec.decoder(Assembler(client="C"), client="C", target=TARGET)
    assert codec.name == "openai_chat"
    assert not decoder.terminal
    assert ENDPOINT.key_variable == "OPENAI_API_KEY"


def test_the_models() -> None:
    request = CODEC.list_models(TARGET)
    assert (request.method, request.url, request.body) == (
        "GET",
        "https://api.example/v1/models",
        b"",
    )
    listed = {"object": "list", "data": [{"id": "a"}, {"id": 1}, "x"]}
    assert CODEC.models(listed) == (["a"], "")
    assert CODEC.models([{"id": "a"}]) == (["a"], "")


@pytest.mark.parametrize("answer", [{"data": None}, {"data": 5}, {}, "x", None, 3])
def test_what_is_no_list_of_models_is_refused(answer: Any) -> None:
    with pytest.raises((LookupError, TypeError)):
        CODEC.models(answer)


def test_every_config_key() -> None:
    tools = [{"name": "f", "description": "d", "parameters": {"type": "object"}}, {"name": "g"}]
    body = encode(
        user("hi"),
        max_tokens=0,
        temperature=0.5,
        top_p=0.9,
        stop_sequences=["x"],
        seed=7,
        tools=tools,
        tool_choice="required",
        output_schema={"title": "My answer!", "type": "object"},
        system_prompt="be brief",
        fast_mode=True,
        prompt_caching="enable",
        thinking_level="high",
        thinking_summary=True,
        image_config={},
        trace_id="t",
        extra_body={"temperature": 1, "user": "u"},
    )
    assert body.pop("messages")[0] == {"role": "system", "content": "be brief"}
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 0,
        "temperature": 1,
        "top_p": 0.9,
        "stop": ["x"],
        "seed": 7,
        "tools": [
            {"type": "function", "function": tools[0]},
            {"type": "function", "function": {"name": "g"}},
        ],
        "tool_choice": "required",
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "My_answer_",
                "schema": {"title": "My answer!", "type": "object"},
                "strict": True,
            },
        },
        "service_tier": "priority",
        "user": "u",
    }


def test_null_is_absent_and_empty_is_not() -> None:
    absent = encode(user("hi"), max_tokens=None, tools=None, fast_mode=False, system_prompt="")
    assert absent == encode(user("hi"))
    assert encode(user("hi"), tools=[])["tools"] == []
    assert (
        encode(user("hi"), output_schema={})["response_format"]["json_schema"]["name"] == "output"
    )


def test_a_list_of_tool_names_is_allowed_tools() -> None:
    assert encode(user("hi"), tool_choice=["f"])["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "auto",
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
    }


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("prompt_caching", "disable"),
        ("prompt_caching", "enhance"),
        ("extra_body", {"stream": False}),
        ("extra_body", {"n": 2, "messages": []}),
    ],
)
def test_what_is_refused_is_refused_before_any_message_is_looked_at(
    parameter: str, value: Any
) -> None:
    with pytest.raises(errors.UnsupportedParameterError, match=parameter) as caught:
        encode(user(), **{parameter: value})
    assert (caught.value.client, caught.value.parameter) == ("C", parameter)


def test_a_dialect_changes_the_body() -> None:
    dialect = ChatDialect(
        max_tokens="max_tokens",
        always={"tool_stream": True},
        asks_for_usage=False,
        refuses=(("", frozenset({"fast_mode", "seed", "tool_choice=list"})),),
        levels=(
            ("qwen", {"none": {"think": False}, "low": {"think": True}}),
            ("", {"none": {"x": 1}}),
        ),
    )
    codec = ChatCodec(dialect)
    body = encode(user("hi"), codec=codec, model="Big-QWEN", max_tokens=5, thinking_level="none")
    del body["messages"]
    expected = {"model": "Big-QWEN", "stream": True, "tool_stream": True, "max_tokens": 5}
    assert body == {**expected, "think": False}
    assert "think" not in encode(user("hi"), codec=codec, model="qwen", thinking_level="max")
    assert encode(user("hi"), codec=codec, thinking_level="none")["x"] == 1
    assert encode(user("hi"), codec=codec, fast_mode=False, tool_choice="auto")
    for refused in ({"fast_mode": True}, {"seed": 0}, {"tool_choice": ["f"]}):
        with pytest.raises(errors.UnsupportedParameterError):
            encode(user("hi"), codec=codec, **refused)


def test_text_keeps_its_characters() -> None:
    request = CODEC.encode("m", [user("né\u2028日本")], {}, TARGET, client="C")
    assert "né\u2028日本".encode() in request.body
    assert messages_of(user(""))[0]["content"] == [part("")]


def test_tool_results_come_first_and_their_pictures_go_to_the_user() -> None:
    encoded = messages_of(
        user("a", result("c1", "one", images=["data:1"]), "b", result("c2", "two"), image("data:2"))
    )
    assert encoded == [
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {
            "role": "user",
            "content": [part("a"), picture("data:1"), part("b"), picture("data:2")],
        },
    ]
    assert messages_of(user(result())) == [{"role": "tool", "tool_call_id": "c1", "content": "r"}]


def test_calls_are_json_text() -> None:
    (message,) = messages_of(assistant(tool_call(arguments={"ü": [1, 2**70]})))
    assert message == {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "f", "arguments": '{"ü":[1,1180591620717411303424]}'},
            }
        ],
    }


@pytest.mark.parametrize(
    ("fidelity", "fields"),
    [
        ([{}], ("reasoning_content", "reasoning")),
        ([{"reasoning_field": "reasoning", **OURS}] * 2, ("reasoning",)),
        ([{"reasoning_field": "reasoning"}], ("reasoning",)),
        ([{"reasoning_field": "reasoning"}, {}], ("reasoning_content", "reasoning")),
        ([{"reasoning_field": "role", **OURS}], ("reasoning_content", "reasoning")),
        (
            [{"reasoning_field": "reasoning", **OURS, "host": "x"}],
            ("reasoning_content", "reasoning"),
        ),
        (
            [{"reasoning_field": "reasoning", **OURS, "wire": "x"}],
            ("reasoning_content", "reasoning"),
        ),
    ],
)
def test_thinking_goes_back_where_it_came_from(fidelity: list[Json], fields: Sequence[str]) -> None:
    items = [thinking("t", **each) for each in fidelity]
    (message,) = messages_of(assistant(*items, "a"))
    expected = dict.fromkeys(fields, "t" * len(items))
    assert message == {"role": "assistant", "content": [part("a")], **expected}


def test_thinking_that_came_as_parts_goes_back_as_parts() -> None:
    came = thinking("t", reasoning_field="content", **OURS)
    (message,) = messages_of(assistant(came, "a", tool_call()))
    thought = {"type": "thinking", "thinking": [part("t")]}
    assert message["content"] == [thought, part("a")]
    assert message.keys() == {"role", "content", "tool_calls"}


def test_after_thinking_a_turn_that_calls_tools_has_the_field_even_if_empty() -> None:
    conversation = [
        user("q"),
        assistant(tool_call("c0")),
        user(result("c0")),
        assistant(thinking("t", reasoning_field="reasoning", **OURS), tool_call("c1")),
        user(result("c1")),
        assistant(tool_call("c2")),
        user(result("c2")),
        assistant("no call"),
    ]
    roles = [m for m in messages_of(*conversation) if m["role"] == "assistant"]
    assert [message.get("reasoning") for message in roles] == [None, "t", "", None]
    assert not any("reasoning_content" in message for message in roles)
    codec = ChatCodec(replace(DIALECT, replays_empty_reasoning=False))
    roles = [m for m in messages_of(*conversation, codec=codec) if m["role"] == "assistant"]
    assert [message.get("reasoning") for message in roles] == [None, "t", None, None]


def test_hidden_reasoning_goes_back_in_its_blocks_and_to_its_host_alone() -> None:
    hidden = thinking("", encrypted_content="E", format="F", reasoning_id="R", **OURS)
    unnamed = thinking("", encrypted_content="E", format="F", **OURS)
    signed = thinking("t", reasoning_signature="S", format="F", **OURS)
    old = thinking("u", reasoning_details=[{"type": "x"}])
    foreign = thinking("", encrypted_content="E", format="F", wire="openai_chat", host="x")
    (message,) = messages_of(assistant(hidden, unnamed, signed, old, foreign, "a"))
    assert message["reasoning_details"] == [
        {"type": "reasoning.encrypted", "data": "E", "format": "F", "id": "R"},
        {"type": "reasoning.encrypted", "data": "E", "format": "F"},
        {"type": "reasoning.text", "text": "t", "signature": "S", "format": "F"},
        {"type": "x"},
    ]
    codec = ChatCodec(replace(DIALECT, reasoning_details=False))
    (message,) = messages_of(assistant(hidden, "a"), codec=codec)
    assert message == {"role": "assistant", "content": [part("a")]}


@pytest.mark.parametrize(
    ("message", "item_type"),
    [
        (user(), None),
        (assistant(thinking("t")), None),
        (assistant(thinking("t", reasoning_field="content", **OURS)), None),
        (user({"type": "inline_data.done", "data": b"", "mime_type": "x"}), "inline_data.done"),
        (assistant({"type": "inline_thinking.done"}), "inline_thinking.done"),
        (assistant({"type": "embedding.done", "embedding": []}), "embedding.done"),
        (user({"type": "text"}), "text"),
        (user(tool_call()), "tool_call.done"),
        (assistant(result()), "tool_result.done"),
        (user(result("")), "tool_result"),
        (user(image("ftp://x")), "image_url"),
    ],
)
def test_a_message_that_cannot_be_sent(message: Any, item_type: str | None) -> None:
    with pytest.raises(errors.InvalidMessageError, match=r"messages\[1\]") as caught:
        encode(user("a"), message)
    assert (caught.value.item_type, caught.value.message_index) == (item_type, 1)


def test_half_a_character_cannot_be_sent() -> None:
    with pytest.raises(errors.InvalidMessageError, match="JSON cannot carry"):
        encode(user("\ud83d"))


def test_pictures_are_needed_inline() -> None:
    first, second = "https://x/a.png", "HTTP://x/b.png"
    messages = [user(image(first), image("data:x"), "a"), user(result(images=[second, first]))]
    assert CODEC.needs(messages) == [first, second]
    encoded = messages_of(*messages, images={first: "data:1", second: "data:2"})
    assert encoded[0]["content"][0] == picture("data:1")
    assert encoded[2]["content"] == [picture("data:2"), picture("data:1")]


def test_very_large_pictures_ask_for_high_detail() -> None:
    def url(side: int) -> str:
        head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + side.to_bytes(4, "big") * 2
        return "data:image/png;base64," + base64.b64encode(head).decode()

    def detail(model: str, side: int) -> Any:
        (message,) = messages_of(user(image(url(side))), model=model)
        return message["content"][0]["image_url"].get("detail")

    assert detail("x/GPT-5.6-mini", 6000) == "high"
    assert detail("x/GPT-5.6-mini", 600) is None
    assert detail("gpt-5.5", 6000) is None


# ---- decoding


class Answer:
    """What a decoder makes of some chunks."""

    def __init__(
        self, *frames: Any, dialect: ChatDialect = DIALECT, host: str = "api.example"
    ) -> None:
        self.assembler = Assembler(client="C", wire="openai_chat", host=host)
        self.decoder = ChatDecoder(self.assembler, dialect, client="C", host=host)
        self.feed(*frames)

    def feed(self, *frames: Any) -> None:
        for frame in frames:
            data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
            self.decoder.feed("", data)

    def end(self) -> Json:
        """The message; its finish is given if none came."""
        if self.assembler.finish_reason is None:
            self.assembler.finish("unknown")
        self.assembler.complete(terminal=True)
        return self.assembler.message()

    @property
    def prompt_tokens(self) -> int | None:
        usage = self.assembler.usage_metadata
        return usage["prompt_tokens"] if usage else None

    def items(self) -> list[Any]:
        items: list[Any] = self.end()["content_items"]
        return items

    def calls(self) -> list[tuple[str, str, Any]]:
        return [
            (item["name"], item["tool_call_id"], item["arguments"])
            for item in self.items()
            if item["type"] == "tool_call.done"
        ]


def chunk(finish: Any = None, **delta: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def calls(*pieces: Json) -> Json:
    return chunk(tool_calls=list(pieces))


def piece(index: Any = None, id: Any = None, name: Any = None, arguments: Any = None) -> Json:
    function = {"name": name, "arguments": arguments}
    made: Json = {"function": {k: v for k, v in function.items() if v is not None}}
    return made | {k: v for k, v in {"index": index, "id": id}.items() if v is not None}


def test_a_stream_with_thinking_and_a_call() -> None:
    answer = Answer(
        chunk(role="assistant", reasoning_content="need weather"),
        calls(piece(0, "c1", "w", "")),
        calls(piece(0, arguments='{"q":1}')),
        chunk("tool_calls"),
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 30,
                "completion_tokens": 12,
                "prompt_tokens_details": {"cached_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
        },
    )
    terminal = [answer.decoder.terminal]
    answer.feed(b"[DONE]")
    terminal.append(answer.decoder.terminal)
    assert terminal == [False, True]
    fidelity = {"reasoning_field": "reasoning_content", **OURS}
    assert answer.end() == {
        "role": "assistant",
        "content_items": [thinking("need weather", **fidelity), tool_call_of("w", "c1", {"q": 1})],
        "usage_metadata": {
            "cached_tokens": 10,
            "prompt_tokens": 20,
            "thoughts_tokens": 5,
            "response_tokens": 7,
        },
        "finish_reason": "tool_call",
    }


def tool_call_of(name: str, id: str, arguments: Any) -> Any:
    return {"type": "tool_call.done", "name": name, "arguments": arguments, "tool_call_id": id}


def test_within_a_chunk_thinking_comes_first_and_a_refusal_last() -> None:
    answer = Answer(
        chunk(refusal="d", tool_calls=[piece(0, "c", "f", "{}")], content="b", reasoning="a")
    )
    assert [item["type"].partition(".")[0] for item in answer.items()] == [
        "thinking", "text", "tool_call", "text",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("delta", "fidelity"),
    [
        ({"reasoning_content": "t"}, {"reasoning_field": "reasoning_content", **OURS}),
        ({"reasoning": "t"}, {"reasoning_field": "reasoning", **OURS}),
        ({"reasoning": "t", "reasoning_content": "t"}, {}),
        ({"reasoning": "t", "reasoning_details": []}, {"reasoning_field": "reasoning", **OURS}),
        ({"reasoning": "x", "reasoning_details": [{"type": "reasoning.text", "text": "t"}]}, {}),
        (
            {
                "reasoning": "x",
                "reasoning_details": [{"type": "reasoning.summary", "summary": "t"}],
            },
            {},
        ),
    ],
)
def test_thinking_says_where_it_came_from(delta: Json, fidelity: Json) -> None:
    assert Answer(chunk(**delta), chunk(content="a")).items() == [
        thinking("t", **fidelity),
        text("a"),
    ]


def test_a_dialect_without_reasoning_details_reads_the_mirror() -> None:
    delta = {"reasoning": "m", "reasoning_details": [{"type": "reasoning.text", "text": "t"}]}
    answer = Answer(
        chunk(**delta), chunk(content="a"), dialect=replace(DIALECT, reasoning_details=False)
    )
    assert answer.items()[0]["thinking"] == "m"


def test_hidden_and_signed_reasoning_is_kept_for_its_gateway() -> None:
    hidden = {"type": "reasoning.encrypted", "data": "E", "format": "F", "id": "R"}
    signed = {"type": "reasoning.text", "signature": "S", "format": "F"}
    answer = Answer(
        chunk(reasoning_details=[{"type": "reasoning.text", "text": "one"}]),
        chunk(reasoning_details=[signed]),
        chunk(reasoning_details=[{"type": "reasoning.text", "text": "two"}, hidden]),
        chunk(reasoning_details=[hidden]),
        chunk(reasoning_details=[{"type": "reasoning.text", "signature": "T"}]),
        chunk(content="a"),
    )
    items = answer.items()
    assert items == [
        thinking("one", reasoning_signature="S", format="F", **OURS),
        thinking("two", encrypted_content="E", format="F", reasoning_id="R", **OURS),
        thinking("", reasoning_signature="T", **OURS),
        text("a"),
    ]
    (message,) = messages_of(assistant(*items))
    assert message["reasoning_details"] == [
        signed | {"text": "one"},
        hidden,
        {"type": "reasoning.text", "text": "", "signature": "T"},
    ]


Pieces = Sequence[tuple[Any, ...]]  # of one chunk: index, id, name, arguments
CALLS: dict[str, tuple[list[Pieces], list[Any] | None]] = {
    "interleaved by index": (
        [[(0, "a", "f", '{"x"')], [(1, "b", "g", "{")], [(0, None, None, ":1}")], [(1, None, None, "}")]],
        [("f", "a", {"x": 1}), ("g", "b", {})],
    ),
    "same index, another id": (
        [[(0, "a", "f", "{}")], [(0, "b", "g", '{"x":')], [(0, None, None, "1}")]],
        [("f", "a", {}), ("g", "b", {"x": 1})],
    ),
    "same index, another id without a name": (
        [[(0, "a", "f", "{")], [(0, "z", None, "}")]],
        [("f", "a", {})],
    ),
    "no index, by id": (
        [[(None, "a", "f", "{"), (None, "b", "g", "{")], [(None, "a", None, "}")], [(None, "b", "g", "}")]],
        [("f", "a", {}), ("g", "b", {})],
    ),
    "no index, id only once": (
        [[(None, "a", "f", "{")], [(None, None, None, "}")]],
        [("f", "a", {})],
    ),
    "empty id and name later": (
        [[(0, "a", "f", "")], [(0, "", "", "{}")]],
        [("f", "a", {})],
    ),
    "id and name on every piece": (
        [[(0, "a", "f", "{")], [(0, "a", "f", '"x":1')], [(0, "a", "f", "}")]],
        [("f", "a", {"x": 1})],
    ),
    "complete twice": (
        [[(0, "a", "f", '{"x":1}')], [(0, "a", "f", '{"x":1}')]],
        [("f", "a", {"x": 1})],
    ),
    "complete once more after its pieces": (
        [[(0, "a", "f", '{"x"')], [(0, None, None, ":1}")], [(0, "a", "f", '{"x":1}')]],
        [("f", "a", {"x": 1})],
    ),
    "two calls complete twice": (
        [[(0, "a", "f", "{}"), (1, "b", "g", "{}")], [(0, "a", "f", "{}"), (1, "b", "g", "{}")]],
        [("f", "a", {}), ("g", "b", {})],
    ),
    "complete twice, at another index": (
        [[(0, "a", "f", "{}")], [(1, "a", "f", "{}")]],
        [("f", "a", {})],
    ),
    "one id for two calls": (
        [[(0, "a", "f", '{"x":1}')], [(1, "a", "f", '{"x":2}')]],
        [("f", "a", {"x": 1}), ("f", "a", {"x": 2})],
    ),
    "index changes, id stays": (
        [[(0, "a", "f", "{")], [(1, "a", None, "}")]],
        [("f", "a", {})],
    ),
    "names alone": (
        [[(0, None, "f", "{}"), (0, None, "g", "{}")], [(0, None, "g", '{"y":')], [(0, None, "g", "2}")]],
        [("f", "f", {}), ("g", "g", {}), ("g", "g_2", {"y": 2})],
    ),
    "a name on every piece, an object inside": (
        [[(0, None, "f", '{"a":')], [(0, None, "f", '{"b":1}')], [(0, None, "f", "}")]],
        [("f", "f", {"a": {"b": 1}})],
    ),
    "a name on every piece and no sense": (
        [[(0, None, "f", "{")], [(0, None, "f", "{")], [(0, None, "f", "}}")]],
        None,
    ),
    "empty pieces": ([[(0,), (1, "", "", "")]], []),
    "an id alone": ([[(0, "a")]], None),
    "arguments alone": ([[(0, None, None, "{}")]], None),
    "an unknown id without a name": ([[(None, "b", "", "{}")]], None),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_tool_calls_are_told_apart(case: str) -> None:
    chunks, expected = CALLS[case]
    answer = Answer(chunk(content="t"))
    frames = [calls(*(piece(*each) for each in pieces)) for pieces in chunks]
    if expected is None:
        with pytest.raises((errors.StreamProtocolError, errors.ToolCallArgumentParseError)):
            answer.feed(*frames)
            answer.end()
    else:
        answer.feed(*frames)
        assert answer.calls() == expected


def test_a_call_said_again_after_the_finish_is_the_same_call() -> None:
    whole = calls(piece(0, "a", "f", "{}"))
    assert Answer(whole, chunk("tool_calls"), whole).calls() == [("f", "a", {})]


def test_a_dialect_may_want_the_calls_own_id() -> None:
    with pytest.raises(errors.StreamProtocolError, match="without an id"):
        Answer(calls(piece(0, None, "f", "{}")), dialect=replace(DIALECT, names_calls=False))


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_call"),
        ("function_call", "tool_call"),
        ("insufficient_system_resource", "unknown"),
    ],
)
def test_finish_words(word: str, reason: str) -> None:
    answer = Answer(chunk(content="a"), chunk(""), chunk(word))
    assert answer.assembler.finish_reason == reason


def test_one_finish_whatever_comes_around_it() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    answer = Answer(
        {"choices": [], "prompt_filter_results": []},
        chunk(content="a") | {"usage": {"prompt_tokens": 3, "completion_tokens": 0}},
        {"choices": None},
        {"id": "x"},
        {"choices": [{"index": 0, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None},
        {"choices": [], "usage": usage},
        chunk(content="b"),
    )
    message = answer.end()
    assert "".join(item["text"] for item in message["content_items"]) == "ab"
    assert message["finish_reason"] == "stop"
    assert message["usage_metadata"]["prompt_tokens"] == 3
    assert message["usage_metadata"]["response_tokens"] == 1


def test_only_the_first_choice_is_read() -> None:
    def choice(index: int | None, words: str) -> Json:
        return {"index": index, "delta": {"content": words}}

    answer = Answer(
        {"choices": [choice(1, "x"), choice(0, "a")]},
        {"choices": [choice(1, "x")]},
        {"choices": [choice(None, "b"), choice(None, "x")]},
        {"choices": [choice(0, "c"), choice(0, "x")]},
    )
    assert answer.items() == [text("abc")]


def test_content_may_be_a_list_of_typed_parts() -> None:
    thought = {"type": "thinking", "thinking": [part("t"), "u", {"type": "reference"}, 5]}
    answer = Answer(
        {"choices": [{"index": 1, "delta": {"content": "x"}}, {"delta": {"content": [thought]}}]},
        chunk(content=[part("a"), "b", {"type": "reference", "reference_ids": [1]}, None]),
    )
    assert answer.items() == [thinking("tu", reasoning_field="content", **OURS), text("ab")]
    (message,) = messages_of(assistant(*answer.assembler.message()["content_items"]))
    assert message["content"] == [{"type": "thinking", "thinking": [part("tu")]}, part("ab")]


def test_odd_types_never_end_a_stream() -> None:
    answer = Answer(
        {"choices": "x", "usage": 5},
        {"choices": [None, 5, {"index": "0", "delta": {"content": "a", "tool_calls": [None]}}]},
        {
            "choices": [
                {"index": 0.0, "delta": {"content": 5, "reasoning": {}}, "finish_reason": True}
            ]
        },
        {"choices": [{"index": 1.5, "delta": 5}, {"delta": []}]},
        chunk(
            reasoning_details=[
                "x",
                {"type": "reasoning.text", "text": 5},
                {"summary": "s", "id": 7},
            ]
        ),
        calls({"index": "0", "id": 5, "function": {"name": "f", "arguments": {"x": [1]}}}),
        calls({"index": True, "function": "x"}),
        {
            "choices": [{"delta": {}, "finish_reason": 7}],
            "usage": {
                "prompt_tokens": "12",
                "completion_tokens": 5.0,
                "prompt_tokens_details": [],
                "completion_tokens_details": {"reasoning_tokens": None},
            },
        },
        {"choices": [{"index": 1, "delta": {"content": ["x"]}}]},
        [],
        5,
        "words",
        None,
    )
    message = answer.end()
    assert message["content_items"] == [
        text("a"),
        thinking("s"),
        tool_call_of("f", "5", {"x": [1]}),
    ]
    assert message["finish_reason"] == "unknown"
    assert message["usage_metadata"] == {
        "cached_tokens": None,
        "prompt_tokens": 12,
        "thoughts_tokens": None,
        "response_tokens": 5,
    }


def test_a_character_cut_in_two_by_a_javascript_server_is_put_together() -> None:
    answer = Answer(
        chunk(content="a\ud83d"),
        chunk(content="\ude00b\ud83d"),
        chunk(content="c\ud83d"),
        chunk(content="\ude00\udc00"),
        calls(piece(0, "\ud83d", "f", '{"x":"\ud83d')),
        calls(piece(0, None, None, '\ude00"}')),
    )
    assert answer.items() == [text("a😀b\ufffdc😀\ufffd"), tool_call_of("f", "?", {"x": "😀"})]


@pytest.mark.parametrize("data", [b"", b" ", b": keepalive", b": OPENROUTER PROCESSING"])
def test_heartbeats_are_skipped(data: bytes) -> None:
    assert Answer(chunk(content="a"), data, chunk(content="b")).items() == [text("ab")]


@pytest.mark.parametrize(
    "data",
    [b"<html>" + b"x" * 999, b"{", b'"\xff"', b"[" * 99999, b"NaN,", b'["\\ud83d",' + b"[" * 99999],
)
def test_what_is_no_json_is_an_error_that_shows_its_beginning(data: bytes) -> None:
    answer = Answer(chunk(content="a"))
    with pytest.raises(errors.StreamProtocolError) as caught:
        answer.feed(data)
    assert repr(data[:200].decode("utf-8", "replace")) in str(caught.value)
    assert len(answer.assembler.out) == 1


def test_nothing_is_read_after_the_end_mark() -> None:
    answer = Answer(chunk(content="a"), b"[DONE]", b"<html>", chunk(content="b"))
    assert answer.items() == [text("a")]


@pytest.mark.parametrize(
    ("frame", "code", "error_type", "retryable"),
    [
        ({"error": {"message": "oh", "code": 429}}, 429, None, True),
        ({"error": {"message": "oh", "code": "502", "type": "t"}}, "502", "t", True),
        ({"error": {"message": "oh", "code": 400}, "choices": []}, 400, None, False),
        ({"error": {"message": "oh", "type": "server_error"}}, None, "server_error", True),
        ({"error": {"message": "oh", "code": "tool_use_failed"}}, *["tool_use_failed"] * 2, False),
        ({"error": "oh", "code": "bad"}, "bad", "bad", False),
        ({"object": "error", "message": "oh", "type": "E", "code": 503}, 503, "E", True),
        ({"detail": "oh"}, None, None, False),
    ],
)
def test_a_failure_inside_the_stream(
    frame: Json, code: Any, error_type: str | None, retryable: bool
) -> None:
    answer = Answer(chunk(content="a"))
    with pytest.raises(errors.ProviderStreamError, match="oh") as caught:
        answer.feed(frame)
    assert (caught.value.code, caught.value.error_type) == (code, error_type)
    assert caught.value.retryable == retryable


def test_a_failure_keeps_the_usage_that_came_with_it() -> None:
    answer = Answer()
    with pytest.raises(errors.ProviderStreamError):
        answer.feed({"error": {"message": "oh"}, "usage": {"prompt_tokens": 3}})
    assert answer.prompt_tokens == 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"error":{"message":"oh"}}', "oh"),
        (b'{"message":"oh"}', "oh"),
        (b"oh", "oh"),
        (b'"oh"', "oh"),
        (b"", "no reason"),
    ],
)
def test_an_error_event_is_a_failure_in_any_form(data: bytes, message: str) -> None:
    with pytest.raises(errors.ProviderStreamError, match=message):
        Answer().decoder.feed("error", data)


@pytest.mark.parametrize(
    ("host", "usage", "expected"),
    [
        ("openrouter.ai", {"completion_tokens": 4, "reasoning": 9}, (9, 4)),
        ("eu.openrouter.ai:443", {"completion_tokens": 4, "reasoning": 9}, (9, 4)),
        ("openrouter.ai", {"completion_tokens": 10, "reasoning": 9}, (9, 1)),
        ("notopenrouter.ai", {"completion_tokens": 4, "reasoning": 9}, (9, -5)),
        ("x", {"completion_tokens": 4}, (None, 4)),
        ("x", {"reasoning": 4}, (4, None)),
    ],
)
def test_usage_arithmetic(host: str, usage: Json, expected: tuple[int, int]) -> None:
    details = {"reasoning_tokens": usage.pop("reasoning", None)}
    answer = Answer(
        {"choices": [], "usage": usage | {"completion_tokens_details": details}}, host=host
    )
    reported: Any = answer.assembler.usage_metadata
    assert (reported["thoughts_tokens"], reported["response_tokens"]) == expected


def test_groqs_own_usage_is_read_where_there_is_no_other() -> None:
    own = {"id": "r", "usage": {"prompt_tokens": 3}}
    answer = Answer({"choices": [], "x_groq": own})
    assert answer.prompt_tokens == 3
    answer = Answer(
        {"choices": [], "x_groq": own, "usage": {"prompt_tokens": 4}}, {"x_groq": {"id": "r"}}
    )
    assert answer.prompt_tokens == 4


# ---- answers that are no stream


def completion(**message: Any) -> Json:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice], "usage": {"prompt_tokens": 3}}


def test_a_whole_completion_is_streamed_as_one() -> None:
    answer = Answer()
    whole = completion(
        content="a",
        reasoning_content="t",
        tool_calls=[piece(None, None, "f", "{}"), piece(None, None, "f", "{}")],
    )
    whole["choices"][0]["delta"] = {"content": ""}
    answer.decoder.whole(json.dumps(whole).encode())
    assert answer.decoder.terminal
    message = answer.end()
    assert [item["type"] for item in message["content_items"]] == [
        "thinking.done", "text.done", "tool_call.done", "tool_call.done",
    ]  # fmt: skip
    ids = [item.get("tool_call_id") for item in message["content_items"]]
    assert ids == [None, None, "f", "f_2"]
    assert message["finish_reason"] == "tool_call"
    assert message["usage_metadata"]["prompt_tokens"] == 3


def test_a_whole_completion_inside_a_stream_is_accepted_once() -> None:
    whole = completion(content="a", tool_calls=[piece(None, "c", "f", "{}")])
    answer = Answer(whole, whole)
    assert answer.items() == [text("a"), tool_call_of("f", "c", {})]


def test_a_whole_answer_may_have_the_form_of_a_chunk() -> None:
    answer = Answer()
    answer.decoder.whole(json.dumps(chunk("stop", content="a")).encode())
    assert answer.items() == [text("a")]


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (b'{"error":{"message":"oh","code":"x"}}', errors.ProviderStreamError, "oh"),
        (b'{"base_resp":{"status_code":1004,"status_msg":"oh"}}', errors.ProviderStreamError, "oh"),
        (b'[{"error":{"message":"oh"}}]', errors.ProviderStreamError, "oh"),
        (b"<html>oh</html>", errors.StreamProtocolError, "<html>oh"),
        (b'{"hello":"there"}', errors.StreamProtocolError, "hello"),
        (b'"choices"', errors.StreamProtocolError, "choices"),
        (b"", errors.StreamProtocolError, "empty"),
    ],
)
def test_a_whole_answer_that_is_no_completion(
    body: bytes, error: type[errors.MMSPError], message: str
) -> None:
    with pytest.raises(error, match=message):
        Answer().decoder.whole(body)


# ---- any bytes

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 2),
    st.floats(),
    st.sampled_from(["", "a", "{}", "{", "\ud83d"]),
)


def loosely(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly what the wire documents, sometimes anything."""
    return st.one_of(strategy, strategy, strategy, SCALARS, st.lists(SCALARS, max_size=2))


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return loosely(
        st.fixed_dictionaries({}, optional={name: loosely(it) for name, it in fields.items()})
    )


WORDS = st.sampled_from(["", "a", "{}", '{"k":', "1}", "f", "stop", "length", "tool_calls"])
PARTS = st.lists(
    record(type=st.sampled_from(["text", "thinking"]), text=WORDS, thinking=WORDS), max_size=2
)
CALL = record(index=st.integers(0, 1), id=WORDS, function=record(name=WORDS, arguments=WORDS))
DETAIL = record(
    type=st.sampled_from(["reasoning.text", "reasoning.encrypted"]),
    **dict.fromkeys(("text", "summary", "data", "format", "id", "signature"), WORDS),
)
DELTA = record(
    **dict.fromkeys(("reasoning", "reasoning_content", "refusal"), WORDS),
    content=st.one_of(WORDS, PARTS),
    tool_calls=st.lists(CALL, max_size=3),
    reasoning_details=st.lists(DETAIL, max_size=2),
)
CHUNK = record(
    choices=st.lists(
        record(index=st.integers(0, 1), delta=DELTA, message=DELTA, finish_reason=WORDS), max_size=2
    ),
    usage=record(
        prompt_tokens=st.integers(),
        completion_tokens=st.integers(),
        prompt_tokens_details=record(cached_tokens=st.integers()),
    ),
    error=st.one_of(st.none(), record(message=WORDS, code=WORDS)),
    x_groq=record(usage=record(prompt_tokens=st.integers())),
)
FRAMES = st.one_of(
    CHUNK.map(lambda it: json.dumps(it).encode()),
    st.sampled_from(
        [b"", b"[DONE]", b": x", b"{", b"[[", b'{"choices":[{"delta":{"content":"\xff"}}]}']
    ),
    st.binary(max_size=20),
)


def survives(read: Callable[[], object]) -> None:
    """Run `read`; the errors that an answer may be are fine, any other fails the test."""
    try:
        read()
    except (
        errors.ProviderStreamError,
        errors.StreamProtocolError,
        errors.ToolCallArgumentParseError,
        errors.IncompleteStreamError,
        errors.EmptyResponseError,
    ):
        pass


@given(st.lists(st.tuples(st.sampled_from(["", "", "error"]), FRAMES), max_size=8))
def test_any_bytes_give_events_or_one_documented_error(frames: Iterable[tuple[str, bytes]]) -> None:
    answer = Answer()

    def read() -> None:
        for name, data in frames:
            answer.decoder.feed(name, data)
        answer.assembler.complete(terminal=answer.decoder.terminal)

    survives(read)
    json.dumps(list(answer.assembler.out), ensure_ascii=False).encode()


@given(FRAMES)
def test_any_body_gives_events_or_one_documented_error(body: bytes) -> None:
    survives(lambda: Answer().decoder.whole(body))
