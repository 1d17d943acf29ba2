# SPDX-License-Identifier: Apache-2.0
"""The errors of popular write-ups that docs/encodings/ lists, by their numbers."""

import ml_dtypes
import numpy as np
import pytest

import attnbias


def test_the_exponent_counts_pairs(client: attnbias.Client) -> None:
    row = client.get(attnbias.Sinusoidal(dim=4), positions=(2, 3), data_type="f64")[0]
    want = [0.909297426826, -0.416146836547, 0.0199986666933, 0.999800006667]
    assert row == pytest.approx(want, abs=1e-12)


def test_the_inner_product_is_not_monotone(client: attnbias.Client) -> None:
    table = client.get(attnbias.Sinusoidal(dim=512), positions=200, data_type="f64")
    products = table @ table[0]
    assert products[[0, 1, 5]] == pytest.approx([256, 249.1020978, 189.5966677], abs=1e-6)
    assert np.any(np.diff(products) > 0)


def test_bf16_tells_few_positions_apart() -> None:
    """The figure of Transformer-XL, which forms positions in the model's own type."""
    assert len(np.unique(np.arange(4096).astype(ml_dtypes.bfloat16))) == 769


def buckets(client: attnbias.Client, *, bidirectional: bool) -> dict[int, int]:
    """By relative position, key minus query."""
    answer = client.get(
        attnbias.T5(bidirectional=bidirectional),
        query_length=1024,
        key_length=1024,
        values="buckets",
    )
    first = answer.first_relative_position
    return {first + i: int(bucket) for i, bucket in enumerate(answer.diagonals)}


@pytest.mark.parametrize("bidirectional", [True, False])
def test_no_bucket_is_outside_of_the_table(client: attnbias.Client, bidirectional: bool) -> None:
    assert max(buckets(client, bidirectional=bidirectional).values()) < 32


def test_the_direction_takes_half_of_the_buckets(client: attnbias.Client) -> None:
    assert buckets(client, bidirectional=True)[16] == 26


def test_the_last_bucket_begins_before_max_distance(client: attnbias.Client) -> None:
    encoder, decoder = (buckets(client, bidirectional=both) for both in (True, False))
    assert encoder[-90] != encoder[-91] == encoder[-127] == encoder[-1000]
    assert decoder[-112] != decoder[-113] == decoder[-127] == decoder[-1000]


def test_slopes_of_twelve_heads(client: attnbias.Client) -> None:
    bias = client.get(attnbias.ALiBi(num_heads=12), query_length=2, key_length=2)
    slopes = -bias.dense()[:, 0, 1]
    assert slopes[:4] == pytest.approx([0.5, 0.25, 0.125, 0.0625], abs=0)
    assert slopes[8:10] == pytest.approx([0.707106781, 0.353553391], abs=1e-7)
