# SPDX-License-Identifier: Apache-2.0
"""When a failed call is made again. All calls of this service are pure, so all may be."""

from __future__ import annotations

import json
import random
import time

import grpc

from attnbias._errors import DeadlineExceededError, Error

_INITIAL_BACKOFF = 0.1  # seconds
_MAX_BACKOFF = 5.0
_MULTIPLIER = 1.6
_JITTER = 0.2


class Deadline:
    """A moment that a call and all its retries share; may be never."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout

    def remaining(self) -> float | None:
        """Seconds left; None without a limit.

        Raises:
            DeadlineExceededError: none are left.
        """
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError(f"timeout of {self._timeout} s passed")
        return left


class Retry:
    """Counts failures in a row and says how long to wait after each."""

    def __init__(self, max_attempts: int, deadline: Deadline) -> None:
        self._max_attempts = max_attempts
        self._deadline = deadline
        self._failures = 0

    def succeeded(self) -> None:
        """Forgets earlier failures: there was progress."""
        self._failures = 0

    def delay_after(self, error: Error) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            Error: ``error`` itself, where another attempt would be useless.
        """
        self._failures += 1
        if not _is_transient(error) or self._failures >= self._max_attempts:
            raise error
        delay = error.retry_delay
        if delay is None:
            backoff = min(_INITIAL_BACKOFF * _MULTIPLIER ** (self._failures - 1), _MAX_BACKOFF)
            delay = backoff * random.uniform(1 - _JITTER, 1 + _JITTER)
        left = self._deadline.remaining()
        if left is not None and delay >= left:
            raise error
        return delay


def _is_transient(error: Error) -> bool:
    if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # Without RetryInfo it is a limit that another attempt would meet again.
        return error.retry_delay is not None
    if error.code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED}:
        return True
    return "RST_STREAM" in error.message


def service_config(service: str, methods: list[str], max_attempts: int) -> str:
    """What gRPC itself is to retry, and when: unary calls, as ``grpc.service_config`` wants it."""
    names = [{"service": service, "method": method} for method in methods]
    if max_attempts == 1:
        return json.dumps({"methodConfig": [{"name": names}]})
    policy = {
        "maxAttempts": min(max_attempts, 5),  # gRPC knows no more
        "initialBackoff": f"{_INITIAL_BACKOFF}s",
        "maxBackoff": f"{_MAX_BACKOFF}s",
        "backoffMultiplier": _MULTIPLIER,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
    }
    return json.dumps({"methodConfig": [{"name": names, "retryPolicy": policy}]})
