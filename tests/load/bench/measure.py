# SPDX-License-Identifier: Apache-2.0
"""Comparisons: both sides alternate several times and yield a ratio."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Round = Callable[[], float]
"""Does the work once; returns its seconds or its rate."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measure: this project compared with a reference, in one run."""

    what: str
    against: str
    unit: str
    ours: float
    theirs: float
    goal: float | None
    """Minimum ratio; None if the row has no goal."""
    more_is_better: bool = False
    """True for rates; False for seconds and bytes."""
    statistic: str
    notes: str = ""
    samples: Mapping[str, list[float]] = field(default_factory=dict)
    best_ratio: float | None = None
    """Ratio of the best rounds of both sides, which a busy machine disturbs less."""

    @property
    def ratio(self) -> float:
        """Returns the factor by which this project is better."""
        if self.more_is_better:
            return self.ours / self.theirs
        return self.theirs / self.ours if self.ours > 0 else math.inf

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.ratio >= self.goal


def timed(work: Callable[[], object]) -> Round:
    """Times one round of a function; its result is released after the clock stops.

    As with timeit, no garbage is collected during a round. Nor is any collected just before it:
    with torch loaded, that takes 0.2 s and evicts the work's data from the processor's caches."""

    def run() -> float:
        gc.disable()
        start = time.perf_counter()
        result = work()
        elapsed = time.perf_counter() - start
        gc.enable()
        del result
        return elapsed

    return run


def by_turns(rounds: Mapping[str, Round], repetitions: int) -> dict[str, list[float]]:
    """Warms up each function, then runs the repetitions in turn, so that all see the same machine
    state."""
    for run in rounds.values():
        run()
    samples: dict[str, list[float]] = {name: [] for name in rounds}
    for _ in range(repetitions):
        for name, run in rounds.items():
            samples[name].append(run())
    return samples


def compare(
    *,
    what: str,
    against: str,
    ours: list[float],
    theirs: list[float],
    goal: float | None,
    num_bytes: int | None = None,
    notes: str = "",
) -> Row:
    """Compares the medians of two samples of seconds, as rates if num_bytes is given."""
    if num_bytes is not None:
        rates = ([num_bytes / seconds / 1e9 for seconds in side] for side in (ours, theirs))
        return compare_rates(what, against, *rates, goal=goal, notes=notes)
    best_ratio = min(theirs) / min(ours)
    words = {"what": what, "against": against, "unit": "s", "notes": notes}
    return _row(ours, theirs, goal=goal, best_ratio=best_ratio, **words)


def compare_rates(
    what: str,
    against: str,
    ours: list[float],
    theirs: list[float],
    *,
    goal: float | None,
    unit: str = "GB/s",
    notes: str = "",
) -> Row:
    """Compares the medians of two samples of rates."""
    best_ratio = max(ours) / max(theirs)
    words = {"what": what, "against": against, "unit": unit, "notes": notes}
    return _row(ours, theirs, goal=goal, best_ratio=best_ratio, more_is_better=True, **words)


def _row(ours: list[float], theirs: list[float], **fields: Any) -> Row:
    """Compares the medians of two samples."""
    return Row(
        ours=statistics.median(ours),
        theirs=statistics.median(theirs),
        statistic=f"median of {len(ours)}",
        samples={"ours": ours, "theirs": theirs},
        **fields,
    )
