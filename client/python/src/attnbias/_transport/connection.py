# SPDX-License-Identifier: Apache-2.0
"""Channels whose calls block, opened by the first call, and the calls made over them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import grpc

from attnbias._errors import CancelledError
from attnbias._public.grpc.health.v1 import health_pb2
from attnbias._transport import forks
from attnbias._transport.calls import CHECK_HEALTH, Method, Part, Read, run
from attnbias._transport.channel import Endpoint
from attnbias._transport.statuses import (
    CallFailed,
    CallInterrupted,
    from_rpc_error,
    tells_of_a_connection,
)

CLOSED: Final = "the client is closed"

_Result = TypeVar("_Result")


class Connection(forks.Forkable):
    """Channels opened on demand: the first, and spare ones for parts of a payload.

    Shared by threads.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.has_reached = False
        self._closed = False
        self._groups: weakref.WeakSet[CallGroup] = weakref.WeakSet()
        self._channels: dict[int, grpc.Channel] = {}
        self._methods: dict[tuple[int, Method], Any] = {}
        forks.watch(self)

    def new_group(self) -> CallGroup:
        """Returns a group of calls, which close() cancels."""
        group = CallGroup(self)
        with forks.lock:
            self._groups.add(group)
            if self._closed:
                group.cancel(CLOSED)
        return group

    def close(self) -> None:
        """Cancels calls in flight, ends pending sleeps and closes the channels."""
        with forks.lock:
            self._closed = True
            groups = list(self._groups)
            channels, self._channels = self._channels, {}
        for group in groups:
            group.cancel(CLOSED)
        with forks.in_grpc():
            for channel in channels.values():
                channel.close()

    def of(self, method: Method, index: int) -> tuple[Any, grpc.Channel]:
        """Returns the callable for a method over the channel at an index, and that channel."""
        with forks.lock:
            forks.require_usable()
            if self._closed:
                raise CancelledError(CLOSED)
            if self.endpoint.renew():
                self.rest()
            if index not in self._channels:
                self._channels[index] = self.endpoint.open(spare=index > 0)
            channel = self._channels[index]
            if (index, method) not in self._methods:
                self._methods[index, method] = method.of(channel)
            return self._methods[index, method], channel

    def was_interrupted(self, channel: grpc.Channel) -> bool:
        """Waits for any fork to end; reports whether a fork, not the user, closed a channel."""
        with forks.lock:
            return channel not in self._channels.values() and not self._closed

    def rest(self) -> bool:
        channels, self._channels = self._channels, {}
        self._methods = {}
        for channel in channels.values():
            channel.close()
        return bool(channels)

    def leave(self) -> bool:
        self._groups = weakref.WeakSet()
        return False


