# SPDX-License-Identifier: Apache-2.0
"""GridTable represents the table that its definition specifies, token by token and column by
column."""

from __future__ import annotations

import math
import pickle
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from fake_server import FINGERPRINT, FakeServer, Payload

import attnbias
from attnbias.v1 import tensor_pb2

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS = (2, 3, 4)
COLUMN_AXES = (0, 0, 1, 2, 2, 1, 0)
ENCODING = attnbias.Sinusoidal(dim=7, axes=[attnbias.Axis()] * 3, axis_dims=[3, 2, 2])
DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


def tables(dtype: Any = np.float32) -> list[npt.NDArray[Any]]:
    """Returns one table per axis; all values differ."""
    counts = [COLUMN_AXES.count(axis) for axis in range(3)]
    firsts = np.cumsum([0, *np.multiply(LENGTHS, counts)])
    return [
        (first + np.arange(length * count)).reshape(length, count).astype(dtype)
        for first, length, count in zip(firsts, LENGTHS, counts, strict=False)
    ]


def make(dtype: Any = np.float32) -> attnbias.GridTable:
    numbers = np.concatenate([table.reshape(-1) for table in tables(dtype)])
    return attnbias.GridTable(numbers, lengths=LENGTHS, column_axes=COLUMN_AXES)


def by_definition(dtype: Any = np.float32) -> npt.NDArray[Any]:
    dense = np.empty((math.prod(LENGTHS), len(COLUMN_AXES)), dtype)
    for token, indices in enumerate(np.ndindex(*LENGTHS)):
        for column, axis in enumerate(COLUMN_AXES):
            place = COLUMN_AXES[:column].count(axis)
            dense[token, column] = tables(dtype)[axis][indices[axis], place]
    return dense


@pytest.mark.parametrize("dtype", DTYPES)
def test_table_matches_dense_array(dtype: Any) -> None:
    table, want = make(dtype), by_definition(dtype)
    assert (table.shape, table.dtype, table.nbytes) == (want.shape, want.dtype, 20 * want.itemsize)
    np.testing.assert_array_equal(table.dense(), want, strict=True)
    np.testing.assert_array_equal(np.asarray(table), want, strict=True)
    np.testing.assert_array_equal(np.asarray(2 * table), 2 * want)
    for got, axis in zip(table.axes, tables(dtype), strict=True):
        np.testing.assert_array_equal(got, axis, strict=True)


@pytest.mark.parametrize(
    "index",
    [
        np.s_[3:17],
        np.s_[:, 2:6],
        np.s_[5:9, 1:],
        np.s_[5],
        np.s_[-1, 3],
        np.s_[::5],
        np.s_[20:2:-3, ::2],
        np.s_[..., None],
    ],
)
def test_indexing_matches_dense_array(index: Any) -> None:
    got, want = make()[index], by_definition()[index]
    assert np.shape(got) == np.shape(want)
    np.testing.assert_array_equal(np.asarray(got), want)


def test_slices_share_memory() -> None:
    table = make()
    part = table[3:17, 2:6]
    assert isinstance(part, attnbias.GridTable)
    assert np.shares_memory(part.numbers, table.numbers)
    np.testing.assert_array_equal(np.asarray(part[4:, 1:]), by_definition()[7:17, 3:6])
    shard = table.shard(1, 2, queries="contiguous")
    np.testing.assert_array_equal(np.asarray(shard), by_definition()[12:])


def test_pickle_round_trips() -> None:
    again = pickle.loads(pickle.dumps(make()[3:9]))
    np.testing.assert_array_equal(again.dense(), by_definition()[3:9])


