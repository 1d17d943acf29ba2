# SPDX-License-Identifier: Apache-2.0
"""Behavior specific to the asynchronous client; other tests run both clients."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fake_server import PAYLOAD, FakeServer, sequence

import attnbias
from attnbias import aio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fake_server import Context, Request


SINUSOIDAL = attnbias.Sinusoidal(dim=1)


def public(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_sync_and_async_clients_have_the_same_methods() -> None:
    assert public(aio.Client) == public(attnbias.Client)
    assert inspect.signature(aio.Client) == inspect.signature(attnbias.Client)


class Waits:
    """Sends a part, then nothing until the caller disconnects."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.gone = threading.Event()

    def serve(self, request: Request, context: Context) -> Iterator[bytes]:
        context.add_callback(self.gone.set)
        yield from PAYLOAD.messages(request.read_offset, 8000)
        self.begun.set()
        self.gone.wait(20)


def test_cancelling_the_task_cancels_the_call(server: FakeServer) -> None:
    waits = Waits()
    server.script = [waits.serve]

    async def main() -> None:
        async with aio.Client(server.target) as client:
            task = asyncio.create_task(client.get(SINUSOIDAL, positions=5000))
            await asyncio.to_thread(waits.begun.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(waits.gone.wait, 20)
            server.script = [PAYLOAD.serve]
            assert len(await client.get(SINUSOIDAL, positions=5000)) == 5000

    asyncio.run(main())


def test_concurrent_calls_in_one_event_loop_succeed(server: FakeServer) -> None:

    async def main() -> None:
        async with aio.Client(server.target) as client:
            got = await asyncio.gather(*[client.get(SINUSOIDAL, positions=5000) for _ in range(20)])
        for array in got:
            np.testing.assert_array_equal(array, sequence())

    asyncio.run(main())


def test_client_works_in_several_event_loops(server: FakeServer) -> None:
    client = aio.Client(server.target)
    for _ in range(2):
        assert asyncio.run(client.health())
    asyncio.run(client.close())
    with pytest.raises(attnbias.CancelledError, match="the client is closed"):
        asyncio.run(client.health())


def test_save_writes_file(server: FakeServer, tmp_path: Path) -> None:

    async def main() -> None:
        async with aio.Client(server.target) as client:
            await client.save(tmp_path / "t.npy", SINUSOIDAL, positions=5000)

    asyncio.run(main())
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), sequence())
