# SPDX-License-Identifier: Apache-2.0
"""Tables over a grid, stored as one table per axis, and named tuples of tables."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np
import numpy.typing as npt

from attnbias._arrays.axes import Device, heads_of, inside
from attnbias._arrays.structure import Mod, Structure
from attnbias._checks import Span


class GridTable(Structure):
    """A table ``[tokens, columns]`` over a grid; each column depends on one axis.

    Tokens are row-major: in a grid with lengths (T, H, W), token (t, h, w) has the index ``(t * H +
    h) * W + w``. See ``Structure`` for common members; there, tokens are the queries and columns
    are the keys.

    Attributes:
        numbers: a flat array that holds the tables of the grid's axes one after another. Each table
            is ``[length, its columns]``, row-major.
        lengths: lengths of the grid's axes.
        column_axes: the axis of each column of the whole table.
        queries: the tokens (begin, end) that are its rows; all unless this is a window.
        keys: the columns (begin, end) of the whole table that it has; all unless this is a window.
        fingerprint: 64 hex digits that identify these bytes; "" for one of several tables.
        resolved_spec: the resolved request; None for one of several tables.
    """

    _leaves: ClassVar[tuple[str, ...]] = ("numbers",)
    _others: ClassVar[tuple[str, ...]] = ("lengths", "column_axes", "queries", "keys")

    def __init__(
        self,
        numbers: npt.NDArray[Any],
        *,
        lengths: Sequence[int],
        column_axes: Sequence[int],
        queries: Span | None = None,
        keys: Span | None = None,
    ) -> None:
        """Wraps ``numbers`` without copying.

        Raises:
            IndexError: queries are not tokens of the grid, or keys are not columns.
            ValueError: an axis is empty or has no columns, or ``numbers`` does not fit the tables
                of the axes.
        """
        self.lengths = tuple(map(operator.index, lengths))
        self.column_axes = tuple(map(operator.index, column_axes))
        counts = self._counts()
        wanted = sum(map(operator.mul, self.lengths, counts))
        is_whole = min((*self.lengths, *counts), default=0) > 0
        if not is_whole or sum(counts) != len(column_axes) or numbers.shape != (wanted,):
            raise ValueError(
                f"numbers: got shape {numbers.shape}, want ({wanted},): axes of "
                f"lengths {self.lengths} have {counts} of the {len(column_axes)} columns"
            )
        self.numbers = numbers
        self.queries = inside(queries, math.prod(self.lengths), "queries")
        self.keys = inside(keys, len(self.column_axes), "keys")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(end - begin for begin, end in (self.queries, self.keys))

    @property
    def axes(self) -> tuple[npt.NDArray[Any], ...]:
        """The tables of the axes, each ``[length, its columns]``, as views of ``numbers``."""
        return tuple(self._axes())

    def parts(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the tables of the axes, keyed by the contract's names."""
        return {f"positions.axis{axis}": table for axis, table in enumerate(self._axes())}

    def dense(self) -> npt.NDArray[Any]:
        """Returns the dense table as an ordinary array."""
        if not self.is_whole():
            return super().dense()
        columns = np.asarray(self.column_axes)
        dense = np.empty((*self.lengths, len(columns)), self.dtype)
        for axis, table in enumerate(self._axes()):
            beside = [1] * len(self.lengths)
            beside[axis] = -1
            dense[..., columns == axis] = np.asarray(table).reshape(*beside, table.shape[1])
        return dense.reshape(self.shape)

    def is_whole(self) -> bool:
        """Returns True unless this is a window."""
        return self.shape == (math.prod(self.lengths), len(self.column_axes))

    def _window(self, queries: tuple[int, int], keys: tuple[int, int], heads: Span | None) -> Self:
        return type(self)(
            heads_of(self.numbers, heads, has_heads=False),
            lengths=self.lengths,
            column_axes=self.column_axes,
            queries=(self.queries[0] + queries[0], self.queries[0] + queries[1]),
            keys=(self.keys[0] + keys[0], self.keys[0] + keys[1]),
        )

    def _counts(self) -> list[int]:
        return [self.column_axes.count(axis) for axis in range(len(self.lengths))]

    def _axes(self) -> Iterator[npt.NDArray[Any]]:
        begin = 0
        for length, count in zip(self.lengths, self._counts(), strict=True):
            yield self.numbers[begin : begin + length * count].reshape(length, count)
            begin += length * count

    def _require_addable(self) -> NoReturn:
        raise ValueError("tensor: got a table of positions, want numbers to add to scores")

    def _bias_on(self, device: Device) -> Mod:
        self._require_addable()

    def _of_indices(self, axis: str, indices: npt.NDArray[Any]) -> NoReturn:
        message = f"{axis}: got a layout of a GridTable, want 'contiguous', or indices of .dense()"
        raise ValueError(message)

    def _picture_axes(self) -> tuple[tuple[str, str], tuple[int, int]]:
        return ("token", "column"), (self.queries[0], self.keys[0])

    def _numbers(self) -> npt.NDArray[Any]:
        return self.numbers

    def _indices(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Returns the tokens, and for each column the offset of its values."""
        columns = np.asarray(self.column_axes)
        firsts, begin = np.empty_like(columns), 0
        for axis, (length, count) in enumerate(zip(self.lengths, self._counts(), strict=True)):
            firsts[columns == axis] = begin + np.arange(count)
            begin += length * count
        return np.arange(*self.queries), (columns * begin + firsts)[slice(*self.keys)]

    def _place(self, query: Any, key: Any, where: Any) -> Any:
        size = self.numbers.shape[0]
        axis, place = key // size, key % size
        stride = 1
        for number, count in reversed(list(enumerate(self._counts()))):
            row = query // stride % self.lengths[number]
            place = place + (axis == number) * (row * count)
            stride *= self.lengths[number]
        return place


class RotaryTables(NamedTuple):
    """Cosines and sines that rotate queries and keys, each ``[positions, columns]``.

    Over a grid, each is a ``GridTable``.
    """

    cos: npt.NDArray[Any]
    sin: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.nbytes for table in self)


class XposTables(NamedTuple):
    """Rotary tables with a decay: queries are multiplied by scale, keys divided by it."""

    cos: npt.NDArray[Any]
    sin: npt.NDArray[Any]
    scale: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.nbytes for table in self)


def to_tables(arrays: dict[str, Any]) -> RotaryTables | XposTables | None:
    """Returns the named tuple for tables with these names; None if no encoding has them."""
    for kind in (RotaryTables, XposTables):
        if kind._fields == tuple(arrays):
            return kind(**arrays)
    return None


def to_grid_tables(
    arrays: dict[str, npt.NDArray[Any]], column_axes: Sequence[int]
) -> GridTable | RotaryTables | XposTables | None:
    """Assembles tables over a grid from the parts "NAME.axis0", "NAME.axis1" and so on."""
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for name, array in arrays.items():
        parts.setdefault(name.rpartition(".axis")[0], []).append(array)
    tables = {
        name: GridTable(
            np.concatenate([axis.reshape(-1) for axis in axes]),
            lengths=[len(axis) for axis in axes],
            column_axes=column_axes,
        )
        for name, axes in parts.items()
    }
    return next(iter(tables.values())) if len(tables) == 1 else to_tables(tables)
