"""The grammar of items, and the assembler that keeps to it.

`sentences` is an independent reading of the grammar: every test that makes items ends in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsp import errors
from mmsp.grammar import Assembler
from mmsp.items import KINDS

Item = dict[str, Any]
GROWS = {
    "text": "text",
    "thinking": "thinking",
    "tool_call": "arguments",
    "inline_data": "data",
    "inline_thinking": "data",
    "embedding": "embedding",
}
ORIGIN = {"wire": "w", "host": "h"}
NO_USAGE = dict.fromkeys(
    ("cached_tokens", "prompt_tokens", "thoughts_tokens", "response_tokens"), None
)


def new(**options: Any) -> Assembler:
    return Assembler(client="C", wire="w", host="h", **options)


def done(assembler: Assembler, *, terminal: bool = True) -> list[Item]:
    """All items of an answer that has come to its end."""
    closing = assembler.complete(terminal=terminal)
    items = [*assembler.out, *closing]
    finished = sentences(items)
    assert finished == assembler.message()["content_items"]
    return items


def sentences(items: Iterable[Item], *, whole: bool = True) -> list[Item]:
    """Check that `items` are groups by the grammar (the last unfinished, unless `whole`)."""
    finished: list[Item] = []
    group: list[Item] = []
    for item in items:
        kind, _, state = item["type"].partition(".")
        if state == "done":
            assert group, "a done item without a delta"
            assert kind == group[0]["type"].partition(".")[0], "groups interleave"
            assert item == joined(group)
            finished.append(item)
            group = []
            continue
        assert state == "delta"
        assert kind in GROWS
        if group:
            assert kind == group[0]["type"].partition(".")[0], "groups interleave"
        group.append(item)
        check_delta(item, first=len(group) == 1)
    assert not (whole and group), "a group without its done item"
    if group:
        joined(group, parsed=False)
    return finished


def check_delta(item: Item, *, first: bool) -> None:
    kind = item["type"].partition(".")[0]
    assert item.keys() <= {"type", GROWS[kind], "name", "tool_call_id", "mime_type", "fidelity"}
    if kind == "tool_call":
        assert bool(item["name"]) == bool(item["tool_call_id"]) == first
    named = kind == "tool_call" and first
    assert item[GROWS[kind]] or "fidelity" in item or named or kind == "embedding"


def joined(group: list[Item], *, parsed: bool = True) -> Item:
    """The done item of a group of deltas."""
    kind = group[0]["type"].partition(".")[0]
    pieces = [item[GROWS[kind]] for item in group]
    whole: Any = [*chain(*pieces)] if kind == "embedding" else type(pieces[0])().join(pieces)
    if kind == "tool_call" and parsed:
        whole = json.loads(whole or "{}")
    if kind in ("inline_data", "inline_thinking", "embedding"):
        assert len({item.get("mime_type") for item in group}) == 1
    fidelity = [item["fidelity"] for item in group if "fidelity" in item]
    assert len(fidelity) <= 1
    item = {**group[0], "type": f"{kind}.done", GROWS[kind]: whole}
    return {**item, "fidelity": fidelity[0]} if fidelity else item


# ---- any calls in any order

IDS = st.sampled_from(["a", "b"])
FIDELITY = st.sampled_from([None, None, None, {"s": 1}, {"s": 2}])
PIECES = st.sampled_from(["", "x", "{", "}", '{"k":1}', " "])
BYTES = st.sampled_from([b"", b"1", b"23"])
MIME = st.sampled_from(["image/png", "IMAGE/GIF", "audio/wav", "audio/pcm"])
CALLS = st.one_of(
    st.tuples(st.just("text"), IDS, PIECES, FIDELITY),
    st.tuples(st.just("thinking"), IDS, PIECES, FIDELITY),
    st.tuples(st.just("tool_call"), IDS, st.sampled_from(["f", "f", "g", ""]), IDS, FIDELITY),
    st.tuples(st.just("tool_arguments"), IDS, PIECES),
    st.tuples(st.just("inline_data"), IDS, BYTES, MIME, FIDELITY),
    st.tuples(st.just("inline_thinking"), IDS, BYTES, MIME, FIDELITY),
    st.tuples(st.just("embedding"), IDS, st.sampled_from([[], [0.5], [1.0, 2.0]])),
    st.tuples(st.just("fidelity"), IDS, st.sampled_from([{}, {"s": 1}, {"s": 2}])),
    st.tuples(st.just("end_item"), IDS),
    st.tuples(st.just("usage")),
    st.tuples(st.just("finish"), st.sampled_from(["stop", "length", "tool_call", "unknown"])),
    st.tuples(st.just("drain")),
)


def say(assembler: Assembler, calls: Iterable[tuple[Any, ...]]) -> errors.MMSPError | None:
    try:
        for name, *arguments in calls:
            getattr(assembler, name)(*arguments)
    except (errors.StreamProtocolError, errors.ToolCallArgumentParseError) as error:
        return error
    return None


@given(st.lists(CALLS, max_size=30), st.booleans())
def test_any_calls_give_sentences_or_one_documented_error(
    calls: list[tuple[Any, ...]], terminal: bool
) -> None:
    assembler = new()
    error = say(assembler, calls)
    if error is None and not assembler.over:
        try:
            done(assembler, terminal=terminal)
            return
        except (
            errors.IncompleteStreamError,
            errors.ToolCallArgumentParseError,
            errors.EmptyResponseError,
        ):
            pass
    sentences(assembler.out, whole=False)
    for tool_calls in (False, True):
        partial = assembler.partial(tool_calls=tool_calls)
        if partial is not None:
            assert partial["content_items"]
            assert all(item["type"].endswith(".done") for item in partial["content_items"])


@given(st.lists(CALLS, max_size=30), st.integers(0, 30))
def test_a_drain_gives_what_an_answer_without_the_rest_would(
    calls: list[tuple[Any, ...]], place: int
) -> None:
    """When the abort came makes no difference to what is handed out before the first finish."""
    calls = [call for call in calls if call[0] != "drain"]
    late, early = new(), new()
    late_error = say(late, calls)
    late.drain()
    early_error = say(early, [*calls[:place], ("drain",), *calls[place:]])
    finish = next((n for n, call in enumerate(calls) if call[0] == "finish"), len(calls))
    if late_error is None and early_error is None:
        assert list(late.out) == list(early.out)
        assert late.over == early.over == (finish < len(calls))
    plain = new()
    if say(plain, calls[:finish]) is None and early_error is None:
        assert list(early.out) == list(plain.out)


@st.composite
def interleavings(draw: st.DrawFn) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The argument texts of some calls, and their pieces in any order that keeps each call's own."""
    texts = {
        f"c{n}": json.dumps({"k": draw(st.text(max_size=9))})
        for n in range(draw(st.integers(1, 4)))
    }
    turns = draw(st.permutations([id for id in texts for _ in range(3)]))
    left = dict(texts)
    pieces = []
    for turn, id in enumerate(turns):
        last = id not in turns[turn + 1 :]
        length = len(left[id]) if last else draw(st.integers(0, len(left[id])))
        pieces.append((id, left[id][:length]))
        left[id] = left[id][length:]
    return texts, pieces


