# SPDX-License-Identifier: Apache-2.0
"""Pictures show the dense tensor's values at the positions on the axes."""

import sys
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_structure import dense_of

import attnbias

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


def random(*shape: int) -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def toeplitz(heads: int = 3, queries: int = 5, keys: int = 7, first: int = -4) -> Any:
    return attnbias.Toeplitz(
        random(heads, queries + keys - 1),
        query_length=queries,
        key_length=keys,
        first_relative_position=first,
    )


WHOLE = [
    toeplitz(),
    attnbias.KeyRow(random(2, 6), query_length=4),
    attnbias.BlockToeplitz(random(2, 5, 7)),
    attnbias.BlockToeplitz(random(2, 5, 7), border=random(2, 3)),
    attnbias.BorderedToeplitz(toeplitz(), random(3, 3)),
    attnbias.BorderedToeplitz(toeplitz(), random(3, 3), class_query=None, class_key=2),
]
WINDOWS = [
    each.window(queries=queries, keys=keys)
    for each in WHOLE
    for queries, keys in (((1, 4), (2, 6)), ((0, 2), (3, 5)))  # without and with token 0
]
STRUCTURES = [*WHOLE, *WINDOWS]


def drawn(axis: Any) -> Any:
    (picture,) = axis.images
    return picture.get_array()


@pytest.mark.parametrize(
    "tensor", [*STRUCTURES, toeplitz().dense()], ids=lambda each: type(each).__name__
)
def test_heads_are_drawn_as_dense(tensor: Any) -> None:
    axes = attnbias.plot(tensor)
    dense = tensor if isinstance(tensor, np.ndarray) else dense_of(tensor)
    assert len(axes) == len(dense)
    for head, axis in enumerate(axes):
        assert axis.get_title() == f"head {head}"
        np.testing.assert_array_equal(drawn(axis), dense[head])
        assert axis.images[0].get_clim() == (dense.min(), dense.max())
        assert axis.patch.get_hatch() is None
    # Query 0 is at the top.
    assert axes[0].get_ylim()[0] > axes[0].get_ylim()[1]


def test_plot_method_matches_function() -> None:
    for tensor in STRUCTURES:
        axes = tensor.plot(heads=(1, 2))
        assert [axis.get_title() for axis in axes] == ["head 1"]
        np.testing.assert_array_equal(drawn(axes[0]), dense_of(tensor)[1])


def test_axes_show_positions() -> None:
    (axis,) = toeplitz(queries=5, keys=7, first=-14).plot(heads=1)  # queries 10 to 14
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("query position", "key position")
    assert axis.get_ylim() == (14.5, 9.5)
    assert axis.get_xlim() == (-0.5, 6.5)
    (axis,) = attnbias.BlockToeplitz(random(1, 5, 7)).plot()
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("query token", "key token")
    (axis,) = attnbias.BlockToeplitz(random(1, 5, 7)).window(queries=(3, 8), keys=(2, 6)).plot()
    assert axis.get_ylim() == (7.5, 2.5)
    assert axis.get_xlim() == (1.5, 5.5)


def test_ring_shard_axes_show_shard_indices() -> None:
    shard = toeplitz(queries=6, keys=8, first=-5).shard(1, 3, queries="striped")
    (axis,) = shard.plot(heads=1)
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("query of the shard", "key of the shard")
    np.testing.assert_array_equal(drawn(axis), shard.dense()[0])


def test_labels_appear_only_at_figure_edges() -> None:
    axes = toeplitz(heads=3).plot()  # two per row
    assert [bool(axis.get_ylabel()) for axis in axes] == [True, False, True]
    assert [bool(axis.get_xlabel()) for axis in axes] == [False, True, True]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("fill", ["-inf", "lowest", "a number"])
