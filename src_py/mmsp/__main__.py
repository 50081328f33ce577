"""`python -m mmsp`, and where the `mmsp` command begins.

Loading the command line takes a tenth of a second, and Ctrl-C may come in it. Nothing is open then, so
the process leaves at once, with the status of a program that an interrupt ended. It stays so until a
command has a handler of its own.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main"]

_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from .cli import main as command

    _have_streams()
    command(prog_name="mmsp")


def _have_streams() -> None:
    """A shell may close any of the three (`<&-`), and a character may be none of the locale's."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # The lowest free number, which is that of the missing one; open as long as the process.
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))
        elif mode == "w":
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
