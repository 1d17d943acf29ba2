# SPDX-License-Identifier: Apache-2.0
"""Tensor axes: windows, heads, the shards of ranks, and device copies."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsIndex, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from attnbias._arrays.convert import to_torch
from attnbias._checks import Span, bounds

if TYPE_CHECKING:
    import torch

Device: TypeAlias = "str | torch.device | None"
BlockSize: TypeAlias = SupportsIndex | tuple[SupportsIndex, SupportsIndex]

Layout: TypeAlias = Literal["contiguous", "zigzag", "striped"]

_CHUNKS: Final = {"zigzag": 2, "striped": 1}
"""Number of equal-length chunks per rank."""


def shard_indices(
    length: int, rank: int, world_size: int, layout: Layout = "contiguous"
) -> npt.NDArray[np.int64]:
    """Returns the indices of a rank's tokens in the rank's order, also usable as ``position_ids``.

    Args:
        length: number of tokens in total.
        rank: rank in the group, in [0, world_size).
        world_size: number of ranks in the group.
        layout: "contiguous" is the rank's chunk from ``torch.chunk``, as in DTensor: the last
            chunks may be shorter, or empty. "zigzag" makes 2 world_size chunks, of which a rank
            holds chunks rank and 2 world_size - 1 - rank: the balanced layout of causal ring
            attention and of Megatron's context parallelism. "striped" is every world_size-th token,
            starting at token rank: the layout of striped attention.

    Raises:
        TypeError: length, rank or world_size is not an integer.
        ValueError: rank is not in the group, the layout is unknown, or the length is not a multiple
            of 2 world_size ("zigzag") or of world_size ("striped").
    """
    length = _integer(length, "length")
    if length < 0:
        raise ValueError(f"length: got {length}, want at least 0")
    return indices_of(length, rank, world_size, layout, ("length", "layout"))


def indices_of(
    length: int, rank: SupportsIndex, world_size: SupportsIndex, layout: Any, names: tuple[str, str]
) -> npt.NDArray[np.int64]:
    """Implements ``shard_indices``; errors refer to length and layout by ``names``."""
    rank, world_size = group_of(rank, world_size)
    if layout == "contiguous":
        return np.arange(*chunk(length, rank, world_size), dtype=np.int64)
    if not isinstance(layout, str) or layout not in _CHUNKS:
        wanted = ", ".join(map(repr, get_args(Layout)))
        raise ValueError(f"{names[1]}: got {layout!r}, want one of {wanted}")
    chunks = _CHUNKS[layout] * world_size
    if length % chunks:
        raise ValueError(
            f"{names[0]}: got {length}, want a multiple of {chunks} for {layout!r} over "
            f"{world_size} ranks"
        )
    tokens = np.arange(length, dtype=np.int64)
    if layout == "striped":
        return tokens[rank::world_size]
    return tokens.reshape(chunks, -1)[[rank, chunks - 1 - rank]].reshape(-1)


def chunk(length: int, rank: int, world_size: int) -> tuple[int, int]:
    """Returns the bounds of a rank's chunk, as in ``torch.chunk``; the chunk may be empty."""
    size = -(-length // world_size)
    return min(rank * size, length), min((rank + 1) * size, length)


def group_of(rank: SupportsIndex, world_size: SupportsIndex) -> tuple[int, int]:
    """Returns the rank and size of a group as ints; rejects a rank outside the group."""
    rank, world_size = _integer(rank, "rank"), _integer(world_size, "world_size")
    if world_size < 1:
        raise ValueError(f"world_size: got {world_size}, want at least 1")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank: got {rank}, want an integer in [0, {world_size})")
    return rank, world_size


def _integer(value: SupportsIndex, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name}: got {value!r}, want an integer") from error


class DeviceCopies:
    """An array and its device copies, as tensors."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array = array
        self._tensors: dict[str, torch.Tensor] = {}

    def heads(self, heads: Span | None, has_heads: bool) -> DeviceCopies:
        """Selects some heads; returns the same object if all heads are selected."""
        part = heads_of(self._array, heads, has_heads)
        return self if part.shape == self._array.shape else DeviceCopies(part)

    def on(self, device: str | torch.device | None) -> torch.Tensor:
        """Returns the tensor on a device; the first call for a device copies the array there."""
        name = str(device)
        if name not in self._tensors:
            self._tensors[name] = to_torch(self._array, device)
        return self._tensors[name]


def inside(span: Span | None, length: int, name: str) -> tuple[int, int]:
    """Returns the bounds of a nonempty window; raises IndexError naming ``name``."""
    begin, end = (0, length) if span is None else bounds(span, name)
    if not 0 <= begin < end <= length:
        message = f"{name}: got [{begin}, {end}), want a nonempty window in [0, {length})"
        raise IndexError(message)
    return begin, end


def joined(first: Any, second: Any) -> Any:
    """Concatenates two NumPy or JAX arrays along the last axis."""
    arrays = [first, second]
    are_numpys = all(isinstance(each, np.ndarray) for each in arrays)
    return (np if are_numpys else sys.modules["jax"].numpy).concatenate(arrays, axis=-1)


def heads_of(array: npt.NDArray[Any], heads: Span | None, has_heads: bool) -> npt.NDArray[Any]:
    if heads is None:
        return array
    require_heads(array.shape, has_heads)
    begin, end = inside(heads, array.shape[0], "heads")
    return array[begin:end]


def require_heads(shape: tuple[int, ...], has_heads: bool) -> None:
    if not has_heads:
        raise ValueError(f"heads: got a tensor of shape {shape}, want one with a head axis")


def place_on(device: str | torch.device | None, index: int) -> torch.Tensor:
    """Returns an index as a scalar tensor, since torch.compile would recompile for each int."""
    return to_torch(np.array(index), device)


def block_sizes(block_size: BlockSize) -> tuple[int, int]:
    """Returns the block sizes for queries and keys; rejects anything but positive integers."""
    pair = block_size if isinstance(block_size, tuple) else (block_size, block_size)
    try:
        queries, keys = map(operator.index, pair)
    except (TypeError, ValueError) as error:
        message = f"block_size: got {block_size!r}, want an integer or a tuple of two"
        raise TypeError(message) from error
    if min(queries, keys) < 1:
        raise ValueError(f"block_size: got {block_size}, want at least 1")
    return queries, keys


def padding(length: int, align: int) -> int:
    return -length % align
