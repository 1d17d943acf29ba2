# SPDX-License-Identifier: Apache-2.0
"""When a failed call is made again. All calls of this service are pure, so all may be."""

from __future__ import annotations

import logging
import math
import random
import time
from typing import TYPE_CHECKING, Final

import grpc

from attnbias._errors import CancelledError, DeadlineExceededError, Error

if TYPE_CHECKING:
    from attnbias._calls import CallOptions

_FIRST_BACKOFF: Final = 0.1  # seconds
_LARGEST_BACKOFF: Final = 5.0
_DOUBLINGS: Final = 6  # from the first backoff to beyond the largest

_log = logging.getLogger("attnbias")


class Deadline:
    """A moment that a call and all its retries share; may be never."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + (math.inf if timeout is None else timeout)

    def remaining(self) -> float | None:
        """Seconds left; None without a limit.

        Raises:
            DeadlineExceededError: none are left.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError(f"timeout of {self._timeout} s passed")
        return None if left == math.inf else left


class Retry:
    """Counts failures in a row, and waits after each for the next attempt."""

    def __init__(self, options: CallOptions, deadline: Deadline) -> None:
        self._options = options
        self._deadline = deadline
        self._failures = 0
        self._told = False

    def progressed(self) -> None:
        """Forgets earlier failures: there was progress."""
        self._failures = 0

    def wait_after(self, error: Error) -> None:
        """Returns when the next attempt may begin.

        Raises:
            Error: ``error`` itself, where another attempt would be useless.
            CancelledError: the calls were cancelled, or the client closed, in the meantime.
        """
        self._failures += 1
        connection = self._options.connection
        if (
            connection.closed
            or not _is_transient(error)
            or self._failures == self._options.max_attempts
        ):
            raise error
        # Full jitter: callers that failed together do not come back together.
        backoff = _FIRST_BACKOFF * 2 ** min(self._failures - 1, _DOUBLINGS)
        delay = random.uniform(0, min(backoff, _LARGEST_BACKOFF))
        delay = max(delay, error.retry_delay or 0)
        left = self._deadline.remaining()
        if left is not None and delay >= left:
            raise error
        self._tell(error, left)
        with connection.reconnecting():
            self._options.calls.wait(delay)
        if connection.closed:
            raise CancelledError("the client was closed")

    def _tell(self, error: Error, left: float | None) -> None:
        """Says once that a call waits, so that a wrong target is not waited for in silence."""
        if self._told:
            return
        self._told = True
        bound = "" if left is None else f", for up to {left:.0f} s"
        _log.warning("%s: %s; trying again%s", self._options.connection.target, error, bound)


def _is_transient(error: Error) -> bool:
    if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # Without RetryInfo it is a limit that another attempt would meet again.
        return error.retry_delay is not None
    # CANCELLED is how a server that shuts down may end a call. One that this side
    # has cancelled ends in Retry's wait.
    again = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED}
    return error.code in again or "RST_STREAM" in error.message
