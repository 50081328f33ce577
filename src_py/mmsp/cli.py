"""The `mmsp` command: its options, and how its commands end."""

from __future__ import annotations

import math
import sys

try:
    import click
    import rich as _rich
except ImportError:  # pragma: no cover - a missing extra
    raise SystemExit(
        "The mmsp command needs click and rich. In a clone of mmsp: pip install '.[cli]'"
    ) from None

from . import demo as _demo

__all__ = ["main"]

del _rich  # looked for, so that it is not missed in the middle of a command


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise click.BadParameter(f"{value!r} is no time: give seconds, 0 or more, such as 2.5")
    return seconds


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mmsp")
def main() -> None:
    """Any language model through one message format, and a stream that stops at once."""


@main.command(short_help="A stream that Ctrl-C stops, on a built-in provider.")
@click.option(
    "--stop-after",
    type=_seconds,
    metavar="SECONDS",
    help="Stop by itself. Without it Ctrl-C stops; where nobody is at a terminal, 2 seconds do.",
)
def demo(stop_after: float | None) -> None:
    """Stream a text from a built-in provider and stop it: how long until its connection closed?

    Exit status: 0 when it was stopped, 143 when SIGTERM stopped it, 141 when the reader of its output
    left.
    """
    if stop_after is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        stop_after = 2.0
    try:
        status = _demo.run(stop_after)
    except _demo.CannotRun as error:
        raise click.ClickException(str(error)) from None
    sys.exit(status)


@main.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    short_help="Serve models over HTTP; mmsp serve --help tells how.",
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def serve(options: tuple[str, ...]) -> None:
    """Serve models over HTTP: the command of `python -m mmsp.integration.server`."""
    try:
        from .integration.server.command import serve as command  # loads a web server
    except ImportError:  # pragma: no cover - a missing extra
        raise click.ClickException(
            "the server needs more than is installed. In a clone of mmsp: pip install '.[server]'"
        ) from None
    command.main(list(options), prog_name="mmsp serve")


if __name__ == "__main__":
    main(prog_name="mmsp")
