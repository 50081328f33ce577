"""What a piece of work left behind: descriptors, threads, tasks, and complaints of any kind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator

__all__ = ["Before", "complaints", "descriptors"]

SETTLING = 0.5  # s, for what is ending already

Tell = Callable[[str], None]


class Before:
    """The descriptors and threads there were; everything later is compared with them."""

    def __init__(self) -> None:
        self._descriptors = descriptors()
        self._threads = set(threading.enumerate())

    def new_descriptors(self) -> set[str]:
        return descriptors() - self._descriptors

    def left(self) -> list[str]:
        return [
            *(f"descriptor {each}" for each in self.new_descriptors()),
            *(f"thread {each.name}" for each in set(threading.enumerate()) - self._threads),
        ]

    async def settled(self, tell: Tell) -> None:
        """Wait until nothing is left, tasks included; tell what stays."""
        until = time.monotonic() + SETTLING
        while found := [*self.left(), *_tasks()]:
            if time.monotonic() > until:
                for each in found:
                    tell(f"left behind: {each}")
                return
            await asyncio.sleep(0.001)


def _tasks() -> list[str]:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return [f"task {task.get_coro()}" for task in tasks]


def descriptors() -> set[str]:
    """Each open descriptor, as its number and what it is."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
    return found


@contextlib.contextmanager
def complaints(tell: Tell) -> Iterator[None]:
    """Tell of warnings, of errors that nobody could raise, and of what asyncio logs."""
    log = _Log(tell)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: tell(f"not raised: {unraisable.exc_value!r}")
    logging.getLogger("asyncio").addHandler(log)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
            gc.collect()
        for each in warned:
            tell(f"warning: {each.message}")
    finally:
        logging.getLogger("asyncio").removeHandler(log)
        sys.unraisablehook = hook


class _Log(logging.Handler):
    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        what = record.getMessage().partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        self._tell(f"asyncio's log: {what}" + (f": {error!r}" if error else ""))
