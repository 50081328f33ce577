"""`Totals`: the folder in which the workers of a server count together, and what dead ones leave there.

The counts of a worker that died stay in the totals. Its running streams died with it, which no worker
has counted; the next one counts them as failures.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import multiprocess
from prometheus_client.mmap_dict import MmapedDict

__all__ = ["Totals", "ignore_open_files", "leave_totals", "shared_totals"]

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "mmsp-metrics-"
_RUNNING = "mmsp_streams"


@contextlib.contextmanager
def shared_totals() -> Generator[Totals]:
    """A new folder that workers started meanwhile count in; it is removed at the end."""
    before = os.environ.get(_VARIABLE)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder:
        os.environ[_VARIABLE] = folder
        try:
            yield Totals(folder)
        finally:
            del os.environ[_VARIABLE]
            if before is not None:
                os.environ[_VARIABLE] = before


def ignore_open_files() -> None:
    """Of a worker in the folder: prometheus-client leaves them open until the process ends."""
    warnings.filterwarnings("ignore", f".*/{_PREFIX}", ResourceWarning)


def leave_totals() -> None:
    """Of a worker whose parent is gone: remove what no living process needs, in the end the folder."""
    folder = Path(os.environ[_VARIABLE])
    for file in folder.glob("*.db"):
        pid = int(file.stem.rpartition("_")[2])
        if pid == os.getpid() or not _lives(pid):
            file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others are at work there
        folder.rmdir()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return False
    return True


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
