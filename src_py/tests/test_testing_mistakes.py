"""A mistake in a script is told where the script is made, with what was meant; nothing waits in vain."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmsp.testing import (
    Answer,
    ProviderProcess,
    ScriptedProvider,
    chat,
    cut,
    drip,
    gate,
    pause,
    reset,
    say,
    stall,
)
from mmsp.testing.as_json import STEPS, answer_from_json

HELLO = Answer(say(chat.answer("Hello.")))
PROVIDERS: tuple[Any, ...] = (ScriptedProvider, ProviderProcess)
any_answer: Any = Answer

Making = Callable[[], object]

MISTAKES: dict[str, tuple[Making, type[Exception], str]] = {
    "text for a step": (lambda: any_answer("Hello"), TypeError, r"step 1 .* 'Hello': .*say\(…\)"),
    "bytes for a step": (lambda: any_answer(say("a"), b"b"), TypeError, r"step 2 .*say\(…\)"),
    "a list of steps": (lambda: any_answer([stall()]), TypeError, r"Answer\(\*steps\)"),
    "a step not called": (lambda: any_answer(stall), TypeError, r"call it, stall\(…\)"),
    "an answer in an answer": (lambda: any_answer(HELLO), TypeError, r"given to the provider"),
    "nothing for a step": (lambda: any_answer(None), TypeError, "made by say, drip, pause"),
    "a step after a cut": (lambda: Answer(cut(), say("a")), ValueError, r"step 2 .*cut\(\) is the"),
    "a step after a reset": (lambda: Answer(reset(), cut()), ValueError, r"reset\(\) is the last"),
    "a step after a stall": (lambda: Answer(stall(), say("a")), ValueError, r"stall\(\) is the"),
    "no framing": (lambda: any_answer(framing="chunk"), ValueError, r"did you mean 'chunked'\?"),
    "status 0": (lambda: Answer(status=0), ValueError, "give 100 to 599"),
    "status 1000": (lambda: Answer(status=1000), ValueError, "give 100 to 599"),
    "status of an error": (lambda: Answer.error(99), ValueError, "give 100 to 599"),
    "status as text": (lambda: any_answer(status="200"), TypeError, "status is '200': give a whole"),
    "status True": (lambda: any_answer(status=True), TypeError, "give a whole number"),
    "status 103": (lambda: Answer(status=103), ValueError, r"interim=\(103,\)"),
    "interim 200": (lambda: Answer(interim=(200,)), ValueError, "interim is 200: give 100 to 199"),
    "interim number": (lambda: any_answer(interim=103), TypeError, r"such as \(103,\)"),
    "late by NaN": (lambda: Answer(head_delay=math.nan), ValueError, "head_delay is nan: give a fin"),
    "early": (lambda: Answer(head_delay=-1), ValueError, "0 or more"),
    "no gate's name": (lambda: any_answer(head_gate=1), TypeError, "head_gate is 1: give a name"),
    "keep_alive 1": (lambda: any_answer(keep_alive=1), TypeError, "give True or False"),
    "content type": (lambda: any_answer(content_type=1), TypeError, "header 'content-type': 1"),
    "header number": (lambda: any_answer(headers={"x": 1}), TypeError, "header 'x': 1: give two"),
    "header text": (lambda: any_answer(headers="x: y"), TypeError, "give a dict, or pairs"),
    "header name": (lambda: Answer(headers={"x y": "1"}), ValueError, "cannot be the name"),
    "header value": (lambda: Answer(headers={"x": "1\r\ny: 2"}), ValueError, "on one line"),
    "pause NaN": (lambda: pause(math.nan), ValueError, r"pause\(seconds\) is nan: give a finite"),
    "pause inf": (lambda: pause(math.inf), ValueError, "give a finite number"),
    "pause -1": (lambda: pause(-1), ValueError, "0 or more"),
    "pause text": (lambda: pause("1"), TypeError, "a number of seconds"),  # type: ignore[arg-type]
    "gate without a name": (lambda: gate(""), ValueError, "is empty: give a name"),
    "gate number": (lambda: gate(1), TypeError, "give a name"),  # type: ignore[arg-type]
    "drip 0": (lambda: drip("a", 0, 1), ValueError, r"drip\(size\) is 0: give 1 or more"),
    "drip 1.5": (lambda: drip("a", 1.5, 1), TypeError, "whole number"),  # type: ignore[arg-type]
    "drip NaN": (lambda: drip("a", 1, math.nan), ValueError, r"drip\(every\) is nan"),
    "say a number": (lambda: say(1), TypeError, "1 cannot be said"),  # type: ignore[arg-type]
    "say an object": (lambda: say({"a": 1}), TypeError, r"Answer\.json\(value\)"),
    "say a step": (lambda: say([say("a")]), TypeError, "cannot be said"),  # type: ignore[list-item]
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_an_answer_is_told_when_it_is_made(name: str) -> None:
    make, kind, advice = MISTAKES[name]
    with pytest.raises(kind, match=advice):
        make()


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("answers", "options", "kind", "advice"),
    [
        ((say("a"),), {}, TypeError, r"answer 1 .*: write Answer\(…\)"),
        ((HELLO, "a"), {}, TypeError, "answer 2 "),
        (([HELLO],), {}, TypeError, r"given as \*answers"),
        ((HELLO,), {"tls_hello": "ignored"}, ValueError, r"did you mean 'ignore'\?"),
        ((HELLO,), {"connect": "reject"}, ValueError, "answer, ignore, refuse"),
        ((HELLO,), {"tunnel_tls": True}, ValueError, "True is not a value of tunnel_tls"),
        ((HELLO,), {"tls": "yes"}, TypeError, "tls is 'yes': give True or False"),
        ((HELLO,), {"never_accept": 1}, TypeError, "never_accept is 1"),
        ((HELLO,), {"host": None}, TypeError, "host is None: give a name"),
    ],
)
def test_a_mistake_in_a_provider_is_told_when_it_is_made(
    provider: Any, answers: tuple[Any, ...], options: dict[str, Any], kind: Any, advice: str
) -> None:
    with pytest.raises(kind, match=advice):
        provider(*answers, **options)


def test_answers_given_later_are_looked_at_too() -> None:
    provider: Any = ScriptedProvider(HELLO)
    with pytest.raises(TypeError, match="answer 1 of the provider"):
        provider.then("more")
    with pytest.raises(TypeError, match="answer 2 of the provider"):
        provider.answers = [HELLO, None]
    assert provider.answers == [HELLO]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_gate_whose_name_was_mistyped_is_not_opened(provider: Any) -> None:
    with provider(Answer(gate("go on"), head_gate="begin")) as started:
        started.open("go on")
        started.open("begin")
        with pytest.raises(ValueError, match=r"'goon' is not a gate: did you mean 'go on'\?"):
            started.open("goon")
    with provider(HELLO) as started:
        started.open("go on")  # an answer that comes later may have it


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_wait_for_what_cannot_be_is_refused(provider: Any) -> None:
    with provider(HELLO) as started:
        with pytest.raises(ValueError, match=r"'stall' is not a state .* did you mean 'stalled'\?"):
            started.wait("stall")
        with pytest.raises(ValueError, match="count is 0: give 1 or more"):
            started.wait("closed", 0)
        with pytest.raises(ValueError, match="timeout is nan: give a finite number"):
            started.wait("closed", 1, math.nan)


async def test_asyncio_is_refused_the_same_waits() -> None:
    with ScriptedProvider(HELLO) as provider:
        with pytest.raises(ValueError, match="timeout is nan"):
            await provider.until("closed", 1, math.nan)
        with pytest.raises(ValueError, match=r"did you mean 'idle'\?"):
            await provider.until("idel")


@pytest.mark.parametrize(
    ("answer", "kind", "advice"),
    [
        ({"steps": [{"pauze": 1}]}, ValueError, r"'pauze' is not a step: did you mean 'pause'\?"),
        ({"steps": [{"shout": 1}]}, ValueError, "'shout' is not a step: there are say, "),
        ({"steps": [{"pause": "1"}]}, ValueError, r'write \{"pause": 0\.5\}'),
        ({"steps": [{"pause": -1}]}, ValueError, "0 or more"),
        ({"steps": [{"drip": "a"}]}, ValueError, '"size": 3'),
        ({"steps": [{"text_deltas": -1}]}, ValueError, "text_deltas is -1"),
        ({"steps": [{"text_deltas": 1, "in_one_write": 0}]}, ValueError, "in_one_write is 0"),
        ({"steps": ["stall"]}, TypeError, "'stall' is no step: give an object"),
        ({"steps": [{}]}, TypeError, "is no step"),
        ({"steps": {}}, TypeError, "is no answer"),
        ([], TypeError, "is no answer"),
        ({}, TypeError, "is no answer"),
        ({"steps": [], "stats": 200}, ValueError, r"did you mean 'status'\?"),
        ({"steps": [], "headers": 5}, TypeError, "headers is 5"),
    ],
)
def test_a_mistake_in_a_script_of_json_is_told(
    answer: Any, kind: type[Exception], advice: str
) -> None:
    with pytest.raises(kind, match=advice):
        answer_from_json(answer)


@pytest.mark.parametrize("name", STEPS)
def test_what_is_advised_for_a_step_of_json_can_be_read(name: str) -> None:
    step = json.loads(STEPS[name].replace("…", "YQ=="))
    assert answer_from_json({"steps": [step]}).steps


@pytest.mark.parametrize(
    ("script", "advice"),
    [
        ("{", "Expecting property name"),
        ("[]", "is no script"),
        ('{"answers": [{"steps": [{"stal": true}]}]}', "did you mean 'stall'?"),
        (None, "No such file"),
    ],
)
def test_the_command_refuses_a_script_with_mistakes(
    tmp_path: Path, script: str | None, advice: str
) -> None:
    path = tmp_path / "script.json"
    if script is not None:
        path.write_text(script, encoding="utf-8")
    done = _command("--script", str(path))
    assert done.returncode == 2
    assert advice in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (("--text-deltas", "-1"), "text_deltas is -1"),
        (("--in-one-write", "0"), "in_one_write is 0"),
        (("--host", ""), "host is empty"),
    ],
)
def test_the_command_refuses_options_that_cannot_be(options: tuple[str, ...], advice: str) -> None:
    done = _command(*options)
    assert done.returncode == 2
    assert advice in done.stderr


def test_the_command_answers_a_mistake_and_goes_on() -> None:
    orders = ["x", "[]", '{"do": 1}', '{"do": "conections"}', '{"do": "requests"}']
    done = _command(input="\n".join([*orders, '{"do": "stop"}']))
    _, *replies, _ = map(json.loads, done.stdout.splitlines())
    assert ["error" in reply for reply in replies] == [True, True, True, True, False]
    assert "did you mean 'connections'?" in replies[3]["error"]
    assert done.returncode == 0


def test_help_names_every_order_and_says_what_an_option_does() -> None:
    from mmsp.testing.command import COMMANDS, _options

    done = _command("--help")
    assert done.returncode == 0
    assert [name for name in COMMANDS if f'{{"do": "{name}"' not in done.stdout] == []
    assert [each.dest for each in _options()._actions if not each.help] == []


def _command(*options: str, input: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mmsp.testing", *options]
    return subprocess.run(
        command, input=input, capture_output=True, text=True, timeout=30, check=False
    )
