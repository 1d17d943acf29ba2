# SPDX-License-Identifier: Apache-2.0
"""Follows a user's first steps after `pip install 'attnbias[server]'`, in that environment."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from server_process import ServerProcess  # copied next to this file

import attnbias
import attnbias_server

SCRIPTS = pathlib.Path(sys.executable).parent
# Libraries that manylinux requires on every machine; the package must contain all others.
OF_THE_MACHINE = re.compile(r"(ld-linux-.*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|z))\.so.*")


def run(program: str, *arguments: str) -> str:
    return subprocess.run(
        [SCRIPTS / program, *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def check_alibi(client: attnbias.Client) -> None:
    heads, length = 8, 64
    bias = client.get(
        attnbias.ALiBi(num_heads=heads), query_length=length, key_length=length, causal=True
    )
    slopes = 2.0 ** -np.arange(1, heads + 1)
    positions = np.arange(length)
    distance = positions[:, None] - positions
    want = np.where(distance < 0, -np.inf, -slopes[:, None, None] * distance)
    np.testing.assert_array_equal(bias.dense(), want.astype(np.float32))


def check_libraries(pid: int) -> None:
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    paths = {pathlib.Path(path) for path in re.findall(r"/\S+\.so\S*", maps)}
    inside = attnbias_server.PROGRAMS.parents[1] / "attnbias_server.libs"
    assert any(path.parent == inside for path in paths)
    for path in paths:
        assert path.parent == inside or OF_THE_MACHINE.fullmatch(path.name), path


def main() -> None:
    version = importlib.metadata.version("attnbias")
    assert importlib.metadata.version("attnbias-server") == version
    assert version in run("attnbias-server", "--version")
    assert "Usage: attnbias " in run("attnbias", "--help")
    assert {path.name for path in attnbias_server.PROGRAMS.iterdir()} == {
        "attnbias",
        "attnbias-server",
    }
    with ServerProcess(program=str(SCRIPTS / "attnbias-server")) as server:
        run("attnbias", "--server", server.address, "health")
        with attnbias.Client(server.address) as client:
            check_alibi(client)
        check_libraries(server.process.pid)
        assert server.stop() == 0
    with tempfile.TemporaryDirectory() as folder:
        with attnbias.LocalServer(cache=folder) as client:
            check_alibi(client)
        assert " alibi " in run("attnbias", "cache", "ls", "--cache", folder)


main()
