# SPDX-License-Identifier: Apache-2.0
"""A 2 GiB dense bias through the server: speed and memory."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import flight

import attnbias
from tests.load.bench.measure import Row, by_turns, compare, timed
from tests.load.bench.programs import flight_server, rounds_of, server
from tests.support.server import Server

HEADS, LENGTH = 32, 4096
DENSE_BYTES = 4 * HEADS * LENGTH * LENGTH
TABLE = np.random.default_rng(0).standard_normal((32, HEADS), np.float32)
ENCODING = attnbias.T5(num_heads=HEADS, bidirectional=True, table=TABLE)
DENSE: Any = {"query_length": LENGTH, "key_length": LENGTH, "form": "dense"}
MIB = 1 << 20
FLIGHT_BATCHES = [MIB, 4 * MIB, 16 * MIB]


def socket_row(running: Server, repetitions: int) -> Row:
    with (
        rounds_of("stream_bench", running.address) as ours,
        rounds_of("socket_pump", DENSE_BYTES) as theirs,
    ):
        times = by_turns({"ours": ours, "theirs": theirs}, repetitions)
    return compare(
        what="2 GiB dense, C++ client, into one buffer",
        against="plain blocking sockets, 1 MiB sends",
        **times,
        goal=1.0,
        num_bytes=DENSE_BYTES,
    )


def flight_row(running: Server, repetitions: int) -> Row:
    """Both clients write to the same array with resident pages; Flight uses its best batch size."""
    out = np.zeros((HEADS, LENGTH, LENGTH), np.float32)
    with attnbias.Client(running.address) as client, flight_server(DENSE_BYTES) as location:
        fetch, best = do_get_into(location, out)
        rounds = {
            "ours": timed(lambda: client.get(ENCODING, **DENSE, out=out)),
            "theirs": timed(fetch),
        }
        times = by_turns(rounds, repetitions)
    return compare(
        what="2 GiB dense, Python client, into one array",
        against=f"pyarrow Flight DoGet of the same bytes, batches of {best >> 20} MiB",
        **times,
        goal=1.25,
        num_bytes=DENSE_BYTES,
    )


def do_get_into(location: str, out: np.ndarray) -> tuple[Callable[[], None], int]:
    """Returns a plain Flight client that reads record batches into one array, and the best batch
    size."""
    client = flight.connect(location)
    flat = out.reshape(-1)

    def fetch(batch_bytes: int) -> None:
        begin = 0
        for chunk in client.do_get(flight.Ticket(str(batch_bytes))):
            column = chunk.data.column(0).to_numpy()
            flat[begin : begin + len(column)] = column
            begin += len(column)
        assert begin == flat.size

    best = min(FLIGHT_BATCHES, key=lambda batch: timed(lambda: fetch(batch))())
    return partial(fetch, best), best


def memory_row(repetitions: int) -> Row:
    """Measures the memory of a new server, from its first small answers to its peak."""
    growths = []
    out = np.zeros((HEADS, LENGTH, LENGTH), np.float32)
    for _ in range(repetitions):
        with server() as running, attnbias.Client(running.address) as client:
            client.get(attnbias.ALiBi(num_heads=8), query_length=64, key_length=64)
            forget_peak(running.process.pid)
            before = running.resident_bytes()
            client.get(ENCODING, **DENSE, out=out)
            growths.append(running.peak_resident_bytes() - before)
    return Row(
        what="Growth of the server's memory while it streams 2 GiB",
        against="32 MiB",
        unit="MiB",
        ours=max(growths) / MIB,
        theirs=32,
        goal=1.0,
        statistic=f"worst of {repetitions}",
        samples={"ours": [growth / MIB for growth in growths]},
    )


def forget_peak(pid: int) -> None:
    """Resets VmHWM."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
