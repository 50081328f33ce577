"""Whatever bytes a Responses server sends: events, or one documented error."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmsp import dumps, loads, sse
from mmsp.base_client import LLMClient
from mmsp.deepseek_official.client import DeepSeekOfficialClient
from mmsp.errors import UnknownEventError
from mmsp.minimax_official.client import MiniMaxOfficialClient
from mmsp.openai_official.client import OpenAIOfficialClient
from mmsp.openai_responses.client import OpenAIResponsesClient
from mmsp.testing import responses
from tests.message_words import user
from tests.reading import Told, told
from tests.responses_words import DIALECTS, TARGET, Answer, completed, event, input_of
from tests.test_grammar import sentences
from tests.test_openai_chat_any_bytes import SCALARS, mangled_json, record, survives
from tests.test_openai_responses_decoder import FALLBACKS, OUTPUT, finished

CLIENTS: list[type[LLMClient]] = [
    OpenAIResponsesClient,
    OpenAIOfficialClient,
    DeepSeekOfficialClient,
    MiniMaxOfficialClient,
]

KINDS = [
    "output_text.delta", "refusal.delta", "reasoning_text.delta", "reasoning_summary_text.delta",
    "function_call_arguments.delta", "function_call_arguments.done", "output_item.added",
    "output_item.done", "completed", "incomplete", "failed", "unheard_of",
]  # fmt: skip
WORDS = st.sampled_from(["", "a", "{}", '{"k":', "1}", "f", "\ud83d", "\ude00"])
PARTS = st.lists(record(text=WORDS, refusal=WORDS), max_size=2)
ITEM = record(
    type=st.sampled_from(
        ["message", "reasoning", "function_call", "function_call", "web_search_call"]
    ),
    arguments=st.one_of(WORDS, st.dictionaries(WORDS, SCALARS, max_size=1)),
    content=PARTS,
    summary=PARTS,
    **dict.fromkeys(("id", "call_id", "name", "phase", "encrypted_content", "format"), WORDS),
)
RESPONSE = record(
    status=st.sampled_from(["completed", "incomplete", "failed", "in_progress"]),
    usage=record(
        input_tokens=st.integers(),
        output_tokens=st.integers(),
        input_tokens_details=record(cached_tokens=st.integers()),
    ),
    output=st.lists(ITEM, max_size=3),
    incomplete_details=record(reason=WORDS),
    error=st.one_of(st.none(), record(message=WORDS, code=WORDS)),
)
EVENT = record(
    type=st.sampled_from([*(f"response.{kind}" for kind in KINDS), "error"]),
    output_index=st.integers(0, 2),
    item_id=WORDS,
    item=ITEM,
    delta=WORDS,
    arguments=WORDS,
    response=RESPONSE,
    error=st.one_of(st.none(), st.none(), record(message=WORDS)),
)
FRAMES = st.one_of(
    EVENT.map(lambda it: json.dumps(it).encode()),
    EVENT.map(lambda it: json.dumps([it]).encode()),
    st.sampled_from([b"", b"[DONE]", b": x", b"{", b"[[", b'{"type":"\xff"}']),
    st.binary(max_size=20),
)


@given(
    st.sampled_from(list(DIALECTS)),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["", "", "error"]), FRAMES), max_size=8),
)
def test_any_bytes_give_events_or_one_documented_error(
    client: str, strict: bool, frames: Iterable[tuple[str, bytes]]
) -> None:
    answer = Answer(dialect=DIALECTS[client], strict=strict)

    def take() -> None:
        with suppress(UnknownEventError):
            for name, data in frames:
                answer.decoder.feed(name, data)
        answer.assembler.complete(terminal=answer.decoder.terminal)

    survives(take)
    assert dumps(list(answer.assembler.out))


@given(st.sampled_from(list(DIALECTS)), st.one_of(RESPONSE.map(json.dumps).map(str.encode), FRAMES))
def test_any_body_gives_events_or_one_documented_error(client: str, body: bytes) -> None:
    survives(lambda: Answer(dialect=DIALECTS[client]).decoder.whole(body))


# ---- answers that were good once


def data_of(body: Iterable[bytes]) -> list[bytes]:
    return [data for _, data in sse.Parser().feed(b"".join(body))]


SEARCHED = [*finished(0, {"type": "web_search_call", "id": "w"}), completed(output=OUTPUT)]
FAILED = [event("failed", response={"error": {"code": "server_error", "message": "oh"}})]
GOOD = [
    data_of(responses.answer("two words")),
    *(
        [json.dumps(each).encode() for each in [*events, completed()]]
        for events in [*(events for events, _ in FALLBACKS.values()), SEARCHED, FAILED]
    ),
]


MANGLED = ("drop", "double", "swap", "retype", "retype", "retype", "rename", "cut")


@st.composite
def mangled(draw: st.DrawFn) -> list[bytes]:
    """The events of an answer after a few things have gone wrong with it."""
    events = list(draw(st.sampled_from(GOOD)))
    for how in draw(st.lists(st.sampled_from(MANGLED), max_size=4)):
        at, other = (draw(st.integers(0, len(events) - 1)) for _ in range(2))
        if how == "drop" and len(events) > 1:
            del events[at]
        elif how == "double":
            events.insert(other, events[at])
        elif how == "swap":
            events[at], events[other] = events[other], events[at]
        elif how == "cut":
            events[at] = events[at][: draw(st.integers(0, len(events[at])))]
        else:
            events[at] = mangled_json(draw, b"data:" + events[at], how)[5:]
    return events


def read_in(client: type[LLMClient], pieces: Iterable[bytes]) -> Told:
    seen = told(client, TARGET, pieces)
    sentences(seen.items, whole=seen.error is None)
    # what is no error of ours is told by the name of its class alone
    assert not str(seen.error).startswith("The answer cannot be read")
    return seen


@settings(max_examples=300)
@given(st.sampled_from(CLIENTS), mangled(), st.data())
def test_a_mangled_answer_gives_events_and_one_documented_error(
    client: type[LLMClient], events: list[bytes], data: st.DataObject
) -> None:
    body = b"".join(b"data: " + each + b"\n\n" for each in events)
    whole = read_in(client, [body])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=5)))
    ends = [*cuts, len(body)]
    pieces = [body[start:end] for start, end in zip([0, *cuts], ends, strict=True)]
    again = read_in(client, pieces)
    assert again.items == whole.items
    assert (repr(again.error), again.stop) == (repr(whole.error), whole.stop)
    done: list[Any] = [item for item in whole.items if item["type"].endswith(".done")]
    if whole.error is None:  # what was read can be saved and sent back
        saved: Any = loads(dumps([user("q"), {"role": "assistant", "content_items": done}]))
        assert input_of(*saved)


@pytest.mark.parametrize("events", GOOD, ids=range(len(GOOD)))
def test_byte_by_byte_makes_no_difference(events: list[bytes]) -> None:
    body = b"".join(b"data: " + each + b"\r\n\r\n" for each in events)
    whole = read_in(OpenAIResponsesClient, [body])
    again = read_in(OpenAIResponsesClient, (body[at : at + 1] for at in range(len(body))))
    assert again.items == whole.items
    assert (repr(again.error), again.stop) == (repr(whole.error), whole.stop)
