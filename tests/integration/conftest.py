# SPDX-License-Identifier: Apache-2.0
"""A real server for a test session, and servers of their own for tests that need one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.server import Server


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def start_server() -> Iterator[Callable[..., Server]]:
    """Starts servers with flags of the test's own; all are gone when it ends."""
    with ExitStack() as servers:
        yield lambda *flags, **options: servers.enter_context(Server(*flags, **options))
