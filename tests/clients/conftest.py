# SPDX-License-Identifier: Apache-2.0
"""The real server, the loop of the faulty ones, and the table at the end: what became of each case
in each client.
"""

import pytest

from tests.clients.cases import TRIALS
from tests.clients.drivers import DRIVERS
from tests.clients.proxy import Loop
from tests.integration.conftest import shared_server

__all__ = ["shared_server"]


@pytest.fixture(scope="session")
def loop() -> Loop:
    return Loop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One row for each case."""
    verdicts: dict[tuple[str, str], str] = {}
    for verdict in ("passed", "failed"):
        for report in terminalreporter.getreports(verdict):
            if cell := dict(report.user_properties).get("cell"):
                verdicts[tuple(cell)] = {"passed": "ok", "failed": "FAILED"}[verdict]
    terminalreporter.section("clients")
    rows = [("case", "what comes of it", *DRIVERS)]
    for name, trial in TRIALS.items():
        cells = [verdicts.get((name, client), "-") for client in DRIVERS]
        if set(cells) != {"-"}:
            rows.append((name, trial.outcome().replace("`", ""), *cells))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())
