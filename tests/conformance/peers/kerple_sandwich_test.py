# SPDX-License-Identifier: Apache-2.0
"""KERPLE and Sandwich, which no package ships: their papers' formulas by mpmath, rounded once."""

from typing import Any

import mpmath
import numpy as np
import pytest
from bits import assert_same_bits
from real import NUMPY_TYPES, PRECISION, rounded_array

import attnbias

LENGTH = 400


def kerple(kernel: str, p: float, a: float, distance: int) -> mpmath.mpf:
    with mpmath.workprec(PRECISION):
        if kernel == "LOG":
            return -mpmath.mpf(p) * mpmath.log(1 + mpmath.mpf(a) * distance)
        return -mpmath.mpf(a) * mpmath.power(distance, mpmath.mpf(p))


def sandwich_sums(dim: int, base: float) -> list[mpmath.mpf]:
    with mpmath.workprec(PRECISION):
        frequencies = [mpmath.power(base, mpmath.mpf(-2 * k) / dim) for k in range(dim // 2)]
        return [mpmath.fsum(mpmath.cos(d * w) for w in frequencies) for d in range(LENGTH)]


def assert_symmetric(diagonals: np.ndarray, want: np.ndarray) -> None:
    """Compares both sides with the values for distances 0, 1, ..."""
    assert_same_bits(diagonals[:, LENGTH - 1 :], want)
    assert_same_bits(diagonals[:, LENGTH - 1 :: -1], want)


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("kernel", ["LOG", "POWER"])
def test_kerple_matches_paper(client: attnbias.Client, kernel: Any, dtype: str) -> None:
    random = np.random.default_rng(1)
    p, a = random.uniform(0.01, 1.5, (2, 4)).tolist()
    encoding = attnbias.Kerple(num_heads=4, kernel=kernel, p=p, a=a)
    got = client.get(encoding, query_length=LENGTH, key_length=LENGTH, data_type=dtype).diagonals
    want = [
        rounded_array([kerple(kernel, p[h], a[h], d) for d in range(LENGTH)], dtype)
        for h in range(4)
    ]
    assert_symmetric(got, np.stack(want))


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize(("dim", "base"), [(128, 10000), (6, 500)])
def test_sandwich_matches_paper(client: attnbias.Client, dim: int, base: float, dtype: str) -> None:
    encoding = attnbias.Sandwich(num_heads=6, dim=dim, base=base)
    got = client.get(encoding, query_length=LENGTH, key_length=LENGTH, data_type=dtype).diagonals
    sums = sandwich_sums(dim, base)
    with mpmath.workprec(PRECISION):
        want = [rounded_array([s * 6 / (8 * (h + 1)) for s in sums], dtype) for h in range(6)]
    assert_symmetric(got, np.stack(want))


def test_sandwich_is_an_inner_product_of_sinusoids(client: attnbias.Client) -> None:
    """Head 0 of 8 is the sinusoidal table times its transpose."""
    table = client.get(attnbias.Sinusoidal(dim=128), positions=LENGTH, data_type="f64")
    got = client.get(
        attnbias.Sandwich(num_heads=8),
        query_length=LENGTH,
        key_length=LENGTH,
        data_type="f64",
        form="dense",
    )
    # 128 products of numbers up to 1, each within 2^-53, and the same number of additions.
    assert np.abs(got[0] - table @ table.T).max() <= 128 * 128 * 2.0**-53
