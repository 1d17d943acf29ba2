# SPDX-License-Identifier: Apache-2.0
"""Sinusoidal tables: worked examples of the literature, and laws that the tables obey."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bits import assert_same_bits
from real import encoding_of

import attnbias


def row(client: attnbias.Client, position: int, encoding: attnbias.Sinusoidal) -> Any:
    table = client.get(encoding, positions=(position, position + 1), data_type="f64")
    assert table.shape == (1, encoding.dim)
    return table[0]


INTERLEAVED_6_AT_5 = [
    -0.958924274663,
    0.283662185463,
    0.230001711665,
    0.973190224279,
    0.010771965118,
    0.999941980701,
]


@pytest.mark.parametrize(
    ("layout", "dim", "position", "want"),
    [
        ("INTERLEAVED", 4, 2, [0.909297426826, -0.416146836547, 0.0199986666933, 0.999800006667]),
        ("INTERLEAVED", 6, 5, INTERLEAVED_6_AT_5),
        ("SINES_COSINES", 6, 5, [INTERLEAVED_6_AT_5[i] for i in (0, 2, 4, 1, 3, 5)]),
        (
            "SINES_COSINES",
            5,
            1,
            [0.841470984808, 0.0251162229098, 0.000630957302615, 0.540302305868, 0.999684537915],
        ),
        (
            "TENSOR2TENSOR",
            8,
            3,
            [
                *(0.14112000806, 0.13879810108, 0.00646325907019, 0.0002999999955),
                *(-0.9899924966, 0.990320699136, 0.999979112923, 0.999999955),
            ],
        ),
        (
            "TENSOR2TENSOR",
            7,
            3,
            [
                *(0.14112000806, 0.0299955002025, 0.0002999999955),
                *(-0.9899924966, 0.999550033749, 0.999999955),
                0,
            ],
        ),
        ("TENSOR2TENSOR", 2, 3, [np.sin(3.0), np.cos(3.0)]),
    ],
)
def test_worked_example(
    client: attnbias.Client, layout: str, dim: int, position: int, want: list[float]
) -> None:
    got = row(client, position, encoding_of(layout, dim))
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=0)


@pytest.mark.parametrize("layout", ["INTERLEAVED", "SINES_COSINES", "TENSOR2TENSOR"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_slices_lists_and_offsets_equal_the_whole(
    client: attnbias.Client, layout: str, dtype: str
) -> None:
    encoding = encoding_of(layout, 96)
    whole = client.get(encoding, positions=4096, data_type=dtype)
    for begin, end in [(0, 1), (1, 3), (100, 357), (4095, 4096)]:
        got = client.get(encoding, positions=(begin, end), data_type=dtype)
        assert_same_bits(got, whole[begin:end])
    ids = np.random.default_rng(0).permutation(4096)
    assert_same_bits(client.get(encoding, position_ids=ids, data_type=dtype), whole[ids])


def test_shift_is_a_rotation_of_pairs(client: attnbias.Client) -> None:
    """PE(p + k) = Rot(k) PE(p), pair by pair."""
    table = client.get(attnbias.Sinusoidal(dim=64), positions=4096, data_type="f64")
    sines, cosines = table[:, 0::2], table[:, 1::2]
    for k in (1, 7, 1000):
        by_sine = sines[:-k] * cosines[k] + cosines[:-k] * sines[k]
        by_cosine = cosines[:-k] * cosines[k] - sines[:-k] * sines[k]
        np.testing.assert_allclose(by_sine, sines[k:], rtol=0, atol=1e-12)
        np.testing.assert_allclose(by_cosine, cosines[k:], rtol=0, atol=1e-12)


def test_inner_products_depend_only_on_distance(client: attnbias.Client) -> None:
    table = client.get(attnbias.Sinusoidal(dim=512), positions=4096, data_type="f64")
    for k, want in [(0, 256), (1, 249.1020978), (5, 189.5966677)]:
        for position in (0, 1, 777, 4090):
            got = table[position] @ table[position + k]
            assert got == pytest.approx(want, abs=1e-7)


def test_inner_products_are_not_monotonic(client: attnbias.Client) -> None:
    table = client.get(attnbias.Sinusoidal(dim=512), positions=200, data_type="f64")
    assert np.any(np.diff(table @ table[0]) > 0)


def test_bf16_distinguishes_few_positions() -> None:
    """Transformer-XL reports this number; it forms positions in the model's own type."""
    assert len(np.unique(np.arange(4096).astype(ml_dtypes.bfloat16))) == 769
