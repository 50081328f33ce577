"""A figure, the table of figures, and the JSON that is kept of them."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["Chapter", "Figure", "machine", "show", "write"]

QUIET = 0.05  # the share of others that is not worth a word
PARTS = ("mmsp", "httptools", "msgspec", "aiohappyeyeballs", "uvloop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number. Less is better; `target` is the most it should be.

    `low` and `high` are the best and the worst run, where `value` is the median of several.
    `floor` is what the least code for the same work took, in the same sitting.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float | None = None

    @classmethod
    def of_runs(cls, name: str, runs: Sequence[float], unit: str, **more: Any) -> Figure:
        """The median of `runs`, with their extremes."""
        middle = sorted(runs)[len(runs) // 2]
        return cls(name=name, value=middle, unit=unit, low=min(runs), high=max(runs), **more)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "ok" if self.value <= self.target else "over"


@dataclass(frozen=True, slots=True)
class Chapter:
    """Figures taken together; `others` is what other programs used of the machine meanwhile, 0 to 1."""

    name: str
    figures: Sequence[Figure]
    others: float


def machine() -> dict[str, Any]:
    """What a reader of the figures needs to know of the machine; nothing that names it."""
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": {name: found for name in PARTS if (found := _version(name))},
    }


def show(chapters: Iterable[Chapter]) -> None:
    table = Table(title=_title(), title_justify="left", title_style="none", box=None)
    table.add_column("", no_wrap=True)
    for column in ("ours", "best–worst run", "target", "", "floor", "× floor"):
        table.add_column(column, justify="right", no_wrap=True)
    for chapter in chapters:
        busy = (
            f" (others used {chapter.others:.0%} of the machine)" if chapter.others > QUIET else ""
        )
        table.add_row(f"[bold]{chapter.name}[/bold]{busy}")
        for figure in chapter.figures:
            table.add_row(f"  {figure.name}", *_cells(figure))
        table.add_row()
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def write(path: Path, chapters: Iterable[Chapter]) -> None:
    found = [
        {
            "name": chapter.name,
            "others": round(chapter.others, 2),
            "figures": [_as_json(figure) for figure in chapter.figures],
        }
        for chapter in chapters
    ]
    path.parent.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(), "chapters": found}, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n")


def _as_json(figure: Figure) -> dict[str, Any]:
    numbers = {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in asdict(figure).items()
        if value is not None
    }
    return numbers | ({"verdict": figure.verdict} if figure.verdict else {})


def _cells(figure: Figure) -> list[str]:
    colour = {"ok": "green", "over": "red"}.get(figure.verdict, "none")
    spread = (
        ""
        if figure.low is None or figure.high is None
        else f"{_number(figure.low)}–{_number(figure.high)}"
    )
    target = "" if figure.target is None else f"≤ {_number(figure.target)}"
    return [
        f"{_number(figure.value)} {figure.unit}",
        spread,
        target,
        f"[{colour}]{figure.verdict}[/{colour}]",
        "" if figure.floor is None else _number(figure.floor),
        _number(figure.value / figure.floor) if figure.floor else "",
    ]


def _number(value: float) -> str:
    if value == int(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _title() -> str:
    facts = machine()
    parts = ", ".join(f"{name} {found}" for name, found in facts["versions"].items())
    return f"{facts['python']}, {facts['cores']} cores, {facts['architecture']}; {parts}\n"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