@given(interleavings(), st.sampled_from(["finish", "text", "end"]))
def test_fragments_of_parallel_calls_never_mix(
    case: tuple[dict[str, str], list[tuple[str, str]]], then: str
) -> None:
    texts, pieces = case
    assembler = new()
    begun = list(dict.fromkeys(id for id, _ in pieces))
    for id, piece in pieces:
        assembler.tool_call(id, f"tool-{id}", id)  # said again with each piece
        assembler.tool_arguments(id, piece)
    if then == "text":
        assembler.text("t", "after")
    if then == "end":
        for id in reversed(begun):
            assembler.end_item(id)
    assembler.finish("stop")
    calls = [item for item in done(assembler) if item["type"] == "tool_call.done"]
    assert [(call["tool_call_id"], call["arguments"]) for call in calls] == [
        (id, json.loads(texts[id])) for id in begun
    ]


# ---- begin, continue, done


def test_the_table_is_that_of_the_protocol() -> None:
    assert {kind.name: kind.grows for kind in KINDS.values()} == GROWS


def test_a_done_item_goes_out_when_the_next_item_begins() -> None:
    assembler = new()
    assembler.text("t", "a")
    assembler.text("t", "b")
    assembler.end_item("t")
    assert [item["type"] for item in assembler.out] == ["text.delta"] * 2
    assembler.text("t", "c")
    assert [item.get("text") for item in assembler.out] == ["a", "b", "ab", "c"]
    assembler.finish("stop")
    assert done(assembler)[-1] == {"type": "text.done", "text": "c"}


