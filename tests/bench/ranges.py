# SPDX-License-Identifier: Apache-2.0
"""A large payload by several ranged streams: over a long way, and on this machine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import numpy as np

import attnbias
from tests.bench.measure import Row, by_turns, compare, timed
from tests.bench.programs import Server, flight_server
from tests.bench.streams import DENSE, DENSE_BYTES, ENCODING, HEADS, LENGTH, MIB, do_get_into
from tests.integration.toxiproxy import Link, toxiproxy

WHAT = f"Dense stream of {DENSE_BYTES >> 30} GiB, Python client, as many streams as are worth it"
DELAYS = [20, 80]  # milliseconds, of what comes back
OVER_ONE_STREAM, OVER_FLIGHT, ON_THIS_MACHINE = 3.0, 2.0, 1.0


def rows(running: Server, repetitions: int) -> Iterator[Row]:
    out = np.zeros((HEADS, LENGTH, LENGTH), np.float32)

    def measure(ours: str, theirs: str | None) -> tuple[dict[str, list[float]], int]:
        """Seconds with several streams, with one and, where it says of whom, of Flight."""
        best = 0
        with attnbias.Client(ours) as several, attnbias.Client(ours, streams=1) as one:
            rounds: dict[str, Callable[[], object]] = {
                name: partial(client.get, ENCODING, **DENSE, out=out)
                for name, client in {"several": several, "one": one}.items()
            }
            if theirs is not None:
                rounds["flight"], best = do_get_into(theirs, out)
            timings = {name: timed(work) for name, work in rounds.items()}
            return by_turns(timings, repetitions), best

    times, _ = measure(running.target, None)
    yield row("on this machine", "one stream", times["several"], times["one"], ON_THIS_MACHINE)
    with flight_server(DENSE_BYTES) as location, toxiproxy() as api:
        links = [Link(api, server) for server in (running.target, location.split("//")[1])]
        for delay in DELAYS:
            with ExitStack() as stack:
                for link in links:
                    stack.enter_context(link.far(delay))
                ours, theirs = (link.address for link in links)
                times, best = measure(ours, f"grpc://{theirs}")
            where = f"over a delay of {delay} ms"
            flight = f"pyarrow Flight DoGet, batches of {best // MIB} MiB"
            yield row(where, "one stream", times["several"], times["one"], OVER_ONE_STREAM)
            yield row(where, flight, times["several"], times["flight"], OVER_FLIGHT)


def row(where: str, against: str, ours: list[float], theirs: list[float], goal: float) -> Row:
    return compare(
        what=f"{WHAT}, {where}",
        against=against,
        ours=ours,
        theirs=theirs,
        goal=goal,
        num_bytes=DENSE_BYTES,
    )
