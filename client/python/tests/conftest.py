# SPDX-License-Identifier: Apache-2.0
"""Servers and clients for the tests: a scripted one in process, and the real binary."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest
from either_client import CONNECTS
from fake_server import FakeServer
from hypothesis import settings
from safetensors.numpy import save_file

import attnbias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from either_client import Connect


# The same examples each time, and none is late: no test here depends on time.
settings.register_profile("tests", derandomize=True, deadline=None, max_examples=200, database=None)
settings.load_profile("tests")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture(params=CONNECTS)
def connect(request: pytest.FixtureRequest) -> Connect:
    """Makes a client of either kind."""
    return CONNECTS[request.param]


@pytest.fixture
def client(server: FakeServer, connect: Connect) -> Iterator[attnbias.Client]:
    with connect(server.target, timeout=60) as connected:
        yield connected


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that calls would wait between attempts; nobody waits."""
    waited: list[float] = []

    async def wait(_: object, seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("attnbias._transport.connection.CallGroup.wait", wait)
    monkeypatch.setattr("attnbias._transport.async_connection.AsyncCalls.wait", wait)
    return waited


MOUNTED = np.arange(64, dtype="f4").reshape(32, 2)
"""What the real server has mounted as "bias:w"."""


@pytest.fixture(scope="session")
def real_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real server on a port of its own; skips where no binary is named."""
    binary = os.environ.get("ATTNBIAS_SERVER_BINARY")
    if not binary:
        pytest.skip("ATTNBIAS_SERVER_BINARY is not set")
    tables = tmp_path_factory.mktemp("tables")
    save_file({"w": MOUNTED}, tables / "bias.safetensors")
    command = [binary, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", f"--tables={tables}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield _listening_on(process.stdout)
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _listening_on(lines: Iterator[str]) -> str:
    for line in lines:
        if line.startswith("listening on "):
            return line.split()[-1]
    message = "the server ended without saying where it listens"
    raise AssertionError(message)


@pytest.fixture
def real_client(real_target: str) -> Iterator[attnbias.Client]:
    with attnbias.Client(real_target, timeout=120) as connected:
        yield connected
