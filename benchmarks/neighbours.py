"""How much of the machine other programs used during a measurement: what to make of its figures."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

__all__ = ["Neighbours"]

TICK = 1 / os.sysconf("SC_CLK_TCK")


class Neighbours:
    """Watches from its creation on. Programs that were started here count as ours once they ended."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._all = _all_seconds()
        self._ours = _our_seconds()

    def share(self) -> float:
        """What others used of all cores, 0 to 1."""
        others = (_all_seconds() - self._all) - (_our_seconds() - self._ours)
        cores = os.cpu_count() or 1
        return min(1.0, max(0.0, others / cores / (time.monotonic() - self._begun)))


def _all_seconds() -> float:
    """CPU time of everybody; for a virtual machine, also what its host gave to others."""
    user, nice, system, _idle, _waiting, irq, soft_irq, stolen, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + soft_irq + stolen) * TICK


def _our_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
