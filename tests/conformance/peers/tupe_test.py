# SPDX-License-Identifier: Apache-2.0
"""TUPE against its formula, in numpy's float64."""

from typing import Any

import numpy as np
import pytest
from bits import Array, assert_same_bits
from t5_rules import exact_starts

import attnbias

LENGTH, DIM, HEADS = 40, 24, 3


def weights(*, reset: bool) -> dict[str, Array]:
    random = np.random.default_rng(5)
    shapes = {
        "relative_table": (33 if reset else 32, HEADS),
        "position_table": (LENGTH + 1 if reset else LENGTH, DIM),
        "query_weight": (DIM, DIM),
        "query_bias": (DIM,),
        "key_weight": (DIM, DIM),
        "key_bias": (DIM,),
        "norm_weight": (DIM,),
        "norm_bias": (DIM,),
    }
    return {name: random.normal(size=shape).astype("f4") for name, shape in shapes.items()}


def relative_index(*, reset: bool) -> Array:
    """Returns T5's buckets; 32 for "other to class", then 16 for "class to other"."""
    distance = np.arange(LENGTH)[None, :] - np.arange(LENGTH)[:, None]
    starts = exact_starts(16, 128)
    bucket = np.searchsorted(starts, np.abs(distance), side="right") - 1
    index = bucket + 16 * (distance > 0)
    if reset:
        index[:, 0] = 32
        index[0, :] = 16
    return index


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def absolute(w: dict[str, Array], *, reset: bool) -> Array:
    """Returns (p_i U^Q) (p_j U^K)^T / sqrt(2 d), with theta_1 and theta_2 at the class token."""
    p = layer_norm(w["position_table"], w["norm_weight"], w["norm_bias"])
    shape = (len(p), HEADS, DIM // HEADS)
    query = (p @ w["query_weight"].T + w["query_bias"]).reshape(shape)
    key = (p @ w["key_weight"].T + w["key_bias"]).reshape(shape)
    products = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(2 * DIM / HEADS)
    if not reset:
        return products
    inside = products[:, 1:, 1:].copy()
    inside[:, :, 0] = products[:, 1, 1, None]
    inside[:, 0, :] = products[:, 0, 0, None]
    return inside


@pytest.mark.parametrize("reset", [False, True])
def test_relative_term_matches_formula(client: attnbias.Client, reset: bool) -> None:
    table = weights(reset=reset)["relative_table"]
    encoding = attnbias.Tupe(num_heads=HEADS, relative_table=table, reset_class_token=reset)
    index = relative_index(reset=reset)
    want = np.ascontiguousarray(table[index].transpose(2, 0, 1))
    bias = client.get(encoding, query_length=LENGTH, key_length=LENGTH)
    assert isinstance(bias, attnbias.BorderedToeplitz if reset else attnbias.Toeplitz)
    assert_same_bits(bias.dense(), want)
    assert_same_bits(
        client.get(encoding, query_length=LENGTH, key_length=LENGTH, form="dense"), want
    )
    window: dict[str, Any] = {
        "query_length": 9,
        "queries": (0, 9),
        "key_length": LENGTH,
        "keys": (3, LENGTH),
        "alignment": "start",
    }
    assert_same_bits(client.get(encoding, **window).dense(), want[:, :9, 3:])
    buckets = client.get(encoding, query_length=LENGTH, key_length=LENGTH, values="buckets")
    assert_same_bits(buckets.dense(), index.astype(np.int32))


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_absolute_term_matches_formula(client: attnbias.Client, reset: bool, both: bool) -> None:
    given = weights(reset=reset)
    w = {name: values.astype("f8") for name, values in given.items()}
    want = absolute(w, reset=reset)
    if both:
        want += w["relative_table"][relative_index(reset=reset)].transpose(2, 0, 1)
    else:
        del given["relative_table"]
    encoding = attnbias.Tupe(num_heads=HEADS, reset_class_token=reset, **given)
    got = client.get(encoding, query_length=LENGTH, key_length=LENGTH, data_type="f64")
    # Magnitudes of all products' terms, and the number of roundings on the way.
    norm = np.abs(w["norm_weight"]) * np.sqrt(DIM) + np.abs(w["norm_bias"])
    query = norm @ np.abs(w["query_weight"].T) + np.abs(w["query_bias"])
    key = norm @ np.abs(w["key_weight"].T) + np.abs(w["key_bias"])
    bound = 8 * DIM * 2.0**-53 * (query @ key + np.abs(w["relative_table"]).max())
    assert np.abs(got - want).max() <= bound
    rounded = client.get(encoding, query_length=LENGTH, key_length=LENGTH)
    assert_same_bits(rounded, got.astype(np.float32))
    with pytest.raises(attnbias.OutOfRangeError, match="key_length: got"):
        client.get(encoding, query_length=1, key_length=LENGTH + 1, query_offset=0)
