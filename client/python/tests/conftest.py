# SPDX-License-Identifier: Apache-2.0
"""Servers and clients for the tests: a scripted in-process server, and the real binary."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from either_client import CONNECTS
from fake_server import FakeServer
from hypothesis import settings
from safetensors.numpy import save_file
from tests.support.server_process import running_server

import attnbias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from either_client import Connect


# The same examples each time, without deadlines, since no test here depends on timing.
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
    """Records the seconds between attempts without waiting."""
    waited: list[float] = []

    async def wait(_: object, seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("attnbias._transport.connection.CallGroup.wait", wait)
    monkeypatch.setattr("attnbias._transport.async_connection.AsyncCalls.wait", wait)
    return waited


MOUNTED = np.arange(64, dtype="f4").reshape(32, 2)
"""The table that the real server has mounted as "bias:w"."""


@pytest.fixture(scope="session")
def real_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real server on its own port; skips the test if no binary is named."""
    if "ATTNBIAS_SERVER_BINARY" not in os.environ:
        pytest.skip("ATTNBIAS_SERVER_BINARY is not set")
    tables = tmp_path_factory.mktemp("tables")
    save_file({"w": MOUNTED}, tables / "bias.safetensors")
    with running_server(f"--tables={tables}") as target:
        yield target


@pytest.fixture
def real_client(real_target: str) -> Iterator[attnbias.Client]:
    with attnbias.Client(real_target, timeout=120) as connected:
        yield connected
