# SPDX-License-Identifier: Apache-2.0
"""How near a peer that computes in float32 comes to numbers that are rounded once."""

from typing import Any

import numpy as np
from bits import Array


def assert_near(got: Array, want: Array, distance: Array) -> None:
    """As near as an angle in float32 can be: its error grows with the distance."""
    assert got.shape == want.shape
    bound = np.finfo(np.float32).eps * (1 + 8 * np.abs(distance))[..., None]
    assert (np.abs(got.astype(np.float64) - want) <= bound).all()


def assert_within_1_ulp(got: Any, want: tuple[Array, Array], scale: float = 1) -> None:
    """Rotary's cos and sin: one ulp of torch's sine or cosine; where torch multiplies, half an
    ulp for rounding its factor, half for the product, and half for rounding ours once."""
    for ours, theirs in zip((got.cos, got.sin), want, strict=True):
        assert ours.dtype == theirs.dtype == np.float32
        bound = np.spacing(np.abs(theirs)).astype(np.float64)
        if scale != 1:
            bound = scale * np.spacing(np.abs(theirs / np.float32(scale))) + 1.5 * bound
        assert ours.shape == theirs.shape
        difference = np.abs(ours.astype(np.float64) - theirs)
        assert np.all(difference <= bound), np.max(difference / bound)
