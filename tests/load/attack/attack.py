# SPDX-License-Identifier: Apache-2.0
"""Loads in separate processes, and a server's state during and after them."""

import contextlib
import json
import pathlib
import subprocess
import sys
import time
from typing import Self

from tests.load.attack.load import GET, Counts, request
from tests.support import http2
from tests.support.contract import spec
from tests.support.server import PATIENCE, Server, cpu_seconds

MIB = 1 << 20
BUDGET = 64 * MIB
PROCESS = 200 * MIB
"""Memory that docs/operations/size.md allows in addition to the budget."""

RECOVERY_SECONDS = 10

HEALTH = "/grpc.health.v1.Health/Check"

_LIFE_SECONDS = 120  # seconds that a load lasts if it is not stopped
_STILL_SECONDS = 0.3
_LOOKS = 10
_IDLE_SHARE = 0.05  # share of one processor


class Attack:
    """A load on a server, until the `with` block ends or the load is stopped."""

    def __init__(self, name: str, address: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.load.attack.load", name, address, str(_LIFE_SECONDS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "begun\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> Counts:
        """Stops the load; returns the number of calls that it began, and their outcomes."""
        self.process.terminate()
        said, _ = self.process.communicate(timeout=PATIENCE)
        counts: Counts = json.loads(said)
        return counts


def computes(*processes: "subprocess.Popen[str]") -> bool:
    """Observes the processes briefly, and reports whether any of them uses or waits for a
    processor."""
    began, used = time.monotonic(), _used(processes)
    waits = False
    for _ in range(_LOOKS):
        time.sleep(_STILL_SECONDS / _LOOKS)
        waits = waits or any(map(_is_runnable, processes))
    used = _used(processes) - used
    return waits or used >= _IDLE_SHARE * (time.monotonic() - began)


def _used(processes: "tuple[subprocess.Popen[str], ...]") -> float:
    return sum(cpu_seconds(process.pid) for process in processes)


def _is_runnable(process: "subprocess.Popen[str]") -> bool:
    """Reports whether one of the process's threads runs or, as on a busy machine, waits for a
    processor."""
    for stat in pathlib.Path(f"/proc/{process.pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended
            if stat.read_text().rpartition(") ")[2][0] in "RD":
                return True
    return False


def small(n: int) -> bytes:
    """Returns a request for the n-th of many small tensors."""
    fields = {"num_heads": 4, "alibi_bias_max": 1 + n / (1 << 20)}
    return request(spec(alibi=fields, pair={"query_length": 8, "key_length": 8}))


def small_table(n: int) -> bytes:
    """Returns a request for the n-th small tensor that needs a precomputed table of rotations."""
    fields = {"dim": 256, "ladder": {"base": 100.0 + n}}
    return request(spec(sinusoidal=fields, table={"positions": {"end": 8}}))


def is_well(server: Server) -> bool:
    """Reports whether the server answers a small call quickly."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    with contextlib.suppress(ConnectionError):  # the process is gone
        while (left := deadline - time.monotonic()) > 0:
            connection = http2.Connection(server.address)
            stream = connection.call(GET, small(-1), left)
            connection.close()
            if stream.received:
                return True
            time.sleep(0.1)  # the server asked the client to wait
    return False
