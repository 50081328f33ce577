"""What a scripted provider says: the steps of an answer, and the answer.

An `Answer` is data. It can be built once, shared by any number of requests and printed; turning
it into bytes on a connection is the work of `play.py`.

The rule of a step: the next one begins when the bytes of the one before have been handed to the
kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

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


def say(data: bytes | str | Iterable[bytes | str]) -> Say:
    """One write of `data`, in one HTTP chunk; the members of a list leave together."""
    return Say(_joined(data))


def pause(seconds: float) -> Pause:
    """Silence for `seconds`, as exact as epoll's millisecond."""
    return Pause(seconds)


def stall() -> Stall:
    """Silence for ever; the connection stays open. Its state becomes "stalled"."""
    return Stall()


def gate(name: str) -> Gate:
    """Silence until `provider.open(name)`. A gate once open stays open. The state is "stalled"
    meanwhile.
    """
    return Gate(name)


def cut() -> Cut:
    """Close the connection here with a FIN, in the middle of the body."""
    return Cut()


def reset() -> Reset:
    """Close the connection here with a RST."""
    return Reset()


def drip(data: bytes | str | Iterable[bytes | str], size: int, every: float) -> Drip:
    """`data` in writes of `size` bytes with `every` seconds between two of them."""
    if size < 1:
        raise ValueError(f"drip(size={size}): a piece has at least one byte")
    return Drip(_joined(data), size, every)


class Answer:
    """One HTTP answer.

    `framing` says how the body's end is told: "chunked", "length" (Content-Length), "close" (the
    end of the connection) or "short" (a Content-Length larger than the body, then the end of the
    connection). `head_delay` (seconds) and `head_gate` (a gate's name) hold the head back; the
    statuses of `interim` (100, 102, 103) are sent before either. With `keep_alive=False` the
    connection ends with the answer.
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
        if framing not in get_args(Framing):
            raise ValueError(f"framing={framing!r}: choose one of {', '.join(get_args(Framing))}")
        self.steps = steps
        self.status = status
        self.headers = _pairs(headers)
        self.framing: Framing = framing
        self.head_delay = head_delay
        self.head_gate = head_gate
        self.content_type = content_type
        self.keep_alive = keep_alive
        self.interim = tuple(interim)

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


def _joined(data: bytes | str | Iterable[bytes | str]) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    return b"".join(map(_joined, data))


def _pairs(headers: Headers) -> tuple[tuple[str, str], ...]:
    return tuple(headers.items() if isinstance(headers, Mapping) else headers)
