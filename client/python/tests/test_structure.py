# SPDX-License-Identifier: Apache-2.0
"""Structures behave like the dense arrays that they represent, with numpy as the oracle."""

from __future__ import annotations

import copy
import itertools
import math
import operator
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnbias
from attnbias.v1 import encodings_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

Array = npt.NDArray[Any]

KINDS = ("toeplitz", "vectors", "key_row", "block", "block with border", "bordered")
DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int32]


def numbers(*shape: int, dtype: Any) -> Array:
    """Returns values of both signs that all differ, as far as the type allows."""
    return (np.arange(math.prod(shape)).reshape(shape) - 9).astype(dtype)


def make(kind: str, heads: int | None = 3, *, dtype: Any = np.float32) -> attnbias.Structure:
    """A structure with 5 queries and 4 keys, or over a grid of 2 x 3 tokens."""
    outer = () if heads is None else (heads,)
    if kind == "key_row":
        return attnbias.KeyRow(numbers(*outer, 4, dtype=dtype), query_length=5)
    if kind.startswith("block"):
        border = numbers(*outer, 3, dtype=dtype) + dtype(50) if "border" in kind else None
        return attnbias.BlockToeplitz(numbers(*outer, 3, 5, dtype=dtype), border=border)
    columns = (2,) if kind == "vectors" else ()
    toeplitz = attnbias.Toeplitz(
        numbers(*outer, 8, *columns, dtype=dtype),
        query_length=5,
        key_length=4,
        first_relative_position=-4,
        vectors=kind == "vectors",
    )
    if kind != "bordered":
        return toeplitz
    border = numbers(*outer, 3, dtype=dtype) + dtype(50)
    return attnbias.BorderedToeplitz(toeplitz, border, class_query=2, class_key=1)


def strided() -> attnbias.BlockToeplitz:
    """A structure with a border over a grid of 2 x 3 x 4 tokens, some of which are queries."""
    block, border = numbers(2, 3, 5, 7, dtype=np.float32), numbers(2, 3, dtype=np.float32)
    return attnbias.BlockToeplitz(block, border=border, query_stride=(1, 2, 2))


def border_of(border: Array, *, is_query: bool, is_key: bool) -> Any:
    return border[2 if is_query and is_key else 0 if is_query else 1]


def by_definition(bias: attnbias.Structure, head: tuple[int, ...], i: int, j: int) -> Any:
    """Returns a value or vector according to the structure's definition."""
    if isinstance(bias, attnbias.Toeplitz):
        return bias.diagonals[head][j - i + bias.query_length - 1]
    if isinstance(bias, attnbias.KeyRow):
        return bias.row[head][j]
    if isinstance(bias, attnbias.BorderedToeplitz):
        is_query, is_key = i == bias.class_query, j == bias.class_key
        if is_query or is_key:
            return border_of(bias.border[head], is_query=is_query, is_key=is_key)
        return by_definition(bias.toeplitz, head, i, j)
    assert isinstance(bias, attnbias.BlockToeplitz)
    i, j = i + bias.queries[0], j + bias.keys[0]
    if bias.border is not None:
        if i == 0 or j == 0:
            return border_of(bias.border[head], is_query=i == 0, is_key=j == 0)
        i, j = i - 1, j - 1
    places = list(itertools.product(*map(range, bias.grid)))
    query = list(
        itertools.product(*map(range, (0,) * len(bias.grid), bias.grid, bias.query_stride))
    )
    displacement = np.subtract(places[j], query[i])
    return bias.block[head][(*(displacement + bias.grid - 1),)]


def dense_of(bias: attnbias.Structure) -> Array:
    """Returns the dense array, pair by pair, without the package's own code."""
    dense = np.empty(bias.shape, bias.dtype)
    end = -1 if bias.vectors else None
    for *head, i, j in np.ndindex(bias.shape[:end]):
        dense[(*head, i, j)] = by_definition(bias, tuple(head), i, j)
    return dense


