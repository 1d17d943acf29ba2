# SPDX-License-Identifier: Apache-2.0
"""Searches every encoding for the requests that cost the server most per byte."""

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.load.attack.attack import is_well
from tests.load.attack.load import DESCRIBE, GET, STREAM, request
from tests.load.attack.specs import changed, in_words, small_spec, widened
from tests.support import http2
from tests.support.cases import ENCODINGS
from tests.support.figures import Figures, ms
from tests.support.server import Server, cpu_seconds

SECONDS = 11
THREADS = 2
WORST = 10
DEADLINE = 1.0
MOST_CPU_SECONDS = 1.0
"""Maximum for a call with a small answer: 20 times the goal of 50 ms."""


@dataclass(frozen=True)
class Cost:
    spec: Any
    size: int
    cpu_seconds: float

    @property
    def per_byte(self) -> float:
        return self.cpu_seconds / self.size


def small_and_wide_specs() -> Iterator[Any]:
    for seed in itertools.count():
        for encoding in ENCODINGS:
            spec = small_spec(encoding, seed, length=2)
            yield spec
            yield from widened(spec)


class Search:
    """Tries specs on one method of a server, and keeps the worst one for each encoding."""

    def __init__(self, server: Server, path: str) -> None:
        self.tried = 0
        self.most_cpu_seconds = 0.0
        self._process = server.process
        self._address = server.address
        self._path = path
        self._worst: dict[str, Cost] = {}

    def worst(self) -> list[Cost]:
        by_cost = sorted(self._worst.values(), key=lambda cost: cost.per_byte, reverse=True)
        return by_cost[:WORST]

    def run(self, seconds: float) -> None:
        """Tries specs for every encoding for half of the time, then variations of the worst
        ones."""
        begin = time.monotonic()
        for spec in small_and_wide_specs():
            if time.monotonic() >= begin + seconds / 2:
                break
            self._try(spec)
        chance = random.Random(0)
        while time.monotonic() < begin + seconds:
            self._try(changed(chance.choice(self.worst()).spec, chance))

    def _try(self, spec: Any) -> None:
        cost = self._cost_of(spec)
        encoding = spec.WhichOneof("encoding")
        known = self._worst.setdefault(encoding, cost)
        if cost.per_byte > known.per_byte:
            self._worst[encoding] = cost
        self.most_cpu_seconds = max(self.most_cpu_seconds, cost.cpu_seconds)
        self.tried += 1

    def _cost_of(self, spec: Any) -> Cost:
        """Returns the cost of a call up to its first message or its end, plus any work that the
        server does after that."""
        body = request(spec, self._path.rpartition("/")[2])
        connection = http2.Connection(self._address, http2.DEFAULT_WINDOW)
        before = self._cpu_seconds_at_rest()
        stream = connection.begin(self._path, body, grpc_timeout=f"{DEADLINE * 1000:.0f}m")
        streams = self._path == STREAM
        http2.pump(
            [connection], lambda: stream.ended or (streams and stream.received > 0), 2 * DEADLINE
        )
        connection.close()
        return Cost(spec, len(body), self._cpu_seconds_at_rest() - before)

    def _cpu_seconds_at_rest(self) -> float:
        """Waits until the server is idle, and returns the processor time it has used."""
        deadline = time.monotonic() + 3
        used = cpu_seconds(self._process.pid)
        while time.monotonic() < deadline:
            time.sleep(0.001)
            before, used = used, cpu_seconds(self._process.pid)
            if used - before < 0.0001:
                break
        return used


@pytest.mark.parametrize("path", [DESCRIBE, GET, STREAM])
def test_worst_call_cost_is_bounded(path: str, figures: Figures) -> None:
    # A call with a large answer may use all available processor time until its deadline.
    bound = MOST_CPU_SECONDS + (0 if path == DESCRIBE else THREADS * DEADLINE)
    with Server(f"--threads={THREADS}") as server:
        assert is_well(server)  # the first call costs more than others
        search = Search(server, path)
        search.run(SECONDS)
    method = path.rpartition("/")[2]
    for cost in search.worst():
        figures.add(
            "cost",
            f"{method}: {in_words(cost.spec)}",
            f"{ms(cost.cpu_seconds)} of processor time for {cost.size} bytes",
        )
    figures.add(
        "cost",
        f"{method}: {search.tried} specs tried",
        f"{ms(search.most_cpu_seconds)} of processor time at most",
        ms(bound),
    )
    assert search.most_cpu_seconds <= bound
