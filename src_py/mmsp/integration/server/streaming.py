"""`POST /v1/stream`: from a request to a running stream, and its end."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ...errors import MMSPError
from .account import Account
from .door import owner_of
from .log import log_request
from .question import CallerLeftError, Question, read_body
from .refusal import Refusal, conflict, error_response, invalid
from .relay import Relay
from .running import Running, new_id

if TYPE_CHECKING:
    from .app import ServerApp

__all__ = ["StreamRoute"]

_ID = re.compile(r"[A-Za-z0-9_-]{16,128}")
_LARGE = 1_000_000  # bytes; to check so many takes the loop's time from others
_COUNTED = {400: "invalid_request", 404: "unknown_model", 429: "too_many"}


class StreamRoute:
    """An ASGI app of its own, because it listens while it writes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request = Request(scope, receive)
        server: ServerApp = request.app.state.server
        try:
            running = await _begin(request, server)
        except CallerLeftError:
            return
        except Refusal as refusal:
            if refusal.status in _COUNTED:
                server.metrics.refused(_COUNTED[refusal.status])
            await refusal.response()(scope, receive, send)
        except MMSPError as error:
            server.metrics.refused("invalid_request")
            await error_response(error, {})(scope, receive, send)
        else:
            await _run(server, running, began, scope, receive, send)


async def _begin(request: Request, server: ServerApp) -> Running:
    """The stream that is asked for, written down but not begun."""
    if server.is_closing:
        raise Refusal(
            503, "ShuttingDownError", "this server is shutting down", {"Retry-After": "1"}
        )
    owner = owner_of(request)
    chosen = _chosen_id(request)
    id = chosen or new_id()
    server.streams.check(id, owner)
    settings = server.settings
    body = await read_body(request, settings.body_limit, settings.pace.body)
    content_type = request.headers.get("content-type", "")

    def ask() -> Running:
        question = Question.read(body, content_type, server.table, owner)
        return Running(id, owner, question.served, question.ask())

    running = await asyncio.to_thread(ask) if len(body) > _LARGE else ask()
    _check(server, id, owner)
    server.streams.add(running)
    try:
        await _write_down(server, running, chosen)
    except BaseException:
        server.streams.remove(running)
        if server.remote is not None:
            server.remote.ledger.forget(running)
        raise
    return running


def _check(server: ServerApp, id: str, owner: str) -> None:
    if server.is_closing:
        raise Refusal(
            503, "ShuttingDownError", "this server is shutting down", {"Retry-After": "1"}
        )
    server.streams.check(id, owner)


async def _write_down(server: ServerApp, running: Running, chosen: str | None) -> None:
    """Tell the other processes; an id that the caller chose may be taken there."""
    if server.remote is None:
        return
    if chosen is None:
        server.remote.ledger.announce(running)
    elif not await server.remote.ledger.claim(running):
        raise conflict(f"a stream with the id {running.id} is running")


def _chosen_id(request: Request) -> str | None:
    id = request.headers.get("mmsp-stream-id")
    if id is not None and _ID.fullmatch(id) is None:
        raise invalid("the header mmsp-stream-id takes 16 to 128 letters, digits, _ and -")
    return id


async def _run(
    server: ServerApp,
    running: Running,
    began: float,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    def write_down(account: Account) -> None:
        server.metrics.ended(account)
        log_request(account)

    account = Account(running, write_down, began)
    server.metrics.began(running.served.id)
    headers = {"mmsp-stream-id": running.id}
    try:
        await Relay(running, account, headers, server.settings.pace).run(scope, receive, send)
    finally:
        server.streams.remove(running)
        if server.remote is not None:
            server.remote.ledger.forget(running)
