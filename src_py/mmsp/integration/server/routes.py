"""The routes of the server, a row each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from .door import owner_of, path_of
from .keys import OPEN
from .question import CallerLeftError, read_body
from .refusal import Refusal, error_response, invalid, not_found, unreachable
from .streaming import StreamRoute

if TYPE_CHECKING:
    from .app import ServerApp

__all__ = ["ROUTES", "refuse_unknown"]

_REASON_LIMIT = 64 * 1024  # bytes


def server_of(request: Request) -> ServerApp:
    server: ServerApp = request.app.state.server
    return server


async def models(request: Request) -> Response:
    server = server_of(request)
    rows = [
        {"id": id, "object": "model", "created": server.created, "owned_by": "mmsp"}
        for id in server.table.ids
    ]
    return _json({"object": "list", "data": rows})


async def metrics(request: Request) -> Response:
    if request.query_params:
        raise invalid("GET /v1/metrics takes no query: it answers with the totals since the start")
    server = server_of(request)
    return _json(server.metrics.snapshot(server.table.ids))


async def prometheus(request: Request) -> Response:
    text = server_of(request).metrics.prometheus()
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


async def alive(request: Request) -> Response:
    return _json({"status": "ok"})


async def ready(request: Request) -> Response:
    if server_of(request).is_closing:
        return _json({"status": "shutting down"}, 503)
    return _json({"status": "ready"})


async def streams(request: Request) -> Response:
    """The caller's running streams; `complete` is false if other processes may have more."""
    server, owner = server_of(request), owner_of(request)
    if owner == OPEN:
        raise Refusal(403, "PermissionDeniedError", "an open server does not tell who streams what")
    shown = {each.id: each.shown() for each in server.streams.of(owner)}
    complete = server.settings.workers == 1 or server.remote is not None
    if server.remote is not None:
        try:
            shown = {each["id"]: each for each in await server.remote.of(owner)} | shown
        except Refusal:
            complete = False
    return _json({"object": "list", "data": list(shown.values()), "complete": complete})


async def stop(request: Request) -> Response:
    """End a stream by its id, here or in the process that holds it."""
    server, owner, id = server_of(request), owner_of(request), request.path_params["id"]
    reason = await _reason(request)
    running = server.streams.find(id, owner)
    if running is not None:
        server.end(running, reason)
    elif server.remote is not None:
        if not await server.remote.stop(id, owner, reason):
            raise _no_stream(id)
    elif server.settings.workers > 1:
        raise unreachable("it may run in another worker: start the server with --redis URL")
    else:
        raise _no_stream(id)
    return Response(status_code=204)


async def _reason(request: Request) -> Any:
    """The reason in the body, if there is one: `{"reason": any JSON}`."""
    try:
        body = await read_body(request, _REASON_LIMIT)
        said = msgspec.json.decode(body) if body.strip() else {}
    except CallerLeftError:
        raise ClientDisconnect from None
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is no JSON: {error}") from None
    if not isinstance(said, dict) or said.keys() - {"reason"}:
        raise invalid('the body is empty or {"reason": …}')
    return said.get("reason")


def _no_stream(id: str) -> Refusal:
    return not_found(f"no stream {id!r:.200} of yours is running")


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


ROUTES = [
    Route("/v1/stream", StreamRoute(), methods=["POST"]),
    Route("/v1/models", models, methods=["GET"]),
    Route("/v1/metrics", metrics, methods=["GET"]),
    Route("/v1/streams", streams, methods=["GET"]),
    Route("/v1/streams/{id}", stop, methods=["DELETE"]),
    Route("/metrics", prometheus, methods=["GET"]),
    Route("/healthz", alive, methods=["GET"]),
    Route("/readyz", ready, methods=["GET"]),
]


# ---- what has no route


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = ", ".join(f"{_methods(route)} {route.path}" for route in ROUTES)
    asked = f"{request.method} {path_of(request.scope)}"
    if error.status_code == 405:
        allowed = _allowed(path_of(request.scope))
        told = f"{asked}: this path takes {allowed}"
        return Refusal(405, "MethodNotAllowedError", told, {"Allow": allowed}).response()
    return not_found(f"there is no {asked[:200]}; there are {known}").response()


async def _failed(request: Request, error: Exception) -> Response:
    return error_response(RuntimeError("the server failed; its log says why"), {})


def _methods(route: Route) -> str:
    return "/".join(sorted((route.methods or set()) - {"HEAD"}))


def _allowed(path: str) -> str:
    matching = [each for each in ROUTES if re.fullmatch(each.path_regex, path)]
    return ", ".join(sorted({method for each in matching for method in each.methods or ()}))


refuse_unknown: Mapping[Any, Callable[..., Any]] = {
    Refusal: _refuse,
    HTTPException: _no_route,
    Exception: _failed,
}
