# SPDX-License-Identifier: Apache-2.0
"""Retries of failed calls, and the reasons why addresses are unreachable.

All calls to this service are pure, so all may be repeated.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import grpc

from attnbias._errors import DeadlineExceededError, Error
from attnbias._transport import forks
from attnbias._transport.async_connection import AsyncCalls
from attnbias._transport.calls import CHECK_HEALTH, Method
from attnbias._transport.channel import Endpoint, addresses_of, is_on_this_machine
from attnbias._transport.connection import CallGroup
from attnbias._transport.statuses import (
    CallFailed,
    CallInterrupted,
    from_rpc_error,
    is_of_the_name,
    unreached_error,
)

_Answer = TypeVar("_Answer")
Calls: TypeAlias = "CallGroup | AsyncCalls"

_FIRST_BACKOFF: Final = 0.1  # seconds
_LARGEST_BACKOFF: Final = 2.0
_DOUBLINGS: Final = 5  # doublings after which the backoff exceeds the maximum
_FOREVER: Final = 1e9  # seconds; gRPC's clocks overflow at a few times this value

_log = logging.getLogger("attnbias")


@dataclass(frozen=True)
class CallOptions:
    """A caller's settings for a call, and the object that makes its calls."""

    calls: Calls
    max_tensor_bytes: int
    max_attempts: int | None
    timeout: float | None
    out: Any
    progress: bool | None
    streams: int
    """Number of connections over which a large payload is fetched."""


class Deadline:
    """The deadline for a call and all its retries, if there is one."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        seconds = math.inf if timeout is None or timeout > _FOREVER else timeout
        self._begin = time.monotonic()
        self._end = self._begin + seconds
        self.told = False
        """True once the wait has been logged."""

    def remaining(self, patience: float | None = None) -> float | None:
        """Returns the seconds left; None if there is no limit. Raises DeadlineExceededError at 0.

        ``patience`` limits the time to that many seconds after the start.
        """
        end = self._end
        if patience is not None:
            end = min(self._begin + min(patience, _FOREVER), end)
        left = end - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError(f"timed out after {self._timeout} s")
        return None if left == math.inf else left


class Retry:
    """Counts consecutive failures, and waits after each for the next attempt."""

    def __init__(self, options: CallOptions, deadline: Deadline) -> None:
        self._options = options
        self._deadline = deadline
        self._failures = 0

    def progressed(self) -> None:
        self._failures = 0

    async def run(self, attempt: Callable[[], Coroutine[Any, Any, _Answer]]) -> _Answer:
        """Makes attempts until one succeeds, or raises the last one's error."""
        while True:
            try:
                return await attempt()
            except CallInterrupted:
                continue
            except CallFailed as failed:
                failure = failed.error
            await self.wait_after(failure)  # outside except: the failure's traceback is useless

    async def wait_after(self, error: Error) -> None:
        """Waits for the next attempt; raises ``error`` if another would be useless."""
        self._failures += 1
        left = await self._left(error)
        delay = self._delay(left)
        if error.retry_delay is not None:
            delay = max(delay, error.retry_delay)
        is_late = left is not None and (delay >= left or left < _FIRST_BACKOFF)
        is_last = self._failures == self._options.max_attempts
        calls = self._options.calls
        if not _is_transient(error) or is_last or is_late or delay == math.inf:
            raise await explained(error, calls, self._deadline)
        await calls.pause(0)  # raises if the call has been cancelled
        self._tell(error, left)
        await calls.wait(delay)
        await self._left(error)  # a busy machine may end the wait late

    async def _left(self, error: Error) -> float | None:
        """Returns the seconds left for further attempts; None if there is no limit.

        Raises ``error`` if none are left, since it names the cause and a deadline error does not.
        """
        calls, patience = self._options.calls, None
        if error.unreached and not calls.has_reached:
            patience = calls.endpoint.connect_timeout
        try:
            return self._deadline.remaining(patience)
        except DeadlineExceededError:
            raise await explained(error, calls, self._deadline) from None

    def _delay(self, left: float | None) -> float:
        """Returns a random delay that leaves time for a last attempt."""
        backoff = _FIRST_BACKOFF * 2 ** min(self._failures - 1, _DOUBLINGS)
        most = min(backoff, _LARGEST_BACKOFF)
        # Full jitter, so that callers that failed together do not retry together.
        return random.uniform(0, most if left is None else min(most, left / 2))

    def _tell(self, error: Error, left: float | None) -> None:
        """Logs once that a call is waiting, so that a wrong target is not retried silently."""
        if self._deadline.told:
            return
        self._deadline.told = True
        bound = "" if left is None else f", for up to {left:.0f} s"
        _log.warning("%s; trying %s again%s", error, self._options.calls.endpoint.target, bound)


async def ask(method: Method, message: Any, options: CallOptions, deadline: Deadline) -> Any:
    """Makes a call with one response, and retries it."""
    return await Retry(options, deadline).run(
        lambda: options.calls.ask(method, message, deadline.remaining())
    )


def _is_transient(error: Error) -> bool:
    if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # Without RetryInfo, another attempt would exceed the same limit.
        return error.retry_delay is not None
    # A server that shuts down may end a call with CANCELLED. A call that this side cancelled ends
    # in Retry's wait.
    again = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED}
    return error.code in again or "RST_STREAM" in error.message


_SECONDS: Final = 1.0  # for all addresses, which are tried concurrently
_LEAST_SECONDS: Final = 0.2  # allowed even beyond the deadline
_MOST_ADDRESSES: Final = 8
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")  # proxy variables that gRPC reads


async def explained(error: Error, calls: Calls, deadline: Deadline) -> Error:
    """Returns a call's error, with a reason for each address if several were unreachable.

    gRPC itself reports only the error of the address that it tried last.
    """
    if not error.unreached or is_of_the_name(error):
        return error
    try:
        seconds = min(deadline.remaining() or _SECONDS, _SECONDS)
    except DeadlineExceededError:
        seconds = _LEAST_SECONDS
    reasons = await calls.do(partial(_reasons, calls.endpoint, seconds))
    return unreached_error(reasons, calls.endpoint) if reasons else error


def _reasons(endpoint: Endpoint, seconds: float) -> dict[str, str]:
    """Returns why each address is unreachable; nothing if there is only one address."""
    if not is_on_this_machine(endpoint.target) and any(map(os.environ.get, _PROXIES)):
        return {}  # a proxy resolves the name
    addresses = addresses_of(endpoint.target)[:_MOST_ADDRESSES]
    if len(addresses) == 1:
        return {}
    reasons = {}
    with contextlib.ExitStack() as stack, forks.in_grpc():
        calls = {}
        for address in addresses:
            channel = stack.enter_context(endpoint.open_to(address))
            check = CHECK_HEALTH.of(channel)
            calls[address] = check.future(CHECK_HEALTH.request(), timeout=seconds)
        for address, call in calls.items():
            reasons[address.partition(":")[2]] = _reason(call, endpoint, seconds)
    return reasons


def _reason(call: grpc.Future, endpoint: Endpoint, seconds: float) -> str:
    try:
        call.result()
    except grpc.RpcError as failed:
        if failed.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no response within {seconds:g} s"
        return from_rpc_error(failed, endpoint).unreached or "answers"
    return "answers"
