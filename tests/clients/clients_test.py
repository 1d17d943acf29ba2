# SPDX-License-Identifier: Apache-2.0
"""Every client returns the same bytes, or the same error, for the same server behavior."""

import functools
import itertools
import pathlib
import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.clients.cases import TRIALS
from tests.clients.drivers import DRIVERS, LACKS, PRINTED, Outcome, sketch
from tests.clients.fronts import has_two_localhosts
from tests.clients.proxy import Proxy
from tests.clients.trial import LONG, Asked, Fails, Trial
from tests.support import ways
from tests.support.cases import ENCODINGS, case_of
from tests.support.options import options_of
from tests.support.server import Server, eventually

Before = Callable[[Trial], Proxy]


@functools.cache
def right(server: Server, name: str) -> Outcome:
    """Returns the outcome of a direct call to the server."""
    asked = TRIALS[name].asked
    assert asked is not None
    return answer_of(server, asked)


def answer_of(server: Server, asked: Asked) -> Outcome:
    spec = asked.spec()
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
        if LACKS.get(client, set()).isdisjoint(trial.settings)
    ],
)
def test_every_client_behaves_the_same(
    client: str, name: str, before: Before, open_server: Server, tmp_path: pathlib.Path
) -> None:
    trial = TRIALS[name]
    if trial.on_localhost and not has_two_localhosts():
        pytest.skip("localhost has one address on this machine")
    with before(trial) as proxy:
        settings = {"target": proxy.target, "timeout": LONG} | trial.settings
        if "ca" in settings:
            settings["ca"] = str(proxy.certificates / f"{settings['ca']}.pem")
        got = DRIVERS[client](trial.asked, settings, tmp_path)
    if trial.tables is not None:
        assert got == (PRINTED if client == "tool" else {"tables": trial.tables})
    elif trial.fails is None:
        assert got == right(open_server, name)
    else:
        expect_failure(got, trial.fails)
    assert trial.calls in (None, len(proxy.calls))
    gaps = (later - earlier for earlier, later in itertools.pairwise(proxy.calls))
    assert all(gap >= trial.gap for gap in gaps)


@pytest.mark.parametrize("client", [client for client in DRIVERS if client != "tool"])
def test_error_request_id_matches_access_log(
    client: str, before: Before, open_server: Server, tmp_path: pathlib.Path
) -> None:
    trial = TRIALS["no such table"]
    with before(trial) as proxy:
        got = DRIVERS[client](trial.asked, {"target": proxy.target, "timeout": LONG}, tmp_path)
    assert got["request_id"]
    eventually(
        lambda: f" request_id={got['request_id']} " in open_server.log(), "the call is logged"
    )


# The integration tests cover the Python clients and the tool.
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("client", ["go", "c++"])
def test_valid_answers_are_accepted(
    client: str, encoding: str, open_server: Server, tmp_path: pathlib.Path
) -> None:
    for seed in range(8):
        case = case_of(encoding, seed)
        asked = Asked(case, options_of(case, np.random.default_rng(seed)))
        settings = {"target": open_server.address, "timeout": LONG}
        assert DRIVERS[client](asked, settings, tmp_path) == answer_of(open_server, asked), asked


def expect_failure(got: Outcome, want: Fails) -> None:
    assert got.get("status") == want.status, got
    assert re.search(want.says, got["message"]), got
    assert all(map(str.isprintable, [got["message"], *got.get("fields", [])])), got
    if "reason" in got:  # absent for the tool, which is for interactive use
        assert got["reason"].isprintable()
        assert got["request_id"].isprintable()
    if "reason" in got and want.reason is not None:
        assert got["reason"] == want.reason
        assert got["fields"] == ([want.field] if want.field else [])
