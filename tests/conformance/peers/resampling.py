# SPDX-License-Identifier: Apache-2.0
"""Tables resampled with fractions, and the error of torch's interpolate."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from bits import Array


class Filter(NamedTuple):
    """The arguments to torch.nn.functional.interpolate, except the sizes."""

    cubic: bool = False
    align_corners: bool = False
    antialias: bool = False
    cubic_a: float | None = None

    def weight(self, distance: Fraction) -> Fraction:
        """Returns the weight from Keys' cubic convolution filter, or from a triangle filter."""
        s = abs(distance)
        if not self.cubic:
            return max(1 - s, Fraction(0))
        default = -0.5 if self.antialias else -0.75
        a = Fraction(default if self.cubic_a is None else self.cubic_a)
        if s <= 1:
            return (a + 2) * s**3 - (a + 3) * s**2 + 1
        return a * s**3 - 5 * a * s**2 + 8 * a * s - 4 * a if s < 2 else Fraction(0)

    def step(self, n: int, m: int, given: float | None = None) -> Fraction:
        """Returns the number of source rows (of n) per target row (of m)."""
        if given is not None:
            return Fraction(given)
        if self.align_corners:
            return Fraction(n - 1, m - 1) if m > 1 else Fraction(0)
        return Fraction(n, m)

    @cache  # noqa: B019
    def weights(self, n: int, m: int, row: int, given: float | None = None) -> dict[int, Fraction]:
        """Returns the weights of the source rows (of n) for target row `row` (of m)."""
        step = self.step(n, m, given)
        corners = self.align_corners and not self.antialias
        x = step * row if corners else (row + Fraction(1, 2)) * step - Fraction(1, 2)
        stretch = max(step, 1) if self.antialias else Fraction(1)
        reach = 2 * stretch
        weights: dict[int, Fraction] = {}
        for j in range(math.ceil(x - reach), math.floor(x + reach) + 1):
            if weight := self.weight((j - x) / stretch):
                if not self.antialias:
                    at = min(max(j, 0), n - 1)
                elif 0 <= j < n:
                    at = j
                else:
                    continue
                weights[at] = weights.get(at, Fraction(0)) + weight
        total = sum(weights.values())
        return {at: weight / total for at, weight in weights.items()}


class Grid(NamedTuple):
    """Sides before and after, and explicit steps."""

    source: Sequence[int]
    target: Sequence[int]
    step: Sequence[float | None]

    def value(self, rows: Array, how: Filter, row: int, column: int) -> Fraction:
        """Returns an element of the table after resampling its rows."""
        sums = {0: Fraction(1)}
        places = np.unravel_index(row, self.target)
        for n, m, at, given in zip(self.source, self.target, places, self.step, strict=True):
            along = how.weights(n, m, int(at), given)
            sums = {
                before * n + j: weight * other
                for before, weight in sums.items()
                for j, other in along.items()
            }
        numbers = (weight * Fraction(float(rows[at, column])) for at, weight in sums.items())
        return sum(numbers, Fraction(0))


def filter_of(resample: Any) -> Filter:
    """Returns the filter for the contract's message."""
    return Filter(
        resample.filter == resample.DESCRIPTOR.fields_by_name["filter"].enum_type.values[2].number,
        resample.align_corners,
        resample.antialias,
        resample.cubic_a if resample.HasField("cubic_a") else None,
    )


def grid_of(resample: Any, target: Sequence[int], rows: int) -> Grid:
    """Returns the grid for a message; an unset source means all rows."""
    steps = list(resample.step) or [None] * len(target)
    return Grid(list(resample.source) or [rows], target, steps)


def loss_of(table: Array, grid: Grid, how: Filter) -> float:
    """Returns the error in torch's values, in units in the last place of 1, plus one rounding of
    ours.

    Along an axis of n rows torch's sample position has three roundings, so its error is at most 3 n
    units. A filter's slope is at most 1, or 1.5 if it is cubic. The error of a weight is then 3 n
    times the slope (divided by the stretch with antialias), plus 8 units for its own roundings.
    With antialias, weights are divided by their sum, whose error may be as large as the sum of all
    weights' errors. The sum is at least 0.4 times the stretch, or 0.06 times with align_corners.
    The weights' magnitudes add up to less than 2, or 4 with both antialias and align_corners. The
    sum of K products has K + 1 roundings.
    """
    factor, most, off = 1.0, 0.0, 0.0
    for n, m, given in zip(grid.source, grid.target, grid.step, strict=True):
        stretch = float(max(how.step(n, m, given), 1)) if how.antialias else 1.0
        count = (4 if how.cubic else 2) * stretch + how.antialias
        of_weight = (1.5 if how.cubic else 1) * 3 * n / stretch + 8
        total = 1.0
        if how.antialias:
            total = stretch * (0.06 if how.align_corners else 0.4)
            count *= 2
        magnitudes = 4 if how.antialias and how.align_corners else 2
        off = off * magnitudes + factor * count * of_weight / total
        most = most * magnitudes + factor * magnitudes * (count + 1)
        factor *= magnitudes
    return (off + most + 1) * float(np.abs(table).max(initial=0))