def assert_same(got: Any, want: Any) -> None:
    """Compares values, type and shape of structures, arrays or scalars."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    np.testing.assert_array_equal(np.asarray(got), want)


every_kind = pytest.mark.parametrize("kind", KINDS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@every_kind
@every_dtype
@pytest.mark.parametrize("heads", [None, 1, 3])
def test_structure_equals_dense_array(kind: str, heads: int | None, dtype: Any) -> None:
    bias = make(kind, heads, dtype=dtype)
    want = dense_of(bias)
    for got in (np.asarray(bias), np.array(bias), bias.dense(), bias.view()):
        np.testing.assert_array_equal(got, want, strict=True)
    assert (bias.shape, bias.ndim, bias.size) == (want.shape, want.ndim, want.size)
    assert len(bias) == len(want)
    assert bias.nbytes == sum(part.nbytes for part in bias.parts().values())
    assert not bias.view().flags.writeable
    dense = bias.dense()
    assert dense.flags.c_contiguous
    assert dense.flags.writeable
    assert not np.shares_memory(dense, next(iter(bias.parts().values())))
    assert np.array(bias).flags.writeable


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Draws indices that numpy's basic indexing accepts, in or out of bounds."""
    entries: list[Any] = []
    for length in shape[: draw(st.integers(0, len(shape)))]:
        bound = st.none() | st.integers(-length - 2, length + 2)
        step = st.none() | st.sampled_from([-3, -2, -1, 1, 1, 1, 2, 3])
        cut = st.builds(slice, bound, bound, step)
        entries.append(draw(cut | cut | st.integers(-length - 1, length)))
    if len(entries) < len(shape) or draw(st.booleans()):
        at = draw(st.integers(0, len(entries)))
        if draw(st.booleans()):
            entries.insert(at, Ellipsis)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    return tuple(entries) if len(entries) != 1 or draw(st.booleans()) else entries[0]


@every_kind
@pytest.mark.parametrize("heads", [None, 3])
@settings(max_examples=60)  # enough for results of each kind
@given(data=st.data())
def test_indexing_matches_numpy(kind: str, heads: int | None, data: st.DataObject) -> None:
    bias = make(kind, heads)
    want = dense_of(bias)
    index = data.draw(indices(bias.shape))
    try:
        part = want[index]
    except IndexError as error:
        with pytest.raises(IndexError, match=str(error)[:20]):
            bias[index]
        return
    got = bias[index]
    assert_same(got, part)
    if isinstance(got, np.ndarray):
        assert not got.flags.writeable
    elif isinstance(got, attnbias.Structure):
        assert type(got) is type(bias)
        assert_same(got, dense_of(got))
        again = data.draw(indices(got.shape))
        try:
            part = part[again]
        except IndexError:
            return
        assert_same(got[again], part)


@every_kind
def test_contiguous_slices_stay_compact(kind: str) -> None:
    bias = make(kind)
    dense = dense_of(bias)
    compact: list[Any] = [
        np.s_[1],
        np.s_[-1],
        np.s_[1:],
        np.s_[..., :, :] if kind != "vectors" else np.s_[:, :, :],
        np.s_[1:3, 2:4],
        np.s_[0, 1:, :3],
        np.s_[:, 4:5, 3:100],
        np.s_[::1, -2:, 1:2:1],
        np.s_[0:1:7],
    ]
    for index in compact:
        part = bias[index]
        assert type(part) is type(bias), index
        assert_same(part, dense[index])
        assert np.shares_memory(
            next(iter(part.parts().values())), next(iter(bias.parts().values()))
        )
    for index in (np.s_[::2], np.s_[::-1], np.s_[:, 1], np.s_[..., None], np.s_[:, :0]):
        part = bias[index]
        assert isinstance(part, np.ndarray), index
        assert_same(part, dense[index])


@every_kind
def test_full_slice_returns_self(kind: str) -> None:
    bias = make(kind)
    assert bias[...] is bias
    assert bias[:, :] is bias


@every_kind
def test_iteration_yields_heads(kind: str) -> None:
    bias = make(kind)
    dense = dense_of(bias)
    assert len(list(bias)) == 3
    for head, want in zip(bias, dense, strict=True):
        assert type(head) is type(bias)
        assert_same(head, want)
    flat = make(kind, None)
    for row, want in zip(flat, dense_of(flat), strict=True):
        assert isinstance(row, np.ndarray)
        assert_same(row, want)


