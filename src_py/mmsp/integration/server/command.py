"""The command line of the server: `python -m mmsp.integration.server`, and `mmsp serve`."""

from __future__ import annotations

import functools
import math
from typing import Any

import click  # uvicorn brings it, so that the extra `server` is enough

__all__ = ["serve"]

_LEVELS = ("debug", "info", "warning", "error")


def _seconds(_: click.Context, __: click.Parameter, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise click.BadParameter("it is a number of seconds, 0 or more")
    return value


def _redis_url(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.startswith(("redis://", "rediss://", "unix://")):
        raise click.BadParameter("it is a URL: redis://host:6379, rediss://… or unix://…")
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
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens.")
@click.option(
    "--port",
    default=25752,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0 is any free port.",
)
@click.option("--certfile", metavar="FILE", help="Serve HTTPS with this certificate (PEM).")
@click.option("--keyfile", metavar="FILE", help="Its key, if it is not in the same file.")
@click.option(
    "--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes that serve."
)
@click.option(
    "--redis",
    metavar="URL",
    callback=_redis_url,
    help="Redis or Valkey, by which processes stop one another's streams.",
)
@click.option(
    "--grace",
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    callback=_seconds,
    help="How long streams may run on after SIGTERM; a second one ends them.",
)
@click.option("--max-streams", type=click.IntRange(1), help="At the same time, in one process.")
@click.option("--max-streams-per-key", type=click.IntRange(1), help="The same of one key.")
@click.option(
    "--allow-origin",
    "allow_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Web pages that may call, * for all; may be repeated.",
)
@click.option("--log-level", default="info", show_default=True, type=click.Choice(_LEVELS))
@click.option("--log-json", is_flag=True, help="Write log lines as JSON.")
@click.option(
    "--debug", is_flag=True, help="Log all, watch the event loop, show faults to callers."
)
def serve(**options: Any) -> None:
    """Serve the models of a table over HTTP, as streams that stop when their caller leaves."""
    if options["keyfile"] and not options["certfile"]:
        raise click.UsageError("--keyfile needs --certfile")
    if options["debug"]:
        options["log_level"] = "debug"
    start = _start_server()
    try:
        start(**options)
    except (ValueError, OSError) as error:
        raise click.ClickException(_said(error)) from None


def _said(error: Exception) -> str:
    """Without the number of the error."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _start_server() -> functools.partial[None]:
    try:
        from .run import start_server
    except ImportError as error:  # pragma: no cover - a missing extra
        raise click.ClickException(
            f"the server needs mmsp's extra `server` ({error.name} is missing)"
        ) from None
    return functools.partial(start_server)
