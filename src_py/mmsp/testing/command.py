"""`python -m mmsp.testing`: a provider as a process of its own, for other languages and for
measurements.

It prints one JSON line with where it is, then answers each JSON line on its input with one on its
output, in order. It ends at `{"do": "stop"}` and at the end of its input. Times are
`time.monotonic_ns()`, CLOCK_MONOTONIC on Linux.

    {"do": "connections"}                                    {"connections": [...]}
    {"do": "requests"}                                       {"requests": [...]}
    {"do": "wait", "state": s, "count": n, "timeout": t}     {}
    {"do": "wait_closed", "count": n, "timeout": t}          {"closed_ns": [...]}
    {"do": "answers", "answers": [...]}                      {}      the answers from now on
    {"do": "open", "gate": name}                             {}
    {"do": "reset"}                                          {}      forget the records
    {"do": "stop"}                                           {}

A command that fails is answered with `{"error": message, "kind": name of the exception}`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import checks
from .as_json import (
    Json,
    answer_from_json,
    record_to_json,
    request_to_json,
    text_deltas,
)
from .provider import ScriptedProvider
from .script import Answer, stall

SHORT_WAIT = 5.0
EPILOG = (
    "It prints one JSON line with where it is. Then it answers each JSON line on its input with one"
    " on its output:\n\n" + (__doc__ or "").partition("Linux.\n\n")[2]
)


def main(arguments: list[str] | None = None) -> None:
    parser = _options()
    options = parser.parse_args(arguments)
    try:
        provider = ScriptedProvider(*_answers(options), **_manners(options))
    except (OSError, TypeError, ValueError) as mistake:
        parser.error(str(mistake))
    with provider:
        _tell(_address(provider))
        _obey(provider)


def _obey(provider: ScriptedProvider) -> None:
    for line in sys.stdin:
        try:
            command = _order(line)
            reply = _command(command["do"])(provider, command)
        except Exception as error:  # whatever it is, the other process is told
            _tell({"error": str(error), "kind": type(error).__name__})
            continue
        _tell(reply)
        if command["do"] == "stop":
            return


def _order(line: str) -> Json:
    command = json.loads(line)
    if not isinstance(command, dict) or not isinstance(command.get("do"), str):
        raise ValueError('an order is an object such as {"do": "connections"}')
    return command


def _tell(reply: Json) -> None:
    print(json.dumps(reply), flush=True)


def _address(provider: ScriptedProvider) -> Json:
    return {
        "base_url": provider.base_url,
        "proxy_url": provider.proxy_url,
        "ca_file": provider.ca_file,
    }


def _connections(provider: ScriptedProvider, _: Json) -> Json:
    return {"connections": [record_to_json(record) for record in tuple(provider.connections)]}


def _requests(provider: ScriptedProvider, _: Json) -> Json:
    return {"requests": [request_to_json(request) for request in tuple(provider.requests)]}


def _wait(provider: ScriptedProvider, command: Json) -> Json:
    provider.wait(command["state"], command.get("count", 1), command.get("timeout", SHORT_WAIT))
    return {}


def _wait_closed(provider: ScriptedProvider, command: Json) -> Json:
    _wait(provider, {**command, "state": "closed"})
    ends = [record.closed_ns for record in tuple(provider.connections)]
    return {"closed_ns": [end for end in ends if end is not None]}


def _set_answers(provider: ScriptedProvider, command: Json) -> Json:
    provider.answers = [answer_from_json(answer) for answer in command["answers"]]
    return {}


def _open(provider: ScriptedProvider, command: Json) -> Json:
    provider.open(command["gate"])
    return {}


def _forget(provider: ScriptedProvider, _: Json) -> Json:
    provider.forget()
    return {}


def _stop(provider: ScriptedProvider, _: Json) -> Json:
    provider.stop()
    return {}


COMMANDS: dict[str, Callable[[ScriptedProvider, Json], Json]] = {
    "connections": _connections,
    "requests": _requests,
    "wait": _wait,
    "wait_closed": _wait_closed,
    "answers": _set_answers,
    "open": _open,
    "reset": _forget,
    "stop": _stop,
}


def _command(name: str) -> Callable[[ScriptedProvider, Json], Json]:
    checks.known(name, COMMANDS, "a command")
    return COMMANDS[name]


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mmsp.testing",
        description="A scripted provider on a free port of the loopback interface.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    say_what = parser.add_argument_group("what it answers (without any: ten short events of text)")
    say_what.add_argument("--script", type=Path, help='a JSON file: {"answers": [...]}')
    say_what.add_argument("--text-deltas", type=int, metavar="N", help="N Chat text events")
    say_what.add_argument("--in-one-write", type=int, default=1, metavar="K", help="K at a time")
    say_what.add_argument("--stall", action="store_true", help="fall silent before the end")
    how = parser.add_argument_group("how it treats connections")
    how.add_argument("--host", default="127.0.0.1", help="its name in base_url and certificate")
    how.add_argument("--tls", action="store_true", help="speak HTTPS; ca_file is what to trust")
    how.add_argument(
        "--tls-hello", choices=("answer", "ignore"), default="answer", help="what a TLS hello gets"
    )
    how.add_argument(
        "--connect",
        choices=("answer", "ignore", "refuse"),
        default="answer",
        help="what a proxy's CONNECT gets",
    )
    how.add_argument(
        "--tunnel-tls",
        choices=("answer", "ignore"),
        default="answer",
        help="what the TLS hello behind a CONNECT gets",
    )
    how.add_argument("--never-accept", action="store_true", help="let connects stay pending")
    how.add_argument(
        "--no-read-body",
        dest="read_body",
        action="store_false",
        help="read the head of a request alone",
    )
    how.add_argument("--ignore-eof", action="store_true", help="go on with an answer after a FIN")
    return parser


def _answers(options: argparse.Namespace) -> list[Answer]:
    if options.script is not None:
        script = json.loads(options.script.read_text(encoding="utf-8"))
        if not isinstance(script, dict) or not isinstance(script.get("answers"), list):
            raise ValueError(f'{options.script} is no script: it holds {{"answers": […]}}')
        return [answer_from_json(answer) for answer in script["answers"]]
    count = 10 if options.text_deltas is None else options.text_deltas
    steps = text_deltas(count, options.in_one_write, whole=not options.stall)
    return [Answer(*steps, *([stall()] if options.stall else ()))]


def _manners(options: argparse.Namespace) -> dict[str, Any]:
    names = (
        "host",
        "tls",
        "tls_hello",
        "connect",
        "tunnel_tls",
        "never_accept",
        "read_body",
        "ignore_eof",
    )
    return {name: getattr(options, name) for name in names}