@every_kind
@pytest.mark.parametrize("index", [[0, 1], np.array([0, 2]), True, np.bool_(True), 1.0, "0"])
def test_unsupported_indices_are_rejected(kind: str, index: Any) -> None:
    with pytest.raises(IndexError, match=r"index: got .*, want integers, slices, .*view\(\)"):
        make(kind)[index]
    with pytest.raises(TypeError, match="item assignment"):
        make(kind)[0] = 1  # type: ignore[index]


@every_kind
@settings(max_examples=40)
@given(data=st.data())
def test_window_equals_slice_of_dense(kind: str, data: st.DataObject) -> None:
    bias = make(kind)
    dense = dense_of(bias)
    for _ in range(2):  # a window, and a window of it
        spans: dict[str, tuple[int, int]] = {}
        for name, length in zip(("heads", "queries", "keys"), bias.shape, strict=False):
            begin = data.draw(st.integers(0, length - 1))
            spans[name] = (begin, data.draw(st.integers(begin + 1, length)))
        bias = bias.window(**spans)
        dense = dense[tuple(slice(*span) for span in spans.values())]
        assert_same(bias, dense)
        assert_same(bias, dense_of(bias))
        assert bias.fingerprint == ""


BINARY = [np.add, np.subtract, np.multiply, np.maximum, np.equal, np.less, np.not_equal]


@every_kind
@every_dtype
def test_ufuncs_match_numpy(kind: str, dtype: Any) -> None:
    bias = make(kind, dtype=dtype)
    dense = dense_of(bias)
    others: list[Any] = [2, np.float32(1.5), dense, bias, dense[0], np.array(3, dtype)]
    for other in others:
        want = np.asarray(other) if isinstance(other, attnbias.Structure) else other
        for ufunc in BINARY:
            assert_same(ufunc(bias, other), ufunc(dense, want))
            assert_same(ufunc(other, bias), ufunc(want, dense))
    assert_same(-bias, -dense)
    assert_same(abs(bias), abs(dense))


@every_kind
def test_operators_match_numpy(kind: str) -> None:
    bias = make(kind)
    dense = dense_of(bias)
    for operation in (operator.add, operator.sub, operator.mul, operator.eq, operator.ge):
        for left, right in ((bias, 2.0), (2.0, bias), (bias, dense), (dense, bias), (bias, bias)):
            arrays = (np.asarray(x) if x is bias else x for x in (left, right))
            assert_same(operation(left, right), operation(*arrays))
    total = dense.copy()
    total += bias
    assert_same(total, dense + dense)


@every_kind
def test_elementwise_functions_stay_compact(kind: str) -> None:
    bias = make(kind)
    dense = dense_of(bias)
    for got, want in [
        (2 * bias, 2 * dense),
        (bias - np.float32(1), dense - np.float32(1)),
        (np.exp(bias), np.exp(dense)),
        (bias > 0, dense > 0),
        (np.multiply(bias, 2, dtype=np.float64), np.multiply(dense, 2, dtype=np.float64)),
    ]:
        assert type(got) is type(bias)
        assert got.fingerprint == ""
        assert got.resolved_spec is None
        np.testing.assert_array_equal(np.asarray(got), want, strict=True)
    for array in (bias + dense, np.add.reduce(bias), np.add(bias, 1, where=dense > 0, out=dense)):
        assert isinstance(array, np.ndarray)


@every_kind
def test_contains_matches_dense_array(kind: str) -> None:
    bias = make(kind)
    # Windows and borders hide some of the stored values.
    for part in (bias, bias.window(queries=(2, 3), keys=(1, 3))):
        dense = dense_of(part)
        for number in (*next(iter(bias.parts().values())).flat, 0.5, np.nan, dense, part):
            want = np.asarray(number) if isinstance(number, attnbias.Structure) else number
            assert (number in part) is (want in dense)


