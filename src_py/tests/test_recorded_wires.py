"""Recorded answers on the other wires: decoded whole, at random cuts and byte by byte.

What `test_recorded_streams.py` does for Chat Completions, with what the independent reader's file says of
Messages, Responses, generateContent, Interactions and embeddings. Where ours differs on purpose, the
recording is named with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mmsp import errors, sse
from mmsp.codecs.anthropic_messages import MessagesCodec
from mmsp.codecs.anthropic_messages_decoder import REDACTED
from mmsp.codecs.base import Codec
from mmsp.codecs.google_generate_content import GenerateContentCodec
from mmsp.codecs.google_interactions import InteractionsCodec
from mmsp.codecs.http_error import http_error
from mmsp.codecs.openai_embedding import EmbeddingCodec
from mmsp.codecs.openai_responses import ResponsesCodec
from mmsp.dialects import google, messages_compatible, responses_compatible
from mmsp.grammar import Assembler
from mmsp.request import Target
from tests.reading import Told
from tests.server_between import assert_passed_on

CODECS: dict[str, Codec] = {
    "anthropic-messages": MessagesCodec(messages_compatible.DIALECT),
    "openai-responses": ResponsesCodec(responses_compatible.DIALECT),
    "google-generatecontent": GenerateContentCodec(google.DIALECT),
    "google-interactions": InteractionsCodec(google.DIALECT),
    "openai-embeddings": EmbeddingCodec(),
}
TARGET = Target("https://host.example")

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_call",
    "refusal": "content_filter",
    "completed": "stop",
    "incomplete": "length",
    "requires_action": "tool_call",
    "STOP": "stop",
    "MAX_TOKENS": "length",
}

# Where ours differs from the independent reader on purpose: a part of the name, what differs, why.
DIFFERENT = {
    "anthropic-programmatic-tool-calling.1.part": (
        "calls",
        "a call that stands whole in message_start is a call; the reader looks at blocks alone",
    ),
    "x-search-tool": (
        "calls",
        "xAI's own searches come as calls of custom tools, which are not ours",
    ),
    "google-stream-tool-call-arguments": (
        "error",
        "arguments piece by piece by JSON path come only on a request of their own, which we never make",
    ),
    "google-stream-tool-call-array-arguments": ("error", "the same"),
    "ollama_embeddings_legacy": ("error", "a form of Ollama's own, from a path of its own"),
    "int8_embeddings_perplexity": ("error", "bytes for numbers, which come only when asked for"),
}

# Answers in which nothing is ours: what the request asked for was a tool we have no item for.
NOT_OURS = ("server_or_client_item:", "prompt_blocked")


@dataclass(frozen=True)
class Recording:
    path: str
    expected: dict[str, Any] = field(repr=False)

    @property
    def wire(self) -> str:
        return self.path.partition("/")[0]

    @property
    def is_stream(self) -> bool:
        return self.path.endswith((".sse", ".jsonl"))

    @property
    def difference(self) -> str:
        found = (what for part, (what, _) in DIFFERENT.items() if part in self.path)
        return next(found, "")

    def body(self, folder: Path) -> bytes:
        body = (folder / self.path).read_bytes()
        if self.path.endswith(".jsonl"):
            return b"".join(sse.encode(line) for line in body.split(b"\n") if line)
        return body


def recordings() -> Iterator[Recording]:
    folder = os.environ.get("MMSP_RECORDED_STREAMS")
    if folder:
        expected = json.loads(Path(folder, "expected.json").read_text())
        for path, facts in expected.items():
            if path.partition("/")[0] in CODECS:
                yield Recording(path, facts)


FOUND = [pytest.param(each, id=each.path) for each in recordings()] or [
    pytest.param(None, id="no folder")
]


@dataclass
class Reading:
    assembler: Assembler
    error: errors.MMSPError | None = None
    closing: list[Any] = field(default_factory=list)

    @property
    def items(self) -> list[Any]:
        return [*self.assembler.out, *self.closing]

    def joined(self, kind: str) -> str:
        pieces = (it[kind] for it in self.items if it["type"] == f"{kind}.delta")
        return "".join(piece for piece in pieces if piece != REDACTED)

    def calls(self) -> list[tuple[str, str, Any]]:
        done = (it for it in self.items if it["type"] == "tool_call.done")
        return [(it["name"], it["tool_call_id"], it["arguments"]) for it in done]


def read(recording: Recording, body: bytes, cuts: list[int]) -> Reading:
    codec = CODECS[recording.wire]
    assembler = Assembler(client="C", wire=codec.name, host=TARGET.host)
    decoder = codec.decoder(assembler, client="C", target=TARGET)
    reading = Reading(assembler)
    try:
        if recording.is_stream:
            parser = sse.Parser()
            for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
                for event in parser.feed(body[start:end]):
                    decoder.feed(*event)
            for event in parser.close():
                decoder.feed(*event)
        else:
            decoder.whole(body)
        reading.closing = assembler.complete(terminal=decoder.terminal)
    except errors.MMSPError as error:
        reading.error = error
    return reading


@pytest.mark.parametrize("recording", FOUND)
def test_a_recorded_answer_says_what_an_independent_reader_read(
    recording: Recording, recorded_streams: Path
) -> None:
    body, expected = recording.body(recorded_streams), recording.expected
    if expected["http_status"] != 200:
        error = http_error(expected["http_status"], [], body, client="C", now=0.0)
        assert (error.status, bool(error.error)) == (expected["http_status"], True)
        return
    reading = read(recording, body, [])
    check_error(recording, reading)
    if recording.wire == "openai-embeddings":
        assert bool(reading.assembler.message()["content_items"]) is (reading.error is None)
        return
    assert_words(reading.joined("text"), expected, "text")
    assert_words(reading.joined("thinking"), expected, "thinking")
    if recording.difference != "calls" and reading.error is None:
        assert reading.calls() == [
            (it["name"], it["id"] or it["name"], json.loads(it["arguments_canonical"]))
            for it in expected["tool_calls"]
        ]
    if reading.error is None:
        finish = FINISH.get(expected["finish_reason_raw"] or "", "unknown")
        calls = finish == "stop" and bool(reading.calls())
        assert reading.assembler.finish_reason == ("tool_call" if calls else finish)
        assert bool(reading.assembler.usage_metadata) or not expected.get("usage_raw")


def check_error(recording: Recording, reading: Reading) -> None:
    flags = recording.expected["flags"]
    said = [
        recording.expected[key] for key in ("text_len", "tool_calls") if recording.expected.get(key)
    ]
    if recording.difference == "error" or "nonstream-batch" in recording.path:
        assert isinstance(reading.error, errors.StreamProtocolError)
    elif recording.expected.get("error_raw"):
        assert isinstance(reading.error, errors.ProviderStreamError)
    elif not said and any(flag.startswith(NOT_OURS) for flag in flags):
        assert isinstance(reading.error, errors.EmptyResponseError | None)
    else:
        assert reading.error is None


def assert_words(text: str, expected: dict[str, Any], kind: str) -> None:
    assert len(text) == expected[f"{kind}_len"]
    if text and expected.get(f"{kind}_sha256"):
        assert hashlib.sha256(text.encode()).hexdigest() == expected[f"{kind}_sha256"]


@pytest.mark.parametrize(
    "recording", [each for each in FOUND if "sse" in str(each.id) or len(FOUND) == 1]
)
def test_cuts_make_no_difference(recording: Recording, recorded_streams: Path) -> None:
    body = recording.body(recorded_streams)
    whole = read(recording, body, [])
    dice = random.Random(recording.path)
    some = sorted(dice.choices(range(len(body) + 1), k=dice.randint(1, 100)))
    for cuts in (some, list(range(1, len(body)))):
        again = read(recording, body, cuts)
        assert again.items == whole.items
        assert repr(again.error) == repr(whole.error)


@pytest.mark.parametrize("recording", FOUND)
def test_an_answer_passes_through_a_server_of_ours_unchanged(
    recording: Recording, recorded_streams: Path
) -> None:
    reading = read(recording, recording.body(recorded_streams), [])
    message = reading.assembler.message()
    stop = {key: message[key] for key in ("usage_metadata", "finish_reason")}
    assert_passed_on(Told(reading.items, None if reading.error else stop, reading.error))
