"""What a Responses server's answer becomes."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from mmsp import dumps, errors, loads
from mmsp.openai_responses.client import OpenAIResponsesClient
from mmsp.testing import responses
from tests.message_words import assistant, text, thinking, tool_call, user
from tests.reading import Told, told
from tests.responses_words import (
    OURS,
    TARGET,
    Answer,
    Json,
    added,
    argued,
    call_added,
    call_done,
    call_item,
    completed,
    done,
    event,
    in_short,
    input_of,
    message,
    mused,
    said,
    summarized,
    thought,
)

USAGE = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 10},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 5},
}
COUNTED = {"cached_tokens": 10, "prompt_tokens": 20, "thoughts_tokens": 5, "response_tokens": 7}


def sealed(words: str, seal: str = "E", **more: Any) -> Any:
    return thinking(words, encrypted_content=seal, **more, **OURS)


def test_a_stream_with_thinking_and_a_call() -> None:
    answer = Answer(
        event("created", response={"status": "in_progress"}, sequence_number=0),
        event("in_progress", response={"status": "in_progress"}),
        added(0, "reasoning", id="r1", summary=[]),
        in_short(0, "need ", item_id="r1", summary_index=0),
        in_short(0, "weather", item_id="r1", summary_index=0),
        done(0, "reasoning", id="r1", summary=[{"text": "need weather"}], encrypted_content="E"),
        added(1, "message", id="m1", phase="commentary", content=[]),
        said(1, "I ", item_id="m1"),
        said(1, "look", item_id="m1"),
        event("output_text.done", output_index=1, text="I look"),
        done(1, "message", id="m1", content=[{"type": "output_text", "text": "I look"}]),
        call_added(2, arguments=""),
        argued(2, '{"q"', item_id="fc_c1"),
        argued(2, ":1}", item_id="fc_c1"),
        event("function_call_arguments.done", output_index=2, arguments='{"q":1}'),
        call_done(2, arguments='{"q":1}'),
    )
    terminal = [answer.decoder.terminal]
    answer.feed(completed(usage=USAGE, output=[{"type": "message"}]))
    terminal.append(answer.decoder.terminal)
    assert terminal == [False, True]
    assert answer.end() == {
        "role": "assistant",
        "content_items": [
            sealed("need weather", channel="summary"),
            text("I look", phase="commentary", **OURS),
            tool_call(arguments={"q": 1}),
        ],
        "usage_metadata": COUNTED,
        "finish_reason": "tool_call",
    }
    assert answer.sent() == [
        *["thinking.delta"] * 3, "thinking.done",
        *["text.delta"] * 3, "text.done",
        *["tool_call.delta"] * 3, "tool_call.done",
    ]  # fmt: skip


WHOLE_MESSAGE = {
    "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
}
FALLBACKS: dict[str, tuple[list[Json], list[Any]]] = {
    "no argument deltas": (
        [
            call_added(0),
            event("function_call_arguments.done", output_index=0, arguments='{"x":1}'),
            call_done(0, arguments='{"x":1}'),
        ],
        [tool_call(arguments={"x": 1})],
    ),
    "no argument event at all": (
        [call_added(0), call_done(0, arguments='{"x":1}')],
        [tool_call(arguments={"x": 1})],
    ),
    "done events alone": (
        [
            done(0, "reasoning", content=[{"text": "t"}]),
            done(1, "message", **WHOLE_MESSAGE),
            event("function_call_arguments.done", output_index=2, arguments='{"x":1}'),
            call_done(2, arguments='{"x":1}'),
        ],
        [thinking("t"), text("ab"), tool_call(arguments={"x": 1})],
    ),
    "announced, then done alone": (
        [
            added(0, "reasoning"),
            done(0, "reasoning", summary=[{"text": "t"}, {"text": "u"}]),
            added(1, "message", phase="commentary"),
            done(1, "message", **WHOLE_MESSAGE),
        ],
        [thinking("tu", channel="summary", **OURS), text("ab", phase="commentary", **OURS)],
    ),
    "done alone, every item at place 0": (
        [done(0, "message", **WHOLE_MESSAGE), call_done(0), call_done(0, "c2"), call_done(0, "c2")],
        [text("ab"), tool_call(), tool_call("c2")],
    ),
    "every item at place 0": (
        [
            added(0, "message", id="m"),
            said(0, "a"),
            done(0, "message", id="m"),
            added(0, "message", id="n"),
            said(0, "b"),
            call_added(0),
            argued(0, "{}"),
            call_done(0),
            call_added(0, "c2"),
            argued(0, "{}"),
            call_done(0, "c2"),
        ],
        [text("a"), text("b"), tool_call(), tool_call("c2")],
    ),
    "empty pieces": (
        [mused(0, ""), in_short(0, ""), said(1, ""), call_added(2), argued(2, ""), call_done(2)],
        [tool_call()],
    ),
    "arguments as an object": (
        [call_added(0), call_done(0, arguments={"x": [1]})],
        [tool_call(arguments={"x": [1]})],
    ),
    "name and id in the done item alone": (
        [done(0, "function_call", call_id="c1", name="f")],
        [tool_call()],
    ),
    "a call's id is its item's": (
        [call_added(0, call_id=None, id="i"), call_done(0, call_id=None, id="i")],
        [tool_call("i")],
    ),
    "an id that changes with every event": (
        [
            added(0, "message", id="x1"),
            said(0, "a", item_id="x2"),
            said(0, "b", item_id="x3"),
            done(0, "message", id="x4", **WHOLE_MESSAGE),
            call_added(1, id="y1"),
            argued(1, '{"x"', item_id="y2"),
            argued(1, ":1}", item_id="y3"),
            call_done(1, id="y4"),
            mused(2, "t", item_id="z1"),
            mused(2, "u", item_id="z2"),
            done(2, "reasoning", id="z3", encrypted_content="E"),
            said(3, "c"),
        ],
        [text("ab"), tool_call(arguments={"x": 1}), sealed("tu"), text("c")],
    ),
    "no output_index": (
        [
            added(None, "reasoning", id="r"),
            mused(None, "t", item_id="r"),
            done(None, "reasoning", id="r", encrypted_content="E"),
            added(None, "message", id="m"),
            said(None, "a", item_id="m"),
            said(None, "b", item_id="n"),
            done(None, "message", id="n"),
            call_added(None),
            call_added(None, "c2"),
            argued(None, '{"x":2}', item_id="fc_c2"),
            argued(None, "{}", item_id="fc_c1"),
            call_done(None),
            call_done(None, "c2"),
        ],
        [sealed("t"), text("a"), text("b"), tool_call(), tool_call("c2", arguments={"x": 2})],
    ),
    "no output_index and ids that change": (
        [
            added(None, "reasoning", id="r1"),
            done(None, "reasoning", id="r2", encrypted_content="E"),
            call_added(None),
            argued(None, '{"x":1}', item_id="other"),
            call_done(None, id="another"),
            said(None, "a"),
        ],
        [sealed(""), tool_call(arguments={"x": 1}), text("a")],
    ),
    "no output_index on the deltas": (
        [call_added(0), argued(None, '{"x":1}', item_id="fc_c1"), call_done(0)],
        [tool_call(arguments={"x": 1})],
    ),
    "deltas without any announcement": (
        [mused(0, "t"), said(1, "a"), said(1, "b"), in_short(2, "u"), said(3, "c")],
        [thinking("t"), text("ab"), thinking("u"), text("c")],
    ),
    "announced twice": (
        [
            added(0, "message", id="m"),
            added(0, "message", id="m"),
            said(0, "a"),
            call_added(1),
            call_added(1),
            argued(1, "{}"),
            call_done(1),
            call_added(1),
            call_done(1),
        ],
        [text("a"), tool_call()],
    ),
    "parallel calls by turns": (
        [
            call_added(0),
            call_added(1, "c2"),
            argued(0, '{"x"'),
            argued(1, "{"),
            argued(0, ":1}"),
            argued(1, "}"),
            call_done(0),
            call_done(1, "c2"),
        ],
        [tool_call(arguments={"x": 1}), tool_call("c2")],
    ),
    "the next is announced before the seal": (
        [
            added(0, "reasoning", id="r"),
            in_short(0, "t"),
            added(1, "message", id="m", phase="final_answer"),
            done(0, "reasoning", id="r", summary=[{"text": "t"}], encrypted_content="E"),
            said(1, "a"),
        ],
        [sealed("t", channel="summary"), text("a", phase="final_answer", **OURS)],
    ),
    "the call is announced before the seal, no thinking came": (
        [
            added(0, "reasoning", id="r"),
            call_added(1),
            done(0, "reasoning", encrypted_content="E"),
            argued(1, "{}"),
            call_done(1),
        ],
        [sealed(""), tool_call()],
    ),
    "the seal comes among the arguments": (
        [
            mused(0, "t"),
            call_added(1),
            argued(1, '{"x"'),
            done(0, "reasoning", encrypted_content="E"),
            argued(1, ":1}"),
            call_done(1),
            said(2, "a"),
        ],
        [thinking("t"), tool_call(arguments={"x": 1}), sealed(""), text("a")],
    ),
    "the seal comes among the text": (
        [mused(0, "t"), said(1, "a"), done(0, "reasoning", encrypted_content="E"), said(1, "b")],
        [thinking("t"), text("ab"), sealed("")],
    ),
    "only the seal comes, and among the arguments": (
        [
            call_added(1),
            argued(1, '{"x"'),
            done(0, "reasoning", encrypted_content="E"),
            argued(1, ":1}"),
            call_done(1),
        ],
        [tool_call(arguments={"x": 1}), sealed("")],
    ),
    "text that is never done, then sealed reasoning": (
        [said(0, "a"), done(1, "reasoning", encrypted_content="E"), said(2, "b")],
        [text("a"), sealed(""), text("b")],
    ),
    "the seal comes among parallel calls": (
        [
            added(0, "reasoning"),
            call_added(1),
            argued(1, "{"),
            call_added(2, "c2"),
            argued(2, "{"),
            done(0, "reasoning", encrypted_content="E", summary=[{"text": "s"}]),
            argued(1, "}"),
            call_done(1),
            argued(2, "}"),
        ],
        [tool_call(), tool_call("c2"), sealed("s", channel="summary")],
    ),
    "reasoning that is never done": (
        [
            added(0, "reasoning"),
            mused(0, "t"),
            added(1, "message", phase="p"),
            call_added(2),
            argued(2, "{}"),
            call_done(2),
        ],
        [thinking("t"), tool_call(), text("", phase="p", **OURS)],
    ),
    "a phase without any text": (
        [added(0, "message", phase="p"), done(0, "message", content=[])],
        [text("", phase="p", **OURS)],
    ),
    "two reasoning items": (
        [
            mused(0, "t"),
            added(1, "reasoning"),
            done(0, "reasoning", encrypted_content="E"),
            done(1, "reasoning", encrypted_content="F"),
            said(2, "a"),
        ],
        [sealed("t"), sealed("", "F"), text("a")],
    ),
    "a done item said twice": (
        [
            added(0, "reasoning", id="r"),
            *[done(0, "reasoning", id="r", encrypted_content="E")] * 2,
            said(1, "a"),
        ],
        [sealed(""), text("a")],
    ),
    "gateways' own seals": (
        [
            mused(0, "t"),
            done(0, "reasoning", signature="S", format="F", content=[{}]),
            said(1, "a"),
        ],
        [thinking("t", signature="S", format="F", **OURS), text("a")],
    ),
}


@pytest.mark.parametrize("case", FALLBACKS)
def test_what_imitators_say_otherwise(case: str) -> None:
    events, items = FALLBACKS[case]
    assert Answer(*events, completed()).items() == items


def test_a_refusal_is_text() -> None:
    answer = Answer(
        added(0, "message", id="m"),
        event("refusal.delta", output_index=0, delta="I "),
        event("refusal.delta", output_index=0, delta="can not"),
        event("refusal.done", output_index=0, refusal="I can not"),
        done(0, "message", id="m", content=[{"type": "refusal", "refusal": "I can not"}]),
        completed(),
    )
    assert answer.items() == [text("I can not")]
    assert answer.assembler.finish_reason == "stop"


OUTPUT = [
    {"type": "reasoning", "summary": [{"text": "s"}], "encrypted_content": "E"},
    {"type": "web_search_call", "id": "w"},
    {"type": "message", "phase": "commentary", **WHOLE_MESSAGE},
    call_item(arguments='{"x":1}'),
    {"type": "image_generation_call", "result": "AAAA"},
    None,
    {"type": 5},
]
OF_OUTPUT = [
    sealed("s", channel="summary"),
    text("ab", phase="commentary", beside=[{"type": "web_search_call", "id": "w"}], **OURS),
    tool_call(arguments={"x": 1}),
]


@pytest.mark.parametrize("before", [[], [event("created"), added(0, "message", id="m")]])
def test_what_came_in_no_event_is_read_from_the_last(before: list[Json]) -> None:
    answer = Answer(*before, completed(output=OUTPUT, usage=USAGE))
    assert answer.end()["content_items"] == OF_OUTPUT
    assert answer.assembler.usage_metadata == COUNTED


@pytest.mark.parametrize("output", [None, 5, {}, [], [{}], ["message"]])
def test_an_answer_with_nothing_in_it_is_empty(output: Any) -> None:
    with pytest.raises(errors.EmptyResponseError):
        Answer(completed(output=output)).end()


# ---- built-in tools


SEARCH = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "ü"}}
DRAWN = {"type": "image_generation_call", "id": "i", "result": "AAAA"}


def finished(index: int, item: Json) -> list[Json]:
    kind = item["type"]
    return [
        event("output_item.added", output_index=index, item={"type": kind}),
        event(f"{kind}.in_progress", output_index=index),
        event("output_item.done", output_index=index, item=item),
    ]


def test_built_in_tools_items_ride_with_what_follows_and_go_back_after_a_save() -> None:
    code = {"type": "code_interpreter_call", "id": "x", "code": "1+1", "outputs": None}
    answer = Answer(
        *finished(0, SEARCH),
        done(1, "reasoning", encrypted_content="E"),
        *finished(2, code),
        *finished(3, DRAWN),
        *finished(4, SEARCH),
        said(5, "a"),
        *finished(6, SEARCH),
        call_added(7),
        call_done(7),
        *finished(8, code),
        completed(),
        strict=True,
    )
    items = answer.items()
    assert items == [
        thinking("", encrypted_content="E", beside=[SEARCH], **OURS),
        text("a", beside=[code, SEARCH], **OURS),
        tool_call(beside=[SEARCH], **OURS),
        text("", beside=[code], **OURS),
    ]
    saved: Any = loads(dumps([user("q"), assistant(*items)]))
    assert input_of(*saved) == [
        message("user", "q"),
        SEARCH,
        thought(encrypted_content="E"),
        code,
        SEARCH,
        message("assistant", "a"),
        SEARCH,
        call_item(),
        code,
    ]


@pytest.mark.parametrize(
    "kind", ["image_generation_call", "custom_tool_call", "anything_new", 5, None, []]
)
def test_other_items_are_left_out(kind: Any) -> None:
    alien = event("output_item.done", output_index=0, item={"type": kind, "result": "AAAA"})
    assert Answer(alien, [alien], said(1, "a"), completed()).items() == [text("a")]


def test_a_built_in_tools_item_that_cannot_be_saved_is_left_out() -> None:
    half = SEARCH | {"action": {"query": "\ud83d"}}
    assert Answer(*finished(0, half), said(1, "a"), completed()).items() == [text("a")]


# ---- the end


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (completed(), "stop"),
        (completed("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (completed("incomplete", incomplete_details={"reason": "max_messages"}), "length"),
        (completed("incomplete", incomplete_details={"reason": "steered"}), "length"),
        (completed("incomplete", incomplete_details=None), "length"),
        (
            completed("incomplete", incomplete_details={"reason": "content_filter"}),
            "content_filter",
        ),
        (event("completed", response={}), "stop"),
        (event("completed"), "stop"),
        (event("incomplete", response={"status": None}), "length"),
        *(
            (event("completed", response={"status": status}), "unknown")
            for status in ("cancelled", "in_progress", "queued", "odd")
        ),
    ],
)
def test_finish_reasons(last: Json, reason: str) -> None:
    answer = Answer(said(0, "a"), last)
    assert answer.assembler.finish_reason == reason
    assert answer.decoder.terminal


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (USAGE, (10, 20, 5, 7)),
        (USAGE | {"input_tokens_details": None, "output_tokens_details": None}, (None, 30, None, 12)),
        ({"input_tokens": 3, "output_tokens": 4}, (None, 3, None, 4)),
        ({"input_tokens_details": {}, "output_tokens": 4}, (None, None, None, 4)),
        ({"input_tokens": "3", "output_tokens": 4.0, "output_tokens_details": []}, (None, 3, None, 4)),
        (None, None),
        ({}, None),
        (5, None),
    ],
)  # fmt: skip
def test_usage_arithmetic(usage: Any, expected: tuple[int | None, ...] | None) -> None:
    answer = Answer(said(0, "a"), completed(usage=usage))
    seen: Any = answer.assembler.usage_metadata
    assert (seen and tuple(seen.values())) == expected
    counts = answer.end()["usage_metadata"]
    assert tuple(counts.values()) == (expected or (None,) * 4)


FAILED = {"status": "failed", "error": {"code": "server_error", "message": "oh"}, "usage": USAGE}


@pytest.mark.parametrize(
    ("last", "code", "error_type", "retryable"),
    [
        (event("failed", response=FAILED), "server_error", "server_error", True),
        (
            event("failed", response={"error": {"code": "rate_limit_exceeded", "message": "oh"}}),
            "rate_limit_exceeded",
            "rate_limit_exceeded",
            True,
        ),
        (
            event("failed", response={"error": {"code": "invalid_prompt", "message": "oh"}}),
            "invalid_prompt",
            "invalid_prompt",
            False,
        ),
        (event("failed", error={"message": "oh", "code": 500}), 500, None, True),
        ([event("failed", response=FAILED)], "server_error", "server_error", True),
        (event("completed", response={"error": {"message": "oh"}}), None, None, False),
        (event("incomplete", response=FAILED), "server_error", "server_error", True),
        (
            {
                "type": "error",
                "code": "server_error",
                "message": "oh",
                "param": None,
                "sequence_number": 3,
            },
            "server_error",
            "server_error",
            True,
        ),
        (
            {
                "type": "error",
                "error": {"type": "T", "code": "bad", "message": "oh", "param": None},
            },
            "bad",
            "T",
            False,
        ),
        ({"error": {"message": "oh", "code": 429}}, 429, None, True),
        ({"type": "response.unheard_of", "error": "oh"}, None, "response.unheard_of", False),
        ([{"type": "error", "message": "oh"}], None, None, False),
    ],
)
def test_a_failure_inside_the_stream(
    last: Any, code: Any, error_type: str | None, retryable: bool
) -> None:
    answer = Answer(said(0, "a"))
    with pytest.raises(errors.ProviderStreamError, match="oh") as caught:
        answer.feed(last)
    failure = caught.value
    assert (failure.code, failure.error_type) == (code, error_type)
    assert failure.retryable == retryable


@pytest.mark.parametrize("last", [event("failed"), event("failed", response={"status": "failed"})])
def test_a_failure_without_a_reason_is_one(last: Json) -> None:
    with pytest.raises(errors.ProviderStreamError, match="no reason"):
        Answer(said(0, "a"), last)


def test_a_failure_keeps_the_usage_that_came_with_it() -> None:
    answer = Answer(said(0, "a"))
    with pytest.raises(errors.ProviderStreamError):
        answer.feed(event("failed", response=FAILED))
    assert answer.assembler.usage_metadata == COUNTED


@pytest.mark.parametrize(
    ("data", "said_why"),
    [
        (b'{"error":{"message":"oh"}}', "oh"),
        (b'{"type":"server_error","message":"oh"}', "oh"),
        (b'{"message":"oh"}', "oh"),
        (b"oh", "oh"),
        (b'"oh"', "oh"),
        (b'["oh"]', "oh"),
        (b"", "no reason"),
        (b": oh", "no reason"),
    ],
)
def test_an_error_event_is_a_failure_in_any_form(data: bytes, said_why: str) -> None:
    with pytest.raises(errors.ProviderStreamError, match=said_why):
        Answer().decoder.feed("error", data)


def read(*events: Any) -> Told:
    pieces = (b"data: %s\n\n" % json.dumps(each).encode() for each in events)
    return told(OpenAIResponsesClient, TARGET, pieces)


def test_six_ends_are_six_outcomes() -> None:
    """Completed, cut by length, cut by a filter, failed, an error, and no end at all."""
    ends: dict[str, list[Json]] = {
        "completed": [completed(usage=USAGE)],
        "length": [
            completed("incomplete", incomplete_details={"reason": "max_output_tokens"}, usage=USAGE)
        ],
        "content_filter": [
            completed("incomplete", incomplete_details={"reason": "content_filter"}, usage=USAGE)
        ],
        "failed": [event("failed", response=FAILED)],
        "error": [{"type": "error", "error": {"code": "overloaded", "message": "ah"}}],
        "EOF": [],
    }
    seen = {name: read(said(0, "a"), *last) for name, last in ends.items()}
    delta = {"type": "text.delta", "text": "a"}
    assert all(each.items[0] == delta for each in seen.values())
    whole = {"completed": "stop", "length": "length", "content_filter": "content_filter"}
    for name, reason in whole.items():
        assert seen[name].stop == {"usage_metadata": COUNTED, "finish_reason": reason}
        assert seen[name].items[1:] == [text("a")]
    failures = [seen[name].error for name in ("failed", "error", "EOF")]
    assert all(seen[name].items == [delta] for name in ("failed", "error", "EOF"))
    failed, error, cut = failures
    assert isinstance(failed, errors.ProviderStreamError)
    assert isinstance(error, errors.ProviderStreamError)
    assert [str(failed), failed.code] == ["oh", "server_error"]
    assert [str(error), error.code, error.retryable] == ["ah", "overloaded", True]
    assert isinstance(cut, errors.IncompleteStreamError)
    assert cut.missing == ("finish_reason", "usage_metadata")


@pytest.mark.parametrize("arguments", ["", "{}", '{"x":1}', '{"x"'])
@pytest.mark.parametrize(
    "around",
    [
        [],
        [done(0, "reasoning", encrypted_content="E")],
        finished(9, SEARCH),
        [added(8, "message", phase="final_answer")],
    ],
)
def test_a_call_that_was_cut_off_has_no_end(arguments: str, around: list[Json]) -> None:
    """Whatever waits to be told: it would close the call, which might look whole."""
    begun = [mused(0, "t"), call_added(1), argued(1, arguments)]
    for last in ([completed("incomplete")], []):
        seen = read(*begun, *around, *last)
        assert "tool_call.done" not in [item["type"] for item in seen.items]
        expected = errors.ToolCallArgumentParseError if last else errors.IncompleteStreamError
        assert isinstance(seen.error, expected)


def test_a_call_that_ended_on_the_wire_is_whole_though_the_answer_was_cut() -> None:
    seen = read(call_added(0), argued(0, "{}"), call_done(0), said(1, "a"), completed("incomplete"))
    assert [it["type"] for it in seen.items if it["type"].endswith("done")] == [
        "tool_call.done", "text.done",
    ]  # fmt: skip
    assert seen.stop["finish_reason"] == "length"


@pytest.mark.parametrize(
    "events",
    [
        [argued(0, "{}")],
        [added(0, "message"), argued(0, "{}")],
        [call_added(0, name="")],
        [call_added(0, call_id="", id="")],
        [call_added(0), call_done(0), argued(0, "{}")],
    ],
)
def test_a_call_that_breaks_the_protocol_is_an_error(events: list[Json]) -> None:
    with pytest.raises(errors.StreamProtocolError):
        Answer(*events)


def test_nothing_is_read_after_the_end() -> None:
    answer = Answer(said(0, "a"), completed(), b"[DONE]", b"<html>", said(0, "b"))
    answer.feed(event("failed", response=FAILED))
    assert answer.items() == [text("a")]


def test_an_end_mark_alone_is_no_end() -> None:
    answer = Answer(said(0, "a"), b"[DONE]")
    assert not answer.decoder.terminal
    with pytest.raises(errors.IncompleteStreamError):
        answer.assembler.complete(terminal=answer.decoder.terminal)


# ---- events that say nothing

KNOWN = [
    "queued", "output_text.done", "output_text.annotation.added", "reasoning_text.done",
    "reasoning_summary_text.done", "reasoning_summary_part.added", "reasoning_summary_part.done",
    "reasoning_part.added", "reasoning_part.done", "content_part.added", "content_part.done",
    "audio.delta", "audio.transcript.done", "code_interpreter_call_code.delta",
    "code_interpreter_call.interpreting", "compaction.compacting", "custom_tool_call_input.delta",
    "file_search_call.searching", "image_generation_call.partial_image", "mcp_call_arguments.delta",
    "mcp_call.failed", "mcp_list_tools.completed", "shell_call_command.delta",
    "shell_call_output_content.done", "steer.accepted", "web_search_call.searching",
]  # fmt: skip


def test_known_events_that_say_nothing_are_skipped_even_strictly() -> None:
    answer = Answer(strict=True)
    answer.feed(
        said(0, "a"),
        *({**event(kind, output_index=0, text="x"), "delta": "x"} for kind in KNOWN),
        {"type": "keepalive", "sequence_number": 3},
        {"type": "ping"},
        b"",
        b": OPENROUTER PROCESSING",
        said(0, "b"),
        completed(),
    )
    assert answer.items() == [text("ab")]


@pytest.mark.parametrize("alien", [{"type": "response.cost"}, {"cost": 1}, {"type": "x.y"}])
def test_an_unknown_event_is_skipped_or_an_error_when_strict(alien: Json) -> None:
    assert Answer(said(0, "a"), alien, said(0, "b"), completed()).items() == [text("ab")]
    with pytest.raises(errors.UnknownEventError):
        Answer(alien, strict=True)


def test_the_name_of_an_event_is_read_where_its_type_is_missing() -> None:
    answer = Answer()
    for kind, fields in (
        ("output_text.delta", {"output_index": 0, "delta": "a"}),
        ("completed", {"response": {"status": "completed"}}),
    ):
        answer.decoder.feed(f"response.{kind}", json.dumps(fields).encode())
    assert answer.items() == [text("a")]
    assert answer.assembler.finish_reason == "stop"


def test_odd_types_never_end_a_stream() -> None:
    answer = Answer(
        [],
        5,
        "words",
        None,
        event("output_item.added", item="x"),
        event("output_item.added"),
        event("output_item.done", item=[]),
        added(0, "message", id=7, phase=[], content=5),
        event("output_text.delta", output_index="0", delta="a", logprobs={"x": 1}),
        event("output_text.delta", output_index=0.0, delta={"x": 1}),
        event("output_text.delta", output_index=0, delta=None, sequence_number="x"),
        [event("output_text.delta", output_index=0, delta="b", item_id=5)],
        done(1, "reasoning", summary="x", content=[None, {"text": 5}, {"text": "t"}]),
        call_added(2, name=5),
        done(2, "function_call", call_id="c1", arguments={"x": 1}, status=[]),
        event("completed", response="x"),
    )
    assert answer.items() == [
        text("ab"),
        thinking("t", channel="summary", **OURS),
        tool_call(name="5", arguments={"x": 1}),
    ]


def test_a_character_cut_in_two_by_a_javascript_server_is_put_together() -> None:
    answer = Answer(
        said(0, "a\ud83d"),
        said(0, "\ude00b\ud83d"),
        said(0, "c"),
        call_added(1),
        call_added(2, "c2"),
        argued(1, '{"x":"\ud83d'),
        argued(2, '{"y":"\ud83c'),
        argued(1, '\ude00"}'),
        argued(2, '\udf89"}'),
        done(3, "message", content=[{"text": "\ud83d\ude00\ud83d"}]),
        completed(),
    )
    assert answer.items() == [
        text("a😀b\ufffdc"),
        tool_call(arguments={"x": "😀"}),
        tool_call("c2", arguments={"y": "🎉"}),
        text("😀\ufffd"),
    ]
    by_id = [
        argued(None, '{"x":"\ud83d', item_id="fc_c1"),
        argued(None, '{"y":"\ud83c', item_id="fc_c2"),
        argued(None, '\ude00"}', item_id="fc_c1"),
        argued(None, '\udf89"}', item_id="fc_c2"),
    ]
    answer = Answer(call_added(None), call_added(None, "c2"), *by_id, completed())
    assert answer.items() == [
        tool_call(arguments={"x": "😀"}),
        tool_call("c2", arguments={"y": "🎉"}),
    ]


@pytest.mark.parametrize("data", [b"<html>" + b"x" * 999, b"{", b'"\xff"', b"[" * 99999])
def test_what_is_no_json_is_an_error_that_shows_its_beginning(data: bytes) -> None:
    answer = Answer(said(0, "a"))
    with pytest.raises(errors.StreamProtocolError) as caught:
        answer.feed(data)
    assert repr(data[:200].decode("utf-8", "replace")) in str(caught.value)
    assert answer.sent() == ["text.delta"]


NESTED = {
    "an error": '{"type":"error","error":%s}',
    "a failure": '{"type":"response.failed","response":{"error":{"message":%s}}}',
    "arguments": '{"type":"response.output_item.done","output_index":0,"item":'
    '{"type":"function_call","call_id":"c","name":"f","arguments":%s}}',
    "an item": '{"type":"response.output_item.done","item":{"type":"web_search_call","a":%s}}',
    "content": '{"type":"response.output_item.done","item":{"type":"message","content":[%s]}}',
    "the output": '{"type":"response.completed","response":{"output":[{"type":"function_call",'
    '"call_id":"c","name":"f","arguments":%s}]}}',
    "a whole answer": '{"output":[{"type":"function_call","call_id":"c","name":"f","arguments":%s}]}',
    "half a character": '{"x":"\\ud83d","error":%s}',
    "a whole answer with half a character": '{"x":"\\ud83d","output":[{"type":"function_call",'
    '"call_id":"c","name":"f","arguments":%s}]}',
    "all of it": "%s",
}


@pytest.mark.parametrize("where", NESTED)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
def test_nesting_however_deep_is_an_error_of_the_answer(
    where: str, whole: bool, opening: str, closing: str
) -> None:
    for depth in (*range(100, 850, 7), *range(850, 1010), 5000, 99999):
        answer = Answer()
        data = (NESTED[where] % (opening * depth + "1" + closing * depth)).encode()
        with contextlib.suppress(errors.MMSPError):
            answer.decoder.whole(data) if whole else answer.decoder.feed("", data)
            dumps(answer.end())


# ---- answers that are no stream


def test_a_whole_response_is_streamed_as_one() -> None:
    answer = Answer()
    whole = {"object": "response", "status": "completed", "output": OUTPUT, "usage": USAGE}
    answer.decoder.whole(json.dumps(whole | {"error": None, "incomplete_details": None}).encode())
    assert answer.decoder.terminal
    assert answer.end() == {
        "role": "assistant",
        "content_items": OF_OUTPUT,
        "usage_metadata": COUNTED,
        "finish_reason": "tool_call",
    }


def test_the_scripted_responses_are_read() -> None:
    answer = Answer()
    answer.decoder.whole(json.dumps(responses.completion("two words")).encode())
    assert answer.items() == [text("two words")]
    seen = told(OpenAIResponsesClient, TARGET, responses.answer("two words"))
    assert seen.items[-1] == text("two words")
    pieces = [
        responses.item_added(0, "reasoning", id="rs_0"),
        responses.summary("s"),
        responses.item_done(0, "reasoning", summary=[{"text": "s"}], encrypted_content="E"),
        responses.tool_call(1, "c1", "f", '{"x"'),
        responses.arguments(1, ":1}"),
        responses.usage(),
    ]
    seen = told(OpenAIResponsesClient, TARGET, pieces)
    assert [it for it in seen.items if it["type"].endswith("done")] == [
        sealed("s", channel="summary"),
        tool_call(arguments={"x": 1}),
    ]
    seen = told(OpenAIResponsesClient, TARGET, [responses.thinking("t"), responses.error("oh")])
    assert isinstance(seen.error, errors.ProviderStreamError)


@pytest.mark.parametrize(
    ("body", "error", "said_why"),
    [
        (b'{"error":{"message":"oh","code":"x"}}', errors.ProviderStreamError, "oh"),
        (json.dumps({**FAILED, "output": []}).encode(), errors.ProviderStreamError, "oh"),
        (b'{"base_resp":{"status_code":1004,"status_msg":"oh"}}', errors.ProviderStreamError, "oh"),
        (b'[{"error":{"message":"oh"}}]', errors.ProviderStreamError, "oh"),
        (b"<html>oh</html>", errors.StreamProtocolError, "<html>oh"),
        (b'{"output":"there"}', errors.StreamProtocolError, "output"),
        (b'"output"', errors.StreamProtocolError, "output"),
        (b"", errors.StreamProtocolError, "empty"),
    ],
)
def test_a_whole_answer_that_is_no_response(
    body: bytes, error: type[errors.MMSPError], said_why: str
) -> None:
    with pytest.raises(error, match=said_why):
        Answer().decoder.whole(body)


def test_what_is_kept_goes_back_as_it_came() -> None:
    answer = Answer(
        in_short(0, "s"),
        done(0, "reasoning", summary=[{"text": "s"}], encrypted_content="E/+=", format="F"),
        said(1, "a"),
        completed(),
    )
    saved: Any = loads(dumps([assistant(*answer.items())]))
    assert input_of(*saved) == [
        summarized("s", encrypted_content="E/+=", format="F"),
        message("assistant", "a"),
    ]