def test_the_last_done_item_waits_for_the_end_of_the_wire() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c")
    assembler.end_item(0)
    assembler.finish("tool_call")
    assert [item["type"] for item in assembler.out] == ["tool_call.delta"]
    assert [item["type"] for item in assembler.complete(terminal=True)] == ["tool_call.done"]
    assert [item["type"] for item in assembler.out] == ["tool_call.delta"]


@pytest.mark.parametrize("other", [("text", "u"), ("thinking", "t")])
def test_another_id_or_kind_begins_another_item(other: tuple[str, str]) -> None:
    assembler = new()
    kind, id = other
    assembler.text("t", "a")
    getattr(assembler, kind)(id, "b")
    assembler.text("t", "c")
    assembler.finish("stop")
    assert [it["type"] for it in done(assembler) if it["type"].endswith("done")] == [
        "text.done",
        f"{kind}.done",
        "text.done",
    ]


def test_what_is_empty_is_not_sent_and_begins_nothing() -> None:
    assembler = new()
    assembler.text("t", "a")
    assembler.thinking("r", "")
    assembler.text("u", "")
    assembler.inline_data("p", b"", "image/png")
    assembler.text("t", "")
    assembler.text("t", "b")
    assert [item["text"] for item in assembler.out] == ["a", "b"]
    assert assembler.content == 2


def test_a_finish_that_ends_nothing_only_gives_its_reason() -> None:
    assembler = new()
    assembler.text("t", "a")
    assembler.finish("stop", ends_items=False)
    assembler.text("t", "b")
    assert assembler.finish_reason == "stop"
    assert done(assembler)[-1] == {"type": "text.done", "text": "ab"}


def test_content_counts_what_brings_the_answer_on() -> None:
    assembler = new()
    counts = []
    for name, *arguments in (
        ("text", "t", "a"),
        ("text", "t", "b", {"s": 1}),
        ("text", "t", ""),
        ("usage",),
        ("end_item", "t"),
        ("tool_call", 0, "f", "c0"),
        ("tool_arguments", 0, "{}"),
        ("tool_call", 1, "g", "c1"),
        ("tool_arguments", 1, "{}"),
        ("fidelity", 1, {"s": 2}),
        ("fidelity", 1, {}),
        ("finish", "stop"),
    ):
        before = assembler.content
        getattr(assembler, name)(*arguments)
        counts.append(assembler.content - before)
    assert counts == [1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1]


def test_a_call_may_begin_with_its_arguments() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0", arguments='{"a":')
    assembler.tool_arguments(0, "1}")
    assembler.tool_call(1, "g", "c1", arguments="{")
    assembler.tool_arguments(1, "}")
    assembler.finish("stop")
    items = done(assembler)
    deltas = [item["arguments"] for item in items if item["type"] == "tool_call.delta"]
    assert deltas == ['{"a":', "1}", "{}"]


# ---- kinds


def test_each_picture_is_an_item_of_its_own_and_sound_is_one_in_pieces() -> None:
    assembler = new()
    assembler.inline_data("i", b"1", "image/png")
    assembler.inline_data("i", b"2", "Image/PNG")
    assembler.inline_data("i", b"3", "audio/wav")
    assembler.inline_data("i", b"4", "audio/wav")
    assembler.inline_data("i", b"5", "audio/pcm")
    assembler.inline_thinking("i", b"6", "image/png")
    assembler.inline_thinking("i", b"7", "image/png", {"s": 1})
    assembler.embedding("i", [1.0])
    assembler.embedding("i", [])
    assembler.finish("stop")
    items = [item for item in done(assembler) if item["type"].endswith(".done")]
    assert [item.get("data", item.get("embedding")) for item in items] == [
        b"1", b"2", b"34", b"5", b"6", b"7", [1.0], [],
    ]  # fmt: skip


# ---- fidelity


