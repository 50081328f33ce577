"""The command line of the server: `python -m mmsp.integration.server`, and `mmsp serve`."""

from __future__ import annotations

import logging
import math
import ssl
import sys
import time
from dataclasses import dataclass
from socket import socket
from typing import Any, NoReturn

import click  # uvicorn brings it

from .app import ServerApp, Settings
from .config import ServerConfig, load_server_config
from .log import JsonFormatter
from .run import HOST, PORT, Listening, announce_server, serve_on
from .table import Table
from .workers import Supervisor

__all__ = ["serve"]

_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Order:
    """All that a process needs to serve."""

    config: str
    listening: Listening
    settings: Settings
    grace: float
    level: str
    log_json: bool

    def load(self) -> ServerConfig:
        return load_server_config(self.config)

    def log(self) -> None:
        handler = logging.StreamHandler()
        handler.setFormatter(
            JsonFormatter()
            if self.log_json
            else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
        )
        logging.basicConfig(level=logging.WARNING, handlers=[handler])
        logging.getLogger("mmsp").setLevel(self.level.upper())


def _seconds(_: click.Context, __: click.Parameter, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise click.BadParameter("a number of seconds, 0 or more")
    return value


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    envvar="MMSP_SERVER_CONFIG",
    required=True,
    metavar="FILE",
    show_envvar=True,
    help="JSON: the models to serve, and the keys that may use them.",
)
@click.option("--host", default=HOST, show_default=True)
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65535))
@click.option("--certfile", metavar="FILE", help="Serve HTTPS with this certificate.")
@click.option("--keyfile", metavar="FILE", help="Its key, if it is not in the same file.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes.")
@click.option("--redis", metavar="URL", help="Redis or Valkey, to stop streams of other processes.")
@click.option(
    "--grace",
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    callback=_seconds,
    help="How long streams may run on after SIGTERM.",
)
@click.option("--max-streams", type=click.IntRange(1), help="At the same time, in one process.")
@click.option("--max-streams-per-key", type=click.IntRange(1), help="The same of one key.")
@click.option(
    "--allow-origin", multiple=True, help="A web page's origin that may call; repeatable."
)
@click.option("--log-level", default="info", type=click.Choice(_LEVELS), show_default=True)
@click.option("--log-json", is_flag=True, help="Log lines as JSON.")
@click.option("--debug", is_flag=True, help="The same as --log-level debug.")
def serve(**options: Any) -> None:
    """Serve models over HTTP as MMSP streams."""
    order = _order(**options)
    order.log()
    try:
        table = Table(order.load())
        _check_certificate(order.listening)
        listener = order.listening.bind()
    except (ValueError, OSError) as error:
        _give_up(error, order.listening)
    with listener:
        announce_server(table, order.listening.url(listener.getsockname()[1]))
        if order.settings.workers == 1:
            _work(None, order, listener)
        else:
            Supervisor(
                order.settings.workers, _work, (order, listener), lambda: _may_reload(order)
            ).run()


def _order(**given: Any) -> Order:
    if given["keyfile"] and not given["certfile"]:
        raise click.UsageError("--keyfile needs --certfile")
    return Order(
        config=given["config"],
        listening=Listening(given["host"], given["port"], given["certfile"], given["keyfile"]),
        settings=Settings(
            max_streams=given["max_streams"],
            max_streams_per_key=given["max_streams_per_key"],
            allow_origins=given["allow_origin"],
            redis=_redis_url(given["redis"]),
            workers=given["workers"],
            since=time.time(),
        ),
        grace=given["grace"],
        level="debug" if given["debug"] else given["log_level"],
        log_json=given["log_json"],
    )


def _redis_url(url: str | None) -> str | None:
    if url is not None and not url.startswith(("redis://", "rediss://", "unix://")):
        raise click.UsageError("--redis takes a URL: redis://host:6379, rediss://… or unix://…")
    return url


def _work(parent: int | None, order: Order, listener: socket) -> None:
    """Serve in this process until it is ended."""
    if parent is not None:
        order.log()
    app = ServerApp(order.load(), order.settings)
    serve_on(listener, app, order.listening, grace=order.grace, reload=order.load, parent=parent)


def _may_reload(order: Order) -> bool:
    """Whether the table is good, so that it is told once and not by every worker."""
    try:
        Table(order.load())
    except (ValueError, OSError) as error:
        logging.getLogger("mmsp.server").error("the table stays as it was: %s", error)
        return False
    return True


def _check_certificate(listening: Listening) -> None:
    if listening.certfile is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                listening.certfile, listening.keyfile
            )
        except (ssl.SSLError, OSError) as error:
            raise ValueError(f"the certificate cannot be used: {error}") from None


def _give_up(error: Exception, listening: Listening) -> NoReturn:
    place = f"{listening.host}:{listening.port}"
    told = f"cannot listen on {place}: {error}" if _is_about_the_place(error) else str(error)
    print(f"mmsp server: {told}", file=sys.stderr)
    raise SystemExit(1)


def _is_about_the_place(error: Exception) -> bool:
    return isinstance(error, OSError) and error.filename is None
