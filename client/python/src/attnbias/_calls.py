# SPDX-License-Identifier: Apache-2.0
"""Calls that end together."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

from attnbias._errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import grpc

_Result = TypeVar("_Result")


class CallGroup:
    """Streams in flight, in any thread, that one cancel() ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: set[grpc.Call] = set()
        self._cancelled = threading.Event()
        self._reason = ""

    def begin(self, call: Callable[[], _Result]) -> _Result:
        """What ``call`` returns, which makes a call of gRPC.

        Raises:
            CancelledError: the group is cancelled.
        """
        self._require_wanted()
        try:
            return call()
        except ValueError:  # how gRPC says that the channel is closed
            self._require_wanted()
            raise

    @contextlib.contextmanager
    def running(self, call: grpc.Call) -> Iterator[None]:
        """Holds a call for the length of a block, however that is left; then it is over."""
        with self._lock:
            self._calls.add(call)
        try:
            self._require_wanted()
            yield
        finally:
            with self._lock:
                self._calls.discard(call)
            call.cancel()  # does nothing to a call that has finished

    def wait(self, seconds: float) -> None:
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

    def _require_wanted(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError(self._reason)
