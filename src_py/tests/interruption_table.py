"""The table behind `test_interruption.py`: the phases of a request, and the wires that can be asked.

A phase says how to bring a stream into it on a real socket, whether a read is pending there, what had
arrived and not been taken, and how the far side can tell that the request is over. A client type that
has no row in `WIRES` fails the suite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

from mmsp.testing import (
    Answer,
    ScriptedProvider,
    chat,
    embeddings,
    gate,
    generate_content,
    interactions,
    messages,
    mmsp_wire,
    responses,
    say,
    stall,
)
from mmsp.types import UniMessage

Way = Literal[
    "abort", "abort from a thread", "abort in a signal handler", "close", "leave", "cancel"
]
Security = Literal["plain", "TLS", "TLS behind a proxy"]
Ends = Literal["closed", "nothing connects", "nothing is sent", "nothing more is sent"]

WAYS: tuple[Way, ...] = (
    "abort",
    "abort from a thread",
    "abort in a signal handler",
    "close",
    "leave",
    "cancel",
)

SECURITIES: tuple[Security, ...] = ("plain", "TLS", "TLS behind a proxy")

# How each client type's provider speaks.
WIRES: dict[str, ModuleType] = {
    "openai-official": responses,
    "anthropic-official": messages,
    "google-official": interactions,
    "zai-official": chat,
    "moonshot-official": chat,
    "deepseek-official": responses,
    "minimax-official": responses,
    "openai-responses": responses,
    "openai-chat": chat,
    "openai-chat-vllm-adapter": chat,
    "openai-embedding": embeddings,
    "ant-messages": messages,
    "google-genai": generate_content,
    "mmsp": mmsp_wire,
}

# Those whose answers come as events.
STREAMING = [client for client, wire in WIRES.items() if wire is not embeddings]

# Those who read a call from its finished item alone, so that pieces of one are nothing yet.
WHOLE_CALLS = ("minimax-official",)

# One client of each codec, which is stopped in every way in every phase; the others in a choice of them.
EXHAUSTIVE = (
    "openai-chat", "openai-responses", "ant-messages", "google-genai", "google-official", "mmsp",
)  # fmt: skip

HUGE = 20_000_000
COMPLETE = "All is well"


def question(text: str = "Hello?") -> UniMessage:
    return {"role": "user", "content_items": [{"type": "text.done", "text": text}]}


@dataclass(frozen=True)
class Phase:
    """`reads` texts are taken first; `rest` had arrived behind them. `reached` is the state of the
    provider's connection to wait for. Where `recovers` is false the provider stays as it is, and the
    next call gets just as far."""

    name: str
    answer: Callable[[Any], Answer] = lambda wire: Answer(stall())
    reads: int = 0
    rest: int = 0
    waiting: bool = True
    through_proxy: bool = False
    started: bool = True
    reached: str | None = "stalled"
    ends: Ends = "closed"
    recovers: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    body: int = 0
    impossible: dict[Way, str] = field(default_factory=dict)
    not_on: dict[Security, str] = field(default_factory=dict)

    def provider(self, wire: Any, security: Security) -> ScriptedProvider:
        complete = Answer(*(say(each) for each in wire.answer(COMPLETE)))
        first = [] if self.ends == "nothing connects" else [self.answer(wire)]
        return ScriptedProvider(
            *first,
            complete,
            tls=security == "TLS",
            host="localhost" if self.name == "resolving the name" else "127.0.0.1",
            **self.options,
        )

    def why_not_on(self, security: Security) -> str | None:
        if security in self.not_on:
            return self.not_on[security]
        if security == "TLS behind a proxy" and not self.through_proxy:
            return "behind a tunnel that stands this phase is that of TLS, and two others show it"
        return None

    def why_not_for(self, client_type: str) -> str | None:
        if WIRES[client_type] is embeddings and (self.reads or "finish" in self.name):
            return (
                "this wire does not stream: its answer is read whole, before anything is handed out"
            )
        return None

    def why_not(self, way: Way) -> str | None:
        if way in self.impossible:
            return self.impossible[way]
        if way == "leave" and self.waiting:
            return (
                "a caller whose read is pending is not in its loop's body: it can only be cancelled"
            )
        return None


def texts(count: int) -> list[str]:
    return [f"t{number} " for number in range(count)]


def _texts(wire: Any, count: int) -> list[bytes]:
    return [wire.text(each) for each in texts(count)]


def _after_finish(wire: Any) -> Answer:
    return Answer(say([*_texts(wire, 1), wire.finish(), wire.usage()]), stall())


def _half_an_event(wire: Any) -> Answer:
    whole: bytes = wire.text("x" * HUGE)
    return Answer(say(_texts(wire, 1)), gate("half"), say(whole[: HUGE // 2]), stall())


ONLY_TUNNELLED: dict[str, Any] = {
    "through_proxy": True,
    "not_on": {
        "plain": "a plain request goes through a proxy without a tunnel",
        "TLS": "there is no proxy, so there is no tunnel to open",
    },
}

PHASES = (
    Phase(
        "made but never read",
        waiting=False,
        started=False,
        reached=None,
        ends="nothing connects",
        not_on={"TLS": "nothing is connected, so nothing can be secured"},
        impossible={"cancel": "a task that reads nothing has nothing to cancel"},
    ),
    Phase("resolving the name", reached=None, ends="nothing connects"),
    Phase(
        "TCP connect not accepted",
        reached=None,
        recovers=False,
        not_on={"TLS": "TLS begins when the connection stands, and this one never does"},
        options={"never_accept": True},
    ),
    Phase(
        "TLS hello unanswered",
        reached="tls",
        recovers=False,
        not_on={"plain": "a plain connection sends no hello of TLS"},
        options={"tls_hello": "ignore"},
    ),
    Phase(
        "proxy CONNECT unanswered",
        reached="connect",
        recovers=False,
        **ONLY_TUNNELLED,
        options={"connect": "ignore"},
    ),
    Phase(
        "TLS behind a proxy stalled",
        reached="tunnel_tls",
        recovers=False,
        **ONLY_TUNNELLED,
        options={"tunnel_tls": "ignore"},
    ),
    Phase(
        "body being sent to a provider that does not read",
        reached="body",
        recovers=False,
        through_proxy=True,
        options={"read_body": False},
        body=8_000_000,
    ),
    Phase(
        "headers late",
        lambda wire: Answer(head_gate="never"),
        reached="stalled",
        through_proxy=True,
    ),
    Phase(
        "sleeping before a retry",
        lambda wire: Answer.error(429, "slow down", headers={"retry-after": "30"}),
        reached="idle",
        ends="nothing more is sent",
    ),
    Phase("before the first event", through_proxy=True),
    Phase(
        "mid-item while the caller waits",
        lambda wire: Answer(say(_texts(wire, 1)), stall()),
        reads=1,
        through_proxy=True,
    ),
    Phase(
        "mid-item while the caller is busy",
        lambda wire: Answer(say(_texts(wire, 1)), stall()),
        reads=1,
        waiting=False,
        through_proxy=True,
    ),
    Phase(
        "many deltas in one segment",
        lambda wire: Answer(say(_texts(wire, 50)), stall()),
        reads=1,
        rest=49,
        waiting=False,
    ),
    Phase("inside a 20 MB event", _half_an_event, reads=1),
    Phase("after the finish reason and the usage", _after_finish, reads=1),
    Phase(
        "after the finish reason and the usage, the caller busy",
        _after_finish,
        reads=1,
        waiting=False,
    ),
    Phase(
        "waiting for the end of the body",
        lambda wire: Answer(
            say([*_texts(wire, 1), wire.finish(), wire.usage(), wire.done()]), stall()
        ),
        reads=1,
    ),
)

# What `PHASES` must cover, by name: taken from the contract, not from the table.
REQUIRED_WAYS: tuple[Way, ...] = ("abort", "abort from a thread", "close", "leave", "cancel")
REQUIRED_PHASES = (
    "made but never read",
    "resolving the name",
    "TCP connect not accepted",
    "TLS hello unanswered",
    "proxy CONNECT unanswered",
    "TLS behind a proxy stalled",
    "body being sent to a provider that does not read",
    "headers late",
    "sleeping before a retry",
    "before the first event",
    "mid-item while the caller waits",
    "mid-item while the caller is busy",
    "many deltas in one segment",
    "inside a 20 MB event",
    "after the finish reason and the usage",
    "waiting for the end of the body",
)

# What MMSP-RFC-0008 §9 names for every client: there each way is tried.
NAMED_PHASES = (
    "mid-item while the caller waits",
    "mid-item while the caller is busy",
    "after the finish reason and the usage",
)


def is_chosen(client_type: str, phase: Phase, security: Security, way: Way, stateful: bool) -> bool:
    """Whether this cell is in the choice for a client that shares its codec with another.

    Each phase is tried in two ways, both kinds of call and one security, which differ from client to
    client; and in all ways where the contract names the phase.
    """
    client = list(WIRES).index(client_type)
    number = PHASES.index(phase)
    possible = [each for each in WAYS if phase.why_not(each) is None]
    securities = [each for each in SECURITIES if phase.why_not_on(each) is None]
    if security != securities[(client + number) % len(securities)]:
        return False
    if phase.name in NAMED_PHASES:
        return True
    place = possible.index(way) + 2 * (client + number)
    return place % len(possible) < 2 and (place + client) % 2 == int(stateful)
