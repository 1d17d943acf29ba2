# SPDX-License-Identifier: Apache-2.0
"""BlockToeplitz and BorderedToeplitz represent the dense tensors that their definitions specify."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from test_structure import dense_of

import attnbias

GRIDS = [(1, 1, 1), (2, 2, 2), (3, 1, 4), (2, 3, 5), (1, 4, 2), (2, 4), (2, 2, 3, 4)]
LENGTHS = [(1, 1, 1), (2, 5, 3), (3, 1, 7), (1, 6, 1)]
DTYPES = [np.float32, ml_dtypes.bfloat16, np.int32]


def numbers(*shape: int, dtype: Any = np.float32) -> npt.NDArray[Any]:
    return np.arange(1, np.prod(shape) + 1).reshape(shape).astype(dtype)


def block_toeplitz(
    heads: int, *sides: int, border: bool, dtype: Any = np.float32, stride: int = 1
) -> attnbias.BlockToeplitz:
    return attnbias.BlockToeplitz(
        numbers(heads, *(2 * side - 1 for side in sides), dtype=dtype),
        border=-numbers(heads, 3, dtype=dtype) if border else None,
        query_stride=[stride] * len(sides),
    )


def bordered(
    heads: int, queries: int, keys: int, *, dtype: Any = np.float32, **places: Any
) -> attnbias.BorderedToeplitz:
    toeplitz = attnbias.Toeplitz(
        numbers(heads, queries + keys - 1, dtype=dtype),
        query_length=queries,
        key_length=keys,
        first_relative_position=1 - queries,
    )
    return attnbias.BorderedToeplitz(toeplitz, -numbers(heads, 3, dtype=dtype), **places)


@pytest.mark.parametrize("shape", GRIDS)
@pytest.mark.parametrize("border", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stride", [1, 2, 5])
def test_dense_grid_matches_definition(shape: Any, border: bool, dtype: Any, stride: int) -> None:
    tensor = block_toeplitz(*shape, border=border, dtype=dtype, stride=stride)
    dense = tensor.dense()
    np.testing.assert_array_equal(dense, dense_of(tensor), strict=True)
    assert dense.flags.c_contiguous
    assert dense.flags.writeable


@pytest.mark.parametrize("shape", GRIDS)
@pytest.mark.parametrize("stride", [1, 2])
def test_grid_view_matches_dense_without_copy(shape: Any, stride: int) -> None:
    heads, *sides = shape
    tensor = block_toeplitz(*shape, border=True, stride=stride)
    view = tensor.grid_view()
    assert view.shape == (heads, *(-(-side // stride) for side in sides), *sides)
    assert np.shares_memory(view, tensor.block)
    assert not view.flags.writeable
    inside = tensor.dense()[:, 1:, 1:]
    np.testing.assert_array_equal(view.reshape(inside.shape), inside, strict=True)


@pytest.mark.parametrize("shape", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_toeplitz_includes_border(shape: Any, dtype: Any) -> None:
    for class_query in (0, None):
        for class_key in (0, None):
            tensor = bordered(*shape, dtype=dtype, class_query=class_query, class_key=class_key)
            np.testing.assert_array_equal(tensor.dense(), dense_of(tensor), strict=True)


@pytest.mark.parametrize(
    ("block", "border", "says"),
    [
        (np.zeros(3), None, r"block: got shape \(3,\), want 2 odd lengths"),
        (np.zeros((2, 3, 4)), None, r"block: got shape \(2, 3, 4\)"),
        (np.zeros((2, 3, 3)), np.zeros((3, 3)), r"border: got shape \(3, 3\), want \(2, 3\)"),
    ],
)
def test_mismatched_shapes_are_rejected(block: Any, border: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        attnbias.BlockToeplitz(block, border=border)


@pytest.mark.parametrize("strides", [(), (2, 0)])
def test_invalid_query_stride_is_rejected(strides: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"query_stride: got .*, want positive integers"):
        attnbias.BlockToeplitz(np.zeros((3, 3)), query_stride=strides)
