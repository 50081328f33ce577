"""The decoder of the MMSP wire: what a server sends comes out as it was, or as one documented error."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmsp import (
    EmptyResponseError,
    IncompleteStreamError,
    MMSPError,
    ProviderStreamError,
    StreamAbortedError,
    StreamProtocolError,
    ToolCallArgumentParseError,
    UnknownEventError,
    UpstreamError,
)
from mmsp.codecs.error_wire import error_to_wire
from mmsp.registry import CLIENTS
from mmsp.request import Target
from mmsp.testing import mmsp_wire as wire
from mmsp.wire import from_wire
from tests.conformance_cases import ANSWERED, Case, cases
from tests.interruption_table import STREAMING, WIRES
from tests.reading import Told, told
from tests.server_between import CLIENT, TARGET, assert_passed_on, sent
from tests.test_error_wire import CLASSES, filled
from tests.test_moving_histories import TURNS

PICTURE = {"type": "inline_data.delta", "data": "AAEC", "mime_type": "image/png"}
USAGE = {
    "cached_tokens": None,
    "prompt_tokens": 10,
    "thoughts_tokens": None,
    "response_tokens": 5,
}


def read(*events: bytes, strict: bool = False) -> Told:
    return told(CLIENT, TARGET, [b"".join(events)], strict=strict)


def shown(seen: Told) -> list[str]:
    grows = ("text", "thinking", "arguments", "data", "embedding")
    return [
        " ".join([item["type"], *(str(item[name]) for name in grows if name in item)])
        for item in seen.items
    ]


# ---- what a server passes on


def failure(error: BaseException) -> bytes:
    return f"data: {json.dumps({'error': error_to_wire(error)})}\n\n".encode()


@pytest.mark.parametrize("client_type", STREAMING)
def test_an_answer_of_any_wire_passes_through_a_server_unchanged(client_type: str) -> None:
    target = Target("https://provider.example/v1")
    turn = TURNS[WIRES[client_type].__name__]
    assert_passed_on(told(CLIENTS[client_type].load(), target, turn))


@pytest.mark.parametrize("case", cases(ANSWERED), ids=lambda case: case.path.name)
def test_every_answer_that_is_written_down_passes_through_a_server_unchanged(case: Case) -> None:
    stop, error = case.facts.get("stop"), None
    if stop is None:
        error = told(CLIENTS[case.client_type].load(), TARGET, [case.body]).error
    assert_passed_on(Told(from_wire(case.facts["items"]), stop, error))


EACH_KIND: list[Any] = [
    {"type": "thinking.delta", "thinking": "h"},
    {"type": "thinking.delta", "thinking": "m"},
    {"type": "thinking.delta", "thinking": "", "fidelity": {"s": 1.5, "wire": "w", "host": "h"}},
    {"type": "thinking.done", "thinking": "hm", "fidelity": {"s": 1.5, "wire": "w", "host": "h"}},
    {"type": "thinking.delta", "thinking": "again"},
    {"type": "thinking.done", "thinking": "again"},
    {"type": "inline_thinking.delta", "data": b"\0\1", "mime_type": "image/png"},
    {"type": "inline_thinking.done", "data": b"\0\1", "mime_type": "image/png"},
    {"type": "text.delta", "text": "a\u2028😀", "fidelity": {"big": 2**70}},
    {"type": "text.delta", "text": "b"},
    {"type": "text.done", "text": "a\u2028😀b", "fidelity": {"big": 2**70}},
    {"type": "inline_data.delta", "data": b"\xff", "mime_type": "image/png", "fidelity": {"a": []}},
    {"type": "inline_data.done", "data": b"\xff", "mime_type": "image/png", "fidelity": {"a": []}},
    {"type": "inline_data.delta", "data": b"\xff", "mime_type": "image/png"},
    {"type": "inline_data.done", "data": b"\xff", "mime_type": "image/png"},
    {"type": "inline_data.delta", "data": b"so", "mime_type": "audio/pcm"},
    {"type": "inline_data.delta", "data": b"und", "mime_type": "audio/pcm"},
    {"type": "inline_data.done", "data": b"sound", "mime_type": "audio/pcm"},
    {"type": "embedding.delta", "embedding": [0.1, -2.0], "fidelity": {"e": "é"}},
    {"type": "embedding.done", "embedding": [0.1, -2.0], "fidelity": {"e": "é"}},
    {"type": "embedding.delta", "embedding": []},
    {"type": "embedding.done", "embedding": []},
    {"type": "tool_call.delta", "name": "f", "arguments": "", "tool_call_id": "1",
     "fidelity": {"phase": "x"}},
    {"type": "tool_call.delta", "name": "", "arguments": '{"a": 1e2,', "tool_call_id": ""},
    {"type": "tool_call.delta", "name": "", "arguments": '"b": 1}', "tool_call_id": ""},
    {"type": "tool_call.done", "name": "f", "arguments": {"a": 100.0, "b": 1}, "tool_call_id": "1",
     "fidelity": {"phase": "x"}},
    {"type": "tool_call.delta", "name": "f", "arguments": "", "tool_call_id": "2"},
    {"type": "tool_call.done", "name": "f", "arguments": {}, "tool_call_id": "2"},
    {"type": "tool_call.delta", "name": "f", "arguments": "{}", "tool_call_id": "3"},
    {"type": "tool_call.done", "name": "f", "arguments": {}, "tool_call_id": "3"},
]  # fmt: skip


@pytest.mark.parametrize("reason", ["stop", "length", "tool_call", "content_filter", "unknown"])
def test_every_kind_of_item_passes_through_unchanged(reason: str) -> None:
    reason = "tool_call" if reason == "stop" else reason  # it has calls
    stop = {"usage_metadata": USAGE, "finish_reason": reason}
    assert_passed_on(Told(EACH_KIND, stop))


def test_no_mark_is_added_to_a_fidelity_and_none_is_changed() -> None:
    for fidelity in ({}, {"a": 1}, {"wire": "openai_chat", "host": "h", "a": 1}, {"wire": None}):
        seen = read(wire.text("a", fidelity), *wire.ending())
        kept = [item.get("fidelity") for item in seen.items]
        assert kept == ([fidelity, fidelity] if fidelity else [None, None])
        assert json.dumps(kept[0]) == json.dumps(fidelity or None)


# ---- what a server of somebody else's may do


def test_finished_items_without_deltas_are_items_of_their_own() -> None:
    done = [each for each in EACH_KIND if each["type"].endswith(".done")]
    seen = told(
        CLIENT, TARGET, [sent(done, {"finish_reason": "tool_call", "usage_metadata": USAGE})]
    )
    assert seen.error is None
    assert [each for each in seen.items if each["type"].endswith(".done")] == done
    assert len(seen.items) == 2 * len(done)


def test_deltas_without_finished_items_are_finished_here() -> None:
    deltas = [each for each in EACH_KIND if each["type"].endswith(".delta")]
    seen = told(CLIENT, TARGET, [sent(deltas, {"finish_reason": "stop", "usage_metadata": None})])
    assert seen.error is None
    assert [each for each in seen.items if each["type"].endswith(".delta")] == deltas
    assert sum(each["type"].endswith(".done") for each in seen.items) == 11  # both thoughts as one
    assert seen.stop == {"finish_reason": "tool_call", "usage_metadata": dict.fromkeys(USAGE)}


def test_several_items_in_one_event_and_items_in_the_stop_are_taken_in_order() -> None:
    items = [{"type": "text.delta", "text": "a"}, {"type": "text.delta", "text": "b"}]
    event: Any = {"event_type": "delta", "content_items": items}
    stop = {"event_type": "stop", "content_items": [PICTURE], "finish_reason": "stop"}
    lines = [f"data: {json.dumps(each)}\n\n".encode() for each in (event, stop)]
    assert shown(read(*lines)) == [
        "text.delta a", "text.delta b", "text.done ab",
        "inline_data.delta b'\\x00\\x01\\x02'", "inline_data.done b'\\x00\\x01\\x02'",
    ]  # fmt: skip


def test_a_call_that_repeats_its_name_and_id_goes_on() -> None:
    seen = read(
        wire.tool_call(0, "1", "f", '{"a":'),
        wire.tool_call(0, "1", "f", "1}"),
        wire.tool_call(0, "2", "f", "{}"),
        wire.usage(),
    )
    assert [item for item in seen.items if item["type"] == "tool_call.done"] == [
        {"type": "tool_call.done", "name": "f", "arguments": {"a": 1}, "tool_call_id": "1"},
        {"type": "tool_call.done", "name": "f", "arguments": {}, "tool_call_id": "2"},
    ]


@pytest.mark.parametrize(
    "finished",
    [
        wire.delta("text.done", text="ab!"),
        wire.delta("text.done", text="a"),
        wire.delta("text.done"),
    ],
)
def test_a_finished_item_that_its_pieces_do_not_make_is_refused(finished: bytes) -> None:
    seen = read(wire.text("a"), wire.text("b"), finished, *wire.ending())
    assert shown(seen) == ["text.delta a", "text.delta b"]
    assert isinstance(seen.error, StreamProtocolError)
    assert "finished text item differs" in str(seen.error)


CALL: dict[str, Any] = {"name": "f", "arguments": {"a": 1}, "tool_call_id": "1"}
PIECES: list[tuple[bytes, dict[str, Any]]] = [
    (wire.thinking("hm"), {"type": "thinking.done", "thinking": "hm!"}),
    (wire.tool_call(0, "1", "f", '{"a":1}'), {"type": "tool_call.done", **CALL, "name": "g"}),
    (wire.tool_call(0, "1", "f", '{"a":1}'), {"type": "tool_call.done", **CALL, "arguments": {}}),
    (wire.tool_call(0, "1", "f", '{"a":1}'), {"type": "tool_call.done", "arguments": {"a": 1}}),
    (
        wire.delta("inline_data.delta", data="AAEC", mime_type="audio/pcm"),
        {**PICTURE, "type": "inline_data.done", "data": "AAED", "mime_type": "audio/pcm"},
    ),
    (
        wire.delta("embedding.delta", embedding=[1.0]),
        {"type": "embedding.done", "embedding": [1.0, 2.0]},
    ),
    (
        wire.text("a", {"s": 1}),
        {"type": "text.done", "text": "a", "fidelity": {"s": 2}},
    ),
]


@pytest.mark.parametrize(("piece", "finished"), PIECES)
def test_so_is_one_of_any_kind(piece: bytes, finished: dict[str, Any]) -> None:
    seen = read(piece, wire.delta(finished.pop("type"), **finished), *wire.ending())
    assert isinstance(seen.error, StreamProtocolError)
    assert all(item["type"].endswith(".delta") for item in seen.items)


def test_a_fidelity_that_comes_with_the_finished_item_alone_is_kept() -> None:
    seen = read(wire.text("a"), wire.delta("text.done", {"s": 1}, text="a"), *wire.ending())
    assert seen.items == [
        {"type": "text.delta", "text": "a"},
        {"type": "text.delta", "text": "", "fidelity": {"s": 1}},
        {"type": "text.done", "text": "a", "fidelity": {"s": 1}},
    ]


def test_a_fidelity_that_comes_with_a_later_piece_of_a_call_is_kept() -> None:
    late = {"type": "tool_call.delta", "name": "", "arguments": "}", "tool_call_id": ""}
    seen = read(wire.tool_call(0, "1", "f", "{"), wire.delta(late.pop("type"), {"s": 1}, **late))
    assert [item.get("fidelity") for item in seen.items] == [None, None, {"s": 1}]
    assert [item["arguments"] for item in seen.items] == ["{", "}", ""]


def test_half_a_character_is_replaced_wherever_it_stands() -> None:
    done = {"name": "f", "arguments": {"\ud83d": ["\ude00", "😀", 1]}, "tool_call_id": "1"}
    seen = read(wire.delta("tool_call.done", {"\udfff": "\ud800"}, **done), wire.usage())
    assert seen.items[-1] == {
        "type": "tool_call.done",
        "name": "f",
        "arguments": {"\ufffd": ["\ufffd", "😀", 1]},
        "tool_call_id": "1",
        "fidelity": {"\ufffd": "\ufffd"},
    }


# ---- ends


def test_nothing_counts_after_the_stop() -> None:
    for more in (
        wire.text("b"),
        wire.usage(finish_reason="length"),
        wire.error("no"),
        b"data: {\n\n",
    ):
        seen = read(wire.text("a"), wire.usage(), more, wire.done())
        assert shown(seen) == ["text.delta a", "text.done a"]
        assert seen.stop == {"usage_metadata": USAGE, "finish_reason": "stop"}


@pytest.mark.parametrize("end", [b"", wire.done(), wire.keep_alive() + wire.done()])
@pytest.mark.parametrize(
    "came", [b"", wire.text("a"), wire.text("a") + wire.delta("text.done", text="a")]
)
def test_a_stream_without_a_stop_was_cut(came: bytes, end: bytes) -> None:
    seen = read(came, end)
    assert isinstance(seen.error, IncompleteStreamError)
    assert seen.error.missing == ("finish_reason", "usage_metadata")
    assert not any(line.startswith("text.done") for line in shown(seen))


@pytest.mark.parametrize(
    ("usage", "read_as"),
    [
        (None, dict.fromkeys(USAGE)),
        ({}, dict.fromkeys(USAGE)),
        ([], dict.fromkeys(USAGE)),
        ("many", dict.fromkeys(USAGE)),
        ({"prompt_tokens": 3}, {**dict.fromkeys(USAGE), "prompt_tokens": 3}),
        ({"prompt_tokens": "3", "cached_tokens": 2.0, "response_tokens": True, "more": 1},
         {**dict.fromkeys(USAGE), "prompt_tokens": 3, "cached_tokens": 2}),
        ({**USAGE, "response_tokens": 2**70}, {**USAGE, "response_tokens": 2**70}),
    ],
)  # fmt: skip
def test_odd_counts_never_end_a_stream(usage: Any, read_as: Any) -> None:
    stop = {"event_type": "stop", "usage_metadata": usage, "finish_reason": "stop"}
    seen = read(wire.text("a"), f"data: {json.dumps(stop)}\n\n".encode())
    assert seen.stop == {"usage_metadata": read_as, "finish_reason": "stop"}


@pytest.mark.parametrize("word", ["tired", "", None, 5, ["stop"]])
def test_a_reason_that_is_none_is_unknown(word: Any) -> None:
    stop = {"event_type": "stop", "finish_reason": word}
    seen = read(wire.text("a"), f"data: {json.dumps(stop)}\n\n".encode())
    assert seen.stop["finish_reason"] == "unknown"


def test_an_answer_of_thinking_alone_is_empty_here_too() -> None:
    assert isinstance(read(wire.thinking("hm"), *wire.ending()).error, EmptyResponseError)


def test_a_call_that_was_finished_counts_as_whole_whatever_the_limit() -> None:
    call = wire.tool_call(0, "1", "f", '{"a":1}')
    cut = read(call, wire.usage(finish_reason="length"))
    assert isinstance(cut.error, ToolCallArgumentParseError)
    whole = read(call, wire.delta("tool_call.done", **CALL), wire.usage(finish_reason="length"))
    assert whole.error is None


@pytest.mark.parametrize("text", ["{", "[1]", "3", "{" * 100_000, '{"a":' * 300 + "1" + "}" * 300])
def test_arguments_that_are_no_object_are_judged_here_too(text: str) -> None:
    for finished in (b"", wire.delta("tool_call.done", **CALL)):
        seen = read(wire.tool_call(0, "1", "f", text), finished, wire.usage())
        assert isinstance(seen.error, ToolCallArgumentParseError | StreamProtocolError)
        assert not any(item["type"] == "tool_call.done" for item in seen.items)


# ---- failures


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_event_is_the_class_it_was(kind: type[MMSPError]) -> None:
    error = filled(kind)
    seen = read(wire.text("a"), failure(error), wire.done())
    assert type(seen.error) is kind
    assert str(seen.error) == str(error)
    assert vars(seen.error) == vars(error)
    assert shown(seen) == ["text.delta a"]


def test_a_stream_that_an_operator_ended_says_why() -> None:
    error = wire.error("ended by its id", "StreamAbortedError", client="C", reason="an operator")
    seen = read(wire.text("a"), error, wire.done())
    assert isinstance(seen.error, StreamAbortedError)
    assert (seen.error.reason, seen.error.retryable) == ("an operator", False)


@pytest.mark.parametrize(
    ("said", "error_type", "message"),
    [
        ({"type": "KeyError", "message": "'k'"}, "KeyError", "'k'"),
        ({"type": "KeyError"}, "KeyError", "KeyError"),
        ({"message": "m"}, None, "m"),
        ("text", None, "text"),
        ([], None, "the server reported a failure and gave no reason"),
        (5, None, "the server reported a failure and gave no reason"),
    ],
)
def test_what_has_no_class_here_is_an_upstream_error(
    said: Any, error_type: str | None, message: str
) -> None:
    seen = read(wire.text("a"), f"data: {json.dumps({'error': said})}\n\n".encode())
    error = seen.error
    assert type(error) is UpstreamError
    assert (error.error_type, str(error), error.error) == (error_type, message, said)
    assert (error.client, error.status) == ("C", None)


@pytest.mark.parametrize(
    "event",
    [
        b'event: error\ndata: {"message": "down"}\n\n',
        b"event: error\ndata: down\n\n",
        b'data: {"type": "error", "message": "down"}\n\n',
        b'data: {"base_resp": {"status_code": 1, "status_msg": "down"}}\n\n',
    ],
)
def test_a_failure_that_a_gateway_reports_is_told(event: bytes) -> None:
    seen = read(wire.text("a"), event)
    assert isinstance(seen.error, ProviderStreamError)
    assert "down" in str(seen.error)


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ({"error": error_to_wire(filled(StreamAbortedError))}, StreamAbortedError, "what happened"),
        ({"error": {"type": "x", "message": "busy"}}, ProviderStreamError, "busy"),
        ({"detail": "busy"}, ProviderStreamError, "busy"),
        ({"hello": 1}, StreamProtocolError, "hello"),
        ([1], StreamProtocolError, "neither"),
    ],
)
def test_a_body_that_is_no_stream(body: Any, kind: type[MMSPError], said: str) -> None:
    seen = told(CLIENT, TARGET, [json.dumps(body).encode()])
    assert type(seen.error) is kind
    assert said in str(seen.error)


def test_a_whole_message_is_read_as_an_answer() -> None:
    body = json.dumps(wire.completion("All is well")).encode()
    seen = told(CLIENT, TARGET, [body])
    assert shown(seen) == ["text.delta All is well", "text.done All is well"]
    assert seen.stop["finish_reason"] == "stop"


# ---- what nobody knows


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"event_type": "news"}\n\n',
        b'data: {"hello": "world"}\n\n',
        wire.delta("image_url.done", image_url="https://a.test"),
        wire.delta("smell.delta", smell="of roses"),
        wire.delta("done"),
    ],
)
def test_what_nobody_knows_is_skipped_or_an_error_in_strict_mode(event: bytes) -> None:
    assert shown(read(wire.text("a"), event, wire.text("b"), *wire.ending())) == [
        "text.delta a", "text.delta b", "text.done ab"
    ]  # fmt: skip
    strict = read(wire.text("a"), event, strict=True)
    assert isinstance(strict.error, UnknownEventError)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "text.delta", "text": "a", "fidelity": {"n": float("nan")}},
        {"type": "embedding.delta", "embedding": [1.0, "two"]},
        {"type": "embedding.delta", "embedding": [float("inf")]},
        {"type": "embedding.delta"},
        {"type": "inline_data.delta", "data": "é", "mime_type": "image/png"},
        {"type": "tool_call.delta", "name": "", "arguments": "{}", "tool_call_id": ""},
        {"type": "tool_call.delta", "name": "f", "arguments": "{}"},
    ],
)
def test_an_item_that_no_history_could_hold_is_refused(item: dict[str, Any]) -> None:
    event = {"event_type": "delta", "content_items": [item]}
    seen = read(f"data: {json.dumps(event)}\n\n".encode(), wire.usage())
    assert isinstance(seen.error, StreamProtocolError)
    assert seen.items == []


@pytest.mark.parametrize("fidelity", ["text", 5, [1], True])
def test_a_fidelity_that_is_no_object_is_none(fidelity: Any) -> None:
    seen = read(wire.delta("text.delta", fidelity, text="a"), *wire.ending())
    assert [item.get("fidelity") for item in seen.items] == [None, None]


# ---- anything


EVENTS = [
    wire.text("a"), wire.text("", {"s": 1}), wire.text("b", {"s": 2}), wire.thinking("t"),
    wire.tool_call(0, "1", "f", '{"a":'), wire.arguments(0, "1}"), wire.tool_call(0, "2", "g"),
    wire.delta("text.done", text="a"), wire.delta("text.done", text="ab"),
    wire.delta("thinking.done", {"s": 3}, thinking="t"), wire.delta("tool_call.done", **CALL),
    wire.delta("inline_data.delta", data="AA==", mime_type="image/png"),
    wire.delta("inline_data.delta", data="AA==", mime_type="audio/pcm"),
    wire.delta("inline_data.done", data="AA==", mime_type="audio/pcm"),
    wire.delta("embedding.delta", embedding=[1.0]), wire.usage(), wire.usage(finish_reason="length"),
    wire.error("e"), wire.done(), wire.keep_alive(),
]  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(EVENTS), max_size=10))
def test_events_in_any_order_keep_to_the_grammar_or_are_one_error(events: list[bytes]) -> None:
    seen = read(*events)
    assert isinstance(seen.error, MMSPError | None)
    for item, after in itertools.pairwise(seen.items):
        if item["type"].endswith(".delta"):
            kind = item["type"].removesuffix(".delta")
            assert after["type"] in (f"{kind}.delta", f"{kind}.done")
    assert (seen.stop is None) == (seen.error is not None)
    if seen.stop is not None:
        assert_passed_on(seen)  # what came out is what a server of ours would send
