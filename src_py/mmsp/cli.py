"""The `mmsp` command: its options, and how its commands end."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

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


def _asks(command: Any) -> Any:
    """The options that say who is asked."""
    options = (
        click.option("--model", "-m", envvar="MMSP_MODEL", required=True, show_envvar=True),
        click.option("--client-type", "-t", metavar="TYPE", help="The protocol to speak."),
        click.option("--base-url", "-u", metavar="URL", help="The endpoint, if not the vendor's."),
        click.option(
            "--api-key",
            metavar="KEY",
            help="Other users of this machine can see it: rather set the vendor's variable.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@main.command(short_help="Ask a model one question.")
@click.argument("words", nargs=-1, metavar="[QUESTION]...")
@_asks
@click.option("--system", "-s", metavar="TEXT", help="The system prompt.")
@click.option("--image", "-i", multiple=True, metavar="FILE|URL", help="A picture; repeatable.")
@click.option("--max-tokens", type=click.IntRange(1))
@click.option("--thinking", is_flag=True, help="Show what the model thinks, on stderr.")
@click.option("--json", "as_json", is_flag=True, help="The events as they come, one a line.")
def ask(words: tuple[str, ...], **options: Any) -> None:
    """Ask a model, and print its answer as it comes.

    What is piped in is added to the question. Ctrl-C stops the answer: exit status 130.
    """
    from . import ask as _ask

    text = " ".join(words)
    if not sys.stdin.isatty():
        text = "\n\n".join(filter(None, (text, sys.stdin.read().strip())))
    if not text:
        raise click.UsageError("there is no question: give one, or pipe it in")
    config: dict[str, Any] = {
        "system_prompt": options["system"],
        "max_tokens": options["max_tokens"],
        "thinking_summary": options["thinking"] or None,
    }
    question = _ask.Question(
        text,
        images=options["image"],
        config={key: value for key, value in config.items() if value is not None},  # type: ignore[arg-type]
        as_json=options["as_json"],
        thinking=options["thinking"],
    )
    _leave_with(lambda: _ask.ask(_endpoint(options), question))


@main.command(short_help="Talk with a model.")
@_asks
@click.option("--system", "-s", metavar="TEXT", help="The system prompt.")
def chat(**options: Any) -> None:
    """Talk with a model, message by message; /help lists the commands there are.

    The first Ctrl-C stops the answer and keeps the conversation, the second leaves.
    """
    from .conversation import chat as talk

    _leave_with(lambda: talk(_endpoint(options), options["system"]))


@main.command(short_help="The models that an endpoint offers.")
@_asks
def models(**options: Any) -> None:
    """Print the ids of an endpoint's models, one a line.

    `--model` says whose they are, unless `--client-type` does.
    """
    from . import ask as _ask

    _leave_with(lambda: _ask.list_models(_endpoint(options)))


def _endpoint(options: dict[str, Any]) -> Any:
    from .ask import Endpoint

    names = ("model", "client_type", "base_url", "api_key")
    return Endpoint(**{name: options[name] for name in names})


def _leave_with(work: Callable[[], int]) -> None:
    from .ask import CannotAsk

    try:
        status = work()
    except CannotAsk as error:
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
