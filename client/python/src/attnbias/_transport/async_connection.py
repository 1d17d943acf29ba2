# SPDX-License-Identifier: Apache-2.0
"""Channels for an event loop, opened by the first call, and the calls made over them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from attnbias._errors import CancelledError, UnavailableError
from attnbias._transport import forks
from attnbias._transport.calls import Method, Part, Read
from attnbias._transport.channel import Endpoint
from attnbias._transport.connection import CLOSED
from attnbias._transport.statuses import CallFailed, from_rpc_error, tells_of_a_connection

_Result = TypeVar("_Result")

# gRPC's status if a write failed because the server had ended the call. It often replaces the
# status that the server sent: https://github.com/grpc/grpc/issues/36066
_LOST_STATUS: Final = (grpc.StatusCode.INTERNAL, "Internal error from Core")
_LOST: Final = "the server ended the call; its message was lost"
_EOF: Final = grpc.aio.EOF  # pyright: ignore[reportAttributeAccessIssue]  # missing from its stubs


class AsyncConnection(forks.Forkable):
    """Channels for one event loop: the first, and spare ones for parts of a payload.

    Another loop gets its own channels.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.has_reached = False
        self.closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._closing = asyncio.Event()
        self._methods: dict[tuple[int, Method], Any] = {}
        forks.watch(self)

    async def close(self) -> None:
        """Cancels calls in flight, ends pending sleeps and closes the channels."""
        self.closed = True
        self._closing.set()
        with forks.lock:
            channels, self._channels, self._methods = self._channels, {}, {}
        if self._loop is asyncio.get_running_loop():
            for channel in channels.values():
                await channel.close()

    def of(self, method: Method, index: int) -> Any:
        """Returns the callable for a method in the running loop, over the channel at an index."""
        with forks.lock:
            forks.require_usable()
            self._enter()
            if self.endpoint.renew():  # open calls stay on their channel
                self._channels, self._methods = {}, {}
            if index not in self._channels:
                self._channels[index] = self.endpoint.open_async(spare=index > 0)
            if (index, method) not in self._methods:
                self._methods[index, method] = method.of(self._channels[index])
            return self._methods[index, method]

    def require_open(self) -> None:
        if self.closed:
            raise CancelledError(CLOSED)

    async def pause(self, seconds: float) -> None:
        """Sleeps; close() ends the sleep with CancelledError."""
        with forks.lock:
            self._enter()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
        self.require_open()

    def _enter(self) -> None:
        """Switches to the running loop and drops all state that belongs to other loops."""
        self.require_open()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._closing = asyncio.Event()
            self._channels, self._methods = {}, {}

    def leave(self) -> bool:
        inherited, self._channels = self._channels, {}
        if inherited:
            # Freeing the channels would wait for threads that do not exist in this process, so they
            # are never freed.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object((inherited, self._methods)))
        self._loop, self._methods = None, {}
        return bool(inherited)


class AsyncCalls:
    """See ``CallGroup``. Cancelling a call's task cancels the call, and so does close()."""

    def __init__(self, connection: AsyncConnection, index: int = 0) -> None:
        self._connection = connection
        self._index = index
        self.endpoint = connection.endpoint

    @property
    def has_reached(self) -> bool:
        return self._connection.has_reached

    async def ask(self, method: Method, message: Any, timeout: float | None) -> Any:
        call = self._begin(method, message, timeout)
        with self._translated():
            answer = await call
        self._connection.has_reached = True
        return answer

    @contextlib.asynccontextmanager
    async def stream(
        self, method: Method, messages: Any, timeout: float | None
    ) -> AsyncIterator[Read]:
        call = self._begin(method, messages, timeout)

        async def read() -> Any:
            with self._translated():
                message = await call.read()
            self._connection.has_reached = True
            return None if message is _EOF else message

        try:
            yield read
        finally:
            call.cancel()  # does nothing to a call that has finished

    async def together(self, parts: Sequence[Part]) -> None:
        """See CallGroup. Each part runs in a task."""
        tasks = [
            asyncio.ensure_future(part(AsyncCalls(self._connection, index)))
            for index, part in enumerate(parts)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def do(self, work: Callable[[], _Result]) -> _Result:
        """See CallGroup. Runs the work in a thread, so that the event loop continues."""
        self._connection.require_open()
        working = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            while not working.done():  # the work still uses the caller's memory
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([working])
            raise

    async def pause(self, seconds: float) -> None:
        await self._connection.pause(seconds)

    wait = pause  # gRPC's own thread reads its sockets and therefore finds the server

    def _begin(self, method: Method, message: Any, timeout: float | None) -> Any:
        begin = self._connection.of(method, self._index)
        return begin(message, timeout=timeout, metadata=self.endpoint.call_metadata())

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            if (error.code(), error.details()) == _LOST_STATUS:
                raise CallFailed(UnavailableError(_LOST)) from None
            failure = from_rpc_error(error, self.endpoint)
            self._connection.has_reached |= tells_of_a_connection(failure)
            raise CallFailed(failure) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # gRPC raised it, not the caller
                self._connection.require_open()
            raise
