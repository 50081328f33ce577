"""The checks after each test find what they are for: a suite that leaks is run and looked at."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PYPROJECT = HERE.parent.parent / "pyproject.toml"

LEAKY_SUITE = """
import asyncio, gc, os, socket, threading, warnings
import pytest

kept = []

class Complaining:
    def __del__(self):
        raise ValueError("raised while collected")

async def for_ever():
    await asyncio.Event().wait()

def test_a_kept_socket():
    kept.append(socket.socket())

async def test_a_kept_socket_of_an_async_test():
    kept.append(socket.socket())

def test_a_dropped_socket():
    socket.socket()

def test_a_dropped_socket_in_a_cycle():
    cycle = [socket.socket()]
    cycle.append(cycle)

def test_a_kept_pipe():
    kept.append(os.pipe())

def test_a_running_thread():
    stop = threading.Event()
    kept.append(stop)
    threading.Thread(target=stop.wait, name="left-running", daemon=True).start()

def test_a_raising_thread():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()

async def test_a_pending_task():
    kept.append(asyncio.create_task(for_ever(), name="left-pending"))

async def test_a_failed_task_nobody_asked():
    async def fail():
        raise ValueError("never retrieved")
    asyncio.create_task(fail())
    await asyncio.sleep(0.01)

async def test_a_raising_callback():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.01)

def test_a_raising_callback_on_a_loop_of_its_own():
    async def main():
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0.01)
    asyncio.run(main())

def test_a_complaining_finalizer():
    Complaining()

def test_a_coroutine_never_awaited():
    for_ever()

def test_a_warning():
    warnings.warn("anything", DeprecationWarning)
"""

CLEAN_SUITE = '''
import asyncio, socket, threading
import pytest
from hypothesis import given, strategies

@pytest.fixture
async def server():
    """Its tasks end in its teardown, which is before anybody looks for pending ones."""
    async def for_ever():
        await asyncio.Event().wait()
    task = asyncio.create_task(for_ever())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

@pytest.fixture(scope="module")
def shared():
    with socket.socket() as kept:
        yield kept

def test_that_is_synchronous():
    pass

async def test_that_is_asynchronous():
    assert asyncio.get_running_loop().get_debug()

@pytest.mark.no_debug
async def test_without_debug():
    assert not asyncio.get_running_loop().get_debug()

@pytest.mark.every_loop
async def test_on_every_loop():
    kind = type(asyncio.get_running_loop()).__module__.split(".")[0]
    print("runs on", kind)

async def test_with_a_server(server):
    pass

def test_with_a_shared_socket(shared):
    pass

async def test_a_socket_that_the_loop_closes():
    """An asynchronous generator that the loop shuts down may hold sockets until then."""
    async def holder():
        with socket.socket():
            yield
    generator = holder()
    await anext(generator)
    asyncio.get_running_loop().kept = generator

def test_a_process_wide_thread():
    threading.Thread(target=threading.Event().wait, name="mmsp-timer", daemon=True).start()

def test_a_thread_about_to_end():
    threading.Timer(0.05, lambda: None).start()

@given(strategies.integers())
async def test_with_hypothesis(number):
    assert isinstance(number, int)
'''

FAILING_SUITE = """
import socket

def test_that_fails_with_a_socket_in_its_frame():
    opened = socket.socket()
    assert opened is None
"""


def run_suite(folder: Path, source: str) -> dict[str, ElementTree.Element]:
    """The result of each test in `source`, run under the real conftest and settings."""
    shutil.copy(HERE / "conftest.py", folder)
    (folder / "test_suite.py").write_text(source, encoding="utf-8")
    results = folder / "results.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(PYPROJECT)]
    command += ["--rootdir", str(folder), "--junit-xml", str(results), str(folder)]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST_"))
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert results.exists(), done.stdout + done.stderr
    return {case.attrib["name"]: case for case in ElementTree.parse(results).iter("testcase")}


def problems(case: ElementTree.Element) -> list[str]:
    return [
        f"{each.attrib.get('message', '')}\n{each.text}"
        for each in case
        if each.tag in ("failure", "error")
    ]


@pytest.fixture(scope="module")
def leaky_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ElementTree.Element]:
    return run_suite(tmp_path_factory.mktemp("leaky"), LEAKY_SUITE)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("test_a_kept_socket", "open descriptor"),
        ("test_a_kept_socket_of_an_async_test", "open descriptor"),
        ("test_a_dropped_socket", "ResourceWarning"),
        ("test_a_dropped_socket_in_a_cycle", "ResourceWarning"),
        ("test_a_kept_pipe", "open descriptor"),
        ("test_a_running_thread", "running thread: left-running"),
        ("test_a_raising_thread", "ZeroDivisionError"),
        ("test_a_pending_task", "pending task: left-pending"),
        ("test_a_failed_task_nobody_asked", "never retrieved"),
        ("test_a_raising_callback", "ZeroDivisionError"),
        ("test_a_raising_callback_on_a_loop_of_its_own", "ZeroDivisionError"),
        ("test_a_complaining_finalizer", "raised while collected"),
        ("test_a_coroutine_never_awaited", "never awaited"),
        ("test_a_warning", "DeprecationWarning"),
    ],
)
def test_a_leak_fails_the_test_that_made_it(
    leaky_results: dict[str, ElementTree.Element], name: str, complaint: str
) -> None:
    assert complaint in "\n".join(problems(leaky_results[name]))


def test_every_leaky_test_is_looked_at(leaky_results: dict[str, ElementTree.Element]) -> None:
    assert [name for name, case in leaky_results.items() if not problems(case)] == []


def test_a_clean_test_passes(tmp_path: Path) -> None:
    results = run_suite(tmp_path, CLEAN_SUITE)
    assert {name: problems(case) for name, case in results.items() if problems(case)} == {}
    assert {name for name in results if "every_loop" in name} >= {"test_on_every_loop[asyncio]"}


def test_a_failing_test_is_told_its_failure_alone(tmp_path: Path) -> None:
    (case,) = run_suite(tmp_path, FAILING_SUITE).values()
    assert ["assert opened is None" in problem for problem in problems(case)] == [True]