def test_masked_pairs_are_hatched_and_excluded_from_scale(dtype: Any, fill: str) -> None:
    lowest: Any = ml_dtypes.finfo(dtype).min  # type: ignore[no-untyped-call]
    filled = {"-inf": -np.inf, "lowest": lowest, "a number": -10000}[fill]
    diagonals = np.array([[-3, -2, -1, 0, 0, 0, 0]]).astype(dtype)
    diagonals[:, 4:] = filled
    tensor = attnbias.Toeplitz(diagonals, query_length=4, key_length=4, first_relative_position=-3)
    (axis,) = tensor.plot(fill_value=-10000 if fill == "a number" else None)
    np.testing.assert_array_equal(np.ma.getmaskarray(drawn(axis)), ~np.tri(4, dtype=bool))
    assert axis.images[0].get_clim() == (-3, 0)
    assert axis.patch.get_hatch()
    assert axis.figure.axes[-1].get_ylabel() == "hatched: masked"


def test_fully_masked_tensor_is_drawn() -> None:
    (axis,) = attnbias.plot(np.full((1, 3, 3), -np.inf, np.float32))
    assert drawn(axis).mask.all()
    axis.figure.canvas.draw()


def test_long_tensor_is_sampled_evenly() -> None:
    length = 1 << 20  # dense, it would have 2^40 elements
    diagonals = np.arange(2 * length - 1, dtype=np.float32)[None]
    tensor = attnbias.Toeplitz(
        diagonals, query_length=length, key_length=length, first_relative_position=1 - length
    )
    (axis,) = tensor.plot()
    picture = drawn(axis)
    assert max(picture.shape) <= 400
    step = -(-length // 400)
    i, j = np.indices(picture.shape) * step
    np.testing.assert_array_equal(picture, diagonals[0][j - i + length - 1])
    # A pixel is as wide as the positions it represents; the axis ends with the tensor.
    left, right, _, _ = axis.images[0].get_extent()
    assert (left, right) == (-0.5, picture.shape[1] * step - 0.5)
    assert axis.get_xlim() == (-0.5, length - 0.5)
    (line,) = tensor.plot(kind="curves")[0].lines
    assert np.size(line.get_xdata()) <= 4000


def test_plot_draws_sixteen_heads_unless_selected() -> None:
    many = toeplitz(heads=20)
    assert len(many.plot()) == 16
    assert [axis.get_title() for axis in many.plot(heads=(17, 19))] == ["head 17", "head 18"]
    assert len(many.plot(heads=20)) == 20
    with pytest.raises(IndexError, match=r"heads: got \[0, 21\), want a nonempty range in"):
        many.plot(heads=21)
    indices = np.arange(12, dtype=np.int32).reshape(3, 4)
    with pytest.raises(ValueError, match="heads: got a value, want none"):
        attnbias.plot(indices, heads=1)
    (axis,) = attnbias.plot(indices)
    assert (axis.get_title(), axis.get_ylabel()) == ("", "query position")
    np.testing.assert_array_equal(drawn(axis), indices)


def test_curves_show_diagonals_by_relative_position() -> None:
    tensor = toeplitz(heads=2)
    (axis,) = tensor.plot(kind="curves")
    assert axis.get_xlabel() == "relative position, key - query"
    for head, line in enumerate(axis.lines):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(-4, 7))
        np.testing.assert_array_equal(line.get_ydata(), tensor.diagonals[head])
        assert line.get_label() == f"head {head}"
    (bordered,) = attnbias.BorderedToeplitz(tensor, random(2, 3)).plot(kind="curves")
    np.testing.assert_array_equal(bordered.lines[1].get_ydata(), tensor.diagonals[1])


def test_key_row_curves_are_by_key_position() -> None:
    tensor = attnbias.KeyRow(random(2, 6), query_length=4)
    (axis,) = tensor.plot(kind="curves")
    assert axis.get_xlabel() == "key position"
    np.testing.assert_array_equal(axis.lines[1].get_ydata(), tensor.row[1])