@every_kind
def test_numpy_functions_accept_structures(kind: str) -> None:
    bias = make(kind)
    dense = dense_of(bias)
    functions: list[Callable[[Any], Any]] = [
        np.sum,
        np.max,
        lambda x: np.concatenate([x, dense]),
        lambda x: np.stack([x, x]),
        lambda x: np.where(x > 0, x, 0),
        lambda x: np.einsum("h...->...", x),
        np.transpose,
        lambda x: np.allclose(x, dense),
        lambda x: np.array_equal(x, dense),
        lambda x: np.divmod(x, 3)[1],
        lambda x: np.add(x, 1, where=dense > 0, out=np.zeros_like(dense)),
        lambda x: np.add(x, 1, where=x > 2, out=np.zeros_like(dense)),
        lambda x: np.add(dense, 1, where=x > 2, out=np.zeros_like(dense)),
        lambda x: np.sum(x, where=x > 2),
        lambda x: np.add.reduce(dense, where=x > 2),
        lambda x: np.ones((4, 5), np.float32) @ x if kind in ("toeplitz", "key_row") else 0,
        np.shape,
    ]
    for function in functions:
        np.testing.assert_array_equal(function(bias), function(dense))
    into = np.empty_like(dense)
    into[...] = bias
    np.testing.assert_array_equal(into, dense)
    assert np.add(bias, bias, out=into) is into
    np.testing.assert_array_equal(into, dense + dense)


def test_structure_as_out_is_rejected() -> None:
    bias = make("toeplitz")
    with pytest.raises(TypeError, match="out: got a Toeplitz, which is read-only"):
        np.add(dense_of(bias), 1, out=bias)  # type: ignore[call-overload]


def test_ufunc_defers_to_other_array_ufunc() -> None:
    class Other:
        def __array_ufunc__(self, *_: Any, **__: Any) -> str:
            return "other"

    assert np.add(make("toeplitz"), Other()) == "other"  # type: ignore[call-overload]
    assert make("toeplitz") + Other() == "other"


@every_kind
def test_equality_is_elementwise_and_unhashable(kind: str) -> None:
    bias = make(kind)
    assert np.all(bias == dense_of(bias))
    assert np.all(bias == make(kind))
    assert not np.any(bias != make(kind))
    with pytest.raises(TypeError, match="unhashable"):
        hash(bias)
    with pytest.raises(ValueError, match=r"truth value of .* is ambiguous"):
        bool(bias == 1)
    one: Any = bias[:1, :1, :1]
    if one.size == 1:
        assert bool(one) is bool(dense_of(one).item())


@every_kind
@every_dtype
def test_conversion_casts_to_requested_dtype(kind: str, dtype: Any) -> None:
    bias = make(kind)
    want = dense_of(bias).astype(dtype)
    np.testing.assert_array_equal(np.asarray(bias, dtype), want, strict=True)
    np.testing.assert_array_equal(np.array(bias, dtype), want, strict=True)
    np.testing.assert_array_equal(bias.__array__(dtype), want, strict=True)


@every_kind
def test_copy_argument_is_honored(kind: str) -> None:
    bias = make(kind)
    held = next(iter(bias.parts().values()))
    strided = not kind.startswith(("block", "bordered"))
    assert np.shares_memory(np.asarray(bias), held) == strided
    assert np.shares_memory(bias.__array__(copy=None), held) == strided
    assert not np.shares_memory(bias.__array__(copy=True), held)
    if strided:
        assert np.shares_memory(bias.__array__(copy=False), held)
        assert not bias.__array__(copy=False).flags.writeable
    else:
        with pytest.raises(ValueError, match="copy: got False"):
            bias.__array__(copy=False)
    with pytest.raises(ValueError, match=r"copy: got False, but a .* of float64"):
        bias.__array__(np.float64, copy=False)


def large() -> list[attnbias.Structure]:
    """Just above the bound: 1 GiB of f32, plus one row."""
    side = 1 << 14
    diagonals = np.zeros(2 * side, np.float32)
    toeplitz = attnbias.Toeplitz(
        diagonals, query_length=side + 1, key_length=side, first_relative_position=-side
    )
    return [
        toeplitz,
        attnbias.KeyRow(diagonals[:side], query_length=side + 1),
        attnbias.BorderedToeplitz(toeplitz, np.zeros(3, np.float32)),
        attnbias.BlockToeplitz(np.zeros((2 * 129 - 1, 2 * 128 - 1), np.float32)),
    ]


