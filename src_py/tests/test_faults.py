"""A few hundred random calls with random faults and stops; `python -m tests.fault_cases` plays more."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from tests.fault_cases import Case, play

CASES = 200
AT_ONCE = 25


@pytest.mark.parametrize("first", range(0, CASES, AT_ONCE))
@pytest.mark.no_debug
async def test_whatever_comes_the_invariants_hold(
    first: int, report_at_the_end: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "mmsp.server")
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + AT_ONCE):
        try:
            outcomes[await play(Case.of(seed))] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    if first == 0:
        report_at_the_end.append(f"random faults and stops: {CASES} seeds")
    assert outcomes.total() == AT_ONCE