def test_masked_parts_of_curves_are_hatched() -> None:
    tensor = toeplitz(heads=2)
    tensor.diagonals[:, 8:] = -np.inf
    (axis,) = tensor.plot(kind="curves")
    (hatched,) = axis.collections
    assert hatched.get_hatch()
    across = hatched.get_paths()[0].vertices[:, 0]
    assert (across.min(), across.max()) == (4, 6)
    assert axis.lines[0].get_ydata().mask.sum() == 3


@pytest.mark.parametrize("tensor", [random(4, 4), WHOLE[2], toeplitz().dense()])
def test_curves_require_relative_positions(tensor: Any) -> None:
    with pytest.raises(ValueError, match=r"kind: got 'curves' for \w+, want 'heads'"):
        attnbias.plot(tensor, kind="curves")


def test_table_axes_are_position_and_column() -> None:
    table = random(9, 4)
    (axis,) = attnbias.plot(table)
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("position", "column")
    np.testing.assert_array_equal(drawn(axis), table)
    parts: Any = namedtuple("parts", ["cos", "sin"])
    axes = attnbias.plot(parts(table, 2 * table))
    assert [axis.get_title() for axis in axes] == ["cos", "sin"]
    assert axes[0].images[0].get_clim() == (2 * table.min(), 2 * table.max())


def test_vector_axes_are_relative_position_and_column() -> None:
    vectors = random(11, 4)
    tensor = attnbias.Toeplitz(
        vectors, query_length=5, key_length=7, first_relative_position=-4, vectors=True
    )
    (axis,) = tensor.plot()
    assert axis.get_ylabel() == "relative position, key - query"
    assert axis.get_ylim() == (6.5, -4.5)
    np.testing.assert_array_equal(drawn(axis), vectors)
    (axis,) = tensor.window(keys=5).shard(0, 5, queries="striped").plot()
    np.testing.assert_array_equal(drawn(axis), vectors[:9])


def test_draws_into_the_callers_axes() -> None:
    figure, grid = plt.subplots(1, 2)
    axes = toeplitz().plot(heads=2, ax=grid)
    assert axes == list(grid)
    assert all(axis.get_xlabel() and axis.get_ylabel() for axis in axes)
    assert plt.get_fignums() == [figure.number]
    (axis,) = toeplitz().plot(kind="curves", ax=grid[0])
    assert axis is grid[0]
    with pytest.raises(ValueError, match="ax: got 2 axes, want 3, one for each plot"):
        toeplitz().plot(ax=grid)


@pytest.mark.parametrize("tensor", [random(2, 3, 4, 5), random(3), random(0, 3), "bias"])
def test_unsupported_arguments_are_rejected(tensor: Any) -> None:
    with pytest.raises(ValueError, match=r"tensor: got \w+ of shape"):
        attnbias.plot(tensor)
    with pytest.raises(ValueError, match="kind: got 'lines', want 'heads' or 'curves'"):
        attnbias.plot(random(2, 2), kind="lines")  # type: ignore[arg-type]


@pytest.mark.parametrize("tensor", STRUCTURES, ids=lambda each: type(each).__name__)
def test_booleans_are_drawn_as_zero_and_one(tensor: Any) -> None:
    for axes in (attnbias.plot(tensor > 0), attnbias.plot(dense_of(tensor) > 0)):
        np.testing.assert_array_equal(drawn(axes[0]), dense_of(tensor)[0] > 0)
        assert not np.ma.is_masked(drawn(axes[0]))


@pytest.mark.parametrize("kind", ["heads", "curves"])
def test_complex_tensors_are_rejected(kind: Any) -> None:
    tensor = 1j * toeplitz()
    with pytest.raises(ValueError, match="tensor: got elements of type complex64, want real"):
        attnbias.plot(tensor, kind=kind)
    assert plt.get_fignums() == []


def test_plot_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'attnbias\[plot\]'"):
        toeplitz().plot()
