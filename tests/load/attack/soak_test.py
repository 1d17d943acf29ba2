# SPDX-License-Identifier: Apache-2.0
"""Many small specs, no two alike: memory use is the accounted memory plus a constant."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.load.attack.attack import BUDGET, MIB, PROCESS
from tests.load.attack.load import DESCRIBE, GET, STREAM, Calls, request
from tests.load.attack.specs import small_spec
from tests.support.cases import ENCODINGS
from tests.support.figures import Figures, mib
from tests.support.server import Server, settled

HALF_SECONDS = 30
LEAK = 32 * MIB
"""Maximum unaccounted growth in the second half: a few hundred bytes per call."""

PATHS = (GET, DESCRIBE, STREAM)


def distinct_specs(which: int) -> Calls:
    """Returns calls over PATHS[which] with specs for every encoding; the specs differ between
    paths."""
    path = PATHS[which]

    def body(n: int) -> bytes:
        spec = small_spec(ENCODINGS[n % len(ENCODINGS)], len(PATHS) * n + which)
        return request(spec, path.rpartition("/")[2])

    return Calls("", path, body, at_once=8, connections=2)


def test_unaccounted_memory_does_not_grow(figures: Figures) -> None:
    counts = [dict.fromkeys(("begun", "ended", "answered"), 0) for _ in PATHS]
    with Server(f"--memory-budget={BUDGET}") as server:

        def uncounted() -> float:
            return server.resident_bytes() - server.metrics()["attnbias_memory_used_bytes"]

        with ThreadPoolExecutor() as clients:
            runs = [
                clients.submit(
                    distinct_specs(i).put_on, server.address, 2 * HALF_SECONDS, counts[i]
                )
                for i in range(len(PATHS))
            ]
            time.sleep(HALF_SECONDS)
            at_half = uncounted()
            for run in runs:
                run.result()
        settled(server)
        resident, at_end = server.resident_bytes(), uncounted()
    answered = sum(count["answered"] for count in counts)
    figures.add(
        "soak",
        f"distinct small specs for {2 * HALF_SECONDS} s: {answered} calls answered",
        f"{mib(resident)}, of which {mib(at_end)} in no gauge; "
        f"{mib(at_end - at_half)} of these in the second half",
        f"{mib(PROCESS)} in no gauge; {mib(LEAK)}",
    )
    assert answered > 0.9 * sum(count["ended"] for count in counts)
    assert at_end <= PROCESS
    assert at_end - at_half <= LEAK
