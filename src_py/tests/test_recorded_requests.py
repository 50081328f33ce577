"""Recorded requests of providers' own flavours: the same, said in our messages, has the same structure.

Bytes are not compared, nor what a request sets besides the conversation and its tools.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mmsp import MMSPError
from mmsp.checks import checked_config, checked_messages
from mmsp.codecs.base import Codec
from mmsp.registry import CLIENTS
from mmsp.request import Target
from tests.request_outlines import OUTLINES, Unsayable, as_said

CLIENT_TYPES = {
    "openai-chat": "openai-chat",
    "openai-compat": "openai-chat",
    "openai-responses": "openai-responses",
    "anthropic-messages": "ant-messages",
    "google-generatecontent": "google-genai",
    "google-interactions": "google-official",
}
TARGET = Target("https://host.example/v1")

# What our messages cannot say, by the beginning of the reason.
REASONS = (
    "a tool of the provider's own", "a conversation that the provider keeps", "an item of input",
    "a part of content", "a block", "a role that does not exist", "a system prompt behind a message",
    "a result that is not text alone", "a part", "a step", "another kind of request",
)  # fmt: skip


def recorded(folder: Path, protocol: str) -> list[Path]:
    return sorted((folder / protocol).glob("*.request.json"))


def test_a_recorded_request_said_in_our_messages_has_the_same_structure(
    recorded_streams: Path, report_at_the_end: list[str]
) -> None:
    counts: Counter[str] = Counter()
    different = []
    for protocol in OUTLINES:
        for path in recorded(recorded_streams, protocol):
            try:
                ours, theirs = both(protocol, json.loads(path.read_bytes()))
            except Unsayable as reason:
                counts[str(reason).partition(":")[0]] += 1
                continue
            counts["the same"] += ours == theirs
            if ours != theirs:
                different.append((path.name, first_difference(ours, theirs)))
    assert counts.keys() <= {"the same", *REASONS}
    report_at_the_end.append(
        "recorded requests said in our messages: "
        + ", ".join(f"{count} {what}" for what, count in counts.most_common())
    )
    assert different == []
    assert counts["the same"] > 300


def both(protocol: str, body: Any) -> tuple[list[Any], list[Any]]:
    """The outlines of our request and of the recorded one."""
    if not {"messages", "input", "contents"} & body.keys():
        raise Unsayable("another kind of request")
    read = OUTLINES[protocol]
    theirs = list(read(body))
    codec: Codec = CLIENTS[CLIENT_TYPES[protocol]].load().codec
    messages, config = as_said(theirs, codec.name, TARGET.host)
    try:
        asked = checked_messages(messages, client="C", now=1)
        settings = checked_config(config, client="C")
        needs = dict.fromkeys(codec.needs(asked), "data:image/png;base64,AA==")
        request = codec.encode("some-model", asked, settings, TARGET, client="C", images=needs)
    except MMSPError as error:
        raise Unsayable(f"refused: {error}") from None
    return normal(list(read(json.loads(request.body)))), normal(theirs)


def normal(outline: list[Any]) -> list[Any]:
    """Without what the forms have no say in: several system prompts are one; pictures are pictures; a
    tool without parameters takes none; an empty text says nothing."""
    system = "\n\n".join(part[1] for part in outline if part[0] == "system")
    said = [part for part in outline if part[0] != "system" and part[1:] != ("text", "")]
    return [("system", system), *map(_normal, said)]


def _normal(part: Any) -> Any:
    match part:
        case ("tool", name, description, schema):
            return ("tool", name, description or "", sorted(schema.get("properties") or {}))
        case (role, "image", _):
            return (role, "image")
        case (role, "thinking", text, _) if not text:
            return (role, "thinking", "")
    return part


def first_difference(ours: list[Any], theirs: list[Any]) -> Any:
    pairs = zip([*ours, None], [*theirs, None], strict=False)
    return next(((a, b) for a, b in pairs if a != b), (len(ours), len(theirs)))


def test_the_folder_of_recordings_is_named_where_it_is_there() -> None:
    """So that this module is not skipped unseen where the recordings lie beside the repository."""
    folder = os.environ.get("MMSP_RECORDED_STREAMS")
    if not folder:
        pytest.skip("MMSP_RECORDED_STREAMS does not name a folder of recorded provider answers")
    assert any(Path(folder).glob("*/*.request.json"))
