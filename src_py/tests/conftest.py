"""Every test leaves nothing behind: no task, no thread, no descriptor, no complaint of its loop.

pytest itself fails a test whose objects complain while they are collected (`sys.unraisablehook`,
ResourceWarning) or whose threads raise, since warnings are errors. The rest is checked here, in the
order in which a test ends:

1. its fixtures are torn down,
2. no task may be pending on its loop (`no_task_outlives_the_test`),
3. the loop is closed, and with it the connections that the library keeps for it,
4. garbage is collected; then no descriptor and no thread may be new, and no event loop of any
   thread may have reported an error (`nothing_outlives_the_test`).

A resource that outlives tests on purpose belongs to a fixture of a wider scope, which is set up
before the first look around.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest
from pytest_asyncio import is_async_test

# Daemon threads of which a process has one, or one for each name being resolved.
PROCESS_WIDE_THREADS = ("mmsp-resolve", "mmsp-timer", "mmsp-sync")

# Seconds that something which is already ending may take to end. Only a leak costs this time.
SETTLING_TIME = 0.5

CALL_FAILED = pytest.StashKey[bool]()
REPORT = pytest.StashKey[list[str]]()

hypothesis.settings.register_profile("mmsp", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("mmsp")


@pytest.fixture(scope="session")
def recorded_streams() -> Path:
    """The folder of recorded provider answers; without one, tests that need it are skipped."""
    folder = os.environ.get("MMSP_RECORDED_STREAMS")
    if not folder:
        pytest.skip("MMSP_RECORDED_STREAMS does not name a folder of recorded provider answers")
    path = Path(folder)
    assert path.is_dir(), f"MMSP_RECORDED_STREAMS names {folder}, which is no folder"
    return path


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def tls(request: pytest.FixtureRequest) -> bool:
    """For tests that run once over plain TCP and once over TLS."""
    return bool(request.param)


@pytest.fixture
def own_driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests of `mmsp.sync`: its thread, loop and kept connections end with the test.

    The loop is in debug mode, in which it refuses what another thread may not do with it.
    """
    from mmsp.sync import driver

    driver.stop()
    if not request.node.get_closest_marker("no_debug"):
        monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    yield
    driver.stop(patience=10)
    if left := settle(driving_threads):
        pytest.fail(f"the test left behind: {left}", pytrace=False)


@pytest.fixture(scope="session")
def report_at_the_end(pytestconfig: pytest.Config) -> list[str]:
    """Lines for the end of the run: figures that a test measured and does not judge so finely."""
    return pytestconfig.stash.setdefault(REPORT, [])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if lines := config.stash.get(REPORT, []):
        terminalreporter.section("measured")
        terminalreporter.write_line("\n".join(lines))


@pytest.fixture(autouse=True)
def nothing_outlives_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test for new descriptors and threads, and for what event loops reported."""
    descriptors, threads = open_descriptors(), running_threads()
    with LoopErrors() as loop_errors:
        yield
        collect_garbage()
    if request.node.stash.get(CALL_FAILED, False):
        return  # its traceback keeps everything alive; the failure itself is what matters

    def leaks() -> list[str]:
        new_descriptors = sorted(open_descriptors() - descriptors)
        new_threads = running_threads() - threads
        return [
            *(f"open descriptor: {describe_descriptor(*each)}" for each in new_descriptors),
            *(f"running thread: {describe_thread(each)}" for each in new_threads),
        ]

    found = [*settle(leaks), *(f"event loop: {report}" for report in loop_errors.reports)]
    if found:
        pytest.fail("\n".join(["the test left behind:", *found]), pytrace=False)


@pytest.fixture(autouse=True)
def no_task_outlives_the_test(
    request: pytest.FixtureRequest, nothing_outlives_the_test: None
) -> None:
    """Starts the loop of an async test before its other fixtures, so that it ends after them."""
    if is_async_test(request.node):
        request.getfixturevalue("watched_loop")


@pytest.fixture
async def watched_loop(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Fails the test for tasks that are still pending when everything else of it has ended."""
    if request.node.get_closest_marker("no_debug"):
        asyncio.get_running_loop().set_debug(False)
    yield
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    if pending:
        _, pending = await asyncio.wait(pending, timeout=SETTLING_TIME)
    if pending and not request.node.stash.get(CALL_FAILED, False):
        names = [f"pending task: {task.get_name()}, {task.get_coro()!r}" for task in pending]
        pytest.fail("\n".join(["the test left behind:", *names]), pytrace=False)


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.new_event_loop
    }
    if item.get_closest_marker("every_loop"):
        factories |= uvloop_factory()
    return factories


@functools.cache
def uvloop_factory() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    try:
        import uvloop
    except ImportError:  # not for this interpreter or system
        return {}
    uvloop.new_event_loop().close()  # the first one opens a pipe that the process keeps
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[CALL_FAILED] = report.failed
    return report


def pytest_collection_finish() -> None:
    collect_garbage()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


def collect_garbage() -> None:
    """What survives is left out of later collections, so that each takes under a millisecond."""
    gc.collect()
    gc.freeze()


class LoopErrors(logging.Handler):
    """What event loops, of any kind and thread, report to their default exception handler."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.reports: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.reports.append(logging.Formatter().format(record))

    def __enter__(self) -> LoopErrors:
        logging.getLogger("asyncio").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("asyncio").removeHandler(self)


def settle(leaks: Callable[[], list[str]]) -> list[str]:
    """What is still there when things that were about to end have ended."""
    give_up = time.monotonic() + SETTLING_TIME
    while (found := leaks()) and time.monotonic() < give_up:
        time.sleep(0.01)
    return found


def open_descriptors() -> set[tuple[int, str]]:
    """Each descriptor with what it leads to, so that a reused number counts as new."""
    found = set()
    if sys.platform == "linux":
        for name in os.listdir("/proc/self/fd"):
            try:
                found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
            except FileNotFoundError:  # the descriptor that listed the folder, or another thread's
                continue
    return found


def describe_descriptor(number: int, target: str) -> str:
    if not target.startswith("socket:"):
        return f"{number}, {target}"
    try:
        with socket.socket(fileno=os.dup(number)) as duplicate:
            return f"{number}, {duplicate!r}"
    except OSError:
        return f"{number}, {target}"


def running_threads() -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        if not (thread.daemon and thread.name.startswith(PROCESS_WIDE_THREADS))
    }


def driving_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "mmsp-sync"]


def describe_thread(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    place = f", at {frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
    return f"{thread.name}{place}"
