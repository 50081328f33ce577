"""Recorded answers of real providers, decoded whole, byte by byte and at random cuts.

The recordings are no part of the project: `MMSP_RECORDED_STREAMS` names the folder they are read from.
What an independent reader made of each of them is in its `expected.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mmsp import errors, sse
from mmsp.codecs.http_error import http_error
from mmsp.codecs.openai_chat import ChatCodec
from mmsp.dialects.openai_compatible import DIALECT
from mmsp.grammar import Assembler
from mmsp.openai_chat.client import OpenAIChatClient
from mmsp.request import Target
from tests.reading import Told, told
from tests.server_between import assert_passed_on
from tests.test_grammar import sentences

FOLDERS = ("openai-chat/", "openai-compat/")

# Where ours differs from the independent reader on purpose, by the flag that marks such recordings, with
# the reason and how many there are.
DISAGREEMENTS = {
    "refusal": ("counted apart there; ours is text", 6),
    "sse:unknown_fields": (
        "the failure stands in a field that event streams do not have, and such fields are read past: the"
        " stream just ends",
        1,
    ),
}

FINISH = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_call",
    "content_filter": "content_filter",
    "function_call": "tool_call",
}


@dataclass(frozen=True)
class Recording:
    path: str
    provider: str
    expected: dict[str, Any] = field(repr=False)

    @property
    def disagreements(self) -> set[str]:
        found = DISAGREEMENTS.keys() & self.expected["flags"]
        return found if self.expected["refusal_len"] else found - {"refusal"}

    @property
    def has_events(self) -> bool:
        return self.path.endswith((".sse", ".jsonl"))

    def body(self, folder: Path) -> bytes:
        """The body as sent; of recordings that kept only the chunks, a stream made of them."""
        body = (folder / self.path).read_bytes()
        if self.path.endswith(".jsonl"):
            return b"".join(sse.encode(line) for line in body.split(b"\n") if line)
        return body

    @property
    def target(self) -> Target:
        host = "openrouter.ai" if self.provider == "openrouter" else "host.example"
        return Target(f"https://{host}/v1")


def recordings() -> Iterator[Recording]:
    folder = os.environ.get("MMSP_RECORDED_STREAMS")
    if not folder:
        return
    manifest = json.loads(Path(folder, "manifest.json").read_text())
    expected = json.loads(Path(folder, "expected.json").read_text())
    for path, entry in manifest.items():
        if path.startswith(FOLDERS):
            yield Recording(path, entry["provider"], expected[path])


def cases(*, events: bool) -> list[Any]:
    """The recordings, or one case that the fixture will skip."""
    found = [pytest.param(each, id=each.path) for each in recordings() if each.has_events == events]
    return found or [pytest.param(None, id="no folder")]


@dataclass
class Reading:
    assembler: Assembler
    error: errors.MMSPError | None = None
    closing: list[Any] = field(default_factory=list)

    @property
    def items(self) -> list[Any]:
        return [*self.assembler.out, *self.closing]

    def joined(self, kind: str) -> str:
        return "".join(it[kind] for it in self.items if it["type"] == f"{kind}.delta")

    def calls(self) -> list[Any]:
        return [it for it in self.items if it["type"] == "tool_call.done"]


def read(recording: Recording, body: bytes, cuts: list[int]) -> Reading:
    assembler = Assembler(client="C", wire="openai_chat", host=recording.target.host)
    decoder = ChatCodec(DIALECT).decoder(assembler, client="C", target=recording.target)
    parser = sse.Parser()
    reading = Reading(assembler)
    try:
        for start, end in pairwise([0, *cuts, len(body)]):
            for event in parser.feed(body[start:end]):
                decoder.feed(*event)
        for event in parser.close():
            decoder.feed(*event)
        reading.closing = assembler.complete(terminal=decoder.terminal)
    except errors.MMSPError as error:
        reading.error = error
    return reading


def expected_error(recording: Recording, body: bytes) -> type[errors.MMSPError] | None:
    expected = recording.expected
    if expected.get("error_raw"):
        unheard = "sse:unknown_fields" in recording.disagreements
        return errors.IncompleteStreamError if unheard else errors.ProviderStreamError
    ended = not recording.has_events or b"data: [DONE]" in body
    if not expected["finish_reason_raw"] and not ended:
        return errors.IncompleteStreamError
    if not (expected["text_len"] or expected["refusal_len"] or expected["tool_calls"]):
        return errors.EmptyResponseError
    if expected["finish_reason_raw"] == "length" and expected["tool_calls"]:
        return errors.ToolCallArgumentParseError
    return None


def expected_usage(recording: Recording) -> dict[str, int | None]:
    raw = recording.expected["usage_raw"] or {}
    cached = (raw.get("prompt_tokens_details") or {}).get("cached_tokens")
    thoughts = (raw.get("completion_tokens_details") or {}).get("reasoning_tokens")
    prompt, response = raw.get("prompt_tokens"), raw.get("completion_tokens")
    # a part that is more than the whole was left out of it
    if response is not None and response >= (thoughts or 0):
        response -= thoughts or 0
    if prompt is not None and prompt >= (cached or 0):
        prompt -= cached or 0
    return {
        "cached_tokens": cached,
        "prompt_tokens": prompt,
        "thoughts_tokens": thoughts,
        "response_tokens": response,
    }


def expected_finish(expected: dict[str, Any]) -> str:
    finish = FINISH.get(expected["finish_reason_raw"] or "", "unknown")
    return "tool_call" if finish == "stop" and expected["tool_calls"] else finish


def assert_words(text: str, expected: dict[str, Any], kind: str) -> None:
    assert len(text) == expected[f"{kind}_len"]
    if text:
        assert hashlib.sha256(text.encode()).hexdigest() == expected[f"{kind}_sha256"]


def assert_as_expected(recording: Recording, reading: Reading) -> None:
    expected = recording.expected
    text = reading.joined("text")
    if "refusal" in recording.disagreements:
        assert not expected["text_len"]
        assert_words(text, expected, "refusal")
    else:
        assert_words(text, expected, "text")
    assert_words(reading.joined("thinking"), expected, "thinking")
    calls = [(call["name"], call["tool_call_id"], call["arguments"]) for call in reading.calls()]
    assert calls == [
        (call["name"], call["id"], json.loads(call["arguments_canonical"]))
        for call in expected["tool_calls"]
    ]
    message = reading.assembler.message()
    assert message["usage_metadata"] == expected_usage(recording)
    if reading.error is None:
        assert message["finish_reason"] == expected_finish(expected)


def test_every_recording_of_this_wire_is_read(
    recorded_streams: Path, report_at_the_end: list[str]
) -> None:
    found = list(recordings())
    on_disk = {
        path.relative_to(recorded_streams).as_posix()
        for folder in FOLDERS
        for path in (recorded_streams / folder).iterdir()
        if not path.name.endswith(".request.json")
    }
    assert {each.path for each in found} == on_disk
    streams = [each for each in found if each.has_events]
    refused = [each for each in found if each.expected["http_status"] != 200]
    assert not set(map(id, streams)) & set(map(id, refused))
    report_at_the_end.append(
        f"recorded answers of Chat Completions: {len(streams)} streams,"
        f" {len(found) - len(streams) - len(refused)} whole, {len(refused)} refused"
    )


def test_the_disagreements_are_those_that_are_known(recorded_streams: Path) -> None:
    found = [flag for each in recordings() for flag in each.disagreements]
    assert {flag: found.count(flag) for flag in DISAGREEMENTS} == {
        flag: count for flag, (_, count) in DISAGREEMENTS.items()
    }


@pytest.mark.parametrize("recording", cases(events=True))
def test_a_recorded_stream_says_what_an_independent_reader_read(
    recording: Recording, recorded_streams: Path
) -> None:
    body = recording.body(recorded_streams)
    reading = read(recording, body, [])
    assert type(reading.error) is (expected_error(recording, body) or type(None)), reading.error
    assert_as_expected(recording, reading)
    sentences(reading.items, whole=reading.error is None)


@pytest.mark.parametrize("recording", cases(events=True))
def test_cuts_make_no_difference(recording: Recording, recorded_streams: Path) -> None:
    body = recording.body(recorded_streams)
    whole = read(recording, body, [])
    for cuts in (random_cuts(recording, body), list(range(1, len(body)))):
        again = read(recording, body, cuts)
        assert again.items == whole.items
        assert repr(again.error) == repr(whole.error)


@pytest.mark.parametrize("recording", cases(events=True))
def test_an_answer_passes_through_a_server_of_ours_unchanged(
    recording: Recording, recorded_streams: Path
) -> None:
    reading = read(recording, recording.body(recorded_streams), [])
    message = reading.assembler.message()
    stop = {key: message[key] for key in ("usage_metadata", "finish_reason")}
    assert_passed_on(Told(reading.items, None if reading.error else stop, reading.error))


def random_cuts(recording: Recording, body: bytes) -> list[int]:
    dice = random.Random(recording.path)
    return sorted(dice.choices(range(len(body) + 1), k=dice.randint(1, 200)))


@pytest.mark.parametrize("recording", cases(events=False))
def test_a_recorded_answer_that_is_no_stream_is_taken_whole(
    recording: Recording, recorded_streams: Path
) -> None:
    body = recording.body(recorded_streams)
    expected = recording.expected
    if expected["http_status"] != 200:
        error = http_error(expected["http_status"], [], body, client="C", now=0.0)
        assert expected["error_raw"].get("message", "") in str(error)
        assert error.status == expected["http_status"]
        assert error.error
        return
    reading = read_whole(recording, body)
    assert type(reading.error) is (expected_error(recording, body) or type(None)), reading.error
    assert_as_expected(recording, reading)
    sentences(reading.items, whole=reading.error is None)
    for cuts in ([], random_cuts(recording, body), list(range(1, len(body)))):
        pieces = [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]
        seen = told(OpenAIChatClient, recording.target, pieces)
        assert seen.items == reading.items
        assert repr(seen.error) == repr(reading.error)


def read_whole(recording: Recording, body: bytes) -> Reading:
    assembler = Assembler(client="C", wire="openai_chat", host=recording.target.host)
    decoder = ChatCodec(DIALECT).decoder(assembler, client="C", target=recording.target)
    decoder.whole(body)
    assert decoder.terminal
    reading = Reading(assembler)
    try:
        reading.closing = assembler.complete(terminal=decoder.terminal)
    except errors.MMSPError as error:
        reading.error = error
    return reading
