# SPDX-License-Identifier: Apache-2.0
"""What somebody does first after `pip install 'attnbias[server]'`; runs where that was done."""

import contextlib
import importlib.metadata
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import numpy as np

import attnbias
import attnbias_server

SCRIPTS = pathlib.Path(sys.executable).parent
# What manylinux takes for granted; all else has to come with the package.
OF_THE_MACHINE = re.compile(r"(ld-linux-.*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|z))\.so.*")


def run(program: str, *arguments: str) -> str:
    return subprocess.run(
        [SCRIPTS / program, *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


@contextlib.contextmanager
def running_server() -> Iterator[tuple[str, int]]:
    command = [SCRIPTS / "attnbias-server", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--drain-notice=0s"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("listening on "), said
            yield said.split()[-1], process.pid
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


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
    with running_server() as (address, pid):
        run("attnbias", "--server", address, "health")
        with attnbias.Client(address) as client:
            check_alibi(client)
        check_libraries(pid)
    with tempfile.TemporaryDirectory() as folder:
        with attnbias.LocalServer(cache=folder) as client:
            check_alibi(client)
        assert " alibi " in run("attnbias", "cache", "ls", "--cache", folder)


main()
