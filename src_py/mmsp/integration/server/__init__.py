"""The MMSP server: the models of a table over HTTP, as streams that stop when their caller leaves.

    python -m mmsp.integration.server --config server.json

or, in a program: `create_server_app(models, api_keys)` is an ASGI app to mount anywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "ServerApp": "app",
    "create_server_app": "app",
    "ModelRow": "config",
    "ServerConfig": "config",
    "load_server_config": "config",
    "announce_server": "run",
    "start_server": "run",
}

if TYPE_CHECKING:
    from .app import ServerApp as ServerApp
    from .app import create_server_app as create_server_app
    from .config import ModelRow as ModelRow
    from .config import ServerConfig as ServerConfig
    from .config import load_server_config as load_server_config
    from .run import announce_server as announce_server
    from .run import start_server as start_server

__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)
