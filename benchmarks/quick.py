"""`python -m benchmarks.quick`: the main figures in one table, within a minute.

`--full` takes more runs, the large cases, and the chapters that take their time; `--only WORD` the
chapters with that word in their names; `--uvloop` another event loop; `--write` keeps the figures as JSON
in `benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from . import decoding, memory, requests, serving, starting, stopping, threads, wires
from .figures import Chapter, Figure, show, write
from .neighbours import Neighbours
from .rig import raise_descriptor_limit

RESULTS = Path(__file__).parent / "results"

CHAPTERS: dict[str, Callable[..., list[Figure]]] = {
    "Decode and deliver": decoding.measure,
    "Every wire": wires.measure,
    "From a stop to the close the provider sees": stopping.measure_one,
    "Many silent streams stopped with one signal": stopping.measure_many,
    "Without an event loop": threads.measure,
    "Small requests, connections kept": requests.measure,
    "Memory": memory.measure,
    "Server": serving.measure,
    "Start": starting.measure,
}

# What takes its time: measured with --full, and where --only asks for it.
LONGER = {"Every wire", "Without an event loop", "Server"}


def main() -> None:
    options = _options().parse_args()
    raise_descriptor_limit()
    chapters: list[Chapter] = []
    for name, measure in CHAPTERS.items():
        if options.only.lower() in name.lower() and (
            name not in LONGER or options.only or options.full
        ):
            print(f"{name} …", file=sys.stderr, flush=True)
            neighbours = Neighbours()
            figures = measure(full=options.full, uvloop=options.uvloop)
            chapters.append(Chapter(name, figures, neighbours.share()))
    show(chapters)
    if options.write:
        loop = "-uvloop" if options.uvloop else ""
        path = RESULTS / f"{'full' if options.full else 'quick'}{loop}.json"
        write(path, chapters)
        print(f"Written to {path.relative_to(Path.cwd())}.", file=sys.stderr)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick")
    parser.add_argument("--full", action="store_true", help="more runs, and 5,000 streams")
    parser.add_argument("--only", default="", metavar="WORD", help="chapters with that word")
    parser.add_argument("--uvloop", action="store_true", help="on uvloop instead of asyncio")
    parser.add_argument("--write", action="store_true", help="keep the figures as JSON")
    return parser


if __name__ == "__main__":
    main()
