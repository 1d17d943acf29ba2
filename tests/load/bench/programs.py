# SPDX-License-Identifier: Apache-2.0
"""The C++ programs in this folder, and the server, as the benchmark's processes."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.load.bench.measure import Round
from tests.support.server import Server
from tests.support.server_process import announced

GET_TENSOR = "/attnbias.v1.AttentionBiasService/GetTensor"


def binary(name: str) -> str:
    """Returns the path of a program in the same folder as the server's binary."""
    return str(Path(os.environ["ATTNBIAS_SERVER_BINARY"]).with_name(name))


@contextlib.contextmanager
def rounds_of(program: str, *arguments: object) -> Iterator[Round]:
    """Starts a program that runs a round for each line of input; a bare name means a program in
    this folder."""
    command = [program if "/" in program else binary(program), *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, back = process.stdin, process.stdout

        def run() -> float:
            to.write("\n")
            to.flush()
            return float(back.readline())

        assert back.readline() == "ready\n", f"{program} failed"
        yield run


def server(*flags: str) -> Server:
    """Runs the server as it is deployed, with its log discarded."""
    return Server(*flags, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def empty_server(response_bytes: int) -> Iterator[str]:
    with subprocess.Popen(
        [binary("empty_server"), str(response_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield announced(process, "listening on ")
        process.communicate()


@contextlib.contextmanager
def flight_server(num_bytes: int) -> Iterator[str]:
    script = str(Path(__file__).with_name("flight_server.py"))
    with subprocess.Popen(
        [sys.executable, script, str(num_bytes)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield announced(process, "listening on ")
        finally:
            process.terminate()
