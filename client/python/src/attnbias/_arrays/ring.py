# SPDX-License-Identifier: Apache-2.0
"""What a rank of ring attention holds of a structure where its tokens are no window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from attnbias._arrays.convert import to_torch
from attnbias._arrays.structure import LookedUp, Structure
from attnbias._checks import require_instance

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from attnbias._arrays.structure import Device, Mod
    from attnbias._checks import Span

Indices = npt.NDArray[np.integer[Any]]


class RingShard(LookedUp):
    """Some queries and keys of a structure, in the order of a rank of ring attention.

    ``dense[h, i, j] = whole[h, query_indices[i], key_indices[j]]``. ``Structure.shard`` makes it
    for the layouts "zigzag" and "striped". It holds what the whole holds, and copies nothing.
    See ``Structure`` for what all share.

    Attributes:
        whole: the structure it is a shard of.
        query_indices: which query of the whole each row is.
        key_indices: which key of the whole each column is.
    """

    _leaves: ClassVar[tuple[str, ...]] = ("whole", "query_indices", "key_indices")

    def __init__(
        self,
        whole: Structure,
        *,
        query_indices: npt.ArrayLike | None = None,
        key_indices: npt.ArrayLike | None = None,
    ) -> None:
        """Wraps a structure; copies nothing. Indices None are all.

        Of a RingShard it takes the whole, and the indices in it.

        Raises:
            IndexError: there are no indices, or some are not inside the structure.
            TypeError: whole is no structure, or indices are no integers.
        """
        require_instance(whole, Structure, "whole", "a Toeplitz or another structure")
        queries, keys = whole._indices()
        self.query_indices = queries[_inside(query_indices, len(queries), "query_indices")]
        self.key_indices = keys[_inside(key_indices, len(keys), "key_indices")]
        self.whole: Structure = whole.whole if isinstance(whole, RingShard) else whole
        self.mask = whole.mask
        self.vectors = whole.vectors

    @property
    def shape(self) -> tuple[int, ...]:
        before, after = self.whole._has_heads(), self.whole.ndim - self.vectors
        lengths = (len(self.query_indices), len(self.key_indices))
        return (*self.whole.shape[:before], *lengths, *self.whole.shape[after:])

    def parts(self) -> dict[str, npt.NDArray[Any]]:
        """Those of the whole."""
        return self.whole.parts()

    def _window(self, queries: tuple[int, int], keys: tuple[int, int], heads: Span | None) -> Self:
        return type(self)(
            self.whole if heads is None else self.whole.window(heads=heads),
            query_indices=self.query_indices[slice(*queries)],
            key_indices=self.key_indices[slice(*keys)],
        )

    # Shards of one structure share what was sent to a device: a ring's steps send indices.

    def _bias_on(self, device: Device) -> Mod:
        bias = self.whole._bias_on(device)
        queries, keys = (to_torch(indices, device) for indices in self._indices())
        return lambda head, query, key: bias(head, queries[query], keys[key])

    def _seen_on(self, device: Device) -> Mod:
        is_seen = self.whole._seen_on(device)
        queries, keys = (to_torch(indices, device) for indices in self._indices())
        return lambda query, key: is_seen(queries[query], keys[key])

    def _with_hidden(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.whole._with_hidden(numbers)

    def _mapped(self, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Self:
        return type(self)(**{**self._arguments(), "whole": self.whole._mapped(function)})

    def _numbers(self) -> npt.NDArray[Any]:
        return self.whole._numbers()

    def _indices(self) -> tuple[Indices, Indices]:
        return self.query_indices, self.key_indices

    def _place(self, query: Any, key: Any, where: Any) -> Any:
        return self.whole._place(query, key, where)

    def _of_indices(self, axis: str, indices: Indices) -> RingShard:
        queries, keys = self._indices()
        if axis == "queries":
            queries = queries[indices]
        else:
            keys = keys[indices]
        return type(self)(self.whole, query_indices=queries, key_indices=keys)


def _inside(given: npt.ArrayLike | None, length: int, name: str) -> Indices | slice:
    if given is None:
        return slice(None)
    indices = np.asarray(given)
    if indices.dtype.kind not in "iu" and indices.size > 0:
        raise TypeError(f"{name}: got an array of {indices.dtype}, want integers")
    fits = indices.ndim == 1 and len(indices) > 0
    if not fits or indices.min() < 0 or indices.max() >= length:
        raise IndexError(
            f"{name}: got an array of shape {indices.shape}, want one axis of at least one index "
            f"in [0, {length})"
        )
    return indices
