# SPDX-License-Identifier: Apache-2.0
"""Compact forms of a pairwise tensor ``dense[h, i, j]``: what they stand for, and their windows.

i and j count from the beginning of a tensor's own window of queries and keys.
Bucket indices, and vectors that all heads share, have no head axis; for them read
``[...]`` without the H below. Vectors have a last axis more, of their columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from attnbias._plot import Pictured
from attnbias._request import Span, bounds
from attnbias._torch import to_torch

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    ScoreMod = Callable[..., torch.Tensor]


class Toeplitz(Pictured):
    """A tensor whose value depends on ``j - i`` alone.

    ``dense[h, i, j] = diagonals[h, j - i + query_length - 1]``

    Attributes:
        diagonals: ``[H, query_length + key_length - 1]``.
        query_length: rows of the dense tensor.
        key_length: columns of the dense tensor.
        first_relative_position: key position minus query position of diagonal 0.
        vectors: whether the diagonals' last axis is the columns of vectors.
        fingerprint: 64 hex digits that name these bytes; "" for a window cut here.
    """

    def __init__(
        self,
        diagonals: npt.NDArray[Any],
        *,
        query_length: int,
        key_length: int,
        first_relative_position: int,
        vectors: bool = False,
        fingerprint: str = "",
    ) -> None:
        """Wraps diagonals, as of a loaded file; copies nothing.

        Raises:
            ValueError: the axis of diagonals, which is the last, or with vectors the
                last but one, does not have query_length + key_length - 1 elements.
        """
        wanted = query_length + key_length - 1
        axis = diagonals.ndim - 1 - vectors
        fits = axis in (0, 1) and diagonals.shape[axis] == wanted
        if query_length < 1 or key_length < 1 or not fits:
            message = (
                f"diagonals: got shape {diagonals.shape}, want {wanted} as the last axis"
                f"{' but one' if vectors else ''}, and at most heads before it, for "
                f"{query_length} queries and {key_length} keys, at least one of each"
            )
            raise ValueError(message)
        self.diagonals = diagonals
        self.query_length = query_length
        self.key_length = key_length
        self.first_relative_position = first_relative_position
        self.vectors = vectors
        self.fingerprint = fingerprint
        # Of what this is a window, for score_mod: its diagonals, and the place of the first of
        # these among them.
        self._whole = Shipped(diagonals)
        self._begin = 0

    def __repr__(self) -> str:
        return f"Toeplitz(shape={self.shape}, dtype={self.dtype}, {self.nbytes} bytes)"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dense tensor."""
        outer, columns = self._around(self.diagonals.shape)
        return (*outer, self.query_length, self.key_length, *columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.diagonals.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the diagonals."""
        return self.diagonals.nbytes

    def view(self) -> npt.NDArray[Any]:
        """The dense tensor ``[H, query_length, key_length]`` as a read-only view, not a copy."""
        base = self._diagonals(self.query_length - 1, None)
        outer, columns = self._around(self.diagonals.strides)
        step = self.diagonals.strides[len(outer)]
        return np.lib.stride_tricks.as_strided(
            base, self.shape, (*outer, -step, step, *columns), writeable=False
        )

    def dense(self) -> npt.NDArray[Any]:
        """The dense tensor ``[H, query_length, key_length]`` as an ordinary array."""
        return self.view().copy(order="C")

    def window(
        self, *, queries: Span | None = None, keys: Span | None = None, heads: Span | None = None
    ) -> Self:
        """A part of this tensor, over the same memory.

        Args:
            queries: rows, a length n or (begin, end), inside [0, query_length).
            keys: columns, likewise.
            heads: heads, likewise.

        Raises:
            IndexError: a window is empty or not inside the tensor.
        """
        first_query, last_query = _inside(queries, self.query_length, "queries")
        first_key, last_key = _inside(keys, self.key_length, "keys")
        begin = first_key - (last_query - 1) + self.query_length - 1
        end = last_key - first_query + self.query_length - 1
        diagonals = self._diagonals(begin, end)
        part = type(self)(
            _heads_of(diagonals, heads, self._has_heads()),
            query_length=last_query - first_query,
            key_length=last_key - first_key,
            first_relative_position=self.first_relative_position + begin,
            vectors=self.vectors,
        )
        part._whole = self._whole.heads(heads, self._has_heads())
        part._begin = self._begin + begin
        return part

    def to_torch(self, device: str | torch.device | None = None) -> torch.Tensor:
        """The dense tensor in torch; the diagonals are shipped, and expanded on the device."""
        diagonals = to_torch(self.diagonals, device)
        if self.vectors:
            return diagonals.unfold(-2, self.key_length, 1).flip(-3).movedim(-1, -2)
        return diagonals.unfold(-1, self.key_length, 1).flip(-2)

    def score_mod(self, device: str | torch.device | None = None) -> ScoreMod:
        """A ``score_mod`` for ``torch.nn.attention.flex_attention`` that adds this bias.

        Query and key 0 of the attention are query and key 0 of this tensor: cut
        its window first if need be. ``torch.compile`` compiles once for all windows
        of a tensor: each has the whole's diagonals, which are sent to a device
        once and stay there as long as the tensor, and its own place as a tensor.

        Args:
            device: where the attention runs.

        Raises:
            ValueError: the tensor has no head axis, or holds vectors, which are not
                added to scores but multiplied with queries or weights.
        """
        if self.vectors:
            message = f"vectors: got a tensor of shape {self.shape}, want one of numbers to add"
            raise ValueError(message)
        require_heads(self.diagonals, self._has_heads())
        return adding(looked_up(self, device))

    def _around(self, axes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What belongs to the axes before that of the diagonals, and after it."""
        at = len(axes) - 1 - self.vectors
        return axes[:at], axes[at + 1 :]

    def _diagonals(self, begin: int, end: int | None) -> npt.NDArray[Any]:
        cut = slice(begin, end)
        return self.diagonals[..., cut, :] if self.vectors else self.diagonals[..., cut]

    def _has_heads(self) -> bool:
        outer, _ = self._around(self.diagonals.shape)
        return len(outer) == 1


class KeyRow(Pictured):
    """A tensor that is the same for every query: ``dense[h, i, j] = row[h, j]``.

    Attributes:
        row: ``[H, key_length]``.
        query_length: rows of the dense tensor.
        fingerprint: 64 hex digits that name these bytes; "" for a window cut here.
    """

    def __init__(self, row: npt.NDArray[Any], *, query_length: int, fingerprint: str = "") -> None:
        """Wraps a row, as of a loaded file; copies nothing."""
        self.row = row
        self.query_length = query_length
        self.fingerprint = fingerprint
        # As in Toeplitz.
        self._whole = Shipped(row)
        self._begin = 0

    def __repr__(self) -> str:
        return f"KeyRow(shape={self.shape}, dtype={self.dtype}, {self.nbytes} bytes)"

    @property
    def key_length(self) -> int:
        """Columns of the dense tensor."""
        return int(self.row.shape[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dense tensor."""
        return (*self.row.shape[:-1], self.query_length, self.key_length)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.row.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the row."""
        return self.row.nbytes

    def view(self) -> npt.NDArray[Any]:
        """The dense tensor ``[H, query_length, key_length]`` as a read-only view, not a copy."""
        return np.broadcast_to(self.row[..., None, :], self.shape)

    def dense(self) -> npt.NDArray[Any]:
        """The dense tensor ``[H, query_length, key_length]`` as an ordinary array."""
        return self.view().copy(order="C")

    def window(
        self, *, queries: Span | None = None, keys: Span | None = None, heads: Span | None = None
    ) -> Self:
        """A part of this tensor, over the same memory; see ``Toeplitz.window``."""
        first_query, last_query = _inside(queries, self.query_length, "queries")
        first_key, last_key = _inside(keys, self.key_length, "keys")
        part = type(self)(
            _heads_of(self.row, heads, self._has_heads())[..., first_key:last_key],
            query_length=last_query - first_query,
        )
        part._whole = self._whole.heads(heads, self._has_heads())
        part._begin = self._begin + first_key
        return part

    def to_torch(self, device: str | torch.device | None = None) -> torch.Tensor:
        """The dense tensor in torch, expanded: every query shares the row's memory."""
        return to_torch(self.row, device)[..., None, :].expand(self.shape)

    def score_mod(self, device: str | torch.device | None = None) -> ScoreMod:
        """A ``score_mod`` for flex_attention that adds this bias; see ``Toeplitz.score_mod``."""
        require_heads(self.row, self._has_heads())
        row = self._whole.on(device)
        place = place_on(device, self._begin)
        return adding(lambda head, _, key: row[head, key + place])

    def _has_heads(self) -> bool:
        return self.row.ndim > 1


def _inside(span: Span | None, length: int, name: str) -> tuple[int, int]:
    begin, end = (0, length) if span is None else bounds(span, name)
    if not 0 <= begin < end <= length:
        message = f"{name}: got [{begin}, {end}), want a window that is not empty in [0, {length})"
        raise IndexError(message)
    return begin, end


def _heads_of(array: npt.NDArray[Any], heads: Span | None, has_heads: bool) -> npt.NDArray[Any]:
    if heads is None:
        return array
    require_heads(array, has_heads)
    begin, end = _inside(heads, array.shape[0], "heads")
    return array[begin:end]


class Shipped:
    """An array, and its tensors on the devices that it was sent to."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        self._tensors: dict[str, torch.Tensor] = {}

    def heads(self, heads: Span | None, has_heads: bool) -> Shipped:
        """That of some heads, itself where they are all."""
        part = _heads_of(self._array, heads, has_heads)
        return self if part.shape == self._array.shape else Shipped(part)

    def on(self, device: str | torch.device | None) -> torch.Tensor:
        name = str(device)
        if name not in self._tensors:
            self._tensors[name] = to_torch(self._array, device)
        return self._tensors[name]


def looked_up(tensor: Toeplitz, device: str | torch.device | None) -> Callable[..., torch.Tensor]:
    """``bias(head, query, key)`` of a tensor with heads; see ``Toeplitz.score_mod``."""
    diagonals = tensor._whole.on(device)
    place = place_on(device, tensor._begin + tensor.query_length - 1)
    return lambda head, query, key: diagonals[head, key - query + place]


def place_on(device: str | torch.device | None, index: int) -> torch.Tensor:
    """An index as a tensor without axes: torch.compile makes a program for each int it meets."""
    return to_torch(np.array(index), device)


def adding(bias: Callable[..., torch.Tensor]) -> ScoreMod:
    """A ``score_mod`` that adds ``bias(head, query, key)``."""

    def add_bias(
        score: torch.Tensor,
        batch: torch.Tensor,
        head: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
    ) -> torch.Tensor:
        del batch
        return score + bias(head, query, key)

    return add_bias


def require_heads(array: npt.NDArray[Any], has_heads: bool) -> None:
    """Refuses an array without a head axis with a ValueError."""
    if not has_heads:
        message = f"heads: got a tensor of shape {array.shape}, want one with a head axis"
        raise ValueError(message)
