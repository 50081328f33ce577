"""What a command writes for somebody who watches.

Two faults of an output end a command: its reader has left (`| head -1`), or it takes nothing more (a
full disk). Both come out as `OutputEnded`, whoever wrote.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["OutputEnded", "Screen"]

_READER_LEFT = 128 + signal.SIGPIPE


class OutputEnded(Exception):
    """Nothing can be written any more. `status` is what the process should end with."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"the output cannot be written: {error.strerror}")
        self.reader_left = isinstance(error, BrokenPipeError)
        self.status = _READER_LEFT if self.reader_left else 1


class Screen:
    def __init__(self) -> None:
        self._console = _Console(highlight=False, soft_wrap=True)
        self._column = 0

    def line(self, text: str = "") -> None:
        """A line of its own, in rich's markup."""
        with _output_faults():
            self._console.print(f"\n\n{text}" if self._column else text)
        self._column = 0

    def write(self, text: str) -> None:
        """Text as it is, at once."""
        with _output_faults():
            sys.stdout.write(text)
            sys.stdout.flush()

    def piece(self, text: str) -> None:
        """A piece of running text, on the next line if it does not fit on this one."""
        width = self._console.width
        if self._column and self._column + len(text.rstrip()) > width:
            text, self._column = f"\n{text}", 0
        self._column += len(text.lstrip("\n"))
        self.write(text)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """rich would end the process here, with 1."""
        raise BrokenPipeError


@contextmanager
def _output_faults() -> Generator[None]:
    try:
        yield
    except OSError as error:
        _give_up_output()
        raise OutputEnded(error) from None


def _give_up_output() -> None:
    """What is still in the buffer must not fail once more when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
