# SPDX-License-Identifier: Apache-2.0
"""What costs the server most for each byte of a request, looked for in every encoding."""

import random
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.attack.attack import BUDGET, cpu_seconds
from tests.attack.figures import Figures, ms
from tests.attack.load import DESCRIBE, GET, STREAM, request
from tests.attack.specs import grown, in_words, small_spec
from tests.integration.cases import encodings_of_the_contract
from tests.integration.server import Server
from tests.tools import http2

SECONDS = 15
THREADS = 2
WORST = 10
DEADLINE = 1.0
MOST_CPU_SECONDS = 1.0
"""Of a call that has little to answer: 20 times the 50 ms in which it is to be answered."""


@dataclass(frozen=True)
class Cost:
    spec: Any
    size: int
    cpu_seconds: float

    @property
    def per_byte(self) -> float:
        return self.cpu_seconds / self.size


def cost_of(server: Server, path: str, spec: Any) -> Cost:
    """Of a call until its first message or its end, and of what the server does after that."""
    body = request(spec, path.rpartition("/")[2])
    before = cpu_seconds(server.process)
    connection = http2.Connection(server.address, http2.DEFAULT_WINDOW)
    stream = connection.begin(path, body, grpc_timeout=f"{DEADLINE * 1000:.0f}m")
    first = (lambda: stream.received > 0) if path == STREAM else (lambda: False)
    http2.pump([connection], lambda: stream.ended or first(), 2 * DEADLINE)
    connection.close()
    return Cost(spec, len(body), at_rest(server) - before)


def at_rest(server: Server) -> float:
    """The processor time of the server once it does nothing any more."""
    deadline = time.monotonic() + 10
    used = cpu_seconds(server.process)
    while time.monotonic() < deadline:
        time.sleep(0.003)
        before, used = used, cpu_seconds(server.process)
        if used - before < 0.0003:
            break
    return used


def climb(server: Server, path: str, encoding: str, seconds: float) -> list[Cost]:
    """Grows specs of an encoding, keeping each step that costs more; every step is a candidate."""
    chance = random.Random(encoding)
    deadline = time.monotonic() + seconds
    best = cost_of(server, path, small_spec(encoding, 0))
    tried = [best]
    while time.monotonic() < deadline:
        other = cost_of(server, path, grown(best.spec, chance))
        tried.append(other)
        if other.per_byte > best.per_byte:
            best = other
    return tried


@pytest.mark.parametrize("path", [DESCRIBE, GET, STREAM])
def test_worst_cost(path: str, figures: Figures) -> None:
    encodings = encodings_of_the_contract()
    tried: dict[str, list[Cost]] = {}
    with Server(f"--memory-budget={BUDGET}", f"--threads={THREADS}") as server:
        for encoding in encodings:
            tried[encoding] = climb(server, path, encoding, SECONDS / len(encodings))
    # What a call that ran into its deadline may have cost.
    bound = THREADS * DEADLINE + MOST_CPU_SECONDS if path == GET else MOST_CPU_SECONDS
    of_each = [max(costs, key=lambda cost: cost.per_byte) for costs in tried.values()]
    for cost in sorted(of_each, key=lambda cost: cost.per_byte, reverse=True)[:WORST]:
        figures.add(
            "cost",
            f"{path.rpartition('/')[2]}: {in_words(cost.spec)}",
            f"{ms(cost.cpu_seconds)} of processor time for {cost.size} bytes",
            ms(bound),
        )
    assert max(cost.cpu_seconds for costs in tried.values() for cost in costs) <= bound
