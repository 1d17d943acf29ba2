# SPDX-License-Identifier: Apache-2.0
"""One tensor of which a process fetches only what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from attnbias._generated import is_repeated
from attnbias._spec.results import holds_vectors, shape_of, to_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attnbias._arrays.sharding import Box, Numbers, Sharding
    from attnbias._spec.fields import Encoding
    from attnbias._spec.info import TensorInfo
    from attnbias._spec.request import Request
    from attnbias.v1 import encodings_pb2, tensor_pb2

_LISTS: Final = {"positions": "position_ids", "queries": "query_positions", "keys": "key_positions"}
"""In the contract, the lists that may stand in place of the range."""


@dataclass(frozen=True)
class Piece:
    """A part of what a request asks for, that is asked for by itself.

    Attributes:
        spans: by axis, the bounds in the whole of what is left of it; other axes are whole.
    """

    request: Request
    spans: Mapping[str, tuple[int, int]]

    @property
    def encoding(self) -> Encoding[Any]:
        """That of the request."""
        return self.request.encoding

    def brief(self) -> str:
        """The whole in one line, as it was said, and which part this is."""
        spans = (f"[{begin}, {end}) of its {axis}" for axis, (begin, end) in self.spans.items())
        return ", ".join([self.request.brief(), *spans])

    def to_mask(self) -> tensor_pb2.Mask:
        """The contract's message, which is the whole's."""
        return self.request.to_mask()

    def to_spec(self) -> encodings_pb2.TensorSpec:
        """The request's spec with windows and lists of this part.

        The whole keeps its lengths: alignment and masks, and some encodings, go by them.
        """
        spec = self.request.to_spec()
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
    """What a process asks for of a tensor that is sharded, and what it makes of the answers.

    Attributes:
        pieces: what it asks for, each once. A server cuts heads, queries, keys and positions; the
            columns of a table, or of vectors, are cut here.
    """

    def __init__(self, request: Request, info: TensorInfo, sharding: Sharding) -> None:
        """Plans it; ``info`` describes the whole.

        Raises:
            ValueError: such a tensor cannot be sharded so.
        """
        if info.resolved_spec.table.grid:
            raise ValueError(
                "grid: got one with a sharding, want position_ids; or shard() the GridTable"
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
        """The sharded tensor, or several by their names, of an answer to each piece."""
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
        """The names of the axes that a server cuts; columns follow them."""
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
    """The lists of positions along an axis; none where a range has them."""
    for field, value in extent.ListFields():
        if field.name == _LISTS.get(axis):
            yield from value if is_repeated(field) else [value]


def _shapes(info: TensorInfo, request: Request) -> dict[str, tuple[int, ...]]:
    """By name, the dense shapes of what a payload holds."""
    if all(part.form in ("table", "dense") for part in info.parts):
        return {part.name: part.shape for part in info.parts}
    return {"dense": shape_of(info, request)}
