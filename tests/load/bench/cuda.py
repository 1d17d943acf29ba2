# SPDX-License-Identifier: Apache-2.0
"""A CUDA device: its kernels compared with copies from it, and whole answers compared with torch on
the same card and with a server that computes only on the CPU."""

import statistics
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import attnbias
from tests.load.bench.kernels import benchmark_rates
from tests.load.bench.logits import Contest
from tests.load.bench.measure import Row, by_turns, compare, compare_rates, timed
from tests.load.bench.programs import binary, server
from tests.support.server import Server

HEADS = 32
ON_DEVICE = "--backend=cuda"


def need_device() -> None:
    """Exits if there is no device."""
    asked = subprocess.run(
        [binary("cuda_bench"), "--benchmark_list_tests"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(asked.stderr.strip())
    if asked.returncode != 0:
        raise SystemExit("./dev bench --cuda needs a CUDA device")


def rows(running: Server, repetitions: int) -> Iterator[Row]:
    del running  # the compared servers have their own flags
    rates = benchmark_rates("cuda_bench", repetitions)
    for name in ("F32", "BF16"):
        yield compare_rates(
            f"Dense expansion {name}, 2 MiB into the host's memory",
            "a copy of the same bytes from the device",
            rates[f"expand/{name}"],
            rates["copy"],
            goal=0.9,
        )
    yield logits_row(repetitions)


def logits_row(repetitions: int) -> Row:
    """Measures over the wire. As with torch, the time includes two copies over the bus."""
    with server(ON_DEVICE) as running, attnbias.Client(running.address) as client:
        contest = Contest(client)
        contest.check()
        on_card = contest.on("cuda")
        times = by_turns({"ours": timed(contest.streamed), "theirs": timed(on_card)}, repetitions)
    return compare(
        what="Shaw's logits, products on the device, into one array of the host",
        against="torch on the device: products, selected by index, and the copy back",
        **times,
        goal=None,
    )


def listed(client: attnbias.Client, length: int, seed: int) -> Callable[[], Any]:
    """Requests a dense answer that the CPU must copy number by number."""
    positions = np.random.default_rng(seed).integers(0, 1 << 16, length)
    ids = {"query_positions": positions, "key_positions": positions}
    return partial(client.get, attnbias.ALiBi(num_heads=HEADS), **ids, form="dense")


def crossover(running: Server, repetitions: int) -> dict[str, list[float]]:
    """Returns the seconds that the device and the CPU take, by answer size in bytes; the device
    wins if it takes fewer."""
    del running
    lengths = [1 << n for n in range(4, 12)]
    curves: dict[str, list[float]] = {"bytes": [4.0 * HEADS * n * n for n in lengths]}
    with (
        server(ON_DEVICE) as device,
        server("--backend=cpu") as cpu,
        attnbias.Client(device.address) as by_device,
        attnbias.Client(cpu.address) as by_cpu,
    ):
        for length in lengths:
            assert np.array_equal(listed(by_device, length, 1)(), listed(by_cpu, length, 1)())
            rounds = {
                "on the device": timed(listed(by_device, length, 1)),
                "on the CPU": timed(listed(by_cpu, length, 1)),
            }
            for name, seconds in by_turns(rounds, repetitions).items():
                curves.setdefault(name, []).append(statistics.median(seconds))
    return curves
