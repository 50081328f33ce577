"""`Tracer`: the traces in a cache folder, for programs that read them.

A call whose config has a `trace_id` leaves one when it ends well (`mmsp.trace`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..trace import cache_folder, place_of
from ..wire import from_wire

__all__ = ["Tracer"]


class Tracer:
    """The traces below `cache_dir`: by default MMSP_CACHE_DIR, else `cache` in the working directory."""

    def __init__(self, cache_dir: str | Path | None = None) -> None:
        self.folder = cache_folder() if cache_dir is None else Path(cache_dir).absolute()

    def __iter__(self) -> Iterator[str]:
        """The ids of all traces, in the order of their names."""
        root = self.folder
        for path in sorted(root.rglob("*.json")):
            if path.is_file() and path.resolve().is_relative_to(root.resolve()):
                yield path.relative_to(root).as_posix().removesuffix(".json")

    def load(self, trace_id: str) -> dict[str, Any]:
        """A trace: `history` (messages, with their bytes), `config` and `timestamp`.

        Raises `ValueError` for an id that leads out of the folder, `FileNotFoundError`, and
        `WireFormatError` or `ValueError` for a file that is no trace.
        """
        trace: dict[str, Any] = msgspec.json.decode(
            self._path(trace_id, ".json").read_bytes(), type=dict
        )
        return {**trace, "history": from_wire(trace.get("history", []))}

    def transcript(self, trace_id: str) -> str:
        """The same to read."""
        return self._path(trace_id, ".txt").read_text(encoding="utf-8")

    def _path(self, trace_id: str, suffix: str) -> Path:
        place = place_of(self.folder, trace_id)
        path = place.with_name(place.name + suffix)
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise ValueError(f"{trace_id!r} leads out of the folder by a symbolic link")
        return path
