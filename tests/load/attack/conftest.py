# SPDX-License-Identifier: Apache-2.0
"""Prints a run's figures at its end, even if tests failed."""

import pytest

from tests.support.figures import Figures

_FIGURES = pytest.StashKey[Figures]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = Figures()


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Figures:
    return pytestconfig.stash[_FIGURES]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    terminalreporter.section("figures")
    terminalreporter.write_line(config.stash[_FIGURES].table())
