# SPDX-License-Identifier: Apache-2.0
"""BlockToeplitz and BorderedToeplitz stand for the dense tensors that their definitions give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

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


def of_border(border: Any, head: int, *, is_query: bool, is_key: bool) -> Any:
    to_keys, from_queries, to_itself = border[head]
    if is_query and is_key:
        return to_itself
    return to_keys if is_query else from_queries


def grid_by_definition(tensor: attnbias.BlockToeplitz) -> npt.NDArray[Any]:
    dense = np.empty(tensor.shape, tensor.dtype)
    first = 0 if tensor.border is None else 1
    queries = np.zeros(tensor.grid, bool)
    queries[tuple(slice(None, None, stride) for stride in tensor.query_stride)] = True
    for h, i, j in np.ndindex(tensor.shape):
        if i < first or j < first:
            dense[h, i, j] = of_border(tensor.border, h, is_query=i < first, is_key=j < first)
            continue
        key = np.unravel_index(j - first, tensor.grid)
        query = np.argwhere(queries)[i - first]
        dense[h, i, j] = tensor.block[(h, *(key - query + tensor.grid - 1))]
    return dense


def pair_by_definition(tensor: attnbias.BorderedToeplitz) -> npt.NDArray[Any]:
    dense = np.empty(tensor.shape, tensor.dtype)
    for h, i, j in np.ndindex(tensor.shape):
        is_query, is_key = i == tensor.class_query, j == tensor.class_key
        if is_query or is_key:
            dense[h, i, j] = of_border(tensor.border, h, is_query=is_query, is_key=is_key)
        else:
            toeplitz = tensor.toeplitz
            dense[h, i, j] = toeplitz.diagonals[h, j - i + toeplitz.query_length - 1]
    return dense


@pytest.mark.parametrize("shape", GRIDS)
@pytest.mark.parametrize("border", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stride", [1, 2, 5])
def test_dense_grid_matches_definition(shape: Any, border: bool, dtype: Any, stride: int) -> None:
    tensor = block_toeplitz(*shape, border=border, dtype=dtype, stride=stride)
    dense = tensor.dense()
    np.testing.assert_array_equal(dense, grid_by_definition(tensor), strict=True)
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


def test_indices_have_no_head_axis() -> None:
    tensor = block_toeplitz(1, 2, 3, border=True, dtype=np.int32)
    assert tensor.border is not None
    flat = attnbias.BlockToeplitz(tensor.block[0], border=tensor.border[0])
    np.testing.assert_array_equal(flat.dense(), tensor.dense()[0], strict=True)
    with pytest.raises(ValueError, match="head axis"):
        flat.score_mod()


@pytest.mark.parametrize("shape", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_toeplitz_includes_border(shape: Any, dtype: Any) -> None:
    for class_query in (0, None):
        for class_key in (0, None):
            tensor = bordered(*shape, dtype=dtype, class_query=class_query, class_key=class_key)
            np.testing.assert_array_equal(tensor.dense(), pair_by_definition(tensor), strict=True)


def test_window_equals_slice_of_dense() -> None:
    whole = bordered(3, 5, 4, class_query=2, class_key=1)
    dense = whole.dense()
    for q0, q1 in [(0, 5), (0, 1), (2, 5), (3, 5)]:
        for k0, k1 in [(0, 4), (0, 1), (1, 4), (2, 3)]:
            part = whole.window(queries=(q0, q1), keys=(k0, k1), heads=(1, 3))
            np.testing.assert_array_equal(part.dense(), dense[1:3, q0:q1, k0:k1], strict=True)


def tensors() -> list[Any]:
    return [
        block_toeplitz(2, 3, 4, border=False),
        block_toeplitz(2, 3, 4, border=True),
        block_toeplitz(2, 2, 3, 4, border=True, stride=2),
        bordered(2, 6, 5),
        bordered(2, 6, 5, class_query=None, class_key=3),
    ]


@pytest.mark.parametrize("tensor", tensors(), ids=str)
def test_to_torch_equals_dense(tensor: Any) -> None:
    pytest.importorskip("torch")
    np.testing.assert_array_equal(tensor.to_torch("cpu").numpy(), tensor.dense(), strict=True)
    tensor.to_torch().zero_()
    assert tensor.dense().all()


@pytest.mark.parametrize("tensor", tensors(), ids=str)
@pytest.mark.parametrize("align", [1, 5, 8])
def test_to_torch_aligns_rows(tensor: Any, align: int) -> None:
    pytest.importorskip("torch")
    for part in (tensor, tensor.window(queries=1), tensor.window(queries=(1, 4), keys=(2, 5))):
        got = part.to_torch("cpu", align=align)
        np.testing.assert_array_equal(got.numpy(), part.dense(), strict=True)
        *outer, last = got.stride()
        assert last == 1
        assert all(stride % align == 0 for stride in outer)
        mask = part.as_attn_mask()
        np.testing.assert_array_equal(mask.numpy(), part.dense()[None], strict=True)
        assert all(stride % 8 == 0 for stride in mask.stride()[:-1])


@pytest.mark.parametrize("tensor", tensors(), ids=str)
def test_score_mod_adds_the_bias(tensor: Any) -> None:
    torch = pytest.importorskip("torch")
    score_mod = tensor.score_mod()
    got = np.empty(tensor.shape, np.float32)
    for h, i, j in np.ndindex(tensor.shape):
        indices = [torch.tensor(index) for index in (0, h, i, j)]
        got[h, i, j] = score_mod(torch.tensor(0.5), *indices)
    np.testing.assert_array_equal(got, tensor.dense() + np.float32(0.5))


@pytest.mark.filterwarnings("ignore")  # torch's own: flex_attention called without compile
def test_flex_attention_with_score_mod_adds_the_bias() -> None:
    torch = pytest.importorskip("torch")
    flex_attention = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention
    for tensor in (block_toeplitz(2, 3, 5, border=True), bordered(2, 16, 16)):
        generator = torch.Generator().manual_seed(1)
        query, key, value = torch.randn(3, 1, 2, 16, 8, generator=generator)
        got = flex_attention(query, key, value, score_mod=tensor.score_mod())
        want = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=tensor.to_torch()[None]
        )
        torch.testing.assert_close(got, want)


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
