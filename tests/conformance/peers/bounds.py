# SPDX-License-Identifier: Apache-2.0
"""Error bounds for a peer that computes in float32, relative to correctly rounded values."""

from typing import Any

import numpy as np
from bits import Array


def assert_near(got: Array, want: Array, distance: Array) -> None:
    """Compares to within the error of a float32 angle, which grows with the distance."""
    assert got.shape == want.shape
    bound = np.finfo(np.float32).eps * (1 + 8 * np.abs(distance))[..., None]
    assert (np.abs(got.astype(np.float64) - want) <= bound).all()


def assert_within_1_ulp(got: Any, want: tuple[Array, Array]) -> None:
    """Compares rotary cosines and sines. Their factor, if any, is given in float32, as in torch."""
    for ours, theirs in zip((got.cos, got.sin), want, strict=True):
        assert ours.dtype == theirs.dtype == np.float32
        assert ours.shape == theirs.shape
        difference = np.abs(ours.astype(np.float64) - theirs)
        assert np.all(difference <= np.spacing(np.abs(theirs)))
