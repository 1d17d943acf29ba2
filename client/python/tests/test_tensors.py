# SPDX-License-Identifier: Apache-2.0
"""Toeplitz and KeyRow stand for the dense tensors that their definitions give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import attnbias
from attnbias._arrays.axes import block_sizes

SHAPES = [(1, 1, 1), (2, 5, 3), (3, 1, 7), (1, 6, 1), (4, 64, 33)]
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32]


def toeplitz(heads: int, queries: int, keys: int, dtype: Any = np.float32) -> attnbias.Toeplitz:
    count = heads * (queries + keys - 1)
    diagonals = np.arange(count).reshape(heads, -1).astype(dtype)
    return attnbias.Toeplitz(
        diagonals, query_length=queries, key_length=keys, first_relative_position=1 - queries
    )


def key_row(heads: int, queries: int, keys: int, dtype: Any = np.float32) -> attnbias.KeyRow:
    row = np.arange(heads * keys).reshape(heads, keys).astype(dtype)
    return attnbias.KeyRow(row, query_length=queries)


def by_definition(tensor: attnbias.Toeplitz | attnbias.KeyRow) -> npt.NDArray[Any]:
    dense = np.empty(tensor.shape, tensor.dtype)
    for *head, i, j in np.ndindex(tensor.shape):
        if isinstance(tensor, attnbias.Toeplitz):
            value = tensor.diagonals[(*head, j - i + tensor.query_length - 1)]
        else:
            value = tensor.row[(*head, j)]
        dense[(*head, i, j)] = value
    return dense


@pytest.mark.parametrize("make", [toeplitz, key_row])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_view_and_dense_match_definition(make: Any, shape: Any, dtype: Any) -> None:
    tensor = make(*shape, dtype)
    want = by_definition(tensor)
    np.testing.assert_array_equal(tensor.view(), want, strict=True)
    np.testing.assert_array_equal(tensor.dense(), want, strict=True)
    assert tensor.shape == want.shape


@pytest.mark.parametrize("make", [toeplitz, key_row])
def test_view_is_read_only_and_shares_memory(make: Any) -> None:
    tensor = make(2, 5, 3)
    view = tensor.view()
    assert np.shares_memory(view, tensor.diagonals if make is toeplitz else tensor.row)
    assert not view.flags.writeable


@pytest.mark.parametrize("make", [toeplitz, key_row])
def test_dense_is_a_writable_copy(make: Any) -> None:
    tensor = make(2, 5, 3)
    dense = tensor.dense()
    assert dense.flags.c_contiguous
    assert dense.flags.writeable
    assert not np.shares_memory(dense, tensor.view())


def test_bucket_indices_have_no_head_axis() -> None:
    tensor = toeplitz(1, 5, 3, np.int32)
    flat = attnbias.Toeplitz(
        tensor.diagonals[0], query_length=5, key_length=3, first_relative_position=-4
    )
    np.testing.assert_array_equal(flat.view(), tensor.view()[0], strict=True)
    np.testing.assert_array_equal(flat.dense(), tensor.view()[0], strict=True)
    with pytest.raises(ValueError, match="head axis"):
        flat.window(heads=1)
    with pytest.raises(ValueError, match="head axis"):
        flat.score_mod()


def vectors(
    heads: int | None, queries: int, keys: int, columns: int, *, dtype: Any = np.float32
) -> attnbias.Toeplitz:
    outer = () if heads is None else (heads,)
    shape = (*outer, queries + keys - 1, columns)
    diagonals = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return attnbias.Toeplitz(
        diagonals,
        query_length=queries,
        key_length=keys,
        first_relative_position=1 - queries,
        vectors=True,
    )


def vectors_by_definition(tensor: attnbias.Toeplitz) -> npt.NDArray[Any]:
    dense = np.empty(tensor.shape, tensor.dtype)
    for *head, i, j in np.ndindex(tensor.shape[:-1]):
        dense[(*head, i, j)] = tensor.diagonals[(*head, j - i + tensor.query_length - 1)]
    return dense


# Shapes whose axes cannot be told apart by their lengths are among them.
VECTORS = [
    (None, 1, 1, 1),
    (None, 5, 3, 4),
    (2, 5, 3, 7),
    (7, 5, 3, 7),
    (1, 4, 33, 1),
    (3, 1, 6, 2),
]


@pytest.mark.parametrize("shape", VECTORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_vectors_have_a_last_axis_of_columns(shape: Any, dtype: Any) -> None:
    tensor = vectors(*shape, dtype=dtype)
    want = vectors_by_definition(tensor)
    heads, *rest = shape
    assert tensor.shape == want.shape == (*(() if heads is None else (heads,)), *rest)
    np.testing.assert_array_equal(tensor.view(), want, strict=True)
    np.testing.assert_array_equal(tensor.dense(), want, strict=True)
    assert np.shares_memory(tensor.view(), tensor.diagonals)
    assert not tensor.view().flags.writeable


@pytest.mark.parametrize("shape", VECTORS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_torch_vectors_match_definition(shape: Any, dtype: Any) -> None:
    pytest.importorskip("torch")
    tensor = vectors(*shape, dtype=dtype)
    got = tensor.to_torch(device="cpu").float().numpy()
    np.testing.assert_array_equal(got, vectors_by_definition(tensor).astype(np.float32))


@pytest.mark.parametrize("heads", [None, 3])
def test_window_of_vectors_equals_slice_of_dense(heads: int | None) -> None:
    whole = vectors(heads, 5, 4, 6)
    dense = whole.dense()
    for q0, q1 in [(0, 5), (0, 1), (4, 5), (1, 4)]:
        for k0, k1 in [(0, 4), (0, 1), (3, 4), (1, 3)]:
            part = whole.window(queries=(q0, q1), keys=(k0, k1))
            np.testing.assert_array_equal(part.view(), dense[..., q0:q1, k0:k1, :], strict=True)
            again = part.window(queries=1)
            np.testing.assert_array_equal(again.view(), part.view()[..., :1, :, :], strict=True)
            assert np.shares_memory(part.view(), whole.view())
    if heads is None:
        with pytest.raises(ValueError, match="head axis"):
            whole.window(heads=1)
    else:
        np.testing.assert_array_equal(whole.window(heads=(1, 3)).view(), dense[1:3], strict=True)


def test_score_mod_of_vectors_is_rejected() -> None:
    for heads in (None, 2):
        with pytest.raises(ValueError, match=r"vectors: got a tensor of shape .* numbers to add"):
            vectors(heads, 5, 3, 4).score_mod()


@pytest.mark.parametrize("shape", [(7,), (6, 7), (2, 6, 7), (7, 7, 7, 7)])
def test_mismatched_vectors_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="want 7 as the last axis but one"):
        attnbias.Toeplitz(
            np.zeros(shape),
            query_length=4,
            key_length=4,
            first_relative_position=0,
            vectors=True,
        )


@pytest.mark.parametrize("make", [toeplitz, key_row])
def test_window_equals_slice_of_dense(make: Any) -> None:
    whole = make(3, 5, 4)
    dense = whole.dense()
    for q0, q1 in [(0, 5), (0, 1), (4, 5), (1, 4)]:
        for k0, k1 in [(0, 4), (0, 1), (3, 4), (1, 3)]:
            part = whole.window(queries=(q0, q1), keys=(k0, k1), heads=(1, 3))
            np.testing.assert_array_equal(part.view(), dense[1:3, q0:q1, k0:k1], strict=True)
            assert np.shares_memory(part.view(), whole.view())


def test_window_moves_the_first_relative_position() -> None:
    part = toeplitz(1, 8, 8).window(queries=(5, 6), keys=6)
    assert part.first_relative_position == 0 - 5
    assert part.diagonals.shape == (1, 6)


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ({"queries": (0, 6)}, r"queries: got \[0, 6\), want .* \[0, 5\)"),
        ({"keys": (2, 2)}, r"keys: got \[2, 2\)"),
        ({"heads": (-1, 2)}, r"heads: got \[-1, 2\)"),
    ],
)
@pytest.mark.parametrize("make", [toeplitz, key_row])
def test_window_outside_is_an_index_error(make: Any, window: dict[str, Any], says: str) -> None:
    with pytest.raises(IndexError, match=says):
        make(3, 5, 4).window(**window)


def test_mismatched_diagonals_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"got shape \(2, 7\), want 8"):
        attnbias.Toeplitz(np.zeros((2, 7)), query_length=4, key_length=5, first_relative_position=0)


@pytest.mark.parametrize("make", [toeplitz, key_row])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_torch_tensor_matches_definition(make: Any, shape: Any, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    tensor = make(*shape, dtype)
    got = tensor.to_torch(device="cpu")
    assert got.dtype == (torch.float32 if dtype is np.float32 else torch.bfloat16)
    np.testing.assert_array_equal(got.float().numpy(), by_definition(tensor).astype(np.float32))


ALIGNED = [(1, 1, 1), (2, 5, 3), (3, 1, 7), (1, 6, 1), (2, 4, 33), (3, 9, 8)]


def assert_aligned(tensor: Any, align: int) -> None:
    *outer, last = tensor.stride()
    assert last == 1
    assert all(stride % align == 0 for stride in outer)


@pytest.mark.parametrize("shape", ALIGNED)
@pytest.mark.parametrize("align", [1, 6, 8])
def test_to_torch_aligns_rows(shape: Any, align: int) -> None:
    pytest.importorskip("torch")
    heads, queries, keys = shape
    for tensor in (toeplitz(*shape), key_row(*shape)):
        for part in (tensor, tensor[0], tensor.window(queries=1)):
            assert isinstance(part, attnbias.Structure)
            got = part.to_torch("cpu", align=align)
            np.testing.assert_array_equal(got.numpy(), part.view(), strict=True)
            assert_aligned(got, align)
    of_vectors = vectors(heads, queries, keys, 5)
    got = of_vectors.to_torch(align=align)
    np.testing.assert_array_equal(got.numpy(), of_vectors.view(), strict=True)
    assert_aligned(got, align)


def test_torch_key_row_queries_share_memory() -> None:
    pytest.importorskip("torch")
    assert key_row(2, 5, 3).to_torch(align=4).stride() == (4, 0, 1)


@pytest.mark.parametrize("align", [0, -8, 1.5, "8"])
def test_invalid_alignment_is_rejected(align: Any) -> None:
    with pytest.raises(ValueError, match=r"align: got .*, want an integer of at least 1"):
        toeplitz(1, 2, 2).to_torch(align=align)


@pytest.mark.parametrize("make", [toeplitz, key_row])
@pytest.mark.parametrize("shape", ALIGNED)
def test_attn_mask_broadcasts_over_batch(make: Any, shape: Any) -> None:
    torch = pytest.importorskip("torch")
    tensor = make(*shape)
    got = tensor.as_attn_mask()
    np.testing.assert_array_equal(got.numpy(), by_definition(tensor)[None], strict=True)
    assert_aligned(got, 8)
    half = make(*shape, ml_dtypes.bfloat16).as_attn_mask("cpu", torch.float16)
    assert half.dtype == torch.float16
    np.testing.assert_array_equal(half.numpy(), by_definition(tensor)[None].astype(np.float16))
    one_head = tensor[0].as_attn_mask()
    np.testing.assert_array_equal(one_head.numpy(), by_definition(tensor)[None, :1], strict=True)
    _, queries, keys = shape
    sequence = [torch.randn(5, shape[0], length, 8) for length in (queries, keys, keys)]
    attention = torch.nn.functional.scaled_dot_product_attention
    torch.testing.assert_close(
        attention(*sequence, attn_mask=got),
        attention(*sequence, attn_mask=torch.from_numpy(by_definition(tensor))),
    )


def test_attn_mask_rejects_integers_and_vectors() -> None:
    torch = pytest.importorskip("torch")
    no_dtype: Any = "f16"
    with pytest.raises(ValueError, match=r"vectors: got a tensor of shape"):
        vectors(2, 5, 3, 4).as_attn_mask()
    with pytest.raises(ValueError, match=r"dtype: got torch.int64, want a floating type"):
        toeplitz(1, 2, 2).as_attn_mask(dtype=torch.int64)
    with pytest.raises(TypeError, match=r"dtype: got 'f16'; want one of torch's"):
        toeplitz(1, 2, 2).as_attn_mask(dtype=no_dtype)


@pytest.mark.parametrize("make", [toeplitz, key_row])
def test_score_mod_adds_the_bias(make: Any) -> None:
    torch = pytest.importorskip("torch")
    tensor = make(3, 5, 4)
    score_mod = tensor.score_mod()
    got = np.empty(tensor.shape, np.float32)
    for h, i, j in np.ndindex(tensor.shape):
        indices = [torch.tensor(index) for index in (0, h, i, j)]
        got[h, i, j] = score_mod(torch.tensor(0.5), *indices)
    np.testing.assert_array_equal(got, by_definition(tensor) + np.float32(0.5))


@pytest.mark.parametrize("make", [toeplitz, key_row])
@pytest.mark.filterwarnings("ignore")  # torch's own: flex_attention called without compile
def test_flex_attention_with_score_mod_adds_the_bias(make: Any) -> None:
    torch = pytest.importorskip("torch")
    flex_attention = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention
    tensor = make(2, 16, 16)
    generator = torch.Generator().manual_seed(1)
    query, key, value = torch.randn(3, 1, 2, 16, 8, generator=generator)
    got = flex_attention(query, key, value, score_mod=tensor.score_mod())
    want = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=tensor.to_torch()[None]
    )
    torch.testing.assert_close(got, want)


def test_torch_copy_leaves_read_only_diagonals_unchanged() -> None:
    pytest.importorskip("torch")
    tensor = toeplitz(1, 2, 2)
    tensor.diagonals.flags.writeable = False
    tensor.to_torch().zero_()
    np.testing.assert_array_equal(tensor.diagonals, [[0, 1, 2]])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"window_left": "a"}, "window_left: got 'a'; want an integer of at least 0, or None"),
        ({"window_right": 1.5}, "window_right: got an object of float; want an integer"),
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
            np.zeros((1, 3)),
            query_length=2,
            key_length=2,
            first_relative_position=-1,
            mask=mask,
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
        with pytest.raises(ValueError, match="values: got a tensor of int32, want one of numbers"):
            toeplitz(1, 5, 3, np.int32).as_attn_mask(dtype=dtype)
