# SPDX-License-Identifier: Apache-2.0
"""Two implementations of T5's bucket rule, independent of our code: transformers', and one in
integers.

A causal configuration is (num_buckets, max_distance). A bidirectional one uses the rule for half
its buckets in either direction, so a sweep over the causal rule covers both.
"""

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from transformers.models.t5.modeling_t5 import T5Attention

Positions = npt.NDArray[np.int64]
Buckets = npt.NDArray[np.int32]

LARGEST_DISTANCE = 1024


def causal_configurations() -> Iterator[tuple[int, int]]:
    """Yields every num_buckets in [4, 128] with every max_distance up to 1024 that it can have."""
    for num_buckets in range(4, 129):
        for max_distance in range(num_buckets // 2 + 1, LARGEST_DISTANCE + 1):
            yield num_buckets, max_distance


def torch_buckets(
    relative: Positions, *, bidirectional: bool, num_buckets: int, max_distance: int
) -> Buckets:
    """Returns transformers' buckets on a CPU; relative is key minus query."""
    buckets = T5Attention._relative_position_bucket(
        torch.from_numpy(relative), bidirectional, num_buckets, max_distance
    )
    return buckets.to(torch.int32).numpy()


def rounded_log(x: torch.Tensor) -> torch.Tensor:
    """Rounds correctly: float64's error is 1e-16, and no float32 tie is that close."""
    return x.double().log().float()


def exact_buckets(
    relative: Positions, *, bidirectional: bool, num_buckets: int, max_distance: int
) -> Buckets:
    """Follows the algebraic rule with arbitrary-precision integers only."""
    if bidirectional:
        num_buckets //= 2
        right = np.where(relative > 0, num_buckets, 0)
        distance = np.abs(relative)
    else:
        right = np.zeros_like(relative)
        distance = np.maximum(-relative, 0)
    starts = exact_starts(num_buckets, max_distance)
    return (right + np.searchsorted(starts, distance, side="right") - 1).astype(np.int32)


def exact_starts(num_buckets: int, max_distance: int) -> list[int]:
    """Returns the smallest distance in each bucket.

    With e = num_buckets // 2 exact buckets and s others, distance n belongs to bucket e + k or a
    later one if ln(n / e) / ln(max_distance / e) * s >= k, that is, if
    n^s >= max_distance^k e^(s - k).
    """
    exact = num_buckets // 2
    steps = num_buckets - exact
    starts = list(range(exact + 1))
    for k in range(1, steps):
        border = _power(max_distance, k) * _power(exact, steps - k)
        # A guess, which the two comparisons then prove or correct.
        n = math.ceil(exact * (max_distance / exact) ** (k / steps))
        while _power(n, steps) < border:
            n += 1
        while _power(n - 1, steps) >= border:
            n -= 1
        starts.append(n)
    return starts


@cache
def _power(base: int, exponent: int) -> int:
    return base**exponent
