"""The `mmsp` command as a process of its own: how it ends, whatever ends it, and what it leaves."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent
COMMAND = (sys.executable, "-W", "error", "-m", "mmsp")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCES)}
PATIENCE = 30.0

# Runs the command and sends its own process a signal, so many times, when the function named first is
# called first.
SIGNALLED = """
import signal, sys
place, number, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def watch(frame, event, _):
    global times
    if event == "call" and frame.f_code.co_qualname == place:
        while times:
            times -= 1
            signal.raise_signal(number)

from mmsp.__main__ import main
sys.setprofile(watch)
sys.argv = ["mmsp", "demo", *sys.argv[4:]]
main()
"""

# Sends SIGINT while the module named first is looked for.
INTERRUPTED_IMPORT = """
import signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

from mmsp.__main__ import main
sys.meta_path.insert(0, Finder())
main()
"""


def ended(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=ENVIRONMENT | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """`line` in bash, where $MMSP is the command."""
    return ended("bash", "-c", line, MMSP=f"{sys.executable} -W error -m mmsp")


def test_the_demo_stops_and_tells_when_the_provider_saw_it() -> None:
    done = ended(*COMMAND, "demo", "--stop-after", "0.3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "A model writes" in done.stdout
    assert "Stopped. Reason: 0.3 s were over\n" in done.stdout
    assert re.search(r"connection close \d+\.\d\d ms after the stop \((FIN|RST)\)", done.stdout)


def test_a_stop_before_anything_was_sent_is_a_stop_too() -> None:
    done = ended(*COMMAND, "demo", "--stop-after", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Arrived: 0 events" in done.stdout


@pytest.mark.parametrize("seconds", ["nan", "-1", "inf", "-inf", "1e999", "abc", ""])
def test_what_is_no_time_is_refused(seconds: str) -> None:
    done = ended(*COMMAND, "demo", f"--stop-after={seconds}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"'--stop-after': {seconds!r} is no time: give seconds" in done.stderr


@pytest.mark.parametrize(
    "module", ["mmsp.cli", "click", "rich", "asyncio", "mmsp.stream", "mmsp.testing", "mmsp.demo"]
)
def test_ctrl_c_while_it_loads_ends_it_without_a_word(module: str) -> None:
    done = ended(sys.executable, "-c", INTERRUPTED_IMPORT, module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


PLACES = [
    "ScriptedProvider.__init__",
    "ScriptedProvider.start",
    "Screen.line",
    "Runner.run",
    "AutoLLMClient.__init__",
    "Stream.__anext__",
    "Screen.piece",
    "_connection",
    "_report",
    "ConnectionRecord.wait_closed",
    "ScriptedProvider.stop",
]


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("place", PLACES)
def test_ctrl_c_once_or_twice_stops_it_wherever_it_comes(place: str, times: int) -> None:
    options = [] if PLACES.index(place) < PLACES.index("_connection") else ["--stop-after", "0.2"]
    arguments = (place, str(int(signal.SIGINT)), str(times))
    done = ended(sys.executable, "-c", SIGNALLED, *arguments, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Stopped. Reason: ") == 1
    assert ("Ctrl-C" in done.stdout) == (not options)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_the_third_ctrl_c_leaves_at_once(place: str) -> None:
    done = ended(
        sys.executable, "-c", SIGNALLED, place, str(int(signal.SIGINT)), "3", "--stop-after", "0.2"
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("place", ["ScriptedProvider.start", "Screen.piece", "_report"])
def test_sigterm_stops_it_and_shows_in_its_status(place: str) -> None:
    done = ended(sys.executable, "-c", SIGNALLED, place, str(int(signal.SIGTERM)), "1")
    assert (done.returncode, done.stderr) == (143, "")
    assert "Stopped. Reason: " in done.stdout


def test_a_reader_that_leaves_ends_it_without_a_word() -> None:
    done = shell("$MMSP demo | head -1; echo ${PIPESTATUS[0]}")
    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""


def test_a_reader_that_leaves_in_the_middle_ends_it_too() -> None:
    done = shell("$MMSP demo | head -c 120 >/dev/null; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == ("141\n", "")


def test_a_full_disk_is_told() -> None:
    done = shell("$MMSP demo >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "Error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_good_as_none(closed: str) -> None:
    done = shell(f"$MMSP demo --stop-after 0.2 {closed}")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_locale_without_utf_8_is_enough() -> None:
    poor = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    for arguments in (("demo", "--stop-after", "0.2"), ("--help",), ("demo", "--help")):
        done = ended(*COMMAND, *arguments, **poor)
        assert (done.returncode, done.stderr) == (0, "")


def test_on_a_narrow_terminal_words_stay_whole() -> None:
    done = ended(*COMMAND, "demo", "--stop-after", "1", COLUMNS="24")
    story = done.stdout.split("Stopping after 1 s.\n\n")[1].split("\n\nStopped.")[0]
    assert len(story.splitlines()) > 1
    assert all(len(line.rstrip()) <= 24 for line in story.splitlines())
    assert story.replace(" \n", " ").startswith("A model writes a word at a time")


def test_at_a_terminal_it_waits_for_the_key() -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "demo"], env=ENVIRONMENT, stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True, preexec_fn=_take_terminal,
    )  # fmt: skip
    os.close(slave)
    try:
        shown = _read_until(master, "A model")
        assert "Ctrl-C stops it" in shown
        os.write(master, b"\x03")
        shown = _read_until(master, "after the stop")
        assert "Reason: Ctrl-C" in shown
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _take_terminal() -> None:
    """Makes the terminal on the standard input that of the new session, so that its keys count."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_until(master: int, wanted: str) -> str:
    shown = b""
    while wanted not in shown.decode(errors="replace"):
        assert select.select([master], [], [], PATIENCE)[0], shown
        shown += os.read(master, 4096)
    return shown.decode(errors="replace")


def test_python_m_mmsp_is_the_command() -> None:
    for arguments in (["--version"], ["--help"], ["demo", "--help"], ["nonsense"]):
        done = ended(*COMMAND, *arguments)
        assert done.returncode == (2 if arguments == ["nonsense"] else 0)
        assert "Traceback" not in done.stderr
        assert "__main__" not in done.stdout + done.stderr


def test_the_installed_command_begins_where_python_m_does() -> None:
    project = (SOURCES.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert 'mmsp = "mmsp.__main__:main"' in project
