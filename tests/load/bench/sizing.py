# SPDX-License-Identifier: Apache-2.0
"""CPU time that a server spends on answers, in plaintext and over TLS, for capacity planning."""

import contextlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import attnbias
from tests.load.bench.measure import Row, by_turns
from tests.load.bench.programs import server
from tests.support.certificates import Authority
from tests.support.server import Server

GIB = 1 << 30
CALLS = 2000
TABLE = attnbias.Sinusoidal(dim=512)
POSITIONS = 131072
DENSE: Any = {"query_length": 4096, "key_length": 4096, "form": "dense"}
HEADS = 16


def rows(running: Server, repetitions: int) -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory() as folder,
        over_tls(Path(folder)) as (secure, tls),
        attnbias.Client(running.address) as plain_client,
        attnbias.Client(secure.address, tls=tls) as tls_client,
    ):
        sides = {"ours": (running, plain_client), "theirs": (secure, tls_client)}
        works = [
            ("a GiB of a cached table", fetch_table),
            ("a GiB of dense biases", fetch_dense),
            (f"{CALLS} calls for 4 KiB", call_often),
        ]
        for what, prepare in works:
            rounds = {name: cpu_of(of, prepare(client)) for name, (of, client) in sides.items()}
            samples = by_turns(rounds, repetitions)
            yield Row(
                what=f"CPU time of the server for {what}, in plaintext",
                against="the same over TLS",
                unit="s",
                ours=statistics.median(samples["ours"]),
                theirs=statistics.median(samples["theirs"]),
                goal=None,
                statistic=f"median of {repetitions}",
                samples=samples,
            )


@contextlib.contextmanager
def over_tls(folder: Path) -> Iterator[tuple[Server, attnbias.Tls]]:
    authority = Authority(folder)
    own = authority.sign("server", alternatives="IP:127.0.0.1")
    with server(f"--tls-cert={own.certificate}", f"--tls-key={own.key}") as running:
        yield running, attnbias.Tls(ca=authority.certificate)


def cpu_of(running: Server, work: Callable[[], object]) -> Callable[[], float]:
    """Returns a round that reports the CPU time that the server spent on the work."""

    def run() -> float:
        before = running.metrics()["process_cpu_seconds_total"]
        work()
        return running.metrics()["process_cpu_seconds_total"] - before

    return run


def fetch_table(client: attnbias.Client) -> Callable[[], object]:
    out = np.zeros((POSITIONS, 512), np.float32)

    def work() -> None:
        for _ in range(GIB // out.nbytes):
            client.get(TABLE, positions=POSITIONS, out=out)

    return work


def fetch_dense(client: attnbias.Client) -> Callable[[], object]:
    out = np.zeros((HEADS, 4096, 4096), np.float32)
    assert out.nbytes == GIB
    return lambda: client.get(attnbias.ALiBi(num_heads=HEADS), **DENSE, out=out)


def call_often(client: attnbias.Client) -> Callable[[], object]:
    encoding = attnbias.ALiBi(num_heads=8)

    def work() -> None:
        for _ in range(CALLS):
            client.get(encoding, query_length=64, key_length=64)

    return work
