# SPDX-License-Identifier: Apache-2.0
"""Connections in a process that forks.

A fork copies gRPC's locks and memory but not its threads, so that a call in the child would hang or
crash. Closing its last channel ends gRPC's threads. So connections that are idle are closed just
before a fork, and both processes open their own at the next call. Where a call is in flight in
another thread it goes on in the parent; the child must not touch gRPC, and is told so.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from pathlib import Path
from typing import ClassVar, Final, Protocol

lock: Final = threading.Lock()
"""Is held while a connection changes, and while the process forks."""

_THREADS: Final = Path("/proc/self/task")
_NAMES_OF_GRPC: Final = frozenset({"event_engine", "grpc_global_tim", "lifeguard"})
_PATIENCE: Final = 1.0  # seconds; it takes some 10 ms, unless others keep gRPC alive

_WHY: Final = (
    "gRPC cannot be used in this process: it was forked while a call was in flight in its parent. "
    'Start such processes by "spawn" or "forkserver", or before the first call'
)


class Forkable(Protocol):
    """What a connection does when the process forks. The lock is held."""

    def rest(self) -> bool:
        """Closes the channel, if there is one that no call uses; whether there was."""

    def leave(self) -> bool:
        """In the child: forgets the parent's calls and channel; whether there was one."""


class _State:
    connections: ClassVar[weakref.WeakSet[Forkable]] = weakref.WeakSet()
    unusable = False


def watch(connection: Forkable) -> None:
    """Has a connection take part in forks for as long as it lives."""
    with lock:
        _State.connections.add(connection)


def require_usable() -> None:
    """Raises RuntimeError in a process where a call would hang."""
    if _State.unusable:
        raise RuntimeError(_WHY)


def _before() -> None:
    lock.acquire()
    rested = [connection.rest() for connection in _State.connections]
    if any(rested):
        _wait_for_threads()


def _after_in_parent() -> None:
    lock.release()


def _after_in_child() -> None:
    left = [connection.leave() for connection in _State.connections]
    if any(left):
        _State.unusable = True
    lock.release()


def _wait_for_threads() -> None:
    """Returns when gRPC's threads have ended; where they cannot be seen, at once."""
    end = time.monotonic() + _PATIENCE
    while not _NAMES_OF_GRPC.isdisjoint(_names_of_threads()) and time.monotonic() < end:
        time.sleep(0.001)


def _names_of_threads() -> set[str]:
    names = set()
    with contextlib.suppress(OSError):
        for thread in _THREADS.iterdir():
            with contextlib.suppress(OSError):  # it has ended
                names.add((thread / "comm").read_text().strip())
    return names


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
