# SPDX-License-Identifier: Apache-2.0
"""What a user holds of tokens in a grid, and of a class token before a structure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from attnbias._plot import Pictured
from attnbias._tensors import adding, looked_up, place_on, require_heads
from attnbias._torch import to_torch

if TYPE_CHECKING:
    import torch

    from attnbias._request import Span
    from attnbias._tensors import ScoreMod, Toeplitz

# Places in a border's last axis.
_TO_KEYS, _FROM_QUERIES, _TO_ITSELF = range(3)


class BlockToeplitz(Pictured):
    """A tensor over tokens of a grid, row-major, that depends on their displacement alone.

    With token i in row ``r[i]`` and column ``c[i]``:
    ``dense[h, i, j] = block[h, r[j] - r[i] + height - 1, c[j] - c[i] + width - 1]``.
    With a border, token 0 is a class token and the grid's tokens follow it.

    Attributes:
        block: ``[H, 2 height - 1, 2 width - 1]``.
        border: None, or ``[H, 3]``: what the class token gives every other
            token, what it gets from every other, and what it gives itself.
        height: rows of the grid.
        width: columns of the grid.
        fingerprint: 64 hex digits that name these bytes.
    """

    def __init__(
        self,
        block: npt.NDArray[Any],
        *,
        border: npt.NDArray[Any] | None = None,
        fingerprint: str = "",
    ) -> None:
        """Wraps a block, as of a loaded file; copies nothing.

        Raises:
            ValueError: the block's last two axes are not odd, or the border does not fit it.
        """
        sides = block.shape[-2:]
        if len(sides) != 2 or not all(side % 2 for side in sides):  # noqa: PLR2004
            message = f"block: got shape {block.shape}, want two odd lengths at its end"
            raise ValueError(message)
        _check_border(border, block.shape[:-2])
        self.block = block
        self.border = border
        self.height, self.width = ((side + 1) // 2 for side in sides)
        self.fingerprint = fingerprint

    def __repr__(self) -> str:
        return f"BlockToeplitz(shape={self.shape}, dtype={self.dtype}, {self.nbytes} bytes)"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dense tensor."""
        tokens = self.height * self.width + (self.border is not None)
        return (*self.block.shape[:-2], tokens, tokens)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.block.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of block and border."""
        return self.block.nbytes + (0 if self.border is None else self.border.nbytes)

    def view(self) -> npt.NDArray[Any]:
        """The grid's tokens as ``[H, height, width, height, width]``, read-only, not a copy.

        Queries by row and column, then keys; without the class token.
        """
        base = self.block[..., self.height - 1 :, self.width - 1 :]
        *outer, row, column = self.block.strides
        grid = (self.height, self.width)
        return np.lib.stride_tricks.as_strided(
            base,
            (*self.block.shape[:-2], *grid, *grid),
            (*outer, -row, -column, row, column),
            writeable=False,
        )

    def dense(self) -> npt.NDArray[Any]:
        """The dense tensor ``[H, tokens, tokens]`` as an ordinary array."""
        dense = np.empty(self.shape, self.dtype)
        first = 0 if self.border is None else 1
        view = self.view()
        # Taking axes apart copies nothing.
        dense[..., first:, first:].reshape(view.shape)[...] = view
        if self.border is not None:
            _overlay(dense, self.border, 0, 0)
        return dense

    def to_torch(self, device: str | torch.device | None = None) -> torch.Tensor:
        """The dense tensor in torch; the block is shipped, and expanded on the device."""
        block = to_torch(self.block, device)
        windows = block.unfold(-2, self.height, 1).unfold(-2, self.width, 1).flip(-4, -3)
        tokens = self.height * self.width
        grid = windows.reshape(*windows.shape[:-4], tokens, tokens)
        if self.border is None:
            return grid
        dense = grid.new_empty(self.shape)
        dense[..., 1:, 1:] = grid
        _overlay(dense, to_torch(self.border, device), 0, 0)
        return dense

    def score_mod(self, device: str | torch.device | None = None) -> ScoreMod:
        """A ``score_mod`` for ``torch.nn.attention.flex_attention`` that adds this bias.

        Args:
            device: where the attention runs.

        Raises:
            ValueError: the tensor has no head axis.
        """
        require_heads(self.block, len(self.block.shape[:-2]) == 1)
        block = to_torch(self.block, device)
        height, width = self.height, self.width
        if self.border is None:

            def grid_bias(head: Any, query: Any, key: Any) -> Any:
                rows = key // width - query // width + height - 1
                return block[head, rows, key % width - query % width + width - 1]

            return adding(grid_bias)

        border = to_torch(self.border, device)

        def bordered_bias(head: Any, query: Any, key: Any) -> Any:
            i = (query - 1).clamp(min=0)
            j = (key - 1).clamp(min=0)
            rows = j // width - i // width + height - 1
            inside = block[head, rows, j % width - i % width + width - 1]
            return _with_border(inside, border[head], query == 0, key == 0)

        return adding(bordered_bias)


class BorderedToeplitz(Pictured):
    """A Toeplitz over positions of which 0 is a class token with numbers of its own.

    Attributes:
        toeplitz: the tensor as it were without a class token.
        border: ``[H, 3]``: what the class token gives every other key, what every
            other query gives it, and what it gives itself.
        class_query: the query that is the class token; None where it is outside.
        class_key: the key that is the class token; None where it is outside.
        fingerprint: 64 hex digits that name these bytes; "" for a window cut here.
    """

    def __init__(
        self,
        toeplitz: Toeplitz,
        border: npt.NDArray[Any],
        *,
        class_query: int | None = 0,
        class_key: int | None = 0,
    ) -> None:
        """Wraps a Toeplitz and its border; copies nothing.

        Raises:
            ValueError: the border does not fit the diagonals.
        """
        _check_border(border, toeplitz.diagonals.shape[:-1])
        self.toeplitz = toeplitz
        self.border = border
        self.class_query = class_query
        self.class_key = class_key
        self.fingerprint = toeplitz.fingerprint

    def __repr__(self) -> str:
        return f"BorderedToeplitz(shape={self.shape}, dtype={self.dtype}, {self.nbytes} bytes)"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dense tensor."""
        return self.toeplitz.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.toeplitz.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of diagonals and border."""
        return self.toeplitz.nbytes + self.border.nbytes

    def dense(self) -> npt.NDArray[Any]:
        """The dense tensor ``[H, query_length, key_length]`` as an ordinary array."""
        dense = self.toeplitz.dense()
        _overlay(dense, self.border, self.class_query, self.class_key)
        return dense

    def window(
        self, *, queries: Span | None = None, keys: Span | None = None, heads: Span | None = None
    ) -> Self:
        """A part of this tensor, over the same memory; see ``Toeplitz.window``."""
        part = self.toeplitz.window(queries=queries, keys=keys, heads=heads)
        border = self.border
        if heads is not None:
            border = border[slice(*heads) if isinstance(heads, tuple) else slice(heads)]
        return type(self)(
            part,
            border,
            class_query=_moved(self.class_query, queries, part.query_length),
            class_key=_moved(self.class_key, keys, part.key_length),
        )

    def to_torch(self, device: str | torch.device | None = None) -> torch.Tensor:
        """The dense tensor in torch; the diagonals are shipped, and expanded on the device."""
        dense = self.toeplitz.to_torch(device)
        _overlay(dense, to_torch(self.border, device), self.class_query, self.class_key)
        return dense

    def score_mod(self, device: str | torch.device | None = None) -> ScoreMod:
        """A ``score_mod`` for flex_attention that adds this bias; see ``Toeplitz.score_mod``."""
        require_heads(self.toeplitz.diagonals, len(self.toeplitz.diagonals.shape[:-1]) == 1)
        inside = looked_up(self.toeplitz, device)
        border = to_torch(self.border, device)
        # No index is -1.
        class_query = place_on(device, -1 if self.class_query is None else self.class_query)
        class_key = place_on(device, -1 if self.class_key is None else self.class_key)

        def bias(head: Any, query: Any, key: Any) -> Any:
            is_query, is_key = query == class_query, key == class_key
            return _with_border(inside(head, query, key), border[head], is_query, is_key)

        return adding(bias)


def _check_border(border: npt.NDArray[Any] | None, heads: tuple[int, ...]) -> None:
    if border is not None and border.shape != (*heads, 3):
        message = f"border: got shape {border.shape}, want {(*heads, 3)}"
        raise ValueError(message)


def _overlay(dense: Any, border: Any, class_query: int | None, class_key: int | None) -> None:
    """Writes a border's numbers over an array or a tensor."""
    if class_query is not None:
        dense[..., class_query, :] = border[..., _TO_KEYS, None]
    if class_key is not None:
        dense[..., class_key] = border[..., _FROM_QUERIES, None]
    if class_query is not None and class_key is not None:
        dense[..., class_query, class_key] = border[..., _TO_ITSELF]


def _with_border(inside: Any, border: Any, is_query: Any, is_key: Any) -> Any:
    outside = border[..., _FROM_QUERIES].where(is_key, border[..., _TO_KEYS])
    outside = border[..., _TO_ITSELF].where(is_query & is_key, outside)
    return outside.where(is_query | is_key, inside)


def _moved(index: int | None, span: Span | None, length: int) -> int | None:
    """An index as seen from a window that begins with ``span``; None outside it."""
    if index is None:
        return None
    begin = span[0].__index__() if isinstance(span, tuple) else 0
    return index - begin if 0 <= index - begin < length else None
