# SPDX-License-Identifier: Apache-2.0
"""A real server for a test session, and separate servers for tests that need one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.server import Server, Stub


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def stub(shared_server: Server) -> Iterator[Stub]:
    with shared_server.connect() as connected:
        yield connected


@pytest.fixture
def start_server() -> Iterator[Callable[..., Server]]:
    """Starts servers with the test's own flags, and stops all of them when the test ends."""
    with ExitStack() as servers:
        yield lambda *flags, **options: servers.enter_context(Server(*flags, **options))
