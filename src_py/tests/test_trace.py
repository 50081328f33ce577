"""Trace files: their names, their contents, and reading them."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from mmsp import AutoLLMClient, UnsupportedParameterError, WireFormatError
from mmsp.integration.tracer import Tracer
from mmsp.trace import Trace, check_trace_id, place_of
from mmsp.types import UniMessage
from tests.asking import QUESTION

ANSWER: UniMessage = {
    "role": "assistant",
    "content_items": [
        {"type": "thinking.done", "thinking": "hm"},
        {"type": "inline_thinking.done", "data": b"x" * 1500, "mime_type": "image/png"},
        {"type": "text.done", "text": "né"},
        {"type": "inline_data.done", "data": b"y" * 2_500_000, "mime_type": "audio/l16"},
        {"type": "tool_call.done", "name": "f", "arguments": {"q": "ü"}, "tool_call_id": "c1"},
        {"type": "embedding.done", "embedding": [0.5] * 9},
    ],
    "usage_metadata": {
        "cached_tokens": None,
        "prompt_tokens": 10,
        "thoughts_tokens": 2,
        "response_tokens": 5,
    },
    "finish_reason": "tool_call",
    "created_at": 1_760_000_000_000,
}
ASKED: UniMessage = {
    "role": "user",
    "content_items": [
        {"type": "text.done", "text": "What is it?"},
        {"type": "image_url.done", "image_url": "https://a.example/b.png"},
        {"type": "tool_result.done", "text": "7", "tool_call_id": "c0", "images": ["https://c"]},
    ],
}


def trace(folder: Path, trace_id: str = "a", **config: Any) -> Trace:
    config = {"trace_id": trace_id, **config}
    return Trace(folder, trace_id, model="m", config=config, messages=[ASKED])


def saved(folder: Path, trace_id: str = "a", **config: Any) -> None:
    written = trace(folder, trace_id, **config).write(ANSWER)
    assert written is not None
    written.publish()


def files(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def test_a_trace_holds_what_was_asked_and_answered(tmp_path: Path) -> None:
    saved(tmp_path, temperature=0.5)
    record = json.loads((tmp_path / "a.json").read_text())
    assert list(record) == ["history", "config", "timestamp"]
    assert record["config"] == {"trace_id": "a", "temperature": 0.5, "model": "m"}
    assert "né" in (tmp_path / "a.json").read_text()
    loaded = Tracer(tmp_path).load("a")
    assert loaded["history"] == [ASKED, ANSWER]
    assert Tracer(tmp_path).transcript("a") == (tmp_path / "a.txt").read_text()


def test_the_transcript_reads_well(tmp_path: Path) -> None:
    saved(tmp_path, tools=[{"name": "f"}])
    lines = (tmp_path / "a.txt").read_text().splitlines()
    assert lines[0] == lines[2] == "=" * 80
    assert [line for line in lines[3:] if line] == [
        "Configuration:",
        "  tools: [",
        "      {",
        '        "name": "f"',
        "      }",
        "    ]",
        "  model: m",
        "[1] USER",
        "-" * 80,
        "Text: What is it?",
        "Image: https://a.example/b.png",
        "Tool result of c0: 7",
        "    image: https://c",
        "[2] ASSISTANT",
        "-" * 80,
        "Thinking: hm",
        "Thinking, image: image/png, 1.50 KB",
        "Text: né",
        "audio: audio/l16, 2.50 MB",
        "Tool call: f",
        "    {",
        '      "q": "ü"',
        "    }",
        "    id: c1",
        "Embedding of 9 numbers: 0.5, 0.5, 0.5, 0.5, 0.5 …",
        "Tokens:",
        "  Prompt: 10",
        "  Thoughts: 2",
        "  Response: 5",
        "  Total: 17",
        "Finish reason: tool_call",
    ]


def test_an_id_may_name_folders_and_a_dot_stays_in_it(tmp_path: Path) -> None:
    saved(tmp_path, "day/one/a.b")
    assert files(tmp_path) == ["day/one/a.b.json", "day/one/a.b.txt"]
    saved(tmp_path, "day/two")
    assert list(Tracer(tmp_path)) == ["day/one/a.b", "day/two"]


def test_a_repeated_id_replaces_the_trace(tmp_path: Path) -> None:
    saved(tmp_path)
    saved(tmp_path, seed=1)
    assert Tracer(tmp_path).load("a")["config"]["seed"] == 1
    assert files(tmp_path) == ["a.json", "a.txt"]


def test_the_files_have_the_rights_that_the_program_gives_its_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        saved(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o640


def test_what_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    written = trace(tmp_path).write(ANSWER)
    assert written is not None
    assert len(files(tmp_path)) == 2
    written.discard()
    assert files(tmp_path) == []


BAD = ["", "/etc/passwd", "..", "../a", "a/../../b", "a//b", "a/", ".", "a/./b", "a\\b", "a\0b", "a\nb", "x" * 251, "a/" + "é" * 126]  # fmt: skip  # noqa: E501


@pytest.mark.parametrize("trace_id", BAD)
def test_an_id_that_is_no_path_of_names_is_refused_at_the_call(trace_id: str) -> None:
    with pytest.raises(ValueError):
        check_trace_id(trace_id)
    client = AutoLLMClient("m", "k", client_type="openai-chat")
    with pytest.raises(UnsupportedParameterError) as caught:
        client.streaming_response([QUESTION], {"trace_id": trace_id})
    assert caught.value.parameter == "trace_id"


@pytest.mark.parametrize("trace_id", ["a", "a b", "2026-12-01T10:00:00", "ä/ö", "x" * 250, ".a"])
def test_other_ids_are_taken(trace_id: str) -> None:
    check_trace_id(trace_id)


def test_a_link_that_leads_out_of_the_folder_is_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inside, outside = tmp_path / "cache", tmp_path / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    with pytest.raises(ValueError, match="symbolic link"):
        place_of(inside, "link/a")
    with caplog.at_level(logging.WARNING, "mmsp"):
        assert trace(inside, "link/deeper/a").write(ANSWER) is None
    assert "symbolic link" in caplog.text
    assert files(outside) == []
    (outside / "secret.json").write_text("{}")
    (inside / "b.json").symlink_to(outside / "secret.json")
    assert list(Tracer(inside)) == []
    with pytest.raises(ValueError, match="symbolic link"):
        Tracer(inside).load("b")


@pytest.mark.parametrize(
    "obstacle", ["a file for a folder", "a folder for a file", "a path that is too long"]
)
def test_a_trace_that_cannot_be_written_is_a_warning(
    tmp_path: Path, obstacle: str, caplog: pytest.LogCaptureFixture
) -> None:
    trace_id = "/".join(["x" * 200] * 30) if "long" in obstacle else "day/a"
    if obstacle == "a file for a folder":
        (tmp_path / "day").write_text("")
    elif obstacle == "a folder for a file":
        (tmp_path / "day" / "a.json").mkdir(parents=True)
    with caplog.at_level(logging.WARNING, "mmsp"):
        written = trace(tmp_path, trace_id).write(ANSWER)
        if written is not None:
            written.publish()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"trace {trace_id!r} was not saved: ")
    assert not [each for each in files(tmp_path) if each.endswith((".tmp", ".json", ".txt"))]


def test_what_is_no_trace_is_told(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path)
    with pytest.raises(FileNotFoundError):
        tracer.load("none")
    with pytest.raises(ValueError):
        tracer.load("../a")
    (tmp_path / "bad.json").write_text("[")
    with pytest.raises(ValueError):
        tracer.load("bad")
    (tmp_path / "odd.json").write_text('{"history": [3]}')
    with pytest.raises(WireFormatError):
        tracer.load("odd")


def test_the_folder_is_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMSP_CACHE_DIR", str(tmp_path / "traces"))
    assert Tracer().folder == tmp_path / "traces"
    assert list(Tracer()) == []
    monkeypatch.setenv("MMSP_CACHE_DIR", "")
    monkeypatch.chdir(tmp_path)
    assert Tracer().folder == tmp_path / "cache"


@pytest.mark.parametrize(
    "trace_id", ["a.b", ".hidden", "v1.2/run.3", "a.json", "a.txt", "a.tmp", "day.1/.x/b.c"]
)
def test_an_id_with_dots_is_listed_and_found(tmp_path: Path, trace_id: str) -> None:
    saved(tmp_path, trace_id)
    tracer = Tracer(tmp_path)
    assert list(tracer) == [trace_id]
    assert tracer.load(trace_id)["history"][-1] == ANSWER
    assert "Trace of" in tracer.transcript(trace_id)


def test_what_is_not_published_yet_is_not_listed(tmp_path: Path) -> None:
    written = trace(tmp_path, "a").write(ANSWER)
    (tmp_path / "folder.json").mkdir()
    assert written is not None
    assert list(Tracer(tmp_path)) == []
    written.publish()
    assert list(Tracer(tmp_path)) == ["a"]
