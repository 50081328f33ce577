# ruff: noqa: E501 (a row of a table stays on one line)
"""What a Messages server's answer becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmsp import errors
from mmsp.ant_messages.client import AntMessagesClient
from mmsp.anthropic_official.client import AnthropicOfficialClient
from mmsp.codecs.anthropic_messages_decoder import REDACTED
from mmsp.request import Target
from mmsp.testing import messages as wire
from mmsp.testing.sse import event
from tests.reading import Told, told

TARGET = Target("https://api.anthropic.com")
OURS = {"wire": "anthropic_messages", "host": "api.anthropic.com"}
END = wire.block_stop(0) + wire.finish() + wire.usage(5) + wire.done()


def answer(*events: bytes, client: Any = AntMessagesClient, strict: bool = False) -> Told:
    return told(client, TARGET, events, strict=strict)


def done(seen: Told) -> list[Any]:
    assert seen.error is None, seen.error
    return [item for item in seen.items if item["type"].endswith(".done")]


def text(words: str, **fidelity: Any) -> dict[str, Any]:
    item = {"type": "text.done", "text": words}
    return item | ({"fidelity": {**fidelity, **OURS}} if fidelity else {})


def thinking(words: str, **fidelity: Any) -> dict[str, Any]:
    item = {"type": "thinking.done", "thinking": words}
    return item | ({"fidelity": {**fidelity, **OURS}} if fidelity else {})


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call.done", "name": name, "arguments": arguments, "tool_call_id": call_id}


def test_a_turn_with_thinking_text_and_two_calls() -> None:
    seen = answer(
        wire.start(8, 2),
        wire.ping(),
        wire.block(0, "thinking", thinking=""),
        wire.thinking("need "),
        wire.thinking("weather"),
        wire.signature("S"),
        wire.block_stop(0),
        wire.block(1, "text", text=""),
        wire.text("Let me look.", 1),
        wire.block_stop(1),
        wire.tool_call(2, "t1", "w", '{"q":'),
        wire.arguments(2, "1}"),
        wire.block_stop(2),
        wire.tool_call(3, "t2", "v"),
        wire.block_stop(3),
        wire.finish("tool_use"),
        wire.usage(9),
        wire.done(),
    )
    assert done(seen) == [
        thinking("need weather", signature="S"),
        text("Let me look."),
        call("w", "t1", q=1),
        call("v", "t2"),
    ]
    assert seen.stop == {
        "finish_reason": "tool_call",
        "usage_metadata": {
            "cached_tokens": 2,
            "prompt_tokens": 8,
            "thoughts_tokens": None,
            "response_tokens": 9,
        },
    }


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "unknown"),
        ("model_context_window_exceeded", "unknown"),
    ],
)
def test_why_it_ended(word: str, reason: str) -> None:
    seen = answer(wire.start(), wire.text("a"), wire.finish(word), wire.done())
    assert seen.stop["finish_reason"] == reason


def test_a_turn_that_ends_with_a_call_ends_to_call_it() -> None:
    seen = answer(wire.tool_call(0, "t", "f", "{}"), wire.block_stop(0), wire.finish(), wire.done())
    assert seen.stop["finish_reason"] == "tool_call"


USAGES = [
    ({"input_tokens": 8, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 2}, {"output_tokens": 9}, (2, 12, None, 9)),
    ({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 7, "cache_read_input_tokens": 1, "output_tokens": 9}, (1, 7, None, 9)),
    ({"input_tokens": 7}, {"cache_read_input_tokens": 3, "output_tokens": 9}, (3, 7, None, 9)),
    ({}, {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}, (None, None, 4, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("first", "last", "counts"), USAGES)
def test_usage_comes_at_the_start_and_at_the_end(first: Any, last: Any, counts: Any) -> None:
    begun = event({"type": "message_start", "message": {"usage": first}})
    ended = event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last})
    seen = answer(begun, wire.text("a"), ended, wire.done())
    assert tuple(seen.stop["usage_metadata"].values()) == counts
    official = answer(begun, wire.text("a"), ended, wire.done(), client=AnthropicOfficialClient)
    if first.get("input_tokens") and "cache_read_input_tokens" not in last:
        assert official.stop == seen.stop


def test_what_was_sealed_is_marked_and_kept() -> None:
    seen = answer(
        wire.block(0, "redacted_thinking", data="SEALED"),
        wire.block_stop(0),
        wire.text("a", 1),
        END,
    )
    assert done(seen)[0] == thinking(REDACTED, signature="SEALED")


def test_a_thought_that_is_not_shown_has_its_signature() -> None:
    seen = answer(
        wire.block(0, "thinking", thinking=""), wire.signature("S"), wire.text("a", 1), END
    )
    assert done(seen)[0] == thinking("", signature="S")


def test_a_start_may_hold_what_it_begins_with() -> None:
    seen = answer(
        wire.block(0, "thinking", thinking="hm", signature="S"),
        wire.block(1, "text", text="He"),
        wire.text("llo", 1),
        wire.block(2, "tool_use", id="t", name="f", input={"q": 1}),
        wire.block_stop(2),
        wire.finish("tool_use"),
        wire.done(),
    )
    assert done(seen) == [thinking("hm", signature="S"), text("Hello"), call("f", "t", q=1)]


def test_pieces_count_where_a_start_said_the_same() -> None:
    seen = answer(
        wire.block(0, "tool_use", id="t", name="f", input={"q": 1}),
        wire.arguments(0, '{"q": 2}'),
        END,
    )
    assert done(seen) == [call("f", "t", q=2)]


def test_a_turn_made_by_a_tools_program_is_whole_in_its_start() -> None:
    content = [{"type": "tool_use", "id": "t", "name": "f", "input": {"p": 2}}]
    message = {"content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 0}}
    seen = answer(event({"type": "message_start", "message": message}), wire.done())
    assert done(seen) == [call("f", "t", p=2)]
    assert seen.stop["finish_reason"] == "tool_call"


@pytest.mark.parametrize(
    "events",
    [
        [wire.text("a"), wire.text("b"), END],  # no start, no block
        [
            wire.block(0, "text"),
            wire.text("ab"),
            wire.finish(),
            wire.done(),
        ],  # no stop of the block
        [wire.text("ab"), wire.finish(), event("[DONE]")],  # another wire's end
        [each.split(b"\n", 1)[1] for each in (wire.text("ab"), wire.finish(), wire.done())],
    ],
)
def test_what_gateways_leave_out_is_made_up(events: list[bytes]) -> None:
    assert done(answer(*events)) == [text("ab")]


def test_two_blocks_of_one_index_are_two_items() -> None:
    seen = answer(wire.block(0, "text"), wire.text("a"), wire.block(0, "text"), wire.text("b"), END)
    assert done(seen) == [text("a"), text("b")]


SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u", "x": [1]}]}
CODE = {"type": "mcp_tool_use", "id": "m", "name": "run", "server_name": "x", "input": {"a": 1}}


def aside(index: int, block: dict[str, Any], *pieces: str) -> bytes:
    began = event({"type": "content_block_start", "index": index, "content_block": block})
    return began + b"".join(wire.arguments(index, each) for each in pieces) + wire.block_stop(index)


def test_what_server_side_tools_do_rides_with_the_item_that_follows() -> None:
    seen = answer(
        wire.text("Searching", 0),
        wire.block_stop(0),
        aside(1, SEARCH, '{"query":', '"q"}'),
        aside(2, FOUND),
        wire.block(3, "text", text=""),
        wire.delta(3, "citations_delta", citation={"url": "u"}),
        wire.text("Found", 3),
        aside(4, CODE),
        wire.tool_call(5, "t", "f", "{}"),
        END,
    )
    asked = {**SEARCH, "input": {"query": "q"}}
    first, second, third = done(seen)
    assert first == text("Searching")
    assert second == text("Found", beside=[asked, FOUND])
    assert third["fidelity"] == {"beside": [CODE], **OURS}


def test_a_compaction_is_kept_with_the_summary_that_came_in_its_delta() -> None:
    block = {"type": "compaction", "content": None}
    seen = answer(
        event({"type": "content_block_start", "index": 0, "content_block": block}),
        wire.delta(0, "compaction_delta", content="So far: rain."),
        wire.block_stop(0),
        wire.text("And now", 1),
        END,
    )
    (only,) = done(seen)
    assert only == text("And now", beside=[{"type": "compaction", "content": "So far: rain."}])


def test_another_model_that_goes_on_is_no_unknown_event() -> None:
    block = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
    began = event({"type": "content_block_start", "index": 1, "content_block": block})
    seen = answer(wire.text("a"), began, wire.block_stop(1), wire.text("b", 2), END, strict=True)
    assert seen.error is None
    assert [each["text"] for each in done(seen)] == ["a", "b"]


def test_a_turn_that_paused_after_a_tool_keeps_it() -> None:
    seen = answer(wire.text("a"), aside(1, SEARCH), wire.finish("pause_turn"), wire.done())
    assert done(seen) == [text("a"), text("", beside=[SEARCH])]


@pytest.mark.parametrize(
    ("event", "code", "said"),
    [
        (wire.error("Busy"), "overloaded_error", "Busy"),
        (b'event: error\ndata: {"message":"Busy"}\n\n', None, "Busy"),
        (b"event: error\ndata: no JSON\n\n", None, "no JSON"),
        (b'data: {"error":{"message":"Busy"}}\n\n', None, "Busy"),
    ],
)
def test_a_failure_in_the_stream_is_the_providers(event: bytes, code: Any, said: str) -> None:
    seen = answer(wire.text("a"), event)
    assert isinstance(seen.error, errors.ProviderStreamError)
    assert said in str(seen.error)
    assert seen.error.error_type == code


def test_arguments_without_a_call_break_the_wires_rules() -> None:
    seen = answer(wire.arguments(0, "{}"), END)
    assert isinstance(seen.error, errors.StreamProtocolError)


@pytest.mark.parametrize(
    "event",
    [
        event({"type": "content_block_start", "index": 0, "content_block": {"type": "novel"}}),
        event({"type": "message_novelty"}),
        wire.delta(0, "novel_delta", novelty=1),
    ],
)
def test_what_nobody_knows_is_skipped_unless_read_strictly(event: bytes) -> None:
    assert done(answer(event, wire.text("a", 1), END)) == [text("a")]
    assert isinstance(answer(event, strict=True).error, errors.UnknownEventError)
    for known in (wire.ping(), wire.delta(0, "compaction_delta")):
        assert answer(wire.text("a"), known, END, strict=True).error is None


def test_a_whole_message_is_taken_as_one() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "S"},
        {"type": "redacted_thinking", "data": "D"},
        SEARCH,
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"q": 1}},
    ]
    whole = {
        "type": "message",
        "content": content,
        "stop_reason": "tool_use",
        "usage": {"output_tokens": 3},
    }
    seen = answer(json.dumps(whole).encode())
    assert done(seen) == [
        thinking("hm", signature="S"),
        thinking(REDACTED, signature="D"),
        text("a", beside=[SEARCH]),
        call("f", "t", q=1),
    ]
    assert seen.stop["usage_metadata"]["response_tokens"] == 3


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            b'{"type":"error","error":{"type":"api_error","message":"x"}}',
            errors.ProviderStreamError,
        ),
        (b'{"content":"text"}', errors.StreamProtocolError),
        (b"[]", errors.StreamProtocolError),
        (b"<html>", errors.StreamProtocolError),
    ],
)
def test_what_is_neither_has_its_error(body: bytes, error: type[Exception]) -> None:
    assert isinstance(answer(body).error, error)


def test_characters_cut_in_two_are_put_together_for_each_block() -> None:
    half = (
        rb'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ud83d"}}'
    )
    rest = (
        rb'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ude00!"}}'
    )
    seen = answer(*(b"data: " + each + b"\n\n" for each in (half, rest)), END)
    assert done(seen) == [text("\U0001f600!")]
