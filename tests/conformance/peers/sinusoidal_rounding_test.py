# SPDX-License-Identifier: Apache-2.0
"""Sinusoidal tables element by element against mpmath's real numbers."""

from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
from bits import assert_same_bits, bits
from real import NUMPY_TYPES, PRECISION, encoding_of, rounded_array, sinusoid, timing_signal

import attnbias

SAMPLES = 4000
LARGEST_POSITION = 1 << 40

Oracle = Callable[..., mpmath.mpf]
Cells = list[tuple[int, int]]


def sampled_cells(rows: int, columns: int) -> Cells:
    """Returns random cells, the first and last rows, and each column's last element."""
    random = np.random.default_rng(rows)
    sampled = zip(
        random.integers(rows, size=SAMPLES).tolist(),
        random.integers(columns, size=SAMPLES).tolist(),
        strict=True,
    )
    edges = [(r, c) for r in (0, 1, rows // 2, rows - 1) for c in range(columns)]
    return [*sampled, *edges]


def check_cells(table: Any, cells: Cells, dtype: str, reals: list[mpmath.mpf]) -> None:
    rows, columns = np.array(cells).T
    assert_same_bits(table[rows, columns], rounded_array(reals, dtype))


@pytest.mark.parametrize(("length", "dim"), [(131072, 512), (1048576, 64)])
@pytest.mark.parametrize("layout", ["INTERLEAVED", "SINES_COSINES"])
def test_samples_of_large_tables_are_correctly_rounded(
    client: attnbias.Client, length: int, dim: int, layout: str
) -> None:
    cells = sampled_cells(length, dim)
    reals = [sinusoid(p, c, dim=dim, layout=layout) for p, c in cells]
    for dtype in NUMPY_TYPES:
        encoding = encoding_of(layout, dim)
        check_cells(client.get(encoding, positions=length, data_type=dtype), cells, dtype, reals)


@pytest.mark.parametrize(
    "fields",
    [
        {"dim": 512},
        {"dim": 511},
        {"dim": 2},
        {"dim": 3},
        {"dim": 1},
        {"dim": 80, "min_timescale": 2.0, "max_timescale": 1e5},
        {"dim": 33, "min_timescale": 1.25, "max_timescale": 777.7},
    ],
)
def test_tensor2tensor_is_correctly_rounded(
    client: attnbias.Client, fields: dict[str, Any]
) -> None:
    length = 20000
    cells = sampled_cells(length, fields["dim"])
    reals = [timing_signal(p, c, **fields) for p, c in cells]
    for dtype in NUMPY_TYPES:
        encoding = attnbias.Tensor2Tensor(**fields)
        check_cells(client.get(encoding, positions=length, data_type=dtype), cells, dtype, reals)


@pytest.mark.parametrize("layout", ["INTERLEAVED", "SINES_COSINES"])
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 101])
@pytest.mark.parametrize("base", [10000, 500000, 1, 37.5])
def test_other_dims_and_bases_are_correctly_rounded(
    client: attnbias.Client, dim: int, layout: str, base: float
) -> None:
    length = 3000
    cells = sampled_cells(length, dim)[::3]
    reals = [sinusoid(p, c, dim=dim, layout=layout, base=base) for p, c in cells]
    for dtype in NUMPY_TYPES:
        encoding = encoding_of(layout, dim, base=base)
        check_cells(client.get(encoding, positions=length, data_type=dtype), cells, dtype, reals)


def test_half_precision_is_not_rounded_twice(client: attnbias.Client) -> None:
    """In a 131072 x 512 table, each element whose float32 is halfway between two narrower values is
    rounded from its real value; bf16 rounded from float32 is wrong for 515 of them.
    """
    encoding = attnbias.Sinusoidal(dim=512)
    single = client.get(encoding, positions=131072)
    for dtype, dropped_bits in [("bf16", 16), ("f16", 13)]:
        half = client.get(encoding, positions=131072, data_type=dtype)
        twice_rounded = single.astype(NUMPY_TYPES[dtype])
        between = bits(single) & ((1 << dropped_bits) - 1) == 1 << (dropped_bits - 1)
        subnormal = (np.abs(single) < 2.0**-14) & (single != 0)
        undecided = between | subnormal if dtype == "f16" else between
        cells = [(int(p), int(c)) for p, c in np.argwhere(undecided)]
        check_cells(half, cells, dtype, [sinusoid(p, c, dim=512) for p, c in cells])
        assert np.array_equal(bits(half)[~undecided], bits(twice_rounded)[~undecided])
        if dtype == "bf16":
            assert np.count_nonzero(bits(half) != bits(twice_rounded)) == 515


def near_crossings(pair: int, dim: int) -> Iterator[int]:
    """Yields the positions up to 2^40 whose angles are nearest to multiples of a quarter turn.

    They are the denominators of the continued fraction of quarter turns per position, at which a
    sine or cosine comes closest to zero.
    """
    with mpmath.workprec(PRECISION):
        rest = mpmath.power(10000, mpmath.mpf(-2 * pair) / dim) * 2 / mpmath.pi
        before, denominator = 1, 0
        while True:
            whole = int(mpmath.floor(rest))
            before, denominator = denominator, whole * denominator + before
            if denominator > LARGEST_POSITION:
                return
            yield denominator
            rest = 1 / (rest - whole)


@pytest.mark.parametrize("dim", [64, 128, 512])
def test_zero_crossings_are_correctly_rounded(client: attnbias.Client, dim: int) -> None:
    positions = {p: pair for pair in range(dim // 2) for p in near_crossings(pair, dim)}
    ids = [*positions, *(-p for p in positions)]
    cells = [
        (r, 2 * pair + is_cosine)
        for r, pair in enumerate([*positions.values()] * 2)
        for is_cosine in (0, 1)
    ]
    reals = [sinusoid(ids[r], c, dim=dim) for r, c in cells]
    for dtype in NUMPY_TYPES:
        table = client.get(attnbias.Sinusoidal(dim=dim), position_ids=ids, data_type=dtype)
        check_cells(table, cells, dtype, reals)


@pytest.mark.parametrize(("position", "pair"), [(4524508, 5), (7086789, 16)])
def test_cosines_misrounded_by_float64_fmas_are_correctly_rounded(
    client: attnbias.Client, position: int, pair: int
) -> None:
    encoding = attnbias.Sinusoidal(dim=128)
    cells = [(0, c) for c in range(128)]
    reals = [sinusoid(position, c, dim=128) for c in range(128)]
    for dtype in NUMPY_TYPES:
        got = client.get(encoding, positions=(position, position + 1), data_type=dtype)
        check_cells(got, cells, dtype, reals)
    assert abs(reals[2 * pair + 1]) < 1e-6
