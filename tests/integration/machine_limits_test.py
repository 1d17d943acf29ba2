# SPDX-License-Identifier: Apache-2.0
"""The server uses the limits of its control groups, tested with real nested groups."""

import os
import pathlib
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support import control_groups
from tests.support.server import Server, eventually

LIMIT = 300 << 20
PROCESSORS = {
    1: {"cpu.cfs_quota_us": "100000", "cpu.cfs_period_us": "100000"},
    2: {"cpu.max": "100000 100000"},
}


def effective(group: pathlib.Path) -> dict[str, str]:
    """Returns the server's configuration if it starts in that group."""
    server = os.environ["ATTNBIAS_SERVER_BINARY"]
    command = [*control_groups.inside(group), server, "--check-config"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("version", [1, 2])
def test_memory_limit_of_control_group_sets_budget(version: int) -> None:
    files = control_groups.memory_files(version, LIMIT)
    with control_groups.limited("memory", version, files) as group:
        assert effective(group)["memory-budget"] == str(LIMIT // 4)


@pytest.mark.parametrize("version", [1, 2])
def test_cpu_limit_of_control_group_sets_threads(version: int) -> None:
    with control_groups.limited("cpu", version, PROCESSORS[version]) as group:
        assert effective(group)["threads"] == "1"


def test_cpu_affinity_sets_threads() -> None:
    some = min(os.sched_getaffinity(0))
    command = ["taskset", "--cpu-list", str(some), os.environ["ATTNBIAS_SERVER_BINARY"]]
    done = subprocess.run([*command, "--check-config"], capture_output=True, text=True, check=True)
    assert "threads=1" in done.stdout.splitlines()


@pytest.mark.parametrize("version", [1, 2])
def test_process_limit_of_control_group_does_not_stop_reloading(
    version: int, tmp_path: pathlib.Path
) -> None:
    save_file({"table": np.zeros((32, 4), "f4")}, tmp_path / "first.safetensors")
    flags = (f"--tables={tmp_path}", "--tables-poll=100ms")
    with (
        control_groups.limited("pids", version, {}) as group,
        Server(*flags, prefix=control_groups.inside(group)) as server,
    ):
        server.metrics()
        # From now on, the server cannot create a thread.
        (group / "pids.max").write_text((group / "pids.current").read_text())
        save_file({"table": np.zeros((32, 4), "f4")}, tmp_path / "second.safetensors")
        eventually(lambda: server.metrics()["attnbias_mounted_tables"] == 2, "reloaded")
        assert int((group / "pids.events").read_text().split()[1]) > 0
        assert server.stop() == 0
