# SPDX-License-Identifier: Apache-2.0
"""Control groups with limits, of version 1 or 2; tests are skipped if none can be created."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path("/sys/fs/cgroup")
Files = dict[str, str]


def memory_files(version: int, size: int) -> Files:
    return {"memory.limit_in_bytes" if version == 1 else "memory.max": str(size)}


def has(controller: str, version: int) -> bool:
    if version == 1:
        return (ROOT / controller).exists()
    known = ROOT / "cgroup.controllers"
    return known.exists() and controller in known.read_text().split()


@contextlib.contextmanager
def limited(controller: str, version: int, files: Files) -> Iterator[pathlib.Path]:
    """Creates a group without its own limits, below a group with these limits."""
    if not has(controller, version):
        pytest.skip(f"{controller} has no groups of version {version} here")
    with contextlib.ExitStack() as stack:
        try:
            mount = ROOT / controller if version == 1 else ROOT
            group = stack.enter_context(_groups(mount, files))
        except OSError as error:
            pytest.skip(f"groups cannot be made here: {error}")
        yield group


@contextlib.contextmanager
def limited_memory(size: int) -> Iterator[pathlib.Path]:
    """Creates a group of the available version with a memory limit."""
    version = 2 if has("memory", 2) else 1
    with limited("memory", version, memory_files(version, size)) as group:
        yield group


def inside(group: pathlib.Path) -> tuple[str, ...]:
    """Returns the words to prepend to a command to run it in that group."""
    return ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")


@contextlib.contextmanager
def _groups(parent: pathlib.Path, files: Files) -> Iterator[pathlib.Path]:
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
