# SPDX-License-Identifier: Apache-2.0
"""Calls from other clients while a server is attacked: one every few milliseconds, each with its
duration."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.load.attack.attack import HEALTH, small, small_table
from tests.load.attack.load import GET, request
from tests.support import http2
from tests.support.contract import alibi

EVERY_SECONDS = 0.025
PATIENCE = 2
"""Seconds to wait for the last calls. A call that is still open counts with its duration so far."""


def _cached(diagonals: int) -> bytes:
    """Returns a request for this many four-byte numbers."""
    return request(alibi(1, diagonals, 1))


@dataclass
class Probe:
    """Calls on one connection, with a new call every EVERY_SECONDS, even if earlier ones are still
    open."""

    what: str
    path: str
    body: Callable[[int], bytes]
    goal: float
    """Seconds within which 99 of 100 calls must be answered."""
    seconds: list[float] = field(default_factory=list)
    refused: int = 0

    def run(self, address: str, stop: threading.Event) -> None:
        connection = http2.Connection(address)
        running: list[tuple[float, http2.Stream]] = []

        def collect() -> bool:
            for call in [call for call in running if call[1].ended]:
                running.remove(call)
                self.seconds.append(time.monotonic() - call[0])
                self.refused += not call[1].received
            return False

        due = time.monotonic()
        for n in itertools.count():
            running.append((due, connection.begin(self.path, self.body(n))))
            due += EVERY_SECONDS
            http2.pump([connection], collect, due - time.monotonic())
            if stop.is_set():
                break
        http2.pump([connection], lambda: collect() or not running, PATIENCE)
        self.seconds += [time.monotonic() - began for began, _ in running]
        connection.close()

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def probes() -> list[Probe]:
    below, above = (_cached(size // 4) for size in ((1 << 20) - 64, (1 << 20) + 64))
    return [
        Probe("small, cold", GET, small, goal=0.05),
        Probe("small table, cold", GET, small_table, goal=0.05),
        Probe("cached, under 1 MiB", GET, lambda n: below, goal=0.05),
        Probe("cached, over 1 MiB", GET, lambda n: above, goal=0.05),
        Probe("health", HEALTH, lambda n: http2.framed(b""), goal=0.02),
    ]


def warm(some: list[Probe], address: str) -> None:
    """Fills the cache with the tensors to probe."""
    connection = http2.Connection(address)
    for probe in some:
        assert connection.call(probe.path, probe.body(0), PATIENCE).received
    connection.close()


@contextlib.contextmanager
def running(some: list[Probe], address: str) -> Iterator[None]:
    """Runs each probe on its own connection and thread."""
    stop = threading.Event()
    threads = [threading.Thread(target=probe.run, args=(address, stop)) for probe in some]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
