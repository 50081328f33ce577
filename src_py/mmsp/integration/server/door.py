"""Who may come in: everything under `/v1/` needs a key, if the server has any. Told before all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from .refusal import Refusal

if TYPE_CHECKING:
    from .app import ServerApp

__all__ = ["Door", "owner_of", "path_of"]

_OWNER = "mmsp.owner"


class Door:
    """ASGI middleware. Behind it, `owner_of` tells whose request it is."""

    def __init__(self, app: ASGIApp, server: ServerApp) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and path_of(scope).startswith("/v1/"):
            presented = HTTPConnection(scope).headers.get("authorization", "")
            owner = self._server.table.keys.owner(presented.encode("latin-1"))
            if owner is None:
                self._server.metrics.refused("unauthorized")
                await _unknown().response()(scope, receive, send)
                return
            scope[_OWNER] = owner
        await self._app(scope, receive, send)


def owner_of(connection: HTTPConnection) -> str:
    owner: str = connection.scope[_OWNER]
    return owner


def path_of(scope: Scope) -> str:
    """The path below where the app is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _unknown() -> Refusal:
    return Refusal(
        401,
        "AuthenticationError",
        "this server needs one of its keys: Authorization: Bearer <key>",
        {"WWW-Authenticate": "Bearer"},
    )
