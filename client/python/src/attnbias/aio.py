# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: that of ``attnbias``, whose methods are awaited.

async with attnbias.aio.Client("localhost:50051") as client:
    table = await client.get(attnbias.Sinusoidal(dim=512), positions=131072)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from attnbias._async_connection import AsyncConnection
from attnbias._client import CALLS_IN_FLIGHT, BaseClient
from attnbias._sharding import to_sharding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import jax
    import numpy.typing as npt
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement

    from attnbias._calls import Calls
    from attnbias._fields import Compact, Encoding
    from attnbias._options import RequestOptions
    from attnbias._request import (
        AnyCall,
        CompactCall,
        DenseCall,
        GridCall,
        JaxCall,
        MeshCall,
        Request,
    )
    from attnbias._results import RotaryTables, XposTables

__all__ = ["Client"]

Out = TypeVar("Out")


class Client(BaseClient):
    """``attnbias.Client`` for asyncio: the same arguments, answers and errors.

    Calls of many tasks go over one connection. A task that is cancelled ends its call. In another
    event loop the client opens another connection.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; calls in flight end with CancelledError."""
        await self._connection.close()

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

    async def get_many(
        self, requests: Iterable[Request], *, timeout: float | None = None
    ) -> list[Any]:
        """See ``attnbias.Client.get_many``."""
        options = self._options(None, False, timeout)
        slots = asyncio.Semaphore(CALLS_IN_FLIGHT)

        async def fetch(request: Request) -> Any:
            async with slots:
                return await self._fetch(request, options)

        tasks = [asyncio.create_task(fetch(request)) for request in list(requests)]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    logits = BaseClient._logits
    save = BaseClient._save
    describe = BaseClient._describe
    info = BaseClient._info
    list_tables = BaseClient._list_tables
    health = BaseClient._health

    def _open(self) -> None:
        self._connection = AsyncConnection(self._endpoint)

    def _new_calls(self) -> Calls:
        return self._connection.new_calls()
