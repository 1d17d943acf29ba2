# SPDX-License-Identifier: Apache-2.0
"""Structures over grid tokens, and structures with a class token.

No strides can express their dense arrays, so each pair's value is looked up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from attnbias import _plot
from attnbias._arrays.axes import Device, heads_of, inside, joined, place_on
from attnbias._arrays.convert import to_torch
from attnbias._arrays.structure import Mod, Structure
from attnbias._arrays.toeplitz import Toeplitz
from attnbias._checks import Span


class BlockToeplitz(Structure):
    """A tensor over a grid's row-major tokens; a value depends only on the tokens' displacement.

    With token i in row ``r[i]`` and column ``c[i]``:
    ``dense[h, i, j] = block[h, r[j] - r[i] + height - 1, c[j] - c[i] + width - 1]``. A grid has one
    to three axes. With a border, token 0 is a class token and the grid's tokens follow it.
    See ``Structure`` for common members.

    Attributes:
        block: ``[H, 2 height - 1, 2 width - 1]``; every grid axis has an odd length.
        border: None, or ``[H, 3]``: the values for pairs in which only the query, only the key, or
            both are the class token.
        grid: sides of the grid, as (height, width).
        query_stride: stride of the queries on each axis: with stride n, every n-th token is a
            query.
        queries: the queries (begin, end) that are its rows; all unless this is a window.
        keys: the tokens (begin, end) that are its columns.
    """

    _leaves: ClassVar[tuple[str, ...]] = ("block", "border")
    _others: ClassVar[tuple[str, ...]] = ("query_stride", "queries", "keys")

    def __init__(
        self,
        block: npt.NDArray[Any],
        *,
        border: npt.NDArray[Any] | None = None,
        query_stride: Sequence[int] = (1, 1),
        queries: Span | None = None,
        keys: Span | None = None,
    ) -> None:
        """Wraps a block that has as many grid axes as there are strides, without copying.

        Raises:
            IndexError: queries or keys are outside the grid.
            ValueError: the block's axes have even lengths, the border does not fit the block, or a
                stride is not positive.
        """
        axes = len(query_stride)
        if min(query_stride, default=0) < 1:
            raise ValueError(f"query_stride: got {query_stride}, want positive integers")
        sides = block.shape[-axes:]
        if block.ndim not in (axes, axes + 1) or not all(side % 2 for side in sides):
            raise ValueError(
                f"block: got shape {block.shape}, want {axes} odd lengths at the end, one "
                "per element of query_stride, optionally preceded by a heads axis"
            )
        _check_border(border, block.shape[:-axes])
        self.block = block
        self.border = border
        self.grid = tuple((side + 1) // 2 for side in sides)
        self.query_stride = tuple(query_stride)
        (_, all_queries), (_, all_keys) = self._all()
        self.queries = inside(queries, all_queries, "queries")
        self.keys = inside(keys, all_keys, "keys")

    @property
    def shape(self) -> tuple[int, ...]:
        rows, columns = (end - begin for begin, end in (self.queries, self.keys))
        return (*self._outer(), rows, columns)

    def is_whole(self) -> bool:
        """Returns True unless this is a window."""
        return (self.queries, self.keys) == self._all()

    def grid_view(self) -> npt.NDArray[Any]:
        """Returns the tensor as a read-only view ``[H, height, width, height, width]``.

        The axes after H are the query's row and column, then the key's. The view covers the whole
        grid, without the class token.
        """
        middle: tuple[Any, ...] = (..., *(slice(side - 1, None) for side in self.grid))
        base = np.asarray(self.block)[middle]
        outer = len(self._outer())
        steps = base.strides[outer:]
        backward = (-step * each for step, each in zip(steps, self.query_stride, strict=True))
        return np.lib.stride_tricks.as_strided(
            base,
            (*self._outer(), *map(len, self._queried()), *self.grid),
            (*base.strides[:outer], *backward, *steps),
            writeable=False,
        )

    def _window(self, queries: tuple[int, int], keys: tuple[int, int], heads: Span | None) -> Self:
        border = self.border
        part = type(self)(
            heads_of(self.block, heads, self._has_heads()),
            border=None if border is None else heads_of(border, heads, self._has_heads()),
            query_stride=self.query_stride,
            queries=(self.queries[0] + queries[0], self.queries[0] + queries[1]),
            keys=(self.keys[0] + keys[0], self.keys[0] + keys[1]),
        )
        part._whole = self._device_copies().heads(heads, self._has_heads())
        return part

    def _bias_on(self, device: Device) -> Mod:
        import torch  # noqa: PLC0415

        numbers = self._device_copies().on(device)
        first_query, first_key = (place_on(device, span[0]) for span in (self.queries, self.keys))

        def bias(head: Any, query: Any, key: Any) -> Any:
            place = self._place_of_tokens(query + first_query, key + first_key, torch.where)
            return numbers[head, place]

        return bias

    def _picture_axes(self) -> tuple[tuple[str, str], tuple[int, int]]:
        return _plot.TOKENS, (self.queries[0], self.keys[0])

    def _numbers(self) -> npt.NDArray[Any]:
        flat = self.block.reshape(*self._outer(), -1)
        return flat if self.border is None else joined(flat, self.border)

    def _place(self, query: Any, key: Any, where: Any) -> Any:
        return self._place_of_tokens(query + self.queries[0], key + self.keys[0], where)

    def _place_of_tokens(self, query: Any, key: Any, where: Any) -> Any:
        first = int(self.border is not None)
        i, j = query - first, key - first
        place, step = 0, 1
        for side, queried in reversed(list(zip(self.grid, self._queried(), strict=True))):
            place = place + (j % side - i % len(queried) * queried.step + side - 1) * step
            i, j, step = i // len(queried), j // side, step * (2 * side - 1)
        if self.border is None:
            return place
        return _with_border(place, step, query == 0, key == 0, where)

    def _all(self) -> tuple[tuple[int, int], tuple[int, int]]:
        first = int(self.border is not None)
        queries, keys = math.prod(map(len, self._queried())), math.prod(self.grid)
        return (0, first + queries), (0, first + keys)

    def _queried(self) -> list[range]:
        strides = zip(self.grid, self.query_stride, strict=True)
        return [range(0, side, stride) for side, stride in strides]

    def _outer(self) -> tuple[int, ...]:
        return self.block.shape[: -len(self.grid)]


class BorderedToeplitz(Structure):
    """A Toeplitz over positions in which position 0 is a class token with its own values.

    See ``Structure`` for common members.

    Attributes:
        toeplitz: the tensor as if it had no class token.
        border: ``[H, 3]``: the values for pairs in which only the query, only the key, or both are
            the class token.
        class_query: the query that is the class token; None if it is outside the window.
        class_key: the key that is the class token; None if it is outside the window.
    """

    _leaves: ClassVar[tuple[str, ...]] = ("toeplitz", "border")
    _others: ClassVar[tuple[str, ...]] = ("class_query", "class_key")

    def __init__(
        self,
        toeplitz: Toeplitz,
        border: npt.NDArray[Any],
        *,
        class_query: int | None = 0,
        class_key: int | None = 0,
    ) -> None:
        """Wraps a Toeplitz and its border without copying.

        Raises:
            ValueError: the border does not fit the diagonals, class_query or class_key is out of
                range, or the diagonals hold vectors.
        """
        if toeplitz.vectors:
            raise ValueError("toeplitz: got a Toeplitz of vectors, want a Toeplitz of numbers")
        _check_border(border, toeplitz.diagonals.shape[:-1])
        lengths = (toeplitz.query_length, toeplitz.key_length)
        for name, index, length in zip(
            ("class_query", "class_key"), (class_query, class_key), lengths, strict=True
        ):
            if index is not None and not 0 <= index < length:
                raise ValueError(f"{name}: got {index}, want None or an integer in [0, {length})")
        self.toeplitz = toeplitz
        self.border = border
        self.class_query = class_query
        self.class_key = class_key

    @property
    def shape(self) -> tuple[int, ...]:
        return self.toeplitz.shape

    def parts(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the diagonals and the border, keyed by name."""
        return {**self.toeplitz.parts(), "border": self.border}

    def _window(self, queries: tuple[int, int], keys: tuple[int, int], heads: Span | None) -> Self:
        return type(self)(
            self.toeplitz.window(queries=queries, keys=keys, heads=heads),
            heads_of(self.border, heads, self._has_heads()),
            class_query=_moved(self.class_query, queries),
            class_key=_moved(self.class_key, keys),
        )

    def _bias_on(self, device: Device) -> Mod:
        inner = self.toeplitz._bias_on(device)
        border = to_torch(self.border, device)
        class_query, class_key = (place_on(device, index) for index in self._class_token())

        def bias(head: Any, query: Any, key: Any) -> Any:
            is_query, is_key = query == class_query, key == class_key
            outside = border[head, _border_place(is_query, is_key)]
            return outside.where(is_query | is_key, inner(head, query, key))

        return bias

    def _picture_axes(self) -> tuple[tuple[str, str], tuple[int, int]]:
        return self.toeplitz._picture_axes()

    def _curve(self) -> _plot.Curve | None:
        return self.toeplitz._curve()

    def _numbers(self) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = joined(self.toeplitz.diagonals, self.border)
        return numbers

    def _place(self, query: Any, key: Any, where: Any) -> Any:
        class_query, class_key = self._class_token()
        place = self.toeplitz._place(query, key, where)
        is_query, is_key = query == class_query, key == class_key
        return _with_border(place, self.toeplitz.diagonals.shape[-1], is_query, is_key, where)

    def _class_token(self) -> tuple[int, int]:
        """Returns the class token's query and key; -1 for one that is outside."""
        query, key = self.class_query, self.class_key
        return -1 if query is None else query, -1 if key is None else key


def _check_border(border: npt.NDArray[Any] | None, heads: tuple[int, ...]) -> None:
    if border is not None and border.shape != (*heads, 3):
        raise ValueError(f"border: got shape {border.shape}, want {(*heads, 3)}")


def _with_border(place: Any, first: int, is_query: Any, is_key: Any, where: Any) -> Any:
    """Returns the index of a pair's value; the border's three values start at index ``first``."""
    return where(is_query | is_key, first + _border_place(is_query, is_key), place)


def _border_place(is_query: Any, is_key: Any) -> Any:
    """Returns 0 if only the query is the class token, 1 if only the key is, 2 if both are."""
    return is_key * (1 + is_query * 1)


def _moved(index: int | None, window: tuple[int, int]) -> int | None:
    """Returns an index relative to a window; None if it is outside."""
    begin, end = window
    return None if index is None or not begin <= index < end else index - begin
