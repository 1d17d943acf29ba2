# SPDX-License-Identifier: Apache-2.0
"""Envoy in front of two replicas, either shared by tests that do not change them or private to one
test."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from tests.packaging.envoy.edge import Config, Edge, replicas_of


class StartEdge(Protocol):
    """Starts replicas with additional flags, and Envoy with a modified configuration."""

    def __call__(
        self, *flags: str, count: int = 2, change: Callable[[Config], None] = lambda _: None
    ) -> Edge: ...


@pytest.fixture(scope="session")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with replicas_of(2) as replicas, Edge(tmp_path_factory.mktemp("edge"), replicas) as edge:
        yield edge


@pytest.fixture
def start_edge(tmp_path: pathlib.Path) -> Iterator[StartEdge]:
    with contextlib.ExitStack() as stack:

        def start(
            *flags: str, count: int = 2, change: Callable[[Config], None] = lambda _: None
        ) -> Edge:
            replicas = stack.enter_context(replicas_of(count, *flags))
            return stack.enter_context(Edge(tmp_path, replicas, change))

        yield start
