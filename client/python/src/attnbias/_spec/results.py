# SPDX-License-Identifier: Apache-2.0
"""Converts payloads to results: an array, a structure, or several of these by name.

For a sharded tensor, a process requests only the pieces that it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from attnbias._arrays.grid import BlockToeplitz, BorderedToeplitz
from attnbias._arrays.mask import Mask
from attnbias._arrays.sharding import Box, Numbers, Sharding
from attnbias._arrays.structure import Structure
from attnbias._arrays.tables import to_grid_tables, to_tables
from attnbias._arrays.toeplitz import KeyRow, Toeplitz
from attnbias._errors import DataLossError
from attnbias._generated import is_repeated
from attnbias._spec.fields import LISTS
from attnbias._spec.info import TensorInfo, TensorPart, axes_of, part_of, query_stride_of
from attnbias._spec.request import Request
from attnbias.v1 import encodings_pb2


def to_result(info: TensorInfo, memory: npt.NDArray[np.uint8], request: Request) -> Any:
    """Returns the payload in the appropriate form: a named tuple if it has several parts."""
    arrays = [part_of(memory, info, index) for index in range(len(info.parts))]
    return _to_result(info, arrays, request)


def _to_result(info: TensorInfo, arrays: list[npt.NDArray[Any]], request: Request) -> Any:
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


def holds_vectors(part: TensorPart, request: Request) -> bool:
    """Reports whether the last axis of a part over pairs holds the columns of vectors."""
    return request.encoding.has_vectors and part.dtype.kind != "i"


def _to_part(
    info: TensorInfo, arrays: list[npt.NDArray[Any]], request: Request
) -> npt.NDArray[Any] | Structure:
    part, array = info.parts[0], arrays[0]
    border = arrays[1] if len(arrays) > 1 else None
    if part.form == "block_toeplitz":
        strides = query_stride_of(info.resolved_spec, array)
        return BlockToeplitz(array, border=border, query_stride=strides)
    if part.form == "toeplitz":
        queries, keys = axes_of(info.resolved_spec)
        toeplitz = Toeplitz(
            array,
            query_length=len(queries),
            key_length=len(keys),
            first_relative_position=part.first_relative_position,
            vectors=holds_vectors(part, request),
            # Not taken from the response's spec, which omits a mask that hides no pair here.
            mask=Mask.of(request.to_mask()),
        )
        if border is None:
            return toeplitz
        class_tokens = {"class_query": _class_token(queries), "class_key": _class_token(keys)}
        return BorderedToeplitz(toeplitz, border, **class_tokens)
    if border is not None:
        raise DataLossError(f"header: a border with form {part.form}")
    if part.form == "key_row":
        return KeyRow(array, query_length=len(axes_of(info.resolved_spec)[0]))
    return array


def _class_token(positions: Sequence[int]) -> int | None:
    """Returns the index of the class token, whose position is 0."""
    return positions.index(0) if 0 in positions else None


class Piece(Request):
    """A part of a request that is fetched separately.

    ``spans`` holds its bounds in the whole, keyed by axis; axes without an entry are complete.
    """

    spans: Mapping[str, tuple[int, int]]

    def __init__(self, request: Request, spans: Mapping[str, tuple[int, int]]) -> None:
        vars(self).update(vars(request), spans=spans)

    def brief(self) -> str:
        """Returns the whole request on one line, and the bounds of this part."""
        spans = (f"[{begin}, {end}) of its {axis}" for axis, (begin, end) in self.spans.items())
        return ", ".join([super().brief(), *spans])

    def to_spec(self) -> encodings_pb2.TensorSpec:
        """Returns the request's spec with the windows and lists for this part.

        The lengths of the whole are kept, since alignment, masks and some encodings depend on them.
        """
        spec = super().to_spec()
        extent = getattr(spec, self.encoding.extent)
        for axis, (begin, end) in self.spans.items():
            lists = list(_lists(extent, axis))
            for ids in lists:
                ids.positions[:] = ids.positions[begin:end]
                ids.doubles[:] = ids.doubles[begin:end]
            if not lists:
                window = getattr(extent, axis)
                window.begin, window.end = window.begin + begin, window.begin + end
        return spec


class ShardedRequest:
    """The pieces of a sharded tensor that a process fetches, and their assembly.

    Attributes:
        pieces: the pieces to request, without duplicates. The server slices heads, queries, keys
            and positions; the columns of a table or of vectors are sliced here.
    """

    def __init__(self, request: Request, info: TensorInfo, sharding: Sharding) -> None:
        """Plans the pieces; ``info`` describes the whole.

        Raises:
            ValueError: the tensor cannot be sharded this way.
        """
        if info.resolved_spec.table.grid:
            raise ValueError(
                "grid: got a grid with a sharding, want position_ids; or shard() the GridTable"
            )
        self._sharding = sharding
        self._request = request
        self._tensors = _shapes(info, request)
        self._dtypes = [part.dtype for part in info.parts]
        self._vectors = holds_vectors(info.parts[0], request)
        self._boxes = [sharding.boxes(shape) for shape in self._tensors.values()]
        pieces = {
            self._key(box): self._piece(box, shape)
            for boxes, shape in zip(self._boxes, self._tensors.values(), strict=True)
            for box in boxes
            if all(begin < end for begin, end in box)
        }
        self._keys, self.pieces = list(pieces), list(pieces.values())

    def assemble(self, answers: list[Any]) -> Any:
        """Returns the sharded tensor, or several by name, from the results for the pieces."""
        answer_of = dict(zip(self._keys, answers, strict=True))
        tensors = {}
        for index, (name, shape) in enumerate(self._tensors.items()):
            dtype = self._dtypes[index]
            held: dict[Box, Numbers] = {}
            for box in self._boxes[index]:
                if self._key(box) not in answer_of:
                    held[box] = np.empty([end - begin for begin, end in box], dtype)
                    continue
                answer = answer_of[self._key(box)]
                numbers = answer[index] if isinstance(answer, tuple) else answer
                columns = [slice(*span) for span in box[len(self._key(box)) :]]
                held[box] = numbers[(..., *columns)] if columns else numbers
            tensors[name] = self._sharding.assemble(shape, dtype, held)
        return to_tables(tensors) or next(iter(tensors.values()))

    def _axes(self, num_axes: int) -> list[str]:
        """Returns the names of the axes that a server can slice; columns follow them."""
        if self._request.encoding.extent == "table":
            return ["positions"]
        return ["heads", "queries", "keys"][3 - (num_axes - self._vectors) :]

    def _key(self, box: Box) -> Box:
        return box[: len(self._axes(len(box)))]

    def _piece(self, box: Box, shape: tuple[int, ...]) -> Piece:
        lengths = dict(zip(self._axes(len(shape)), shape, strict=False))
        spans = dict(zip(lengths, box, strict=False))
        cut = {axis: span for axis, span in spans.items() if span != (0, lengths[axis])}
        return Piece(self._request, cut)


def _lists(extent: Any, axis: str) -> Iterator[Any]:
    """Yields the lists of positions along an axis; none if a range describes them."""
    for field, value in extent.ListFields():
        if field.name == LISTS.get(axis):
            yield from value if is_repeated(field) else [value]


def _shapes(info: TensorInfo, request: Request) -> dict[str, tuple[int, ...]]:
    """Returns the dense shapes of a payload's tensors, by name."""
    if all(part.form in ("table", "dense") for part in info.parts):
        return {part.name: part.shape for part in info.parts}
    arrays = [np.broadcast_to(np.zeros((), part.dtype), part.shape) for part in info.parts]
    return {"dense": _to_result(info, arrays, request).shape}
