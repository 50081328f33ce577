"""What a Chat Completions server's answer becomes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mmsp import dumps, errors
from mmsp.codecs.openai_chat_decoder import ChatDecoder
from mmsp.dialects.openai_compatible import DIALECT
from tests.chat_words import (
    OURS,
    Answer,
    Json,
    calls,
    chunk,
    messages_of,
    part,
    piece,
    tool_call_of,
)
from tests.message_words import assistant, text, thinking


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


@pytest.mark.parametrize("odd", [{}, {"n": "\ud83d"}, {"logprobs": 5, "usage": "none"}])
def test_thinking_comes_before_content_that_is_a_list_too(odd: Json) -> None:
    parts = [part("a"), {"type": "thinking", "thinking": "u"}, "b"]
    answer = Answer(
        chunk(content=parts, reasoning="t", tool_calls=[piece(0, "c", "f", "{}")]) | odd
    )
    assert answer.items() == [
        thinking("t", reasoning_field="reasoning", **OURS),
        text("a"),
        thinking("u", reasoning_field="content", **OURS),
        text("b"),
        tool_call_of("f", "c", {}),
    ]


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


def test_halves_of_characters_find_each_other_within_their_own_call() -> None:
    answer = Answer(
        calls(piece(0, "a", "f", '{"x":"\ud83d'), piece(1, "b", "g", '{"y":"\ud83c')),
        calls(piece(0, arguments='\ude00"}')),
        calls(piece(1, arguments='\udf89"}')),
    )
    assert answer.calls() == [("f", "a", {"x": "😀"}), ("g", "b", {"y": "🎉"})]
    answer = Answer(
        calls(piece(None, "a", "f", '{"x":"\ud83d'), piece(None, "b", "g", '{"y":"\ud83c')),
        calls(piece(None, "b", None, '\udf89"}'), piece(None, "a", None, '\ude00"}')),
    )
    assert answer.calls() == [("f", "a", {"x": "😀"}), ("g", "b", {"y": "🎉"})]


def test_a_half_waits_for_its_own_field_and_no_longer_than_the_next_piece_of_it() -> None:
    answer = Answer(
        chunk(content="a\ud83d"),
        {"choices": [], "usage": {"prompt_tokens": 3}},
        chunk(reasoning="\ude00t"),
        chunk(content=""),
        chunk(content="\ude00b\ud83d"),
        chunk(content="c"),
        chunk(content="\ude00d"),
    )
    assert answer.items() == [
        text("a"),
        thinking("\ufffdt", reasoning_field="reasoning", **OURS),
        text("😀b\ufffdc\ufffdd"),
    ]
    assert answer.prompt_tokens == 3


def test_an_end_mark_and_a_failure_are_seen_while_a_half_waits() -> None:
    answer = Answer(chunk(content="a\ud83d"), chunk("stop"), b"[DONE]")
    assert answer.decoder.terminal
    assert answer.items() == [text("a")]
    with pytest.raises(errors.ProviderStreamError, match="oh"):
        Answer(chunk(content="a\ud83d"), {"error": {"message": "oh"}})


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


NESTED = {
    "an error": '{"error":%s}',
    "a message": '{"error":{"message":%s}}',
    "a detail": '{"detail":%s}',
    "arguments": '{"choices":[{"delta":{"tool_calls":[{"id":"c","function":'
    '{"name":"f","arguments":%s}}]}}]}',
    "content": '{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[%s]}]}}]}',
    "half a character": '{"x":"\\ud83d","error":%s}',
    "all of it": "%s",
}


READS: dict[str, Callable[[ChatDecoder, bytes], None]] = {
    "an event": lambda decoder, data: decoder.feed("", data),
    "an error event": lambda decoder, data: decoder.feed("error", data),
    "a whole answer": lambda decoder, data: decoder.whole(data),
}


@pytest.mark.parametrize("where", NESTED)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
def test_nesting_however_deep_is_an_error_of_the_answer(
    where: str, read: str, opening: str, closing: str
) -> None:
    """Readers of JSON give up at different depths: what one takes, the next may not."""
    for depth in (*range(100, 900, 50), *range(900, 1010, 2), 5000, 99999):
        answer = Answer()
        data = (NESTED[where] % (opening * depth + "1" + closing * depth)).encode()
        with contextlib.suppress(errors.MMSPError):
            READS[read](answer.decoder, data)
            answer.assembler.complete(terminal=True)


@pytest.mark.parametrize("as_text", [True, False])
def test_arguments_too_deep_to_be_saved_are_no_call(as_text: bool) -> None:
    def answer(depth: int) -> Answer:
        nested = '{"a":' * depth + "1" + "}" * depth
        return Answer(calls(piece(0, "c", "f", nested if as_text else json.loads(nested))))

    assert dumps(answer(200).end())
    with pytest.raises(errors.ToolCallArgumentParseError, match="nested too deeply"):
        answer(300).end()


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
    ("usage", "expected"),
    [
        ({"completion_tokens": 4, "reasoning": 9}, (9, 4)),
        ({"completion_tokens": 10, "reasoning": 9}, (9, 1)),
        ({"completion_tokens": 9, "reasoning": 9}, (9, 0)),
        ({"completion_tokens": 4}, (None, 4)),
        ({"reasoning": 4}, (4, None)),
    ],
)
def test_usage_arithmetic(usage: Json, expected: tuple[int, int]) -> None:
    details = {"reasoning_tokens": usage.pop("reasoning", None)}
    answer = Answer({"choices": [], "usage": usage | {"completion_tokens_details": details}})
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
