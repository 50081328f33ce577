"""Saving and loading: what is loaded is what was saved, and nothing else is taken."""

from __future__ import annotations

import collections
import contextlib
import datetime
import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsp import WireFormatError, dumps, loads
from mmsp.errors import MMSPError
from mmsp.wire import from_wire, to_wire

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)


def items(suffix: str) -> st.SearchStrategy[dict[str, Any]]:
    def item(kind: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
        made = {"type": st.just(f"{kind}.{suffix}"), **fields}
        return st.fixed_dictionaries(made, optional={"fidelity": OBJECTS})

    inline = {"data": st.binary(), "mime_type": TEXT}
    return st.one_of(
        item("text", text=TEXT),
        item("thinking", thinking=TEXT),
        item("tool_call", name=TEXT, arguments=OBJECTS | TEXT, tool_call_id=TEXT),
        item("inline_data", **inline),
        item("inline_thinking", **inline),
        item("embedding", embedding=st.lists(FLOATS)),
        item("image_url", image_url=TEXT),
        item("tool_result", text=TEXT, images=st.lists(TEXT), tool_call_id=TEXT),
    )


MESSAGES = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant"]),
        "content_items": st.lists(items("done") | items("delta"), max_size=4),
        "created_at": st.integers(0, 2**50),
    },
    optional={"usage_metadata": OBJECTS | st.none(), "finish_reason": TEXT},
)


@given(MESSAGES | st.lists(MESSAGES, max_size=3) | items("done"))
def test_what_is_loaded_is_what_was_saved(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert loads(dumps(value).encode()) == value
    assert from_wire(to_wire(value)) == value


@given(st.binary() | TEXT)
def test_any_text_is_loaded_or_refused_as_no_saved_message(text: Any) -> None:
    with contextlib.suppress(WireFormatError):
        loads(text)


def test_large_integers_travel_too() -> None:
    call = {"type": "tool_call.done", "name": "f", "arguments": {"n": 10**100}, "tool_call_id": "c"}
    assert loads(dumps(call)) == call
    with pytest.raises(WireFormatError, match="thousands of digits"):
        dumps({**call, "arguments": {"n": 10**5000}})


def test_bytes_travel_in_base64_and_other_text_as_it_is() -> None:
    item = {"type": "inline_data.done", "data": b"\x00\xff", "mime_type": "image/png"}
    assert dumps(item) == '{"type":"inline_data.done","data":"AP8=","mime_type":"image/png"}'
    assert dumps({"type": "text.done", "text": "né\u2028"}).endswith('"né\u2028"}')


def test_a_key_named_data_elsewhere_is_not_touched() -> None:
    call = {
        "type": "tool_call.done",
        "name": "save",
        "arguments": {"type": "inline_data.done", "data": "not base64!"},
        "tool_call_id": "c",
        "fidelity": {"data": "AP8="},
    }
    assert loads(dumps([call])) == [call]


def test_the_value_is_not_changed() -> None:
    arguments: dict[str, Any] = {"a": [1]}
    item = {"type": "tool_call.done", "name": "n", "arguments": arguments, "tool_call_id": "c"}
    made = to_wire(item)
    made["arguments"]["a"].append(2)
    assert arguments == {"a": [1]}


class Kind(str, enum.Enum):  # noqa: UP042 (its text is "Kind.TEXT", that of a StrEnum is its value)
    TEXT, INLINE = "text.done", "inline_data.done"


class Number(enum.IntEnum):
    ONE = 1


class Half(float):
    def __repr__(self) -> str:
        return "a half"


class Ordered(collections.OrderedDict[str, Any]):
    pass


def test_what_is_made_from_a_plain_type_is_saved_as_what_it_is_made_from() -> None:
    item = Ordered(type=Kind.TEXT, text=Kind.INLINE, fidelity={Kind.TEXT: [Number.ONE, Half(0.5)]})
    saved = dumps([item, {"type": Kind.INLINE, "data": b"\0", "mime_type": "a/b"}])
    assert saved == (
        '[{"type":"text.done","text":"inline_data.done","fidelity":{"text.done":[1,0.5]}},'
        '{"type":"inline_data.done","data":"AA==","mime_type":"a/b"}]'
    )
    plain = to_wire(item)
    assert {type(each) for each in (*plain, *plain.values())} == {str, dict}
    assert [type(each) for each in plain["fidelity"]["text.done"]] == [int, float]


def test_saved_text_may_come_in_any_form_of_text_or_bytes() -> None:
    class Text(str):
        pass

    forms = (Text("[]"), b"[]", bytearray(b"[]"), memoryview(b"[]"))
    assert [loads(each) for each in forms] == [[]] * 4


LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: Any = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "path", "said"),
    [
        ("text", "$", "is a str; a message, an event or an item is an object"),
        (None, "$", "is null"),
        ({"a": datetime.date(2026, 1, 1)}, "$.a", "is a date, which JSON has no form for"),
        ({"a": {"b": [0.0, float("nan")]}}, "$.a.b[1]", "is nan"),
        ({"a": b"x"}, "$.a", "is a bytes"),
        ({1: "x"}, "$", "has an int for a key"),
        ({"a": {1: "x"}}, "$.a", "has an int for a key"),
        ({"a": "\ud800"}, "$.a", "half a character"),
        ([{"type": "inline_data.done", "data": "AA=="}], "$[0].data", "is a str; it is bytes"),
        ({"content_items": [3]}, "$.content_items[0]", "is an int"),
        (LOOP, "$", "holds itself"),
        ({"a": LOOP}, "$.a", "holds itself"),
        ({"a": DEEP}, "$.a", "nested too deeply"),
    ],
)
def test_what_cannot_be_saved_is_named_by_its_place(value: Any, path: str, said: str) -> None:
    with pytest.raises(WireFormatError) as caught:
        dumps(value)
    assert caught.value.path.startswith(path)
    assert said in str(caught.value)
    assert isinstance(caught.value, MMSPError)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{", "$"),
        ("3", "$"),
        ('{"type":"inline_data.done","data":"%"}', "$.data"),
        (
            '[{"content_items":[{"type":"inline_thinking.done","data":7}]}]',
            "$[0].content_items[0].data",
        ),
        ("[" * 100_000, "$"),
        (None, "$"),
        (5, "$"),
        ({"role": "user"}, "$"),
        (["{}"], "$"),
        (True, "$"),
        ("\ud800", "$"),
        (memoryview(b"{  }")[::2], "$"),
    ],
)
def test_what_is_no_saved_message_is_named_by_its_place(text: Any, path: str) -> None:
    with pytest.raises(WireFormatError) as caught:
        loads(text)
    assert caught.value.path == path