def test_fidelity_goes_out_once_and_says_whose_it_is() -> None:
    assembler = new()
    field = {"s": 1}
    for piece in "abc":
        assembler.thinking("r", piece, field)
    assembler.thinking("r", "d", {"s": 1})
    assembler.thinking("r", "e")
    assembler.thinking("r", "")
    assembler.fidelity("r", {"s": 1})
    assembler.text("t", "x")
    assembler.finish("stop")
    items = done(assembler)
    assert [item.get("fidelity") for item in items[:5]] == [field | ORIGIN] + [None] * 4
    assert items[5] == {"type": "thinking.done", "thinking": "abcde", "fidelity": field | ORIGIN}
    assert field == {"s": 1}


def test_fidelity_without_a_wire_stays_as_it_is() -> None:
    assembler = Assembler(client="C")
    assembler.text("t", "a", {"wire": "v"})
    assert assembler.out[0]["fidelity"] == {"wire": "v"}


def test_fidelity_may_come_late_with_a_piece_or_alone() -> None:
    assembler = new()
    assembler.text("t", "a")
    assembler.text("t", "b", {"s": 1})
    assembler.thinking("r", "c")
    assembler.fidelity("r", {"s": 2})
    assert assembler.out[1] == {"type": "text.delta", "text": "b", "fidelity": {"s": 1} | ORIGIN}
    assert assembler.out[-1] == {
        "type": "thinking.delta",
        "thinking": "",
        "fidelity": {"s": 2} | ORIGIN,
    }


def test_an_item_may_be_nothing_but_fidelity() -> None:
    assembler = new()
    assembler.thinking("r", "", {"s": 1})
    assembler.text("t", "a")
    assembler.finish("stop")
    assert done(assembler)[1] == {
        "type": "thinking.done",
        "thinking": "",
        "fidelity": {"s": 1} | ORIGIN,
    }


def test_fidelity_alone_under_the_open_items_id_is_that_items_whatever_its_kind() -> None:
    assembler = new()
    assembler.inline_thinking("x", b"1", "image/png")
    assembler.thinking("x", "", {"s": 1})
    assert assembler.out[1] == {
        "type": "inline_thinking.delta",
        "data": b"",
        "mime_type": "image/png",
        "fidelity": {"s": 1} | ORIGIN,
    }


def test_a_held_calls_fidelity_goes_out_with_it() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0", {"s": 0})
    assembler.tool_call(1, "g", "c1")
    assembler.fidelity(1, {"s": 1})
    assembler.tool_call(1, "g", "c1", {"s": 1})
    assembler.finish("stop")
    calls = [item for item in done(assembler) if item["type"] == "tool_call.done"]
    assert [call["fidelity"]["s"] for call in calls] == [0, 1]


@pytest.mark.parametrize("way", ["text", "fidelity"])
def test_a_second_different_fidelity_is_an_error(way: str) -> None:
    assembler = new()
    assembler.text("t", "a", {"s": 1})
    with pytest.raises(errors.StreamProtocolError, match="two different signatures"):
        if way == "text":
            assembler.text("t", "b", {"s": 2})
        else:
            assembler.fidelity("t", {"s": 2})


def test_fidelity_of_an_item_that_is_not_open_is_an_error() -> None:
    assembler = new()
    assembler.text("t", "a")
    assembler.end_item("t")
    with pytest.raises(errors.StreamProtocolError, match="not open"):
        assembler.fidelity("t", {"s": 1})


# ---- tool calls


def test_a_second_call_is_held_back_and_goes_out_in_one_delta() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_call(1, "g", "c1")
    assembler.tool_arguments(1, '{"a"')
    assembler.tool_arguments(0, "{}")
    assembler.tool_arguments(1, ":1}")
    assert len(assembler.out) == 2
    assembler.end_item(0)
    assembler.tool_arguments(1, " ")
    assert list(assembler.out)[2:] == [
        {"type": "tool_call.done", "name": "f", "arguments": {}, "tool_call_id": "c0"},
        {"type": "tool_call.delta", "name": "g", "arguments": '{"a":1}', "tool_call_id": "c1"},
        {"type": "tool_call.delta", "name": "", "arguments": " ", "tool_call_id": ""},
    ]


def test_held_calls_that_have_ended_go_out_together_up_to_one_that_goes_on() -> None:
    assembler = new()
    for id in range(4):
        assembler.tool_call(id, "f", f"c{id}")
    assembler.end_item(1)
    assembler.end_item(0)
    opened = [it["tool_call_id"] for it in assembler.out if it["type"] == "tool_call.delta"]
    assert opened == ["c0", "c1", "c2"]
    assembler.text("t", "a")
    assembler.finish("stop")
    assert [it["tool_call_id"] for it in done(assembler) if it["type"] == "tool_call.done"] == [
        "c0", "c1", "c2", "c3",
    ]  # fmt: skip


