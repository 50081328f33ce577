"""Whatever bytes a Chat Completions server sends: events, or one documented error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mmsp import errors
from mmsp.openai_chat.client import OpenAIChatClient
from tests.chat_words import TARGET, Answer
from tests.conformance_cases import ANSWERED, cases
from tests.reading import Told, told
from tests.test_grammar import sentences

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


# ---- answers that were good once

BODIES = [case.body for case in cases(ANSWERED) if case.path.parent.name == "openai_chat"]
BODIES = [body for body in BODIES if len(body) < 8000]
OTHERS = st.one_of(SCALARS, WORDS, st.sampled_from([[], {}, [{}], [None], 2**70, 1e300, {"": 0}]))
MANGLED = ("drop", "double", "swap", "retype", "retype", "retype", "rename", "bytes", "cut")


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container within a JSON value, with a key or index of it."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [
            p for each in value.values() for p in places(each)
        ]
    if isinstance(value, list):
        return [(value, at) for at in range(len(value))] + [
            p for each in value for p in places(each)
        ]
    return []


def mangled_json(draw: st.DrawFn, event: bytes, how: str) -> bytes:
    """One field of an event dropped, said twice, retyped or called by another's name."""
    start, found, text = event.partition(b"data:")
    try:
        value = json.loads(text)
    except ValueError:
        return event
    spots = places(value)
    if not found or not spots:
        return event
    of, at = draw(st.sampled_from(spots))
    if how == "retype":
        of[at] = draw(OTHERS)
    elif isinstance(of, dict):
        of[draw(st.sampled_from([str(key) for _, key in spots]))] = of.pop(at)
    else:
        of.insert(at, of[at])
    return (
        start
        + found
        + b" "
        + json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    )


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """The body of an answer after a few things have gone wrong with it."""
    events = draw(st.sampled_from(BODIES)).split(b"\n\n")
    for how in draw(st.lists(st.sampled_from(MANGLED), min_size=1, max_size=4)):
        at, other = (draw(st.integers(0, len(events) - 1)) for _ in range(2))
        if how == "drop" and len(events) > 1:
            del events[at]
        elif how == "double":
            events.insert(other, events[at])
        elif how == "swap":
            events[at], events[other] = events[other], events[at]
        elif how in ("retype", "rename"):
            events[at] = mangled_json(draw, events[at], how)
        elif how in ("bytes", "cut") and events[at]:
            place = draw(st.integers(0, len(events[at]) - 1))
            rest = b"" if how == "cut" else events[at][place + draw(st.integers(0, 3)) :]
            events[at] = events[at][:place] + draw(st.binary(max_size=3)) + rest
    return b"\n\n".join(events)


def read_in(pieces: Iterable[bytes]) -> Told:
    seen = told(OpenAIChatClient, TARGET, pieces)
    sentences(seen.items, whole=seen.error is None)
    # what is no error of ours is told by the name of its class alone
    assert not str(seen.error).startswith("The answer cannot be read")
    json.dumps([seen.items, seen.stop], ensure_ascii=False).encode()
    return seen


@settings(max_examples=400)
@given(st.one_of(mangled(), mangled(), st.binary(max_size=60)), st.data())
def test_a_mangled_answer_gives_events_and_one_documented_error(
    body: bytes, data: st.DataObject
) -> None:
    whole = read_in([body])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=5)))
    ends = [*cuts, len(body)]
    pieces = [body[start:end] for start, end in zip([0, *cuts], ends, strict=True)]
    for again in (read_in(pieces), read_in(body[at : at + 1] for at in range(len(body)))):
        assert again.items == whole.items
        assert (repr(again.error), again.stop) == (repr(whole.error), whole.stop)
