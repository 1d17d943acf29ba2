# SPDX-License-Identifier: Apache-2.0
"""Kernels on one core compared with memset and memcpy, as measured by the C++ program
kernel_bench."""

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator

import attnbias
from tests.load.bench.measure import Row, compare_rates
from tests.load.bench.programs import binary
from tests.support.server import Server

FILL = "Sinusoidal 131072x512 F32"
DENSE = "Dense expansion 32x4096x4096"


def rows(running: Server, repetitions: int) -> Iterator[Row]:
    with attnbias.Client(running.address) as client:
        kernel_set = client.info().instruction_sets[0]
    rates = measured_rates(kernel_set, repetitions)
    for what, ours, against, theirs, goal in [
        (f"{FILL} interleaved", "sinusoid_interleaved/F32", "memset", "memset/table", 0.5),
        (f"{FILL} interleaved", "sinusoid_interleaved/F32", "memcpy", "memcpy/table", 0.9),
        (f"{FILL} sines first", "sinusoid_sines_first/F32", "memset", "memset/table", 0.5),
        (f"{FILL} sines first", "sinusoid_sines_first/F32", "memcpy", "memcpy/table", 0.9),
        (f"{DENSE} F32", "dense/F32", "memset", "memset/dense_F32", 0.8),
        (f"{DENSE} BF16", "dense/BF16", "memset", "memset/dense_BF16", 0.8),
    ]:
        yield compare_rates(
            what=f"{what}, one core, {kernel_set}",
            against=f"{against} of the same bytes",
            ours=rates[f"{kernel_set}/{ours}"],
            theirs=rates[theirs],
            goal=goal,
        )


def measured_rates(kernel_set: str, repetitions: int) -> dict[str, list[float]]:
    """Returns rates in GB per second of CPU time."""
    wanted = f"^(memset|memcpy|{re.escape(kernel_set)}/(sinusoid_.*/F32|dense))"
    return benchmark_rates("kernel_bench", repetitions, f"--benchmark_filter={wanted}")


def benchmark_rates(program: str, repetitions: int, *options: str) -> dict[str, list[float]]:
    """Returns rates in GB per second for each benchmark; the repetitions of all benchmarks are
    interleaved."""
    done = subprocess.run(
        [
            binary(program),
            "--benchmark_format=json",
            "--benchmark_min_time=0.1",
            *options,
            f"--benchmark_repetitions={repetitions}",
            "--benchmark_enable_random_interleaving=true",
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    rates: dict[str, list[float]] = defaultdict(list)
    for run in json.loads(done.stdout)["benchmarks"]:
        if run["run_type"] == "iteration":
            name = run["run_name"].partition("/repeats")[0].removesuffix("/real_time")
            name = re.sub(r"/\d+$", "", name)
            rates[name].append(run["bytes_per_second"] / 1e9)
    return rates