def test_a_call_after_an_ended_one_begins_at_once() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.end_item(0)
    assembler.tool_call(0, "g", "c1")
    assert [item["tool_call_id"] for item in assembler.out] == ["c0", "c0", "c1"]


def test_a_call_said_again_is_the_same_call() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_call(0, "f", "c0", {"s": 1})
    assembler.tool_call(0, "f", "c0", {"s": 1}, arguments="{}")
    assert [item["arguments"] for item in assembler.out] == ["", "", "{}"]
    with pytest.raises(errors.StreamProtocolError, match="began twice, as 'f' and 'g'"):
        assembler.tool_call(0, "g", "c0")


def test_a_held_call_that_ended_cannot_begin_again() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_call(1, "f", "c1")
    assembler.end_item(1)
    with pytest.raises(errors.StreamProtocolError, match="began again"):
        assembler.tool_call(1, "f", "c1")


@pytest.mark.parametrize(("name", "id", "missing"), [("", "c", "a name"), ("f", "", "an id")])
def test_a_call_without_name_or_id_is_an_error(name: str, id: str, missing: str) -> None:
    with pytest.raises(errors.StreamProtocolError, match=missing):
        new().tool_call(0, name, id)


@pytest.mark.parametrize("end", ["never", "end_item", "held", "text", "finish"])
def test_arguments_of_a_call_that_is_not_open_are_an_error(end: str) -> None:
    assembler = new()
    id = 0
    if end != "never":
        assembler.tool_call(0, "f", "c0")
    if end == "end_item":
        assembler.end_item(0)
    if end == "held":
        assembler.tool_call(1, "f", "c1")
        assembler.end_item(id := 1)
    if end == "text":
        assembler.text("t", "a")
    if end == "finish":
        assembler.finish("stop")
    assembler.tool_arguments(id, "")
    with pytest.raises(errors.StreamProtocolError, match="not open"):
        assembler.tool_arguments(id, "{}")


def test_the_arguments_so_far_can_be_asked_for() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_arguments(0, "{")
    assembler.tool_call(1, "g", "c1")
    assembler.tool_arguments(1, '{"a":')
    assert [assembler.arguments_of(id) for id in (0, 1, 2)] == ["{", '{"a":', None]
    assembler.tool_arguments(0, "}")
    assembler.end_item(0)
    assert [assembler.arguments_of(id) for id in (0, 1)] == ["{}", '{"a":']


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "null", " ", '{"a":NaN}', '{"a":1e999}', '{"a":1} x', '{"a":' * 5000, '"' * 999],
)
def test_arguments_that_are_no_object_are_an_error_in_place_of_the_done_item(text: str) -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_arguments(0, text)
    with pytest.raises(errors.ToolCallArgumentParseError) as caught:
        assembler.text("t", "a")
    assert [item["type"] for item in assembler.out] == ["tool_call.delta"] * 2
    error = caught.value
    assert (error.client, error.tool_name, error.tool_call_id) == ("C", "f", "c0")
    assert error.raw_arguments_length == len(text)
    assert error.raw_arguments_preview == errors.preview(text)
    assert assembler.partial(tool_calls=True) is None


def test_large_integers_in_arguments_stay_exact() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_arguments(0, f'{{"n":{2**70},"m":{-(2**64)}}}')
    assembler.finish("stop")
    assert done(assembler)[-1]["arguments"] == {"n": 2**70, "m": -(2**64)}


def test_a_call_cut_by_the_length_limit_is_an_error_also_when_it_parses() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_arguments(0, "{}")
    assembler.finish("length")
    with pytest.raises(errors.ToolCallArgumentParseError, match="length limit"):
        assembler.complete(terminal=True)


def test_a_call_that_the_wire_ended_is_whole_whatever_the_limit() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.end_item(0)
    assembler.finish("length")
    assert done(assembler)[-1]["arguments"] == {}
    assert assembler.finish_reason == "length"


# ---- the end


