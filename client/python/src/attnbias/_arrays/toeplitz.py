# SPDX-License-Identifier: Apache-2.0
"""Toeplitz and KeyRow, whose dense arrays are strided views of a few values.

i and j count from the beginning of a tensor's own window of queries and keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from attnbias import _plot
from attnbias._arrays.axes import BlockSize, Device, block_sizes, heads_of, padding, place_on
from attnbias._arrays.mask import Mask
from attnbias._arrays.structure import Mod, Structure
from attnbias._checks import Span, require_instance
from attnbias._plot import HeatMap

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask


class Toeplitz(Structure):
    """A tensor whose values depend only on ``j - i``; see ``Structure`` for common members.

    ``dense[h, i, j] = diagonals[h, j - i + query_length - 1]``

    Attributes:
        diagonals: ``[H, query_length + key_length - 1]``.
        query_length: rows of the dense tensor.
        key_length: columns of the dense tensor.
        first_relative_position: key position minus query position of diagonal 0.
        vectors: True if the last axis of the diagonals holds the columns of vectors.
        mask: the mask, already applied to the diagonals; None if none was requested.
    """

    _is_strided: ClassVar[bool] = True
    _leaves: ClassVar[tuple[str, ...]] = ("diagonals",)
    _others: ClassVar[tuple[str, ...]] = (
        "query_length",
        "key_length",
        "first_relative_position",
        "vectors",
        "mask",
    )

    def __init__(
        self,
        diagonals: npt.NDArray[Any],
        *,
        query_length: int,
        key_length: int,
        first_relative_position: int,
        vectors: bool = False,
        mask: Mask | None = None,
    ) -> None:
        """Wraps diagonals without copying.

        Raises:
            ValueError: the diagonals axis (the last or, with vectors, the second to last) does not
                have query_length + key_length - 1 elements.
        """
        wanted = query_length + key_length - 1
        axis = diagonals.ndim - 1 - vectors
        fits = axis in (0, 1) and diagonals.shape[axis] == wanted
        if query_length < 1 or key_length < 1 or not fits:
            raise ValueError(
                f"diagonals: got shape {diagonals.shape}, want {wanted} as the "
                f"{'second to ' if vectors else ''}last axis, optionally preceded by a heads axis, "
                f"for {query_length} queries and {key_length} keys (at least one of each)"
            )
        self.diagonals = diagonals
        self.query_length = query_length
        self.key_length = key_length
        self.first_relative_position = first_relative_position
        self.vectors = vectors
        require_instance(mask, (Mask, type(None)), "mask", "attnbias.Mask(...), or None")
        self.mask = mask

    @property
    def shape(self) -> tuple[int, ...]:
        outer, columns = self._around(self.diagonals.shape)
        return (*outer, self.query_length, self.key_length, *columns)

    def view(self) -> npt.NDArray[Any]:
        """Returns the dense tensor ``[H, query_length, key_length]`` as a read-only view."""
        diagonals = np.asarray(self.diagonals)
        base = self._cut(diagonals, self.query_length - 1, None)
        outer, columns = self._around(diagonals.strides)
        step = diagonals.strides[len(outer)]
        return np.lib.stride_tricks.as_strided(
            base, self.shape, (*outer, -step, step, *columns), writeable=False
        )

    def _window(self, queries: tuple[int, int], keys: tuple[int, int], heads: Span | None) -> Self:
        (first_query, last_query), (first_key, last_key) = queries, keys
        begin = first_key - (last_query - 1) + self.query_length - 1
        end = last_key - first_query + self.query_length - 1
        diagonals = self._cut(self.diagonals, begin, end)
        part = type(self)(
            heads_of(diagonals, heads, self._has_heads()),
            query_length=last_query - first_query,
            key_length=last_key - first_key,
            first_relative_position=self.first_relative_position + begin,
            vectors=self.vectors,
            mask=self.mask,
        )
        part._whole = self._device_copies().heads(heads, self._has_heads())
        part._begin = self._begin + begin
        return part

    def block_mask(self, device: Device = None, *, block_size: BlockSize = 128) -> BlockMask:
        """Returns the ``block_mask`` for flex_attention; see ``Structure.block_mask``."""
        if self.mask is None:
            return super().block_mask(device, block_size=block_size)
        import torch  # noqa: PLC0415
        from torch.nn.attention.flex_attention import BlockMask  # noqa: PLC0415

        sizes = block_sizes(block_size)

        def edges(length: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
            first = torch.arange(0, length, size, device=device)
            return first, first + size - 1

        lengths = (self.query_length, self.key_length)
        (first_query, last_query), (first_key, last_key) = map(edges, lengths, sizes)
        # Visible relative positions have no gaps, so the corners of a block determine the whole
        # block.
        first = self.first_relative_position + self.query_length - 1
        least = first_key - last_query.clamp(max=lengths[0] - 1)[:, None] + first
        greatest = last_key.clamp(max=lengths[1] - 1) - first_query[:, None] + first
        is_seen = self.mask.meets(least, greatest)
        is_whole = (last_query < lengths[0])[:, None] & (last_key < lengths[1])
        is_full = is_whole & self.mask.visible(least) & self.mask.visible(greatest)

        def ordered(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            indices = blocks.int().argsort(dim=-1, descending=True, stable=True)
            return blocks.sum(-1).int()[None, None], indices.int()[None, None]

        return BlockMask.from_kv_blocks(
            *ordered(is_seen & ~is_full),
            *ordered(is_full),
            BLOCK_SIZE=sizes,
            mask_mod=self.mask_mod(device),
            seq_lengths=lengths,
        )

    def _seen_on(self, device: Device) -> Mod:
        mask = self.mask
        assert mask is not None  # callers have checked
        first = place_on(device, self.first_relative_position + self.query_length - 1)
        return lambda query, key: mask.visible(key - query + first)

    def _bias_on(self, device: Device) -> Mod:
        diagonals = self._device_copies().on(device)
        place = place_on(device, self._begin + self.query_length - 1)
        return lambda head, query, key: diagonals[head, key - query + place]

    def _expanded(self, numbers: torch.Tensor, align: int) -> torch.Tensor:
        import torch  # noqa: PLC0415

        length = self.shape[-1]
        more = padding(length, align)
        numbers = torch.nn.functional.pad(numbers, (0, more))
        # Uses an index, since flip() would produce column-major memory if there are more keys than
        # queries.
        upwards = torch.arange(self.query_length - 1, -1, -1, device=numbers.device)
        if self.vectors:
            rows = numbers.unfold(-2, self.key_length, 1).movedim(-1, -2)[..., upwards, :, :]
        else:
            rows = numbers.unfold(-1, self.key_length + more, 1)[..., upwards, :]
        return rows[..., :length]

    def _with_hidden(self, numbers: torch.Tensor) -> torch.Tensor:
        import torch  # noqa: PLC0415

        if self.mask is None:
            return numbers
        relative = torch.arange(numbers.shape[-1], device=numbers.device)
        visible = self.mask.visible(relative + self.first_relative_position)
        return numbers.where(visible, -torch.inf)

    def _heat_maps(self, name: str) -> list[HeatMap]:
        if not self.vectors:
            return super()._heat_maps(name)
        labels = ("relative position, key - query", "column")
        first = (self.first_relative_position, 0)
        return [_plot.heat_map_of(self.diagonals, labels, first, name)]

    def _picture_axes(self) -> tuple[tuple[str, str], tuple[int, int]]:
        return _plot.POSITIONS, (1 - self.query_length - self.first_relative_position, 0)

    def _curve(self) -> _plot.Curve | None:
        if self.vectors:
            return None
        return self.diagonals, self.first_relative_position, "relative position, key - query"

    def _numbers(self) -> npt.NDArray[Any]:
        return self.diagonals

    def _place(self, query: Any, key: Any, where: Any) -> Any:
        return key - query + self.query_length - 1

    def _around(self, axes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Splits per-axis values into those before and those after the diagonals axis."""
        at = len(axes) - 1 - self.vectors
        return axes[:at], axes[at + 1 :]

    def _cut(self, diagonals: npt.NDArray[Any], begin: int, end: int | None) -> npt.NDArray[Any]:
        cut = slice(begin, end)
        return diagonals[..., cut, :] if self.vectors else diagonals[..., cut]


