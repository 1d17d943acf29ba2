# SPDX-License-Identifier: Apache-2.0
"""Calls of others while a server is attacked: one every few milliseconds, and how long it took."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.attack.attack import HEALTH, small
from tests.attack.load import GET, request
from tests.integration.contract import alibi
from tests.tools import http2

EVERY_SECONDS = 0.02
PATIENCE = 5
"""Seconds, after which a call is given up."""


def _cached(diagonals: int) -> bytes:
    """A request of so many numbers of four bytes."""
    return request(alibi(1, diagonals, 1))


@dataclass
class Probe:
    """Calls that are due every EVERY_SECONDS. A call that is late because the one before took long
    is late for its caller too, so its time begins when it was due."""

    what: str
    path: str
    body: Callable[[int], bytes]
    goal: float
    """Seconds, of 99 in 100 calls."""
    seconds: list[float] = field(default_factory=list)
    refused: int = 0

    def run(self, address: str, stop: threading.Event) -> None:
        connection = http2.Connection(address)
        due = time.monotonic()
        n = 0
        while not stop.is_set():
            stream = connection.call(self.path, self.body(n), PATIENCE)
            self.seconds.append(time.monotonic() - due)
            n += 1
            if not stream.ended:
                connection.close()
                connection = http2.Connection(address)
            elif not stream.received:
                self.refused += 1
            due += EVERY_SECONDS
            stop.wait(due - time.monotonic())
        # Those that were due when the one before was still under way.
        while due < (now := time.monotonic()):
            self.seconds.append(now - due)
            due += EVERY_SECONDS
        connection.close()

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def probes() -> list[Probe]:
    below, above = (_cached(size // 4) for size in ((64 << 10) - 64, (64 << 10) + 64))
    return [
        Probe("small, cold", GET, small, goal=0.05),
        Probe("cached, under 64 KiB", GET, lambda n: below, goal=0.05),
        Probe("cached, over 64 KiB", GET, lambda n: above, goal=0.05),
        Probe("health", HEALTH, lambda n: http2.framed(b""), goal=0.02),
    ]


def warm(some: list[Probe], address: str) -> None:
    """Has what is cached in the cache."""
    connection = http2.Connection(address)
    for probe in some:
        assert connection.call(probe.path, probe.body(0), PATIENCE).received
    connection.close()


@contextlib.contextmanager
def running(some: list[Probe], address: str) -> Iterator[None]:
    """Each on a connection and a thread of its own."""
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