@pytest.mark.parametrize("bias", large(), ids=lambda bias: type(bias).__name__)
def test_large_arrays_are_not_made_implicitly(bias: attnbias.Structure) -> None:
    assert bias.size * 4 > attnbias.MAX_IMPLICIT_BYTES
    implicit: list[Callable[[], Any]] = [
        lambda: np.asarray(bias),
        lambda: np.asarray(bias, np.float64),
        lambda: bias + np.ones(1, np.float32),
        lambda: np.sum(bias),
        lambda: np.from_dlpack(bias),
        lambda: 0 in bias,
    ]
    for function in implicit:
        with pytest.raises(ValueError, match=r"has \d+ bytes, want at most 1073741824 .*dense\(\)"):
            function()
    if isinstance(bias, attnbias.BlockToeplitz | attnbias.BorderedToeplitz):
        for index in (None, np.s_[::2], np.s_[:, ::-1]):
            with pytest.raises(ValueError, match=r"has \d+ bytes, want at most 1073741824 "):
                bias[index]
    else:
        assert bias[None].shape == (1, *bias.shape)
    assert np.asarray(bias[:2, :2]).shape == (2, 2)
    assert (2 * bias).shape == bias.shape
    assert bias[1, 2] == 0
    if isinstance(bias, attnbias.Toeplitz | attnbias.KeyRow):
        assert bias.view().shape == bias.shape
        assert bias.__array__(copy=False).shape == bias.shape


def test_array_of_exactly_the_limit_is_allowed() -> None:
    side = 1 << 14
    bias = attnbias.KeyRow(np.zeros(side, np.float32), query_length=side)
    assert np.asarray(bias).nbytes == attnbias.MAX_IMPLICIT_BYTES


@every_kind
def test_pickle_and_copy_drop_device_arrays(kind: str) -> None:
    bias = make(kind)
    bias.fingerprint = "f" * 64
    bias.resolved_spec = encodings_pb2.TensorSpec(alibi={"num_heads": 3})
    if kind not in ("vectors", "bordered"):
        pytest.importorskip("torch")
        bias.score_mod()
    for again in (pickle.loads(pickle.dumps(bias)), copy.copy(bias), copy.deepcopy(bias)):
        assert type(again) is type(bias)
        assert_same(again, dense_of(bias))
        assert (again.fingerprint, again.resolved_spec) == (bias.fingerprint, bias.resolved_spec)
    window = bias.window(queries=(1, 3), keys=(1, 2))
    assert_same(pickle.loads(pickle.dumps(window)), dense_of(window))
    assert len(pickle.dumps(window)) < len(pickle.dumps(bias)) + 100
    deep = copy.deepcopy(bias)
    for mine, its in zip(bias.parts().values(), deep.parts().values(), strict=True):
        assert not np.shares_memory(mine, its)


