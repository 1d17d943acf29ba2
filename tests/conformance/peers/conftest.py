# SPDX-License-Identifier: Apache-2.0
"""One server, one client that uses every access path, and the command-line tool."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from every_way import EveryWay

import attnbias
from tests.support.server_process import running_server
from tests.support.ways import run_tool

CommandLine = Callable[..., None]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[attnbias.Client]:
    """Yields a client for a server that has the checkpoint in `folder` mounted as "m"."""
    with running_server(f"--checkpoint=m={folder}") as target, EveryWay(target) as client:
        yield client


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "exhaustive: a sweep that takes minutes, in addition to a sweep that takes seconds",
    )


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> None:
    """The peers' small tensors do not benefit from threads that wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with running_server() as target:
        yield target


@pytest.fixture(scope="session")
def client(server: str) -> Iterator[attnbias.Client]:
    with EveryWay(server) as connected:
        yield connected


@pytest.fixture(scope="session")
def attnbias_cli(server: str) -> CommandLine:
    def run(*arguments: object) -> None:
        run_tool(server, *arguments)

    return run
