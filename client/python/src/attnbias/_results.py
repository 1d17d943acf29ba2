# SPDX-License-Identifier: Apache-2.0
"""A payload as what a user holds: an array, a structure, or several by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from attnbias._errors import DataLossError
from attnbias._expected import axes_of, query_stride_of
from attnbias._grid import BlockToeplitz, BorderedToeplitz
from attnbias._grid_table import GridTable
from attnbias._mask import Mask
from attnbias._memory import part_of
from attnbias._tensors import KeyRow, Toeplitz

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from attnbias._info import TensorInfo, TensorPart
    from attnbias._request import Request
    from attnbias._sharded_request import Piece


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
    arrays: dict[str, npt.NDArray[Any]], column_axes: Sequence[int], **names: Any
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
            **(names if len(parts) == 1 else {}),
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
    if len(info.parts) == 2 and info.parts[1].name == "border":  # noqa: PLR2004
        return _to_bordered(info, arrays, request)
    names = [part.name for part in info.parts]
    parts = dict(zip(names, arrays, strict=True))
    tables: Any
    if info.column_axes:
        whole = {"fingerprint": info.fingerprint, "resolved_spec": info.resolved_spec}
        tables = to_grid_tables(parts, info.column_axes, **whole)
    elif len(info.parts) == 1:
        return _to_part(info, arrays[0], request)
    else:
        tables = to_tables(parts)
    if tables is None:
        raise DataLossError(f"header: parts {', '.join(names)} are not those of an encoding")
    return tables


def holds_vectors(part: TensorPart, request: Request | Piece) -> bool:
    """Whether the last axis of a part over pairs is the columns of vectors."""
    return request.encoding.has_vectors and part.dtype.kind != "i"


def _to_part(
    info: TensorInfo, array: npt.NDArray[Any], request: Request | Piece
) -> npt.NDArray[Any] | Toeplitz | KeyRow | BlockToeplitz:
    part = info.parts[0]
    names: Any = {"fingerprint": info.fingerprint, "resolved_spec": info.resolved_spec}
    try:
        if part.form == "key_row":
            return KeyRow(array, query_length=len(axes_of(info.resolved_spec)[0]), **names)
        if part.form == "block_toeplitz":
            return BlockToeplitz(array, query_stride=query_stride_of(info.resolved_spec), **names)
        if part.form == "toeplitz":
            query_length, key_length = map(len, axes_of(info.resolved_spec))
            return Toeplitz(
                array,
                query_length=query_length,
                key_length=key_length,
                first_relative_position=part.first_relative_position,
                vectors=holds_vectors(part, request),
                # Not the answer's spec, which has no mask that hides none of these pairs.
                mask=Mask.of(request.to_mask()),
                **names,
            )
    except ValueError as error:
        raise DataLossError(f"header: {error}") from error
    return array


def _to_bordered(
    info: TensorInfo, arrays: list[npt.NDArray[Any]], request: Request | Piece
) -> BlockToeplitz | BorderedToeplitz:
    inside, border = _to_part(info, arrays[0], request), arrays[1]
    names: Any = {"fingerprint": info.fingerprint, "resolved_spec": info.resolved_spec}
    try:
        if isinstance(inside, BlockToeplitz):
            strides = inside.query_stride
            return BlockToeplitz(inside.block, border=border, query_stride=strides, **names)
        if isinstance(inside, Toeplitz):
            queries, keys = axes_of(info.resolved_spec)
            return BorderedToeplitz(
                inside,
                border,
                class_query=_class_token(queries),
                class_key=_class_token(keys),
                **names,
            )
    except ValueError as error:
        raise DataLossError(f"header: {error}") from error
    raise DataLossError(f"header: a border beside form {info.parts[0].form}")


def _class_token(positions: Sequence[int]) -> int | None:
    """The index of the class token, whose position is 0."""
    return positions.index(0) if 0 in positions else None
