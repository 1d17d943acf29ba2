# SPDX-License-Identifier: Apache-2.0
"""Time that another process takes to get a table from the cache on disk.

python -m tests.load.bench.cache FOLDER
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import attnbias
from tests.load.bench.measure import Row
from tests.support.server import Server

ENCODING, POSITIONS = attnbias.Sinusoidal(dim=512), 131072
TABLE_BYTES = 256 << 20
GOAL_SECONDS = 0.005


def rows(running: Server, repetitions: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        with attnbias.Client(running.address, cache=folder) as client:
            assert client.get(ENCODING, positions=POSITIONS).nbytes == TABLE_BYTES
        seconds = [in_another_process(folder) for _ in range(repetitions)]
    yield Row(
        what="256 MiB from the cache, the first call of another process",
        against="5 ms",
        unit="s",
        ours=max(seconds),
        theirs=GOAL_SECONDS,
        goal=1.0,
        statistic=f"worst of {repetitions}",
        samples={"ours": seconds},
    )


def in_another_process(folder: str) -> float:
    command = [sys.executable, "-m", "tests.load.bench.cache", folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    start = time.perf_counter()
    with attnbias.Client(cache=sys.argv[1], offline=True) as client:
        table = client.get(ENCODING, positions=POSITIONS)
        seconds = time.perf_counter() - start
    assert table.nbytes == TABLE_BYTES
    print(seconds)


if __name__ == "__main__":
    main()
