"""What a provider saw of each connection and of each request.

Records are written by the provider's thread alone and read by anybody. Times are
`time.monotonic_ns()`, which on Linux is one clock for all processes. `closed_by` tells how the
far side ended the connection by its first sign on the TCP socket; a TLS alert is no sign.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from .waiting import Bell

State = Literal[
    "accepted",  # by the kernel's handshake; nothing has been read
    "tls",  # the first bytes of a TLS hello have arrived
    "connect",  # the head of a CONNECT request has arrived
    "tunnel_tls",  # the first bytes of a TLS hello behind CONNECT have arrived
    "head",  # the first bytes of a request have arrived
    "body",  # the head of a request has arrived
    "answering",  # the request has arrived and its answer is being played
    "stalled",  # the answer is at a stall or before a closed gate
    "idle",  # the answer has ended and the connection is kept
    "closed",  # ended, by either side
]
STATES: tuple[str, ...] = get_args(State)
Ended = Literal["fin", "rst"]


@dataclass(slots=True)
class ReceivedRequest:
    """A request as it was read from the wire; `arrived_ns` is when it was whole.

    A provider with `read_body=False` records it when its head has arrived, with an empty body.
    """

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    arrived_ns: int = 0

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case of letters."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True, eq=False)
class ConnectionRecord:
    """One connection. `since` maps each state it has been in to the time it first was.

    `closed_ns` is when the connection ended, by whichever side; `closed_by` is None while it is
    open and when the provider ended it first. `reset_ns` is when a RST came, also one that came
    after the FIN of the far side to a provider with `ignore_eof`. `fault` is what the provider
    could not read: broken TLS, broken HTTP.
    """

    opened_ns: int
    bell: Bell = field(default_factory=Bell, repr=False)
    closed_ns: int | None = None
    closed_by: Ended | None = None
    reset_ns: int | None = None
    state: State = "accepted"
    since: dict[str, int] = field(default_factory=dict)
    requests: list[ReceivedRequest] = field(default_factory=list)
    bytes_received: int = 0
    bytes_sent: int = 0
    connect_target: str | None = None
    proxy_authorization: str | None = None
    fault: str | None = None

    def __post_init__(self) -> None:
        self.since.setdefault("accepted", self.opened_ns)

    def enter(self, state: State, now_ns: int) -> None:
        """Only the provider calls this; a closed connection stays closed."""
        if self.closed_ns is None:
            self.state = state
            self.since.setdefault(state, now_ns)

    def end(self, by: Ended | None, now_ns: int) -> None:
        """Only the provider calls this; the first end counts."""
        if by == "rst":
            self.reset_ns = now_ns
        if self.closed_ns is None:
            self.enter("closed", now_ns)
            self.closed_by = by
            self.closed_ns = now_ns

    def wait_closed(self, timeout: float = 5.0) -> int:
        """Block until the connection has ended; return `closed_ns`."""
        closed_ns = self.bell.wait(lambda: self.closed_ns, timeout, self._still_open)
        assert closed_ns is not None
        return closed_ns

    async def until_closed(self, timeout: float = 5.0) -> int:
        """The same for asyncio."""
        closed_ns = await self.bell.until(lambda: self.closed_ns, timeout, self._still_open)
        assert closed_ns is not None
        return closed_ns

    def _still_open(self) -> str:
        return f"the end of a connection, which is {self.state} after {', '.join(self.since)}"
