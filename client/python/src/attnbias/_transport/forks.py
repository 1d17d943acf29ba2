# SPDX-License-Identifier: Apache-2.0
"""Connections in a process that forks.

A fork copies gRPC's locks, memory and sockets but not its threads. A call in the child would hang,
or consume bytes that the parent waits for. gRPC ends its threads when its last channel is closed.
Channels are therefore closed just before a fork and opened again by the next call in either
process; calls in flight are interrupted and resume over the new channel. An event loop's channel
cannot be closed from outside the loop, so the child of a process that has such a channel must not
make calls. Nor must the child of a process in which gRPC ignores forks.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Final

lock: Final = threading.RLock()
"""Held while a connection changes, and while the process forks."""

_THREADS: Final = Path("/proc/self/task")
_NAMES_OF_GRPC: Final = ("event_engine", "grpc_", "lifeguard")  # prefixes of gRPC's thread names
_PATIENCE: Final = 1.0  # seconds to wait for gRPC's threads to end, which takes about 10 ms

_WHY_OPEN: Final = (
    "gRPC cannot be used in this process, which was forked while an attnbias.aio.Client was "
    'connected: close the client first, or start processes with "spawn" or "forkserver"'
)
_SUPPORT: Final = "GRPC_ENABLE_FORK_SUPPORT"
_WHY_OFF: Final = (
    "gRPC cannot be used in this process, which was forked from a process that used gRPC "
    f'with {_SUPPORT} off: leave it unset, or start processes with "spawn" or "forkserver"'
)


class Forkable(ABC):
    """A connection, a local server, or a locked file. Both methods run under the lock."""

    def rest(self) -> bool:
        """Closes the channels that any thread may close; returns whether there were any."""
        return False

    @abstractmethod
    def leave(self) -> bool:
        """In the child, forgets the parent's calls and channels; returns whether any was open."""


_connections: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()
_inside: Final[set[int]] = set()  # threads that are executing gRPC's code
_why_unusable: list[str] = []  # not empty if calls would hang
_has_ignored: list[bool] = []  # whether gRPC ignores the fork in progress


def watch(connection: Forkable) -> None:
    """Registers a connection for fork handling for as long as it lives."""
    with lock:
        _register()
        _connections.add(connection)


def require_usable() -> None:
    """Raises RuntimeError in a process where a call would hang."""
    for why in _why_unusable:
        raise RuntimeError(why)


@contextlib.contextmanager
def in_grpc() -> Iterator[None]:
    """Marks a block that runs gRPC's code and may hold its locks; a fork waits until it ends.

    A block may begin during that wait, since calls that the fork interrupts end only when they are
    read.
    """
    thread = threading.get_ident()
    if thread in _inside:  # for example in a signal handler that interrupts a call
        yield
        return
    try:
        _inside.add(thread)
        yield
    finally:
        _inside.discard(thread)


def _before() -> None:
    lock.acquire()
    rested = [connection.rest() for connection in _connections]
    if any(rested):
        _wait_for_grpc()
    is_off = os.environ.get(_SUPPORT, "1").lower() in ("0", "f", "false", "n", "no")
    _has_ignored[:] = [any(rested) and is_off]


def _after_in_child() -> None:
    left = [connection.leave() for connection in _connections]
    if any(left):
        _why_unusable.append(_WHY_OPEN)
    if any(_has_ignored):
        _why_unusable.append(_WHY_OFF)
    _inside.clear()
    lock.release()


def _wait_for_grpc() -> None:
    """Waits until no thread executes gRPC's code and gRPC's own threads have ended."""
    end = time.monotonic() + _PATIENCE
    here = {threading.get_ident()}
    while _inside - here or _has_threads():
        if time.monotonic() > end:
            return
        time.sleep(0.001)


def _has_threads() -> bool:
    """Reports whether gRPC has threads; False if they cannot be seen."""
    with contextlib.suppress(OSError):
        for thread in _THREADS.iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                if (thread / "comm").read_text().startswith(_NAMES_OF_GRPC):
                    return True
    return False


@functools.cache
def _register() -> None:
    """Registers the fork handlers on first use, so that processes without connections have none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_before, after_in_parent=lock.release, after_in_child=_after_in_child
        )
