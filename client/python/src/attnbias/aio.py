# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: the methods of ``attnbias.Client`` as coroutines.

async with attnbias.aio.Client("localhost:50051") as client:
    table = await client.get(attnbias.Sinusoidal(dim=512), positions=131072)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Self

from attnbias._async_get import AsyncGet
from attnbias._checks import require_instance
from attnbias._client import CALLS_IN_FLIGHT, WANTED_REQUESTS, BaseClient
from attnbias._spec.request import Request
from attnbias._transport.async_connection import AsyncCalls, AsyncConnection

__all__ = ["Client"]


class Client(AsyncGet):
    """``attnbias.Client`` for asyncio: the same arguments, results and errors.

    All tasks on an event loop share one connection; in a different event loop, the client opens a
    new one. Cancelling a task ends its call.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; calls in flight end with CancelledError."""
        await self._connection.close()

    async def get_many(
        self, requests: Iterable[Request], *, timeout: float | None = None
    ) -> list[Any]:
        """See ``attnbias.Client.get_many``."""
        require_instance(requests, Iterable, "requests", WANTED_REQUESTS)
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
    AsyncGet.get.__qualname__ = "Client.get"  # for errors

    def _open(self) -> None:
        self._connection = AsyncConnection(self._endpoint)

    def _new_calls(self) -> AsyncCalls:
        return AsyncCalls(self._connection)
