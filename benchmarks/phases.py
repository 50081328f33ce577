"""`python -m benchmarks.phases`: how fast every phase of a call stops, and what it leaves behind.

For each phase, over HTTP and over TLS, from the loop, from a thread, from a signal handler, and from a
thread while the loop computes: ms until the far side saw the close, median / worst. The reader must get
what had arrived and no more, then the abort's error. After each stop no descriptor, thread or task may
be left; after all of a cell, its loop closed and garbage collected, no warning and no complaint either.
The output is Markdown.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator

from .figures import machine
from .rig import median, percentile
from .scenes import SCENES, Scene
from .stage import Cell, play

RUNS = 20
WAYS = {
    "loop": "the loop",
    "thread": "a thread",
    "signal": "a signal handler",
    "thread, loop computing": "a thread, the loop computing",
}
SCHEMES = {"plain": False, "TLS": True}


def main() -> None:
    options = _options().parse_args()
    for loop in ("asyncio", "uvloop") if options.loop == "both" else (options.loop,):
        facts = machine()
        print(
            f"\n{facts['python']}, {loop}, {facts['cores']} cores, {options.runs} stops a cell.\n"
        )
        for line in table(options.runs, options.only, uvloop=loop == "uvloop"):
            print(line, flush=True)


def table(runs: int, only: str, *, uvloop: bool) -> Iterator[str]:
    ways = [f"{scheme}: {way}" for scheme in SCHEMES for way in WAYS]
    titles = ["phase", *ways, "ends with", "reader freed", "left behind"]
    yield _line(titles)
    yield _line(["---"] * len(titles))
    faults: list[str] = []
    for scene in SCENES:
        if only in scene.name:
            cells = {
                (scheme, way): play(scene, name, tls=tls, runs=runs, uvloop=uvloop)
                for scheme, tls in SCHEMES.items()
                if tls or not scene.not_plain
                for way, name in WAYS.items()
            }
            yield _line(_row(scene, cells))
            faults += [
                f"- {scene.name}, {', '.join(place)}: {fault}"
                for place, cell in cells.items()
                for fault in cell.faults
            ]
    yield ""
    yield from faults


def _row(scene: Scene, cells: dict[tuple[str, str], Cell]) -> list[str]:
    shown = [
        _closed(scene, cells[scheme, way]) if (scheme, way) in cells else scene.not_plain
        for scheme in SCHEMES
        for way in WAYS
    ]
    awake = [cell.freed for (_, way), cell in cells.items() if "computing" not in way]
    ended_by = {each.upper() for cell in cells.values() for each in cell.ended_by}
    found = sum(len(cell.faults) for cell in cells.values())
    return [
        scene.name,
        *shown,
        " or ".join(sorted(ended_by)),
        _times(time for freed in awake for time in freed),
        f"{found}: see below" if found else "nothing",
    ]


def _closed(scene: Scene, cell: Cell) -> str:
    if scene.seen == "reader":
        return "nothing open"
    waited = cell.waited_for_loop * 2 > len(cell.closed)
    return _times(cell.closed) + (", when the loop turns" if waited else "")


def _times(times: Iterable[float]) -> str:
    times = sorted(times)
    if not times:
        return "–"
    worst = percentile(times, 100)
    return f"{median(times):.2f} / {'never' if math.isinf(worst) else f'{worst:.1f}'}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phases")
    parser.add_argument("--runs", type=int, default=RUNS, help="stops in each cell")
    parser.add_argument("--only", default="", metavar="WORDS", help="phases with these words")
    parser.add_argument("--loop", choices=("asyncio", "uvloop", "both"), default="both")
    return parser


if __name__ == "__main__":
    main()
