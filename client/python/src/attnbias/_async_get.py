# SPDX-License-Identifier: Apache-2.0
# Generated from _client.py by ./dev generate. Do not edit.
"""The client's ``get`` for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from attnbias._arrays.sharding import to_sharding
from attnbias._client import BaseClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jax
    import numpy.typing as npt
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement

    from attnbias._arrays.tables import RotaryTables, XposTables
    from attnbias._spec.fields import Compact, Encoding
    from attnbias._spec.options import RequestOptions
    from attnbias._spec.request import AnyCall, CompactCall, DenseCall, GridCall, JaxCall, MeshCall

Out = TypeVar("Out")


class AsyncGet(BaseClient):
    """Has ``get`` with the types of ``attnbias.Client.get``."""

    @overload
    async def get(self, encoding: Encoding[Compact], **options: Unpack[CompactCall]) -> Compact: ...
    @overload
    async def get(self, encoding: Encoding[Any], **options: Unpack[GridCall]) -> Any: ...
    @overload
    async def get(
        self, encoding: Encoding[Any], **options: Unpack[DenseCall]
    ) -> npt.NDArray[Any]: ...
    @overload
    async def get(
        self, encoding: Encoding[Compact], *, out: None = None, **options: Unpack[AnyCall]
    ) -> Compact | npt.NDArray[Any]: ...
    @overload
    async def get(
        self, encoding: Encoding[Any], *, out: Out, **options: Unpack[AnyCall]
    ) -> Out: ...
    @overload
    async def get(
        self, encoding: Encoding[RotaryTables] | Encoding[XposTables], **options: Unpack[MeshCall]
    ) -> Any: ...
    @overload
    async def get(self, encoding: Encoding[Any], **options: Unpack[MeshCall]) -> DTensor: ...
    @overload
    async def get(
        self, encoding: Encoding[RotaryTables] | Encoding[XposTables], **options: Unpack[JaxCall]
    ) -> Any: ...
    @overload
    async def get(self, encoding: Encoding[Any], **options: Unpack[JaxCall]) -> jax.Array: ...
    async def get(
        self,
        encoding: Encoding[Any],
        *,
        out: Any = None,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        sharding: jax.sharding.Sharding | None = None,
        progress: bool | None = None,
        timeout: float | None = None,
        **options: Unpack[RequestOptions],
    ) -> Any:
        """See ``attnbias.Client.get``."""
        shards = to_sharding(device_mesh, placements, sharding, out)
        return await self._get(encoding, out, progress, timeout, options, sharding=shards)
