"""`Totals`: the folder in which the workers of a server count together, and what dead ones leave there.

The counts of a worker that died stay in the totals. Its running streams died with it, which no worker
has counted; the next one counts them as failures.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import multiprocess
from prometheus_client.mmap_dict import MmapedDict

__all__ = ["Totals", "shared_totals"]

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_RUNNING = "mmsp_streams"


@contextlib.contextmanager
def shared_totals() -> Generator[Totals]:
    """A new folder that workers started meanwhile count in; it is removed at the end."""
    before = os.environ.get(_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="mmsp-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[_VARIABLE] = folder
        try:
            yield Totals(folder)
        finally:
            del os.environ[_VARIABLE]
            if before is not None:
                os.environ[_VARIABLE] = before


class Totals:
    """For the parent."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lost: Counter[str] = Counter()

    def bury(self, pid: int) -> None:
        """What ran in this process does not run any more."""
        for model, count in _running(Path(self._folder, f"gauge_livesum_{pid}.db")):
            self._lost[model] += count
        mark_dead: Any = multiprocess.mark_process_dead  # it has no types
        mark_dead(pid, self._folder)

    def take_lost(self) -> dict[str, int]:
        """How many streams of each model died with their worker and are not counted yet."""
        lost = dict(self._lost)
        self._lost.clear()
        return lost


def _running(file: Path) -> list[tuple[str, int]]:
    if not file.exists():
        return []
    read: Any = MmapedDict.read_all_values_from_file
    found = []
    for key, value, *_ in read(str(file)):
        _, name, labels, *_ = msgspec.json.decode(key)
        if name == _RUNNING and value > 0:
            found.append((labels["model"], round(value)))
    return found