@pytest.mark.parametrize(
    ("said", "finish"), [("stop", "tool_call"), ("tool_call", "tool_call"), ("content_filter",) * 2]
)
def test_a_turn_that_ends_to_call_tools_says_so(said: Any, finish: str) -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.finish(said)
    assert assembler.finish_reason == finish
    assert assembler.complete(terminal=True)
    assert assembler.message()["finish_reason"] == finish


def test_the_last_reason_counts() -> None:
    assembler = new()
    assert assembler.finish_reason is None
    assembler.text("t", "a")
    assembler.finish("length")
    assembler.finish("stop")
    done(assembler)
    assert assembler.finish_reason == "stop"


def test_usage_is_merged_field_by_field() -> None:
    assembler = new()
    assembler.usage()
    assert assembler.usage_metadata is None
    assembler.usage(prompt=1, cached=0)
    assembler.usage(prompt=2, response=3)
    assembler.usage(prompt=None)
    assert assembler.usage_metadata == {
        "cached_tokens": 0,
        "prompt_tokens": 2,
        "thoughts_tokens": None,
        "response_tokens": 3,
    }


def test_usage_that_never_came_is_null_and_no_failure() -> None:
    assembler = new()
    assembler.text("t", "a")
    assembler.finish("stop")
    done(assembler)
    assert assembler.message() == {
        "role": "assistant",
        "content_items": [{"type": "text.done", "text": "a"}],
        "usage_metadata": NO_USAGE,
        "finish_reason": "stop",
    }


def test_an_end_without_a_reason_is_unknown() -> None:
    assembler = new()
    assembler.text("t", "a")
    done(assembler, terminal=True)
    assert assembler.message()["finish_reason"] == "unknown"


@pytest.mark.parametrize("end", ["no terminal", "no content", "open call"])
def test_an_answer_that_was_cut_is_incomplete(end: str) -> None:
    assembler = new()
    if end == "no terminal":
        assembler.text("t", "a")
    if end == "open call":
        assembler.tool_call(0, "f", "c0")
        assembler.usage(prompt=1)
    with pytest.raises(errors.IncompleteStreamError, match=r"finish reason.*again") as caught:
        assembler.complete(terminal=end != "no terminal")
    missing = ("finish_reason",) if end == "open call" else ("finish_reason", "usage_metadata")
    assert caught.value.missing == missing
    assert caught.value.usage_metadata == assembler.usage_metadata


@pytest.mark.parametrize("thought", [True, False])
def test_an_answer_of_thinking_only_is_empty(thought: bool) -> None:
    assembler = new()
    if thought:
        assembler.thinking("r", "a")
        assembler.inline_thinking("i", b"1", "image/png")
    assembler.finish("stop")
    with pytest.raises(
        errors.EmptyResponseError, match="thinking" if thought else "nothing"
    ) as caught:
        assembler.complete(terminal=True)
    assert caught.value.finish_reason == "stop"
    assert caught.value.usage_metadata is None


def test_messages_share_nothing_with_the_items_handed_out() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0", {"s": [1]})
    assembler.tool_arguments(0, '{"a":[1]}')
    assembler.finish("stop")
    (call,) = assembler.complete(terminal=True)
    before = json.dumps(assembler.message())
    call["arguments"]["a"].append(2)
    call["fidelity"]["s"].append(2)
    assembler.out[0]["fidelity"]["s"].append(3)
    assembler.message()["content_items"][0]["arguments"].clear()
    assert json.dumps(assembler.message()) == before


# ---- an abort


def test_after_a_drain_a_finish_releases_nothing() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_call(1, "g", "c1")
    assembler.drain()
    assembler.drain()
    assembler.tool_arguments(0, "{}")
    over = [assembler.over]
    assembler.finish("stop")
    over.append(assembler.over)
    assert over == [False, True]
    assembler.text("t", "a")
    assembler.tool_call(2, "f", "c2")
    assembler.tool_arguments(0, "x")
    assembler.fidelity(0, {"s": 1})
    assembler.end_item(0)
    assembler.finish("stop")
    assembler.usage(prompt=1)
    assert [item["arguments"] for item in assembler.out] == ["", "{}"]
    assert assembler.usage_metadata is None
    assert assembler.finish_reason is None


def test_a_drain_takes_back_what_a_finish_had_released() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_call(1, "g", "c1")
    assembler.finish("stop")
    assert len(assembler.out) == 3
    assembler.drain()
    assert [item["tool_call_id"] for item in assembler.out] == ["c0"]
    assert assembler.over


