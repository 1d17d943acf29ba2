# SPDX-License-Identifier: Apache-2.0
"""The aarch64 wheel under emulation, on a machine with only the libraries that manylinux
guarantees."""

import os
import pathlib
import shutil
import subprocess
import zipfile

import numpy as np
import pytest

from tests.support.server_process import running_server

ROOT = pathlib.Path(__file__).resolve().parents[3]
SYSROOT = pathlib.Path(os.environ["ATTNBIAS_SYSROOT"])
PROMISED = (
    "ld-linux-aarch64.so.1",
    *(f"lib{name}" for name in ("c.so.6", "m.so.6", "stdc++.so.6", "gcc_s.so.1", "z.so.1")),
    *(f"lib{name}" for name in ("dl.so.2", "rt.so.1", "pthread.so.0", "resolv.so.2")),
)
ALIBI = ("get", "alibi", "num_heads=8", "--query-length", "64", "--key-length", "64", "--out", "-")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns the words to prepend to a program's path."""
    machine = tmp_path_factory.mktemp("machine")
    (machine / "lib").mkdir()
    for name in PROMISED:
        shutil.copy(SYSROOT / "usr/lib/aarch64-linux-gnu" / name, machine / "lib")
    return ["qemu-aarch64", "-L", str(machine)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    (wheel,) = (ROOT / "build" / "wheels").glob("*-py3-none-manylinux_2_35_aarch64.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    programs = folder / "attnbias_server" / "bin"
    for program in programs.iterdir():
        program.chmod(0o755)
    return programs


def test_serves_same_bytes_as_native_server(emulated: list[str], programs: pathlib.Path) -> None:
    here = ROOT / "build" / "release" / "bin"
    with (
        running_server(prefix=emulated, program=str(programs / "attnbias-server")) as there,
        running_server(program=str(here / "attnbias-server")) as local,
    ):
        answers = [
            subprocess.run(
                [*command, "--server", address, *ALIBI], check=True, stdout=subprocess.PIPE
            ).stdout
            for command in ([*emulated, str(programs / "attnbias")], [str(here / "attnbias")])
            for address in (there, local)
        ]
    slopes = 2.0 ** -np.arange(1, 9)
    diagonals = -slopes[:, None] * np.abs(np.arange(-63, 64))
    assert answers == answers[:1] * 4
    np.testing.assert_array_equal(np.frombuffer(answers[0], "<f4"), diagonals.ravel())