class CallGroup:
    """The calls made for one request to this package, in any thread; one cancel() ends them all.

    All methods raise CancelledError once the calls are cancelled or the client is closed.
    """

    def __init__(self, connection: Connection, index: int = 0) -> None:
        self.endpoint = connection.endpoint
        self._connection = connection
        self._index = index
        self._lock = threading.RLock()  # a signal handler may cancel
        self._members: set[grpc.Call | CallGroup] = set()
        self._cancelled = threading.Event()
        self._reason = ""

    @property
    def has_reached(self) -> bool:
        """True once the client has had a connection to its server."""
        return self._connection.has_reached

    async def ask(self, method: Method, message: Any, timeout: float | None) -> Any:
        """Makes a call with one response; raises CallFailed for a status other than OK.

        Also raises CallInterrupted; see its docstring.
        """
        with self._beginning(method) as (begin, _):
            answer = begin(message, timeout=timeout, metadata=self.endpoint.call_metadata())
        self._connection.has_reached = True
        return answer

    @contextlib.asynccontextmanager
    async def stream(
        self, method: Method, messages: Any, timeout: float | None
    ) -> AsyncIterator[Read]:
        """Makes a call with a streamed response. Leaving the block ends the call."""
        with self._beginning(method) as (begin, channel):
            call = begin(messages, timeout=timeout, metadata=self.endpoint.call_metadata())

        async def read() -> Any:
            with self._translated(channel):
                message = next(call, None)
            self._connection.has_reached = True
            return message

        try:
            with self._including([call]):
                yield read
        finally:
            _cancel(call)  # does nothing to a call that has finished

    async def wait(self, seconds: float) -> None:
        """Sleeps as ``pause`` does, while gRPC tries to connect to the server.

        gRPC reads its sockets only during a call, so this method makes a health check.
        """
        with contextlib.ExitStack() as stack:
            with (
                contextlib.suppress(CallInterrupted),  # the next attempt opens a new channel
                self._beginning(CHECK_HEALTH) as (check, _),
            ):
                waiting = check.future(
                    health_pb2.HealthCheckRequest(),
                    metadata=self.endpoint.call_metadata(),
                    wait_for_ready=True,  # sent as soon as a connection exists
                )
                stack.callback(_cancel, waiting)
            await self.pause(seconds)

    async def together(self, parts: Sequence[Part]) -> None:
        """Runs several parts of the work concurrently, each over its own connection.

        This thread does the first part, other threads the rest. Raises the first of their
        exceptions once all have ended.
        """
        groups = [CallGroup(self._connection, index) for index in range(len(parts))]
        failures: list[BaseException] = []

        def cancel() -> None:
            for group in groups:
                group.cancel("canceled because another part failed")

        def do(part: Part, group: CallGroup) -> None:
            try:
                run(part(group))
            except BaseException as failure:  # raised below
                failures.append(failure)
                cancel()

        work = list(zip(parts, groups, strict=True))
        threads = [threading.Thread(target=do, args=each) for each in work[1:]]
        with self._including(groups):
            try:
                for thread in threads:
                    thread.start()
                do(*work[0])
            finally:
                _join(threads, cancel)
        for failure in failures:
            raise failure

    async def do(self, work: Callable[[], _Result]) -> _Result:
        """Runs work that may wait for the disk, unless the calls are already cancelled."""
        self._require_wanted()
        return work()

    async def pause(self, seconds: float) -> None:
        """Sleeps; cancel() ends the sleep with CancelledError."""
        self._cancelled.wait(seconds)
        self._require_wanted()

    def cancel(self, reason: str) -> None:
        """Ends all calls, including calls that have not started."""
        self._reason = reason
        self._cancelled.set()
        with self._lock:
            members = list(self._members)
        for member in members:
            if isinstance(member, CallGroup):
                member.cancel(reason)
            else:
                _cancel(member)

    @contextlib.contextmanager
    def _beginning(self, method: Method) -> Iterator[tuple[Any, grpc.Channel]]:
        """See Connection.of. The block runs gRPC's code and no fork can happen during it."""
        self._require_wanted()
        with contextlib.ExitStack() as stack:
            with forks.lock:
                begin, channel = self._connection.of(method, self._index)
                stack.enter_context(self._translated(channel))
            yield begin, channel

    @contextlib.contextmanager
    def _translated(self, channel: grpc.Channel) -> Iterator[None]:
        try:
            with forks.in_grpc():
                yield
        except grpc.RpcError as error:
            if self._connection.was_interrupted(channel):
                raise CallInterrupted from None
            failure = from_rpc_error(error, self.endpoint)
            self._connection.has_reached |= tells_of_a_connection(failure)
            raise CallFailed(failure) from None
        except ValueError:  # gRPC raises it if the channel is closed
            self._require_wanted()
            if self._connection.was_interrupted(channel):
                raise CallInterrupted from None
            raise

    @contextlib.contextmanager
    def _including(self, members: Sequence[grpc.Call | CallGroup]) -> Iterator[None]:
        """Makes cancel() end these calls or groups too while the block runs."""
        with self._lock:
            self._members.update(members)
        try:
            self._require_wanted()
            yield
        finally:
            with self._lock:
                self._members.difference_update(members)

    def _require_wanted(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError(self._reason)


def _join(threads: list[threading.Thread], cancel: Callable[[], None]) -> None:
    """Joins threads; an interrupt cancels their calls first."""
    begun = [thread for thread in threads if thread.ident is not None]
    if len(begun) < len(threads):
        cancel()
    try:
        for thread in begun:
            thread.join()
    except BaseException:
        cancel()
        for thread in begun:
            thread.join()
        raise


def _cancel(call: grpc.Call) -> None:
    with forks.in_grpc():
        call.cancel()