def test_a_drain_takes_back_nothing_that_was_handed_out() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_call(1, "g", "c1")
    assembler.finish("stop")
    assembler.out.popleft()
    assembler.out.popleft()
    assembler.drain()
    assert not assembler.out


def test_a_drain_after_a_finish_keeps_what_came_before() -> None:
    assembler = new()
    assembler.text("t", "a")
    assembler.finish("stop")
    assembler.drain()
    assert [item["text"] for item in assembler.out] == ["a"]


# ---- a partial message


def partial(assembler: Assembler, **options: Any) -> list[Item]:
    message = assembler.partial(**options)
    if message is None:
        return []
    assert message["role"] == "assistant"
    assert message["finish_reason"] == "unknown"
    items: list[Item] = message["content_items"]
    return items


def kinds(items: list[Item]) -> list[str]:
    return [item["type"].removesuffix(".done") for item in items]


def test_nothing_makes_no_partial_message() -> None:
    assembler = new()
    assert assembler.partial() is None
    assembler.text("t", " \n")
    assert assembler.partial() is None
    assembler.thinking("r", "a", {"s": 1})
    assert assembler.partial() is None
    assembler.tool_call(0, "f", "c0")
    assert assembler.partial(tool_calls=True) is None


def test_open_text_is_kept_with_the_signed_thinking_before_it() -> None:
    assembler = new()
    assembler.thinking("r", "a", {"s": 1})
    assembler.text("t", " ")
    assembler.text("u", "b")
    assembler.text("u", "c")
    assembler.usage(prompt=5)
    kept = partial(assembler)
    assert kept == [
        {"type": "thinking.done", "thinking": "a", "fidelity": {"s": 1} | ORIGIN},
        {"type": "text.done", "text": "bc"},
    ]
    assert (assembler.partial() or {})["usage_metadata"] == NO_USAGE | {"prompt_tokens": 5}


def test_thinking_without_a_signature_is_left_out() -> None:
    assembler = new()
    assembler.thinking("r", "a")
    assembler.text("t", "b")
    assert kinds(partial(assembler)) == ["text"]


def test_thinking_that_has_lost_what_it_led_to_is_left_out() -> None:
    assembler = new()
    assembler.thinking("r", "a", {"s": 1})
    assembler.tool_call(0, "f", "c0")
    assembler.text("t", "b")
    assembler.thinking("r", "c", {"s": 2})
    assert kinds(partial(assembler)) == ["text"]
    assert kinds(partial(assembler, tool_calls=True)) == ["thinking", "tool_call", "text"]


def test_finished_calls_are_kept_on_request_and_open_ones_never() -> None:
    assembler = new()
    assembler.tool_call(0, "f", "c0")
    assembler.tool_call(1, "g", "c1")
    assembler.end_item(0)
    assembler.end_item(1)
    assert [item["tool_call_id"] for item in partial(assembler, tool_calls=True)] == ["c0"]
    assert partial(assembler) == []


def test_pictures_are_kept_and_sound_is_not() -> None:
    assembler = new()
    assembler.inline_data("a", b"1", "audio/wav")
    assembler.inline_thinking("r", b"2", "image/png", {"s": 1})
    assembler.inline_data("p", b"3", "image/png")
    assembler.inline_thinking("r", b"4", "image/png", {"s": 1})
    assembler.embedding("e", [1.0])
    assert kinds(partial(assembler)) == ["inline_thinking", "inline_data"]


# ---- what nobody knows


def test_an_unknown_event_is_skipped_unless_strict() -> None:
    new().unknown("x")
    with pytest.raises(errors.UnknownEventError) as caught:
        new(strict=True).unknown("x" * 999)
    assert caught.value.event == errors.preview("x" * 999)


def test_a_stream_of_many_deltas_costs_memory_for_its_text_alone() -> None:
    assembler = new()
    for _ in range(50_000):
        assembler.text("t", "a")
        assembler.out.clear()
    kept = vars(assembler).values()
    assert all(len(value) < 10 for value in kept if isinstance(value, list | dict))
    assembler.finish("stop")
    assert assembler.complete(terminal=True) == [{"type": "text.done", "text": "a" * 50_000}]
