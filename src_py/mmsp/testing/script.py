"""What a scripted provider says: the steps of an answer, and the answer.

An `Answer` is data. It can be built once, shared by any number of requests and printed; turning
it into bytes on a connection is the work of `play.py`.

The rule of a step: the next one begins when the bytes of the one before have been handed to the
kernel. What can never be played is refused when it is made (`checks.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from . import checks

Framing = Literal["chunked", "length", "close", "short"]
Headers = Sequence[tuple[str, str]] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Say:
    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Stall:
    pass


@dataclass(frozen=True, slots=True)
class Gate:
    name: str


@dataclass(frozen=True, slots=True)
class Cut:
    pass


@dataclass(frozen=True, slots=True)
class Reset:
    pass


@dataclass(frozen=True, slots=True)
class Drip:
    data: bytes
    size: int
    every: float


Step = Say | Pause | Stall | Gate | Cut | Reset | Drip
_LAST = Stall | Cut | Reset


def say(data: bytes | str | Iterable[bytes | str]) -> Say:
    """One write of `data`, in one HTTP chunk; the members of a list leave together."""
    return Say(_joined(data))


def pause(seconds: float) -> Pause:
    """Silence for `seconds`, as exact as epoll's millisecond."""
    checks.seconds("pause(seconds)", seconds)
    return Pause(seconds)


def stall() -> Stall:
    """Silence for ever; the connection stays open. Its state becomes "stalled"."""
    return Stall()


def gate(name: str) -> Gate:
    """Silence until `provider.open(name)`. A gate once open stays open. The state is "stalled"
    meanwhile.
    """
    checks.name("gate(name)", name)
    return Gate(name)


def cut() -> Cut:
    """Close the connection here with a FIN, in the middle of the body."""
    return Cut()


def reset() -> Reset:
    """Close the connection here with a RST."""
    return Reset()


def drip(data: bytes | str | Iterable[bytes | str], size: int, every: float) -> Drip:
    """`data` in writes of `size` bytes with `every` seconds between two of them."""
    checks.count("drip(size)", size, 1)
    checks.seconds("drip(every)", every)
    return Drip(_joined(data), size, every)


class Answer:
    """One HTTP answer.

    `framing` says how the body's end is told: "chunked", "length" (Content-Length), "close" (the
    end of the connection) or "short" (a Content-Length larger than the body, then the end of the
    connection). `head_delay` (seconds) and `head_gate` (a gate's name) hold the head back; the
    statuses of `interim` (100, 102, 103) are sent before either. With `keep_alive=False` the
    connection ends with the answer.

    Raises TypeError and ValueError for what cannot be played, a step behind the last one included.
    """

    def __init__(
        self,
        *steps: Step,
        status: int = 200,
        headers: Headers = (),
        framing: Framing = "chunked",
        head_delay: float = 0.0,
        head_gate: str | None = None,
        content_type: str | None = "text/event-stream",
        keep_alive: bool = True,
        interim: Sequence[int] = (),
    ) -> None:
        checks.choice("framing", framing, get_args(Framing))
        checks.status(status)
        checks.seconds("head_delay", head_delay)
        checks.flag("keep_alive", keep_alive)
        if head_gate is not None:
            checks.name("head_gate", head_gate)
        if content_type is not None:
            checks.field("content-type", content_type)
        _check_steps(steps)
        self.steps = steps
        self.status = status
        self.headers = _pairs(headers)
        self.framing: Framing = framing
        self.head_delay = head_delay
        self.head_gate = head_gate
        self.content_type = content_type
        self.keep_alive = keep_alive
        self.interim = _interim(interim)

    def __repr__(self) -> str:
        steps = ", ".join(map(repr, self.steps))
        return f"Answer({steps}, status={self.status}, framing={self.framing!r})"

    @property
    def body_size(self) -> int:
        """The bytes of the body if every step is played."""
        return sum(len(step.data) for step in self.steps if isinstance(step, Say | Drip))

    @classmethod
    def json(cls, value: object, *, status: int = 200, headers: Headers = ()) -> Answer:
        """A whole JSON body with its Content-Length."""
        body = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return cls(
            say(body),
            status=status,
            headers=headers,
            framing="length",
            content_type="application/json",
        )

    @classmethod
    def error(
        cls, status: int, message: str = "", type: str = "scripted_error", headers: Headers = ()
    ) -> Answer:
        """An HTTP error with the body `{"error": {"message", "type", "code"}}` that most vendors
        send.
        """
        body = {"error": {"message": message, "type": type, "code": status}}
        return cls.json(body, status=status, headers=headers)


def check_answers(answers: Sequence[object]) -> None:
    for number, answer in enumerate(answers, start=1):
        if not isinstance(answer, Answer):
            advice = (
                "a list is given as *answers" if isinstance(answer, list) else "write Answer(…)"
            )
            raise TypeError(f"answer {number} of the provider is {answer!r:.60}: {advice}")


def gates_of(answer: Answer) -> Iterator[str]:
    """The names of the gates that an answer waits at."""
    if answer.head_gate is not None:
        yield answer.head_gate
    yield from (step.name for step in answer.steps if isinstance(step, Gate))


def _check_steps(steps: Sequence[object]) -> None:
    for number, step in enumerate(steps, start=1):
        if not isinstance(step, Say | Pause | Stall | Gate | Cut | Reset | Drip):
            raise TypeError(f"step {number} of the answer is {step!r:.60}: {_advice(step)}")
        if isinstance(step, _LAST) and number < len(steps):
            ends = f"{type(step).__name__.lower()}()"
            raise ValueError(
                f"step {number + 1} of the answer would never come: {ends} is the last"
            )


def _advice(step: object) -> str:
    match step:
        case str() | bytes():
            return "to have it said, write say(…)"
        case list() | tuple():
            return (
                "for a list of steps write Answer(*steps), for events that leave together say([…])"
            )
        case Answer():
            return "an answer is given to the provider, ScriptedProvider(answer, answer)"
        case _ if callable(step):
            name = getattr(step, "__name__", "step")
            return f"call it, {name}(…)"
        case _:
            return "a step is made by say, drip, pause, stall, gate, cut or reset"


def _interim(statuses: Any) -> tuple[int, ...]:
    if not isinstance(statuses, list | tuple):
        raise TypeError(f"interim is {statuses!r:.60}: give a tuple of statuses, such as (103,)")
    for each in statuses:
        checks.count("a status of interim", each, 100, 199)
    return tuple(statuses)


def _joined(data: Any) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise TypeError(
            f"{data!r:.60} cannot be said: give bytes, text or a list of them;"
            " a JSON body is Answer.json(value)"
        )
    return b"".join(map(_joined, data))


def _pairs(headers: Any) -> tuple[tuple[str, str], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        found = tuple((name, value) for name, value in pairs)
    except (TypeError, ValueError):
        raise TypeError(f"headers is {headers!r:.60}: give a dict, or pairs of texts") from None
    for name, value in found:
        checks.field(name, value)
    return found
