"""Traces: what was asked and answered, in two files: `<trace_id>.json`, and a transcript, `.txt`.

A trace is written before its call ends, into temporary files of the same folder, and takes its names in
the commit: first the transcript, then the JSON, which is the record. So there is never a JSON without its
transcript, nor half a file; a call that ends otherwise leaves nothing. Nothing is synced to the disk: a
trace is for reading, and a machine that crashes may forget it.

The id is a caller's, and may name folders; it never leads out of the cache folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from .types import UniMessage
from .wire import to_wire

__all__ = [
    "Trace",
    "Writing",
    "WrittenTrace",
    "cache_folder",
    "check_trace_id",
    "place_of",
    "size_of",
]

_LONGEST = 255 - len(".json")  # bytes of a part of the id, as file systems have it
_KB = 1000

_log = logging.getLogger("mmsp")


def cache_folder() -> Path:
    """Where traces go: the variable MMSP_CACHE_DIR, else `cache` in the working directory."""
    return Path(os.environ.get("MMSP_CACHE_DIR") or "cache").absolute()


def check_trace_id(trace_id: str) -> None:
    """Raise `ValueError` for an id that is no path of plain names below the cache folder."""
    for part in trace_id.split("/"):
        if part in ("", ".", ".."):
            raise ValueError(f"{trace_id!r} leaves the cache folder, or has an empty part")
        if "\\" in part or (os.name == "nt" and ":" in part) or not part.isprintable():
            raise ValueError(f"{trace_id!r} holds a character that names of files do not take")
        if len(os.fsencode(part)) > _LONGEST:
            raise ValueError(f"a part of it is longer than {_LONGEST} bytes")


def place_of(folder: Path, trace_id: str) -> Path:
    """The path of a trace without its suffix. Raises `ValueError` for what leads out of `folder`."""
    check_trace_id(trace_id)
    place = folder / trace_id
    if not place.parent.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{trace_id!r} leads out of the cache folder by a symbolic link")
    return place


class Trace:
    """What a call will leave when it ends well: the messages that were sent, the config and the model."""

    def __init__(
        self,
        folder: Path,
        trace_id: str,
        *,
        model: str,
        config: Mapping[str, Any],
        messages: Sequence[UniMessage],
    ) -> None:
        self._folder = folder
        self._trace_id = trace_id
        self._config = {**config, "model": model}
        self._messages = list(messages)

    def write(self, answer: UniMessage) -> WrittenTrace | None:
        """Write it all under temporary names; None, and a warning in the log, where that fails.

        Blocks for as long as the disk does.
        """
        written = WrittenTrace(self._trace_id)
        try:
            place = place_of(self._folder, self._trace_id)
            place.parent.mkdir(parents=True, exist_ok=True)
            place = place_of(self._folder, self._trace_id)  # what is there now
            now = datetime.now()
            history = to_wire([*self._messages, answer])
            written.add(place, ".txt", _transcript(history, self._config, now))
            record = {"history": history, "config": self._config, "timestamp": now.isoformat()}
            written.add(place, ".json", json.dumps(record, ensure_ascii=False, indent=2))
        except (
            Exception
        ) as error:  # whatever it was: a trace is never the reason that an answer is lost
            written.discard()
            _warn(self._trace_id, error)
            return None
        except BaseException:
            written.discard()
            raise
        return written


def size_of(answer: UniMessage) -> int:
    """About how many bytes the items hold."""
    items: list[Any] = list(answer["content_items"])
    held = (len(each) for item in items for each in item.values() if isinstance(each, str | bytes))
    return sum(held)


class WrittenTrace:
    """A trace under temporary names: to be published or discarded, once."""

    def __init__(self, trace_id: str) -> None:
        self._trace_id = trace_id
        self._files: list[tuple[Path, Path]] = []

    def add(self, place: Path, suffix: str, text: str) -> None:
        name = place.name + suffix
        path = place.with_name(f".{os.urandom(8).hex()}.tmp")
        with path.open("x", encoding="utf-8", newline="\n") as file:
            self._files.append((path, place.with_name(name)))
            file.write(text)

    def publish(self) -> None:
        """Give the files their names. Where that fails, the log is warned and there is none of them."""
        named: list[Path] = []
        try:
            for path, name in self._files:
                path.replace(name)
                named.append(name)
        except OSError as error:
            self.discard()
            _remove(named)
            _warn(self._trace_id, error)

    def discard(self) -> None:
        """Remove what is still under a temporary name."""
        _remove(path for path, _ in self._files)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


class Writing:
    """A trace that is being written on a thread of its own, which nobody waits for.

    `done` is called on that thread. Whoever is second, the thread or the call that leaves, discards what
    nobody took.
    """

    def __init__(self, trace: Trace, answer: UniMessage, *, done: Callable[[], None]) -> None:
        self._written: list[WrittenTrace | None] = []
        self._turn = threading.Lock()
        self._left = False
        self._done = done
        work = (trace, answer)
        try:
            threading.Thread(target=self._write, args=work, name="mmsp-trace", daemon=True).start()
        except RuntimeError:  # no more threads to be had
            self._write(*work)

    @property
    def is_done(self) -> bool:
        return bool(self._written)

    def take(self) -> WrittenTrace | None:
        """What was written; None if it is not done, or could not be."""
        return self._written.pop() if self._written else None

    def leave(self) -> None:
        """Nobody will take it any more."""
        with self._turn:
            self._left = True
            self._discard()

    def _write(self, trace: Trace, answer: UniMessage) -> None:
        try:
            written = trace.write(answer)
        except BaseException as error:  # whatever it was, somebody waits
            _log.warning("a trace was not saved: %s", type(error).__name__)
            written = None
        with self._turn:
            self._written.append(written)
            if self._left:
                self._discard()
        self._done()

    def _discard(self) -> None:
        for written in self._written:
            if written is not None:
                written.discard()
        self._written.clear()


def _warn(trace_id: str, error: Exception) -> None:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    why = why or type(error).__name__
    _log.warning("trace %r was not saved: %s", trace_id, why)


# ---- the transcript


def _transcript(history: Sequence[dict[str, Any]], config: Mapping[str, Any], now: datetime) -> str:
    lines = ["=" * 80, f"Trace of {now:%Y-%m-%d %H:%M:%S}", "=" * 80, "", "Configuration:"]
    lines += [f"  {key}: {_setting(value)}" for key, value in config.items() if key != "trace_id"]
    for number, message in enumerate(history, 1):
        lines += ["", f"[{number}] {message['role'].upper()}", "-" * 80]
        lines += [_line(item) for item in message["content_items"]]
        lines += _ending(message)
    return "\n".join([*lines, ""])


def _setting(value: Any) -> str:
    return _indented(value) if isinstance(value, dict | list) else str(value)


def _indented(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n    ")


def _line(item: dict[str, Any]) -> str:
    kind = item["type"].removesuffix(".done")
    return _LINES[kind](item)


def _call(item: dict[str, Any]) -> str:
    return f"Tool call: {item['name']}\n    {_indented(item['arguments'])}\n    id: {item['tool_call_id']}"


def _result(item: dict[str, Any]) -> str:
    images = "".join(f"\n    image: {url}" for url in item.get("images") or ())
    return f"Tool result of {item['tool_call_id']}: {item['text']}{images}"


def _inline(item: dict[str, Any]) -> str:
    mime_type = item["mime_type"]
    family = mime_type.partition("/")[0]
    kind = family if family in ("image", "audio") else "data"
    size = len(item["data"]) * 3 / 4 / _KB  # of the bytes that base64 stands for
    shown = f"{size:.2f} KB" if size < _KB else f"{size / _KB:.2f} MB"
    thinking = "Thinking, " if item["type"].startswith("inline_thinking") else ""
    return f"{thinking}{kind}: {mime_type}, {shown}"


def _vector(item: dict[str, Any]) -> str:
    numbers = item["embedding"]
    return f"Embedding of {len(numbers)} numbers: {', '.join(map(str, numbers[:5]))} …"


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "text": lambda item: f"Text: {item['text']}",
    "thinking": lambda item: f"Thinking: {item['thinking']}",
    "image_url": lambda item: f"Image: {item['image_url']}",
    "inline_data": _inline,
    "inline_thinking": _inline,
    "tool_call": _call,
    "tool_result": _result,
    "embedding": _vector,
}

_COUNTS = {
    "cached_tokens": "Cached",
    "prompt_tokens": "Prompt",
    "thoughts_tokens": "Thoughts",
    "response_tokens": "Response",
}


def _ending(message: dict[str, Any]) -> list[str]:
    usage = message.get("usage_metadata") or {}
    counts = {name: usage[key] for key, name in _COUNTS.items() if usage.get(key) is not None}
    lines = [f"  {name}: {count}" for name, count in counts.items()]
    if lines:
        lines = ["Tokens:", *lines, f"  Total: {sum(counts.values())}"]
    if reason := message.get("finish_reason"):
        lines.append(f"Finish reason: {reason}")
    return lines
