"""Answers and records as JSON, for programs that talk to a provider in another process.

An answer is `{"steps": [...]}` with the keyword arguments of `Answer` beside it. A step is an
object named by its first key: `{"say": "text"}`, `{"say_base64": "..."}`, `{"pause": 0.5}`,
`{"stall": true}`, `{"gate": "name"}`, `{"cut": true}`, `{"reset": true}`, `{"drip": "text",
"size": 3, "every": 0.01}` (or `drip_base64`), and `{"text_deltas": 1000}`, a Chat Completions
answer of so many text events, with `"in_one_write": 16` to send them in groups. Bytes in a record
are base64.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

from . import chat, checks
from .records import ConnectionRecord, ReceivedRequest
from .script import (
    Answer,
    Cut,
    Drip,
    Gate,
    Pause,
    Reset,
    Say,
    Stall,
    Step,
    cut,
    drip,
    gate,
    pause,
    reset,
    say,
    stall,
)

Json = dict[str, Any]

ANSWER_FIELDS = (
    "status",
    "headers",
    "framing",
    "head_delay",
    "head_gate",
    "content_type",
    "keep_alive",
    "interim",
)
STEPS = {
    "say": '{"say": "text"}',
    "say_base64": '{"say_base64": "…"}',
    "pause": '{"pause": 0.5}',
    "stall": '{"stall": true}',
    "gate": '{"gate": "name"}',
    "cut": '{"cut": true}',
    "reset": '{"reset": true}',
    "drip": '{"drip": "text", "size": 3, "every": 0.01}',
    "drip_base64": '{"drip_base64": "…", "size": 3, "every": 0.01}',
    "text_deltas": '{"text_deltas": 1000, "in_one_write": 16}',
}
SNAPSHOT_FIELDS = (
    "opened_ns",
    "closed_ns",
    "closed_by",
    "reset_ns",
    "state",
    "since",
    "bytes_received",
    "bytes_sent",
    "connect_target",
    "proxy_authorization",
    "fault",
)


def answer_to_json(answer: Answer) -> Json:
    fields = {name: getattr(answer, name) for name in ANSWER_FIELDS}
    return {"steps": [_step_to_json(step) for step in answer.steps], **fields}


def answer_from_json(data: Any) -> Answer:
    """Raises ValueError or TypeError, naming what it does not know."""
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        raise TypeError(f'{data!r:.60} is no answer: give {{"steps": […]}}')
    for name in data:
        checks.known(name, ("steps", *ANSWER_FIELDS), "a field of an answer")
    fields = {name: value for name, value in data.items() if name != "steps"}
    return Answer(*(step for item in data["steps"] for step in _steps(item)), **fields)


def record_to_json(record: ConnectionRecord) -> Json:
    """A snapshot; the requests without their bodies, which may be large."""
    fields = {name: getattr(record, name) for name in SNAPSHOT_FIELDS}
    requests = [request_to_json(request, body=False) for request in tuple(record.requests)]
    return {**fields, "since": dict(record.since), "requests": requests}


def record_from_json(data: Json) -> ConnectionRecord:
    """A record of the past: waiting on it waits in vain."""
    fields: Json = {name: data[name] for name in SNAPSHOT_FIELDS}
    requests = [request_from_json(request) for request in data["requests"]]
    return ConnectionRecord(**fields, requests=requests)


def request_to_json(request: ReceivedRequest, *, body: bool = True) -> Json:
    return {
        "method": request.method,
        "target": request.target,
        "headers": request.headers,
        "arrived_ns": request.arrived_ns,
        **({"body_base64": _text(request.body)} if body else {}),
    }


def request_from_json(data: Json) -> ReceivedRequest:
    return ReceivedRequest(
        data["method"],
        data["target"],
        [(name, value) for name, value in data["headers"]],
        b64decode(data.get("body_base64", "")),
        data["arrived_ns"],
    )


def _step_to_json(step: Step) -> Json:
    match step:
        case Say(data):
            return {"say_base64": _text(data)}
        case Drip(data, size, every):
            return {"drip_base64": _text(data), "size": size, "every": every}
        case Pause(seconds):
            return {"pause": seconds}
        case Gate(name):
            return {"gate": name}
        case Stall() | Cut() | Reset():
            return {type(step).__name__.lower(): True}


def _steps(item: Any) -> Iterator[Step]:
    match item:
        case {"text_deltas": int(count)}:
            yield from text_deltas(count, item.get("in_one_write", 1))
        case {"say": str(text)}:
            yield say(text)
        case {"say_base64": str(text)}:
            yield say(b64decode(text))
        case {"drip": str(text), "size": int(size), "every": int(every) | float(every)}:
            yield drip(text, size, every)
        case {"drip_base64": str(text), "size": int(size), "every": int(every) | float(every)}:
            yield drip(b64decode(text), size, every)
        case {"pause": int(seconds) | float(seconds)}:
            yield pause(seconds)
        case {"gate": str(name)}:
            yield gate(name)
        case {"stall": True}:
            yield stall()
        case {"cut": True}:
            yield cut()
        case {"reset": True}:
            yield reset()
        case _:
            raise _no_step(item)


def _no_step(item: object) -> Exception:
    """What is wrong with `item`: its name, or what belongs to that name."""
    if not isinstance(item, dict) or not item:
        return TypeError(f'{item!r:.60} is no step: give an object such as {{"say": "text"}}')
    name = next(iter(item))
    try:
        checks.known(name, STEPS, "a step")
    except ValueError as unknown:
        return unknown
    return ValueError(f"{item!r:.60} is no step: write {STEPS[name]}")


def text_deltas(count: int, in_one_write: int = 1, *, whole: bool = True) -> Iterator[Step]:
    """A Chat Completions answer of `count` text events, so many in a write; without its end if
    not `whole`."""
    checks.count("text_deltas", count, 0)
    checks.count("in_one_write", in_one_write, 1)
    events = [*chat.deltas(count), *(chat.ending(count) if whole else ())]
    for start in range(0, len(events), in_one_write):
        yield say(events[start : start + in_one_write])


def _text(data: bytes) -> str:
    return b64encode(data).decode()
