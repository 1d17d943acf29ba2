# SPDX-License-Identifier: Apache-2.0
"""A large payload over several ranged streams: over a long distance, and on this machine."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import numpy as np

import attnbias
from tests.load.bench.measure import Row, by_turns, compare, timed
from tests.load.bench.programs import flight_server
from tests.load.bench.streams import DENSE, DENSE_BYTES, ENCODING, HEADS, LENGTH, MIB, do_get_into
from tests.support.server import Server, cpu_seconds
from tests.support.toxiproxy import Link, toxiproxy

STREAMS = 8
WHAT = f"Dense stream of {DENSE_BYTES >> 30} GiB, Python client, {STREAMS} streams"
DELAYS = [20, 80]  # milliseconds by which answers are delayed
OVER_ONE_STREAM, OVER_FLIGHT = 3.0, 2.0


class Processes:
    """CPU time used, in each round, by the processes that share the work."""

    def __init__(self, **pids: int) -> None:
        self._pids = pids
        self.seconds: dict[str, list[float]] = {name: [] for name in pids}
        """Processor seconds of each process, by round."""
        self.cores: list[float] = []
        """Average number of processors that the processes used together, by round."""

    def doing(self, work: Callable[[], object]) -> None:
        before, start = self._used(), time.perf_counter()
        work()
        elapsed, after = time.perf_counter() - start, self._used()
        for name, used in self.seconds.items():
            used.append(after[name] - before[name])
        self.cores.append(sum(used[-1] for used in self.seconds.values()) / elapsed)

    def _used(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._pids.items()}


def rows(running: Server, repetitions: int) -> Iterator[Row]:
    out = np.zeros((HEADS, LENGTH, LENGTH), np.float32)

    def measure(
        ours: str, theirs: str | None, busy: Processes
    ) -> tuple[dict[str, list[float]], int]:
        """Returns the seconds taken with several streams, with one stream and, if `theirs` is
        given, with Flight."""
        best = 0
        with attnbias.Client(ours, streams=STREAMS) as several, attnbias.Client(ours) as one:
            rounds: dict[str, Callable[[], object]] = {
                name: partial(client.get, ENCODING, **DENSE, out=out)
                for name, client in {"several": several, "one": one}.items()
            }
            rounds["several"] = partial(busy.doing, rounds["several"])
            if theirs is not None:
                rounds["flight"], best = do_get_into(theirs, out)
            timings = {name: timed(work) for name, work in rounds.items()}
            return by_turns(timings, repetitions), best

    busy = Processes(client=os.getpid(), server=running.process.pid)
    times, _ = measure(running.address, None, busy)
    yield row("on this machine", "one stream", times["several"], times["one"], None)
    yield busy_row("on this machine", busy)
    with flight_server(DENSE_BYTES) as location, toxiproxy() as proxy:
        links = [Link(proxy, server) for server in (running.address, location.split("//")[1])]
        for delay in DELAYS:
            with ExitStack() as stack:
                for link in links:
                    stack.enter_context(link.far(delay))
                ours, theirs = (link.address for link in links)
                busy = Processes(
                    client=os.getpid(), server=running.process.pid, toxiproxy=proxy.pid
                )
                times, best = measure(ours, f"grpc://{theirs}", busy)
            where = f"over a delay of {delay} ms"
            flight = f"pyarrow Flight DoGet, batches of {best // MIB} MiB"
            yield row(where, "one stream", times["several"], times["one"], OVER_ONE_STREAM)
            yield row(where, flight, times["several"], times["flight"], OVER_FLIGHT)
            yield busy_row(where, busy)


def row(
    where: str, against: str, ours: list[float], theirs: list[float], goal: float | None
) -> Row:
    return compare(
        what=f"{WHAT}, {where}",
        against=against,
        ours=ours,
        theirs=theirs,
        goal=goal,
        num_bytes=DENSE_BYTES,
    )


def busy_row(where: str, busy: Processes) -> Row:
    """Reports the factors that may limit the rates above."""
    cores = os.cpu_count() or 1
    # The very first round was a warm-up.
    used = ", ".join(
        f"{name} {statistics.median(seconds[1:]):.2f} s" for name, seconds in busy.seconds.items()
    )
    return Row(
        what=f"Cores that the same keeps busy, {where}",
        against=f"all {cores}; processor time of one get: {used}",
        unit="cores",
        ours=statistics.median(busy.cores[1:]),
        theirs=cores,
        goal=None,
        more_is_better=True,
        statistic=f"median of {len(busy.cores[1:])}",
    )
