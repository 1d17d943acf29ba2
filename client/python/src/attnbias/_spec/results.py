# SPDX-License-Identifier: Apache-2.0
"""A payload as what a user holds: an array, a structure, or several by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from attnbias._arrays.grid import BlockToeplitz, BorderedToeplitz
from attnbias._arrays.grid_table import GridTable
from attnbias._arrays.mask import Mask
from attnbias._arrays.structure import Structure
from attnbias._arrays.toeplitz import KeyRow, Toeplitz
from attnbias._errors import DataLossError
from attnbias._spec.expected import axes_of, query_stride_of
from attnbias._spec.memory import part_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from attnbias._spec.info import TensorInfo, TensorPart
    from attnbias._spec.request import Request
    from attnbias._spec.sharded_request import Piece


class RotaryTables(NamedTuple):
    """What rotary positions multiply queries and keys by, ``[positions, columns]`` each.

    Over a grid each is a ``GridTable``.
    """

    cos: npt.NDArray[Any]
    sin: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.nbytes for table in self)


class XposTables(NamedTuple):
    """The same with a decay: queries are multiplied by scale, keys divided by it."""

    cos: npt.NDArray[Any]
    sin: npt.NDArray[Any]
    scale: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.nbytes for table in self)


_TABLES: Final[dict[tuple[str, ...], type[RotaryTables | XposTables]]] = {
    kind._fields: kind for kind in (RotaryTables, XposTables)
}


def to_tables(arrays: dict[str, Any]) -> RotaryTables | XposTables | None:
    """Several tables by their names; None where no encoding has such."""
    kind = _TABLES.get(tuple(arrays))
    return None if kind is None else kind(**arrays)


def to_grid_tables(
    arrays: dict[str, npt.NDArray[Any]], column_axes: Sequence[int]
) -> GridTable | RotaryTables | XposTables | None:
    """The tables over a grid of the parts "NAME.axis0", "NAME.axis1" and so on."""
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


def to_result(info: TensorInfo, memory: npt.NDArray[np.uint8], request: Request | Piece) -> Any:
    """Gives each part its form; several become a named tuple."""
    arrays = [part_of(memory, info, index) for index in range(len(info.parts))]
    return _to_result(info, arrays, request)


def shape_of(info: TensorInfo, request: Request | Piece) -> tuple[int, ...]:
    """The shape of the dense tensor that a payload over pairs stands for."""
    arrays = [np.broadcast_to(np.zeros((), part.dtype), part.shape) for part in info.parts]
    shape: tuple[int, ...] = _to_result(info, arrays, request).shape
    return shape


def _to_result(info: TensorInfo, arrays: list[npt.NDArray[Any]], request: Request | Piece) -> Any:
    names = [part.name for part in info.parts]
    parts = dict(zip(names, arrays, strict=True))
    result: Any
    try:
        if info.column_axes:
            result = to_grid_tables(parts, info.column_axes)
        elif len(parts) == 1 or names[1:] == ["border"]:
            result = _to_part(info, arrays, request)
        else:
            result = to_tables(parts)
    except ValueError as error:
        raise DataLossError(f"header: {error}") from error
    if result is None:
        raise DataLossError(f"header: parts {', '.join(names)} are not those of an encoding")
    is_structure = isinstance(result, Structure)
    return result._named(info.fingerprint, info.resolved_spec) if is_structure else result


def holds_vectors(part: TensorPart, request: Request | Piece) -> bool:
    """Whether the last axis of a part over pairs is the columns of vectors."""
    return request.encoding.has_vectors and part.dtype.kind != "i"


def _to_part(
    info: TensorInfo, arrays: list[npt.NDArray[Any]], request: Request | Piece
) -> npt.NDArray[Any] | Structure:
    part, array = info.parts[0], arrays[0]
    border = arrays[1] if len(arrays) > 1 else None
    if part.form == "block_toeplitz":
        strides = query_stride_of(info.resolved_spec)
        return BlockToeplitz(array, border=border, query_stride=strides)
    if part.form == "toeplitz":
        queries, keys = axes_of(info.resolved_spec)
        toeplitz = Toeplitz(
            array,
            query_length=len(queries),
            key_length=len(keys),
            first_relative_position=part.first_relative_position,
            vectors=holds_vectors(part, request),
            # Not the answer's spec, which has no mask that hides none of these pairs.
            mask=Mask.of(request.to_mask()),
        )
        if border is None:
            return toeplitz
        class_tokens = {"class_query": _class_token(queries), "class_key": _class_token(keys)}
        return BorderedToeplitz(toeplitz, border, **class_tokens)
    if border is not None:
        raise DataLossError(f"header: a border beside form {part.form}")
    if part.form == "key_row":
        return KeyRow(array, query_length=len(axes_of(info.resolved_spec)[0]))
    return array


def _class_token(positions: Sequence[int]) -> int | None:
    """The index of the class token, whose position is 0."""
    return positions.index(0) if 0 in positions else None
