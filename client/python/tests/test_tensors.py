# SPDX-License-Identifier: Apache-2.0
"""Errors and memory layout of Toeplitz, KeyRow and masks; test_structure covers their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_structure import make

import attnbias
from attnbias._arrays.axes import block_sizes


@pytest.mark.parametrize("shape", [(7,), (6, 7), (2, 6, 7), (7, 7, 7, 7)])
def test_mismatched_vectors_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="want 7 as the second to last axis"):
        attnbias.Toeplitz(
            np.zeros(shape), query_length=4, key_length=4, first_relative_position=0, vectors=True
        )


def test_window_moves_the_first_relative_position() -> None:
    part: Any = make("toeplitz").window(queries=(3, 4), keys=2)
    assert part.first_relative_position == 0 - 3
    assert part.diagonals.shape == (3, 2)


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ({"queries": (0, 6)}, r"queries: got \[0, 6\), want .* \[0, 5\)"),
        ({"keys": (2, 2)}, r"keys: got \[2, 2\)"),
        ({"heads": (-1, 2)}, r"heads: got \[-1, 2\)"),
    ],
)
@pytest.mark.parametrize("kind", ["toeplitz", "key_row"])
def test_window_outside_is_an_index_error(kind: str, window: dict[str, Any], says: str) -> None:
    with pytest.raises(IndexError, match=says):
        make(kind).window(**window)


def test_mismatched_diagonals_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"got shape \(2, 7\), want 8"):
        attnbias.Toeplitz(np.zeros((2, 7)), query_length=4, key_length=5, first_relative_position=0)


def test_torch_key_row_queries_share_memory() -> None:
    pytest.importorskip("torch")
    assert make("key_row").to_torch(align=8).stride() == (8, 0, 1)


@pytest.mark.parametrize("align", [0, -8, 1.5, "8"])
def test_invalid_alignment_is_rejected(align: Any) -> None:
    with pytest.raises(ValueError, match=r"align: got .*, want an integer of at least 1"):
        make("toeplitz").to_torch(align=align)


def test_attn_mask_rejects_integers_and_vectors() -> None:
    torch = pytest.importorskip("torch")
    no_dtype: Any = "f16"
    with pytest.raises(ValueError, match=r"vectors: got a tensor of shape"):
        make("vectors").as_attn_mask()
    with pytest.raises(ValueError, match=r"dtype: got torch.int64, want a floating-point type"):
        make("toeplitz").as_attn_mask(dtype=torch.int64)
    with pytest.raises(TypeError, match=r"dtype: got 'f16'; want a torch.dtype"):
        make("toeplitz").as_attn_mask(dtype=no_dtype)


def test_torch_copy_leaves_read_only_diagonals_unchanged() -> None:
    pytest.importorskip("torch")
    diagonals = np.array([[0, 1, 2]], np.float32)
    diagonals.flags.writeable = False
    attnbias.Toeplitz(
        diagonals, query_length=2, key_length=2, first_relative_position=-1
    ).to_torch().zero_()
    np.testing.assert_array_equal(diagonals, [[0, 1, 2]])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"window_left": "a"}, "window_left: got 'a'; want an integer of at least 0, or None"),
        ({"window_right": 1.5}, "window_right: got an object of type float; want an integer"),
        ({"causal": "no"}, "causal: got 'no'; want True or False"),
    ],
)
def test_mask_fields_of_wrong_type_are_rejected(options: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        attnbias.Mask(**options)


def test_non_mask_is_rejected() -> None:
    mask: Any = "causal"
    with pytest.raises(TypeError, match=r"mask: got 'causal'; want attnbias\.Mask"):
        attnbias.Toeplitz(
            np.zeros((1, 3)), query_length=2, key_length=2, first_relative_position=-1, mask=mask
        )


@pytest.mark.parametrize("block_size", [8.5, "8", (8, 8, 8), [8, 8], None])
def test_block_sizes_of_wrong_type_are_rejected(block_size: Any) -> None:
    with pytest.raises(TypeError, match=r"block_size: got .*, want an integer or a tuple of two"):
        block_sizes(block_size)


def test_numpy_block_sizes_are_accepted() -> None:
    assert block_sizes(np.int64(8)) == (8, 8)
    assert block_sizes((np.int32(8), 16)) == (8, 16)


def test_attn_mask_rejects_buckets() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (None, torch.float32):
        with pytest.raises(ValueError, match="values: got a tensor of int32, want numbers"):
            make("toeplitz", dtype=np.int32).as_attn_mask(dtype=dtype)
