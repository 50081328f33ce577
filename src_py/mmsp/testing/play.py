"""An answer as the actions a connection carries out: bytes to write, and the silences and ends
between them.

Pure: no socket, no clock. Bytes mean "one write"; a connection does not ask for the next action
before it has handed over the bytes of the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from .script import Answer, Cut, Drip, Gate, Pause, Reset, Say, Stall, Step

Silence = Pause | Stall | Gate
End = Cut | Reset
Action = bytes | Silence | End

MISSING_BYTES = 1000
"""By how much the Content-Length of framing "short" exceeds the body."""


def play(answer: Answer, *, close: bool = False, bodiless: bool = False) -> Iterator[Action]:
    """Yield the actions of `answer`; `close` ends the connection after it, `bodiless` answers a
    HEAD request.
    """
    close = close or not answer.keep_alive or answer.framing in ("close", "short")
    for status in answer.interim:
        yield _status_line(status) + b"\r\n"
    if answer.head_delay:
        yield Pause(answer.head_delay)
    if answer.head_gate is not None:
        yield Gate(answer.head_gate)
    yield _head(answer, close)
    if not bodiless:
        yield from _body(answer)
    if close:
        yield Cut()


def _body(answer: Answer) -> Iterator[Action]:
    chunked = answer.framing == "chunked"
    for step in answer.steps:
        for action in _actions(step):
            yield _chunk(action) if chunked and isinstance(action, bytes) else action
    if chunked:
        yield b"0\r\n\r\n"


def _actions(step: Step) -> Iterator[Action]:
    match step:
        case Say(data):
            if data:
                yield data
        case Drip(data, size, every):
            for start in range(0, len(data), size):
                if start:
                    yield Pause(every)
                yield data[start : start + size]
        case _:
            yield step


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _head(answer: Answer, close: bool) -> bytes:
    headers = list(answer.headers)
    if answer.content_type is not None:
        headers.append(("content-type", answer.content_type))
    match answer.framing:
        case "chunked":
            headers.append(("transfer-encoding", "chunked"))
        case "length":
            headers.append(("content-length", str(answer.body_size)))
        case "short":
            headers.append(("content-length", str(answer.body_size + MISSING_BYTES)))
        case "close":
            pass
    if close:
        headers.append(("connection", "close"))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return _status_line(answer.status) + lines.encode("latin-1") + b"\r\n"


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Scripted"
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()
