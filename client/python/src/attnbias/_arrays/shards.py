# SPDX-License-Identifier: Apache-2.0
"""Which part of an axis each rank of a group holds: all that this package knows of it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing import SupportsIndex

Layout: TypeAlias = Literal["contiguous", "zigzag", "striped"]

_CHUNKS: Final = {"zigzag": 2, "striped": 1}
"""How many chunks of equal length each rank takes."""


def shard_indices(
    length: int, rank: int, world_size: int, layout: Layout = "contiguous"
) -> npt.NDArray[np.int64]:
    """The tokens that a rank holds, in its order, as ``position_ids`` and arrays' indices take.

    Args:
        length: tokens of the whole.
        rank: which of the group's ranks, in [0, world_size).
        world_size: ranks in the group.
        layout: "contiguous" is rank's chunk of ``torch.chunk``, as DTensor has it: the last ones
            may be shorter, or empty. "zigzag" cuts 2 world_size chunks, of which rank holds those
            numbered rank and 2 world_size - 1 - rank: the balanced layout of causal ring attention
            and of Megatron's context parallelism. "striped" gives it every world_size-th token,
            from rank on: that of striped attention.

    Raises:
        TypeError: a number is no integer.
        ValueError: rank is not in the group, there is no such layout, or the length does not
            divide: "zigzag" needs a multiple of 2 world_size, "striped" of world_size.
    """
    length = _integer(length, "length")
    if length < 0:
        raise ValueError(f"length: got {length}, want at least 0")
    return indices_of(length, rank, world_size, layout, ("length", "layout"))


def indices_of(
    length: int, rank: SupportsIndex, world_size: SupportsIndex, layout: Any, names: tuple[str, str]
) -> npt.NDArray[np.int64]:
    """``shard_indices``; errors of length and layout have these names."""
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
    """The bounds of a rank's chunk, as ``torch.chunk`` cuts them; it may be empty."""
    size = -(-length // world_size)
    return min(rank * size, length), min((rank + 1) * size, length)


def group_of(rank: SupportsIndex, world_size: SupportsIndex) -> tuple[int, int]:
    """A rank of a group and its size; refuses others."""
    rank, world_size = _integer(rank, "rank"), _integer(world_size, "world_size")
    if world_size < 1:
        raise ValueError(f"world_size: got {world_size}, want at least 1")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank: got {rank}, want one of [0, {world_size})")
    return rank, world_size


def _integer(value: SupportsIndex, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name}: got {value!r}, want an integer") from error
