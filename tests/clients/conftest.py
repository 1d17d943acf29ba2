# SPDX-License-Identifier: Apache-2.0
"""The real server, the event loop for the faulty ones, and the final table of outcomes by case and
client.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Iterator

import pytest
from safetensors.numpy import save_file

from tests.clients.cases import TRIALS
from tests.clients.connections import AUTHORITIES, CERTIFICATES
from tests.clients.drivers import DRIVERS
from tests.clients.proxy import Loop, Proxy
from tests.clients.trial import TABLE, TABLE_FILE, TABLE_TENSOR, Trial
from tests.support.certificates import Authority
from tests.support.server import Server


@pytest.fixture(scope="session")
def loop() -> Loop:
    return Loop()


@pytest.fixture(scope="session")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yields a server with a mounted table."""
    tables = tmp_path_factory.mktemp("tables")
    save_file({TABLE_TENSOR: TABLE}, tables / f"{TABLE_FILE}.safetensors")
    with Server(f"--tables={tables}") as server:
        yield server


@pytest.fixture(scope="session")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yields a server that authenticates callers and has a policy."""
    folder = tmp_path_factory.mktemp("guard")
    tokens, policy = folder / "tokens", folder / "policy.json"
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("all", "little")}
    tokens.write_text("".join(f"{name} sha256:{digest}\n" for name, digest in digests.items()))
    rights = {"all": {"methods": ["*"]}, "little": {"methods": ["GetServerInfo"]}}
    policy.write_text(json.dumps({"callers": rights}))
    with Server(f"--tokens={tokens}", f"--policy={policy}") as server:
        yield server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns a folder with authorities, and certificates signed by the first of them."""
    folder = tmp_path_factory.mktemp("certificates")
    signer, *_ = (Authority(folder, name) for name in AUTHORITIES)
    for name, alternatives in CERTIFICATES.items():
        signer.sign(name, alternatives=alternatives)
    return folder


@pytest.fixture
def before(
    loop: Loop, open_server: Server, guarded_server: Server, certificates: pathlib.Path
) -> Callable[[Trial], Proxy]:
    """Returns a function that puts a proxy between a client and the trial's server."""

    def make(trial: Trial) -> Proxy:
        server = guarded_server if trial.guarded else open_server
        return Proxy(loop, server.address, trial.fault, trial.front, certificates)

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints one row per case."""
    verdicts: dict[tuple[str, str], str] = {}
    for verdict in ("passed", "failed"):
        for report in terminalreporter.getreports(verdict):
            found = re.fullmatch(
                r".*::test_every_client_behaves_the_same\[(.*?)-(.*)\]", report.nodeid
            )
            if found:
                verdicts[found[2], found[1]] = {"passed": "ok", "failed": "FAILED"}[verdict]
    terminalreporter.section("clients")
    rows = [("case", "outcome", *DRIVERS)]
    for name, trial in TRIALS.items():
        cells = [verdicts.get((name, client), "-") for client in DRIVERS]
        if set(cells) != {"-"}:
            rows.append((name, trial.outcome(), *cells))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())