@every_kind
@every_dtype
def test_to_torch_equals_dense(kind: str, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    bias = make(kind, dtype=dtype)
    want = dense_of(bias)
    for tensor in (
        bias.to_torch(),
        attnbias.to_torch(bias),
        attnbias.to_torch(bias.view(), "cpu"),
        attnbias.to_torch(bias.dense()),
        torch.as_tensor(bias),
        torch.from_dlpack(bias),
    ):
        assert str(tensor.dtype).removeprefix("torch.") == want.dtype.name
        np.testing.assert_array_equal(tensor.double().numpy(), want.astype(np.float64))
    flat = make(kind, None, dtype=dtype)
    np.testing.assert_array_equal(flat.to_torch().double().numpy(), dense_of(flat).astype("f8"))


@pytest.mark.parametrize("bias", [*map(make, KINDS), strided()], ids=str)
@pytest.mark.parametrize("align", [1, 5, 6, 8])
def test_to_torch_aligns_rows(bias: Any, align: int) -> None:
    pytest.importorskip("torch")
    for part in parts_of(bias):
        got = part.to_torch("cpu", align=align)
        np.testing.assert_array_equal(got.numpy(), part.dense(), strict=True)
        assert_aligned(got, align)


def parts_of(bias: Any) -> list[Any]:
    """The whole, a head, and windows, down to a single pair."""
    windows = [((0, 1), (0, 4)), ((1, 4), (2, 4)), ((2, 3), (0, 1))]
    return [bias, bias[0], *(bias.window(queries=q, keys=k) for q, k in windows)]


def assert_aligned(tensor: Any, align: int) -> None:
    *outer, last = tensor.stride()
    assert last == 1
    assert all(stride % align == 0 for stride in outer)


WITH_NUMBERS = [*(make(kind) for kind in KINDS if kind != "vectors"), strided()]


@pytest.mark.parametrize("bias", WITH_NUMBERS, ids=str)
def test_attn_mask_broadcasts_over_batch(bias: Any) -> None:
    torch = pytest.importorskip("torch")
    for part in parts_of(bias):
        want = part.dense().reshape(1, -1, *part.shape[-2:])
        got = part.as_attn_mask()
        np.testing.assert_array_equal(got.numpy(), want, strict=True)
        assert_aligned(got, 8)
    half = bias.as_attn_mask("cpu", torch.float16)
    assert half.dtype == torch.float16
    np.testing.assert_array_equal(half.numpy(), bias.dense()[None].astype(np.float16))
    heads, queries, keys = bias.shape
    # In float64, where the order of sums does not matter.
    exact = torch.float64
    sequence = [torch.randn(5, heads, length, 8, dtype=exact) for length in (queries, keys, keys)]
    attention = torch.nn.functional.scaled_dot_product_attention
    torch.testing.assert_close(
        attention(*sequence, attn_mask=bias.as_attn_mask(dtype=exact)),
        attention(*sequence, attn_mask=torch.from_numpy(dense_of(bias)).to(exact)),
    )


@pytest.mark.parametrize("bias", WITH_NUMBERS, ids=str)
def test_score_mod_adds_the_bias(bias: Any) -> None:
    torch = pytest.importorskip("torch")
    score_mod = bias.score_mod()
    got = np.empty(bias.shape, np.float32)
    for h, i, j in np.ndindex(bias.shape):
        indices = [torch.tensor(index) for index in (0, h, i, j)]
        got[h, i, j] = score_mod(torch.tensor(0.5), *indices)
    np.testing.assert_array_equal(got, dense_of(bias) + np.float32(0.5))


@every_kind
def test_headless_structure_rejects_head_operations(kind: str) -> None:
    flat: Any = make(kind, None)
    with pytest.raises(ValueError, match="head axis"):
        flat.window(heads=1)
    for bias in (flat, make(kind)) if kind == "vectors" else (flat,):
        says = r"vectors: got a tensor of shape .* numbers" if kind == "vectors" else "head axis"
        with pytest.raises(ValueError, match=says):
            bias.score_mod()


def test_mixing_torch_and_numpy_is_rejected() -> None:
    torch = pytest.importorskip("torch")
    bias: Any = make("toeplitz")
    mixed: list[Callable[[], Any]] = [
        lambda: bias + torch.ones(5, 4),
        lambda: torch.ones(5, 4) + bias,
    ]
    for function in mixed:
        with pytest.raises(TypeError, match=r"got a torch.Tensor and a Toeplitz; want both in "):
            function()
    with pytest.raises(
        TypeError, match="array: got list, want a NumPy array or an attnbias structure"
    ):
        attnbias.to_torch([1.0])  # type: ignore[arg-type]


@every_kind
@every_dtype
@pytest.mark.filterwarnings("ignore:.*float64.*")  # JAX has no f64 by default
def test_to_jax_equals_dense(kind: str, dtype: Any) -> None:
    pytest.importorskip("jax")
    bias = make(kind, dtype=dtype)
    want = dense_of(bias)
    got = np.asarray(bias.to_jax())
    if dtype is not np.float64:
        assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def test_to_jax_without_jax_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jax", None)
    with pytest.raises(ImportError, match="to_jax: jax is not installed"):
        make("toeplitz").to_jax()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (
            lambda: attnbias.KeyRow(np.zeros((1, 2, 3)), query_length=1),
            r"row: got shape \(1, 2, 3\)",
        ),
        (lambda: attnbias.KeyRow(np.zeros(3), query_length=0), "row: got .* 0 queries"),
        (lambda: attnbias.BlockToeplitz(np.zeros((1, 1, 3, 3))), "block: got shape"),
        (
            lambda: attnbias.BorderedToeplitz(
                attnbias.Toeplitz(
                    np.zeros(4), query_length=2, key_length=3, first_relative_position=0
                ),
                np.zeros(3),
                class_key=3,
            ),
            r"class_key: got 3, want None or an integer in \[0, 3\)",
        ),
    ],
)
def test_mismatched_shapes_are_rejected(build: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build()


# ---- in JAX


@pytest.fixture(scope="module")
def jax() -> Any:
    os.environ["JAX_PLATFORMS"] = "cpu"
    return pytest.importorskip("jax")


def ring_shard() -> attnbias.Structure:
    shard: attnbias.Structure = make("toeplitz").shard(0, 2, keys="striped")
    return shard


@pytest.mark.parametrize("kind", [*KINDS, "ring shard"])
def test_structure_is_a_jax_pytree(jax: Any, kind: str) -> None:
    bias = ring_shard() if kind == "ring shard" else make(kind)
    twice = jax.jit(lambda bias: jax.tree.map(lambda part: 2 * part, bias))
    dense = jax.jit(lambda query, bias: query + bias)
    query = jax.numpy.ones(bias.shape[-1:])
    for structure in (bias, jax.device_put(bias), make(kind) if kind in KINDS else bias):
        got = dense(query, structure)
        np.testing.assert_array_equal(np.asarray(got), 1 + bias.dense(), strict=True)
        np.testing.assert_array_equal(np.asarray(structure), bias.dense(), strict=True)
        np.testing.assert_array_equal(structure.dense(), bias.dense(), strict=True)
    assert dense._cache_size() == 2  # one for NumPy parts, one for JAX parts, not one per structure
    if kind != "ring shard":  # its indices are parts too
        doubled = twice(bias)
        assert type(doubled) is type(bias)
        np.testing.assert_array_equal(doubled.dense(), 2 * bias.dense(), strict=True)
    leaves, tree = jax.tree.flatten(bias)
    assert jax.tree.structure(jax.tree.unflatten(tree, [object()] * len(leaves))) == tree


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [0, -1, slice(1, 2), (slice(None), slice(1, 3)), (0, ..., 1)])
def test_indexing_is_equal_under_jax_tracing(jax: Any, kind: str, index: Any) -> None:
    bias = make(kind)

    def part(structure: Any) -> Any:
        got = structure[index]
        return got.to_jax() if isinstance(got, attnbias.Structure) else got

    wanted = part(bias)
    try:
        got = jax.jit(part)(bias)
    except jax.errors.TracerArrayConversionError:  # made by numpy, which cannot be traced
        return
    np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted), strict=True)


