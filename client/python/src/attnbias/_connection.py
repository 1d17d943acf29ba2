# SPDX-License-Identifier: Apache-2.0
"""A channel whose calls block, opened at the first of them, and the calls made over it."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2

from attnbias import _forks
from attnbias._calls import CHECK_HEALTH, Method
from attnbias._errors import CallFailed, CancelledError, from_rpc_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from google.protobuf.message import Message

    from attnbias._channel import Endpoint

CLOSED: Final = "the client is closed"


class Connection:
    """A channel that opens when it is needed. Threads share it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._closed = False
        self._groups: weakref.WeakSet[CallGroup] = weakref.WeakSet()
        self._channel: grpc.Channel | None = None
        self._methods: dict[Method, Any] = {}
        self._users = 0
        _forks.watch(self)

    def new_group(self) -> CallGroup:
        """A group of calls, which close() cancels."""
        group = CallGroup(self)
        with _forks.lock:
            self._groups.add(group)
            if self._closed:
                group.cancel(CLOSED)
        return group

    def close(self) -> None:
        """Cancels what is in flight or waits, and closes the channel."""
        with _forks.lock:
            self._closed = True
            groups = list(self._groups)
            channel, self._channel = self._channel, None
        for group in groups:
            group.cancel(CLOSED)
        if channel is not None:
            channel.close()

    @contextlib.contextmanager
    def using(self, method: Method) -> Iterator[Any]:
        """What calls a method, for a block in which the channel stays open."""
        with _forks.lock:
            _forks.require_usable()
            if self._closed:
                raise CancelledError(CLOSED)
            if self._channel is None:
                self._channel = self.endpoint.open()
                self._methods = {}
            if method not in self._methods:
                self._methods[method] = method.of(self._channel)
            self._users += 1
            multicallable = self._methods[method]
        try:
            yield multicallable
        finally:
            with _forks.lock:
                self._users -= 1

    def rest(self) -> bool:
        """See Forkable."""
        if self._users > 0 or self._channel is None:
            return False
        self._channel.close()
        self._channel = None
        self._methods = {}
        return True

    def leave(self) -> bool:
        """See Forkable."""
        inherited, self._channel = self._channel, None
        if inherited is not None:
            # Ending it would wait for threads that are not there: it is never to be freed.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object((inherited, self._methods)))
        self._groups, self._methods, self._users = weakref.WeakSet(), {}, 0
        return inherited is not None


class CallGroup:
    """Calls in flight, in any thread, that one cancel() ends. See ``Calls``."""

    def __init__(self, connection: Connection) -> None:
        self._endpoint = connection.endpoint
        self.target = self._endpoint.target
        self._connection = connection
        self._lock = threading.Lock()
        self._calls: set[grpc.Call] = set()
        self._cancelled = threading.Event()
        self._reason = ""

    async def ask(self, method: Method, message: Any, timeout: float | None) -> Any:
        """See Calls."""
        self._require_wanted()
        with self._connection.using(method) as call:
            try:
                return call(message, timeout=timeout, metadata=self._endpoint.metadata)
            except grpc.RpcError as error:
                raise CallFailed(from_rpc_error(error, self._endpoint)) from None
            except ValueError:  # how gRPC says that the channel is closed
                self._require_wanted()
                raise

    @contextlib.asynccontextmanager
    async def stream(
        self, method: Method, messages: Message | Iterable[Message], timeout: float | None
    ) -> AsyncIterator[_Stream]:
        """See Calls."""
        self._require_wanted()
        with self._connection.using(method) as begin:
            try:
                call = begin(messages, timeout=timeout, metadata=self._endpoint.metadata)
            except ValueError:
                self._require_wanted()
                raise
            with self._running(call):
                yield _Stream(call, self._endpoint)

    async def wait(self, seconds: float) -> None:
        """See Calls."""
        with self._reconnecting():
            self.pause(seconds)

    def pause(self, seconds: float) -> None:
        """Sleeps, but not through a cancel().

        Raises:
            CancelledError: the group is cancelled.
        """
        self._cancelled.wait(seconds)
        self._require_wanted()

    def cancel(self, reason: str) -> None:
        """Ends all calls, and those that would still begin."""
        self._reason = reason
        self._cancelled.set()
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    @contextlib.contextmanager
    def _running(self, call: grpc.Call) -> Iterator[None]:
        with self._lock:
            self._calls.add(call)
        try:
            self._require_wanted()
            yield
        finally:
            with self._lock:
                self._calls.discard(call)
            call.cancel()  # does nothing to a call that has finished

    @contextlib.contextmanager
    def _reconnecting(self) -> Iterator[None]:
        """Keeps gRPC connecting for the length of a block in which no call is made.

        It reads its sockets only while somebody waits for a call: here, for one that
        is sent as soon as there is a connection.
        """
        request = health_pb2.HealthCheckRequest()
        with contextlib.ExitStack() as stack:
            check = stack.enter_context(self._connection.using(CHECK_HEALTH))
            with contextlib.suppress(ValueError):  # the channel is closed; whoever waits is told
                waiting = check.future(
                    request, metadata=self._endpoint.metadata, wait_for_ready=True
                )
                stack.callback(waiting.cancel)
            yield

    def _require_wanted(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError(self._reason)


class _Stream:
    """See ``Stream``."""

    def __init__(self, call: Any, endpoint: Endpoint) -> None:
        self._call = call
        self._endpoint = endpoint

    async def read(self) -> Any:
        """See Stream."""
        try:
            return next(self._call, None)
        except grpc.RpcError as error:
            raise CallFailed(from_rpc_error(error, self._endpoint)) from None
