# SPDX-License-Identifier: Apache-2.0
"""What control groups give is what the server takes: in real ones, nested."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path("/sys/fs/cgroup")
LIMIT = 300 << 20
Files = dict[str, str]
V1 = {
    "memory": {"memory.limit_in_bytes": str(LIMIT)},
    "cpu": {"cpu.cfs_quota_us": "100000", "cpu.cfs_period_us": "100000"},
}
V2 = {"memory": {"memory.max": str(LIMIT)}, "cpu": {"cpu.max": "100000 100000"}}


@contextlib.contextmanager
def groups(parent: pathlib.Path, files: Files) -> Iterator[pathlib.Path]:
    """A group with these limits, and the group without any below it."""
    group = parent / f"attnbias-test-{os.getpid()}"
    made: list[pathlib.Path] = []
    try:
        for path in (group, group / "below"):
            path.mkdir()
            made.append(path)
        for name, text in files.items():
            (group / name).write_text(text)
        yield group / "below"
    finally:
        for path in reversed(made):
            path.rmdir()


@contextlib.contextmanager
def limited(version: int, controller: str) -> Iterator[pathlib.Path]:
    mount = ROOT / controller if version == 1 else ROOT
    known = mount if version == 1 else mount / "cgroup.controllers"
    if not known.exists() or (version == 2 and controller not in known.read_text().split()):
        pytest.skip(f"{controller} has no groups of version {version} here")
    files = (V1 if version == 1 else V2)[controller]
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(groups(mount, files))
        except OSError as error:
            pytest.skip(f"groups cannot be made here: {error}")
        yield group


def effective(group: pathlib.Path) -> dict[str, str]:
    """The server's configuration where it starts in that group."""
    enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    command = ["sh", "-c", enter, "sh", os.environ["ATTNBIAS_SERVER_BINARY"], "--check-config"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("version", [1, 2])
def test_memory(version: int) -> None:
    with limited(version, "memory") as group:
        assert effective(group)["memory-budget"] == str(LIMIT // 4)


@pytest.mark.parametrize("version", [1, 2])
def test_processors(version: int) -> None:
    with limited(version, "cpu") as group:
        assert effective(group)["threads"] == "1"


def test_affinity() -> None:
    some = min(os.sched_getaffinity(0))
    command = ["taskset", "--cpu-list", str(some), os.environ["ATTNBIAS_SERVER_BINARY"]]
    done = subprocess.run([*command, "--check-config"], capture_output=True, text=True, check=True)
    assert "threads=1" in done.stdout.splitlines()
