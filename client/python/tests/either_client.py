# SPDX-License-Identifier: Apache-2.0
"""Wraps both clients in one interface, so that one test covers both."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any, Self, cast

import attnbias
from attnbias import aio

if TYPE_CHECKING:
    from collections.abc import Callable

    Connect = Callable[..., attnbias.Client]


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


class _Awaited:
    """An ``aio.Client`` whose methods run to completion in the event loop of another thread."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._client = aio.Client(*arguments, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def run(*arguments: Any, **options: Any) -> Any:
            coroutine = method(*arguments, **options)
            return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()

        return run


CONNECTS: dict[str, Connect] = {"sync": attnbias.Client, "aio": cast("Connect", _Awaited)}
