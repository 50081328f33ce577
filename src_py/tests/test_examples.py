"""The programs of `examples/`, run as they are against a scripted provider."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from tests.asking import complete

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE = 30.0

TRIED = {"agent.py", "race.py", "budget.py"}


def run(provider: ScriptedProvider, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")},
        "PYTHONPATH": str(ROOT / "src_py"),
        "CLIENT_TYPE": "openai-chat",
        "OPENAI_BASE_URL": provider.base_url,
        "OPENAI_API_KEY": "a-key",
    }
    name, *arguments = words
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(EXAMPLES / name), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == TRIED
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in TRIED)


def test_the_agent_does_what_the_model_wants_and_tells_it() -> None:
    calls = [
        chat.tool_call(0, "c1", "temperature", '{"city": "Oslo"}'),
        chat.tool_call(1, "c2", "temperature", '{"town": "Rome"}'),
        chat.finish("tool_calls"),
        chat.done(),
    ]
    with ScriptedProvider(Answer(say(calls)), complete("Rome is warmer")) as provider:
        done = run(provider, "agent.py", "m", "Oslo or Rome?")
        assert (done.stdout, done.stderr, done.returncode) == ("Rome is warmer\n", "", 0)
        told = [each for each in provider.requests[1].json()["messages"] if each["role"] == "tool"]
        assert [each["tool_call_id"] for each in told] == ["c1", "c2"]
        assert "7 °C" in str(told[0])
        assert "this call failed" in str(told[1])


def test_the_race_is_won_by_who_speaks_first_and_the_other_is_closed() -> None:
    slow = Answer(say(chat.role()), stall())
    with ScriptedProvider(slow, complete("It scatters light")) as provider:
        done = run(provider, "race.py", "a", "b")
        assert done.stdout.endswith(": It scatters light\n")
        assert (done.stderr, done.returncode) == ("", 0)
        assert any(record.closed_by is not None for record in provider.connections)


def test_the_race_goes_on_when_one_fails() -> None:
    with ScriptedProvider(Answer.error(400, "no"), complete("It scatters light")) as provider:
        done = run(provider, "race.py", "a", "b")
        assert done.stdout.endswith(": It scatters light\n")
        assert done.returncode == 0


@pytest.mark.parametrize(
    ("answer", "out", "told"),
    [
        (complete("All is well"), "All is well\n", "(stop)\n"),
        (Answer(say(chat.text("Once upon")), stall()), "Once upon\n", "(unknown)\n"),
        (Answer(stall()), "\n", "(nothing)\n"),
    ],
)
def test_what_has_come_within_the_budget_is_kept(answer: Answer, out: str, told: str) -> None:
    with ScriptedProvider(answer) as provider:
        done = run(provider, "budget.py", "m", "1.0")
        assert (done.stdout, done.stderr, done.returncode) == (out, told, 0)
