# SPDX-License-Identifier: Apache-2.0
"""Sinusoids of several axes against DETR's module and against tensor2tensor's formula."""

import math

import mpmath
import numpy as np
import pytest
import torch
from bits import assert_same_bits, to_array
from real import NUMPY_TYPES, rounded_array, sinusoid, timing_signal
from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

import attnbias


def test_detr(client: attnbias.Client) -> None:
    """In float64, whose angles of up to 50 lose an ulp in each of a power, an exponent multiplied
    by ln(10000), and a quotient. Its rows and columns count from 1."""
    height, width, features = 37, 50, 64
    peer = DetrSinePositionEmbedding(features)(
        (1, 3, height, width), torch.device("cpu"), torch.float64
    )
    want = to_array(peer[0].permute(1, 2, 0)).reshape(height * width, 2 * features)
    rows, columns = np.divmod(np.arange(height * width), width)
    encoding = attnbias.MultiAxisSinusoidal(dim=2 * features, num_axes=2, layout="INTERLEAVED")
    ids = [(rows + 1).tolist(), (columns + 1).tolist()]
    got = client.get(encoding, position_ids=ids, dtype="f64")
    assert np.max(np.abs(got - want)) <= 50 * (math.log(10000) + 3) * 2.0**-52


@pytest.mark.parametrize("layout", ["TENSOR2TENSOR", "INTERLEAVED", "CONCATENATED"])
def test_real_numbers(client: attnbias.Client, layout: str) -> None:
    random = np.random.default_rng(3)
    ids = [random.integers(-1000, 100000, 20).tolist() for _ in range(3)]
    dim = 51 if layout == "TENSOR2TENSOR" else 48
    axis_dim = 16

    def element(row: int, column: int) -> mpmath.mpf:
        axis, column = divmod(column, axis_dim)
        if axis == len(ids):
            return mpmath.mpf(0)
        if layout == "TENSOR2TENSOR":
            return timing_signal(ids[axis][row], column, dim=axis_dim)
        return sinusoid(ids[axis][row], column, dim=axis_dim, layout=layout)

    reals = [element(row, column) for row in range(20) for column in range(dim)]
    encoding = attnbias.MultiAxisSinusoidal(dim=dim, num_axes=3, layout=layout)
    for dtype in NUMPY_TYPES:
        got = client.get(encoding, position_ids=ids, dtype=dtype)
        assert_same_bits(got.ravel(), rounded_array(reals, dtype))