def test_jax_tree_paths_name_the_parts(jax: Any) -> None:
    paths = jax.tree_util.tree_leaves_with_path({"bias": make("bordered")})
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    assert names == ["['bias'].toeplitz.diagonals", "['bias'].border"]


def test_jax_results_have_no_fingerprint(jax: Any) -> None:
    bias, other = make("toeplitz"), make("toeplitz")
    bias.fingerprint, bias.resolved_spec = "a" * 64, encodings_pb2.TensorSpec(t5={})
    assert jax.tree.structure(bias) == jax.tree.structure(other)
    got = jax.device_put(bias)
    assert (got.fingerprint, got.resolved_spec) == ("", None)
    part = bias.window(queries=(1, 3))
    np.testing.assert_array_equal(jax.device_put(part).dense(), part.dense(), strict=True)


@pytest.mark.parametrize("first", ["attnbias", "jax"])
def test_import_order_of_jax_does_not_matter(jax: Any, first: str) -> None:
    """In a separate process, to check that attnbias by itself does not import JAX."""
    imports = {
        "attnbias": "import attnbias, sys; assert 'jax' not in sys.modules; import jax",
        "jax": "import jax; import attnbias",
    }
    lines = [
        imports[first],
        "import numpy as np",
        "row = attnbias.KeyRow(np.ones((2, 3), 'f4'), query_length=4)",
        "assert jax.jit(lambda bias: bias.to_jax().sum())(row) == 24",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=120)
    del jax
