# SPDX-License-Identifier: Apache-2.0
"""Every client, before the same servers, does the same: the right bytes, or the same error."""

import functools
import itertools
import pathlib
import re
from collections.abc import Callable

import pytest

from tests.clients.cases import LONG, TRIALS, Fails, Trial
from tests.clients.drivers import DRIVERS, TOOL_SETTINGS, Outcome, sketch
from tests.clients.proxy import Proxy
from tests.integration import ways
from tests.integration.server import Server

Before = Callable[[Trial], Proxy]


@functools.cache
def right(server: Server, name: str) -> Outcome:
    """What the server says without anything between."""
    spec = TRIALS[name].asked.spec()
    with server.connect() as stub:
        parts = ways.by_stream(stub, spec)
        fingerprint = stub.header(spec).fingerprint
    return {
        "fingerprint": fingerprint,
        "parts": {name: sketch(part) for name, part in parts.items()},
    }


@pytest.mark.parametrize(
    ("client", "name"),
    [
        (client, name)
        for client in DRIVERS
        for name, trial in TRIALS.items()
        if client != "tool" or trial.settings.keys() <= TOOL_SETTINGS
    ],
)
def test_every_client_does_the_same(
    client: str, name: str, before: Before, open_server: Server, tmp_path: pathlib.Path
) -> None:
    trial = TRIALS[name]
    with before(trial) as proxy:
        settings = {"target": proxy.target, "timeout": LONG} | trial.settings
        got = DRIVERS[client](trial.asked, settings, tmp_path)
    if trial.fails is None:
        assert got == right(open_server, name)
    else:
        expect_failure(got, trial.fails)
    times = [call.at for call in proxy.calls]
    assert trial.calls in (None, len(times))
    assert all(after - before >= trial.gap for before, after in itertools.pairwise(times))


def expect_failure(got: Outcome, want: Fails) -> None:
    assert got.get("status") == want.status, got
    assert re.search(want.says, got["message"]), got
    if "reason" in got:  # the tool is for people
        assert got["reason"] == want.reason
        assert got["fields"] == ([want.field] if want.field else [])