class KeyRow(Structure):
    """A tensor that is the same for every query: ``dense[h, i, j] = row[h, j]``.

    See ``Structure`` for common members.

    Attributes:
        row: ``[H, key_length]``.
        query_length: rows of the dense tensor.
    """

    _is_strided: ClassVar[bool] = True
    _leaves: ClassVar[tuple[str, ...]] = ("row",)
    _others: ClassVar[tuple[str, ...]] = ("query_length",)

    def __init__(self, row: npt.NDArray[Any], *, query_length: int) -> None:
        """Wraps a row without copying.

        Raises:
            ValueError: there are no queries or no keys, or the row does not have one or two axes.
        """
        if row.ndim not in (1, 2) or row.shape[-1] < 1 or query_length < 1:
            raise ValueError(
                f"row: got shape {row.shape} for {query_length} queries, want keys as the last "
                "axis, optionally preceded by a heads axis, and at least one query and one key"
            )
        self.row = row
        self.query_length = query_length

    @property
    def key_length(self) -> int:
        """Columns of the dense tensor."""
        return int(self.row.shape[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.row.shape[:-1], self.query_length, self.key_length)

    def view(self) -> npt.NDArray[Any]:
        """Returns the dense tensor ``[H, query_length, key_length]`` as a read-only view."""
        return np.broadcast_to(self.row[..., None, :], self.shape)

    def _window(self, queries: tuple[int, int], keys: tuple[int, int], heads: Span | None) -> Self:
        (first_query, last_query), (first_key, last_key) = queries, keys
        part = type(self)(
            heads_of(self.row, heads, self._has_heads())[..., first_key:last_key],
            query_length=last_query - first_query,
        )
        part._whole = self._device_copies().heads(heads, self._has_heads())
        part._begin = self._begin + first_key
        return part

    def _bias_on(self, device: Device) -> Mod:
        row = self._device_copies().on(device)
        place = place_on(device, self._begin)
        return lambda head, _, key: row[head, key + place]

    def _expanded(self, numbers: torch.Tensor, align: int) -> torch.Tensor:
        """Expands the row without copying it for each query."""
        from torch.nn.functional import pad  # noqa: PLC0415

        more = padding(self.key_length, align)
        rows = pad(numbers, (0, more))[..., None, :].expand(*self.shape[:-1], -1)
        return rows[..., : self.key_length]

    def _curve(self) -> _plot.Curve:
        return self.row, 0, "key position"

    def _numbers(self) -> npt.NDArray[Any]:
        return self.row

    def _place(self, query: Any, key: Any, where: Any) -> Any:
        return 0 * query + key
