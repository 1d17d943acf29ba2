# SPDX-License-Identifier: Apache-2.0
"""Learned positions against the modules that models use, and torch's interpolation."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from bits import assert_same_bits, to_array
from real import PRECISION, rounded_array
from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding
from x_transformers.x_transformers import AbsolutePositionalEmbedding

import attnbias


def test_opt_begins_at_row_two(client: attnbias.Client) -> None:
    torch.manual_seed(0)
    embedding = OPTLearnedPositionalEmbedding(100, 24)
    encoding = attnbias.LearnedAbsolute(table=embedding.weight, offset=2)
    with torch.no_grad():
        want = to_array(embedding(torch.ones(1, 100, dtype=torch.long))[0])
    assert_same_bits(client.get(encoding, positions=100), want)
    assert_same_bits(client.get(encoding, position_ids=[7, 99, 0]), want[[7, 99, 0]])
    with pytest.raises(attnbias.OutOfRangeError, match=r"want them in \[-2, 100\)"):
        client.get(encoding, positions=101)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_padding_is_zero(client: attnbias.Client, dtype: str) -> None:
    torch.manual_seed(1)
    embedding = torch.nn.Embedding(20, 6, padding_idx=1)
    encoding = attnbias.LearnedAbsolute(table=embedding.weight, padding_idx=1)
    ids = [1, 1, 2, 3, 4]  # fairseq's of two pads and three tokens
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    with torch.no_grad():
        want = to_array(embedding(torch.tensor(ids)).to(types[dtype]))
    assert_same_bits(client.get(encoding, position_ids=ids, data_type=dtype), want)


@pytest.mark.parametrize("dim", [24, 64])
def test_x_transformers(client: attnbias.Client, dim: int) -> None:
    """Scaled by float32's dim^(-1/2)."""
    torch.manual_seed(2)
    peer = AbsolutePositionalEmbedding(dim, 100)
    encoding = attnbias.LearnedAbsolute(table=peer.emb.weight)
    scale = float(np.float32(peer.scale))
    for start, length in ((0, 100), (31, 40)):
        with torch.no_grad():
            want = to_array(peer(torch.empty(1, length), offset=start))
        got = client.get(encoding, positions=(start, start + length), scale=scale)
        assert_same_bits(got, want)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    ("rows", "length"), [(1, 5), (4, 1), (4, 2), (4, 8), (77, 248), (512, 1024), (512, 300), (9, 9)]
)
def test_interpolation_is_torch_s(
    client: attnbias.Client, rows: int, length: int, align_corners: bool
) -> None:
    """As near as torch's coordinate in float64 can be, which errs by rows epsilon."""
    table = np.random.default_rng(rows).standard_normal((rows, 5))
    encoding = attnbias.LearnedAbsolute(
        table=table,
        interpolation="LINEAR_ALIGN_CORNERS" if align_corners else "LINEAR",
        interpolated_length=length,
    )
    stretched = torch.nn.functional.interpolate(
        torch.from_numpy(table.T.copy())[None],
        size=length,
        mode="linear",
        align_corners=align_corners,
    )
    want = to_array(stretched[0].T)
    got = client.get(encoding, positions=length, data_type="f64")
    steepest = np.abs(np.diff(table, axis=0)).max(initial=0)
    bound = np.finfo(np.float64).eps * (4 * rows * steepest + 4 * np.abs(table).max())
    assert np.abs(got - want).max() <= bound


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_interpolation_is_rounded_once(client: attnbias.Client, dtype: str) -> None:
    """Against fractions, by the formula of pixel centres."""
    rows, length = 7, 30
    table = np.random.default_rng(5).integers(-4000, 4000, (rows, 3)).astype(np.float32)
    encoding = attnbias.LearnedAbsolute(
        table=table, interpolation="LINEAR", interpolated_length=length
    )
    wanted = []
    for row in range(length):
        at = Fraction(2 * row + 1, 2) * rows / length - Fraction(1, 2)
        at = min(max(at, Fraction(0)), Fraction(rows - 1))
        below = min(int(at), rows - 2)
        weight = at - below
        for column in range(3):
            low, high = (Fraction(float(table[below + n, column])) for n in (0, 1))
            exact = low + weight * (high - low)
            with mpmath.workprec(PRECISION):
                wanted.append(mpmath.mpf(exact.numerator) / exact.denominator)
    got = client.get(encoding, positions=length, data_type=dtype)
    assert_same_bits(got, rounded_array(wanted, dtype).reshape(length, 3))
