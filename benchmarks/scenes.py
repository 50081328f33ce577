"""The phases of a call in which it can be stopped, and how each is reached against a provider.

A scene is data: what the provider does, how the client reaches it, how far its reader goes, and what
the stop then leaves for it. `phases.py` plays them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mmsp.testing import Answer, chat, say, stall

__all__ = ["SCENES", "Reach", "Scene", "Seen"]

Reach = Literal["address", "name", "proxy", "https proxy"]
Seen = Literal["provider", "kernel", "reader"]

HEL = say(chat.text("Hel"))
SILENT = (Answer(HEL, stall()),)
MIB = 2**20
TWENTY_MIB = chat.text("x" * (20 * MIB))
WRITE = 64 * 1024
FLOOD = say(chat.text("x" * 4000) * 16)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One phase.

    - `name`; `not_plain`: why the phase cannot occur over plain HTTP.
    - `answers`, `manners`: the provider's. `state`: in which the provider then sees its connection.
    - `reach`: how the client gets to the provider. `body`: bytes of the request's text.
    - `takes`: events the reader takes before the stop; afterwards it waits for the next one, or, if
      `busy`, is elsewhere until the stop was made. `leaves`: events it gets after the stop, if that is
      certain.
    - `seen`: who sees the end of the connection: the provider; the kernel, where the provider never
      accepted it; nobody but the reader, where there is none.
    """

    name: str
    not_plain: str = ""
    answers: tuple[Answer, ...] = SILENT
    manners: Mapping[str, Any] = field(default_factory=dict)
    state: str = "stalled"
    reach: Reach = "address"
    body: int = 16
    takes: int = 0
    busy: bool = False
    leaves: int | None = 0
    seen: Seen = "provider"


NO_TLS = "no TLS here"
NO_CONNECT = "no CONNECT for http://"

SCENES = (
    Scene(name="resolving the name", reach="name", state="", seen="reader"),
    Scene(name="TCP connect not accepted", manners={"never_accept": True}, state="", seen="kernel"),
    Scene(
        name="TLS hello unanswered",
        not_plain=NO_TLS,
        manners={"tls_hello": "ignore"},
        state="tls",
    ),
    Scene(
        name="proxy CONNECT unanswered",
        not_plain=NO_CONNECT,
        manners={"connect": "ignore"},
        reach="proxy",
        state="connect",
    ),
    Scene(
        name="proxy CONNECT unanswered, the proxy over TLS",
        not_plain=NO_CONNECT,
        manners={"connect": "ignore"},
        reach="https proxy",
        state="connect",
    ),
    Scene(
        name="TLS behind a proxy stalled",
        not_plain=NO_CONNECT,
        manners={"tunnel_tls": "ignore"},
        reach="proxy",
        state="tunnel_tls",
    ),
    Scene(
        name="TLS behind a proxy stalled, the proxy over TLS",
        not_plain=NO_CONNECT,
        manners={"tunnel_tls": "ignore"},
        reach="https proxy",
        state="tunnel_tls",
    ),
    Scene(
        name="8 MB body being sent to a provider that does not read",
        manners={"read_body": False},
        body=8 * MIB,
        state="body",
    ),
    Scene(name="headers late", answers=(Answer(HEL, head_gate="never"),)),
    Scene(
        name="headers late, behind a proxy",
        answers=(Answer(HEL, head_gate="never"),),
        reach="proxy",
    ),
    Scene(
        name="sleeping before a retry",
        answers=(Answer(status=503, headers={"retry-after": "30"}, keep_alive=False), *SILENT),
        state="closed",
        seen="reader",
    ),
    Scene(name="before the first event", answers=(Answer(say(": hello\n\n"), stall()),)),
    Scene(name="mid-item, waiting", takes=1),
    Scene(name="mid-item, busy", takes=1, busy=True),
    Scene(
        name="50 deltas in one segment, at the first",
        answers=(Answer(say(chat.deltas(50)), stall()),),
        takes=1,
        busy=True,
        leaves=49,
    ),
    Scene(
        name="inside a 20 MB event",
        answers=(
            Answer(
                HEL,
                *(say(TWENTY_MIB[at : at + WRITE]) for at in range(0, 10 * MIB, WRITE)),
                stall(),
            ),
        ),
        takes=1,
    ),
    Scene(
        name="after the finish reason and the usage",
        answers=(Answer(HEL, say([chat.finish(), chat.usage()]), stall()),),
        takes=1,
    ),
    Scene(
        name="waiting for the end of the body",
        answers=(Answer(HEL, say(chat.ending()), stall()),),
        takes=1,
    ),
    Scene(
        name="paused by back-pressure",
        answers=(Answer(*[FLOOD] * 400),),
        state="answering",
        takes=1,
        busy=True,
        leaves=None,
    ),
)