@pytest.mark.parametrize("dtype", DTYPES)
def test_to_torch_equals_dense(dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    got = attnbias.to_torch(make(dtype))
    assert torch.equal(got.double(), torch.tensor(by_definition(dtype).astype(np.float64)))
    part = make(dtype).window(queries=(3, 17), keys=(1, 6)).to_torch(align=8)
    assert part.stride(0) == 8
    assert torch.equal(part, got[3:17, 1:6])


def test_to_jax_equals_dense() -> None:
    jax = pytest.importorskip("jax")
    np.testing.assert_array_equal(make().to_jax(), by_definition())
    doubled = jax.jit(lambda table: 2 * table.to_jax())(make())
    np.testing.assert_array_equal(doubled, 2 * by_definition())


def test_bias_operations_are_rejected() -> None:
    with pytest.raises(ValueError, match="queries: got a layout of a GridTable, want 'contiguous'"):
        make().shard(0, 2, queries="zigzag")
    pytest.importorskip("torch")
    for use in (make().as_attn_mask, make().score_mod):
        with pytest.raises(ValueError, match="tensor: got a table of positions, want numb"):
            use()


@pytest.mark.parametrize(
    ("lengths", "column_axes", "count"),
    [((2, 3), (0, 1), 6), ((2, 0), (0, 1), 2), ((2, 3), (0, 0), 4), ((2, 3), (0, 1, 2), 5)],
)
def test_mismatched_numbers_are_rejected(
    lengths: tuple[int, ...], column_axes: tuple[int, ...], count: int
) -> None:
    with pytest.raises(ValueError, match="numbers: got shape"):
        attnbias.GridTable(np.zeros(count), lengths=lengths, column_axes=column_axes)


def payload(*names: str, axes: tuple[int, ...] = COLUMN_AXES) -> Payload:
    return Payload(
        *(
            (f"{name}.axis{axis}", tensor_pb2.FORM_TABLE, table)
            for name in names
            for axis, table in enumerate(tables())
        ),
        column_axes=axes,
    )


def test_get_returns_grid_table(
    server: FakeServer, client: attnbias.Client, tmp_path: Path
) -> None:
    server.script = [payload("positions").serve]
    got = client.get(ENCODING, grid=LENGTHS, grid_offset=[0, -1, 5])
    assert isinstance(got, attnbias.GridTable)
    assert got.fingerprint == FINGERPRINT
    asked = server.requests[0].spec.table
    assert (list(asked.grid), list(asked.grid_offset)) == ([2, 3, 4], [0, -1, 5])
    np.testing.assert_array_equal(got.dense(), by_definition(), strict=True)
    attnbias.save(got, tmp_path / "structure.safetensors")
    client.save(tmp_path / "answer.safetensors", ENCODING, grid=LENGTHS, grid_offset=[0, -1, 5])
    for name in ("structure", "answer"):
        again: Any = attnbias.load(tmp_path / f"{name}.safetensors")
        assert isinstance(again, attnbias.GridTable)
        assert again.fingerprint == FINGERPRINT
        np.testing.assert_array_equal(again.dense(), by_definition(), strict=True)
    with pytest.raises(TypeError, match="bias: got a window of a GridTable"):
        attnbias.save(got.window(queries=(1, 4)), tmp_path / "window.safetensors")


def test_rotary_tables_are_grid_tables(
    server: FakeServer, client: attnbias.Client, tmp_path: Path
) -> None:
    axes = (0, 0, 1, 2, 2, 1, 0)
    rotary = attnbias.Rotary(
        head_dim=14, layout="compact", axes=[attnbias.Axis()] * 3, pair_axis=axes
    )
    server.script = [payload("cos", "sin").serve]
    got = client.get(rotary, grid=LENGTHS)
    client.save(tmp_path / "rotary.safetensors", rotary, grid=LENGTHS)
    for tables_of in (got, attnbias.load(tmp_path / "rotary.safetensors")):
        assert isinstance(tables_of, attnbias.RotaryTables)
        for table in tables_of:
            assert isinstance(table, attnbias.GridTable)
            np.testing.assert_array_equal(table.dense(), by_definition(), strict=True)


@pytest.mark.parametrize(
    "axes", [COLUMN_AXES[1:], (*COLUMN_AXES[1:], 1), (*COLUMN_AXES[1:], 3), (*COLUMN_AXES, 0)]
)
def test_mismatched_column_axes_are_data_loss(
    server: FakeServer, client: attnbias.Client, axes: tuple[int, ...]
) -> None:
    server.script = [payload("positions", axes=axes).serve]
    with pytest.raises(attnbias.DataLossError, match=r"column_axes: got columns that differ"):
        client.get(ENCODING, grid=LENGTHS)


def test_dense_grid_is_an_array(server: FakeServer, client: attnbias.Client) -> None:
    dense = Payload(("positions", tensor_pb2.FORM_DENSE, by_definition()))
    server.script = [dense.serve]
    got = client.get(ENCODING, grid=LENGTHS, form="dense")
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, by_definition(), strict=True)
