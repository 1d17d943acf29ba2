# SPDX-License-Identifier: Apache-2.0
"""Small requests are answered quickly, whatever other clients request; cancelled work ends."""

import contextlib
import os
import time
from collections.abc import Iterator

import pytest

from tests.load.attack import probe
from tests.load.attack.attack import Attack, computes
from tests.load.attack.load import TIME, UNWANTED
from tests.support.figures import Figures, ms
from tests.support.server import Server, cpu_seconds, eventually, no_call_is_open

SECONDS = 5
SLACK = 20
"""Factor by which calls may exceed the goal, since machines may be slow and shared. A starved call
exceeds it by more."""
WANTED_SECONDS = 0.5
"""Seconds after which the calls in UNWANTED loads expire or are reset."""
MOST_SECONDS_OF_UNWANTED_WORK = 5


@contextlib.contextmanager
def server_on_two_processors() -> Iterator[Server]:
    two = sorted(os.sched_getaffinity(0))[:2]
    prefix = ("taskset", "--cpu-list", ",".join(map(str, two)))
    with Server(prefix=prefix) as server:
        yield server


def seconds_until_idle(server: Server) -> float:
    """Waits until no call is open or queued and nothing is being computed."""
    began = time.monotonic()

    def is_idle() -> bool:
        metrics = server.metrics()
        return (
            no_call_is_open(metrics)
            and metrics["attnbias_queued_tasks"] == 0
            and not computes(server.process)
        )

    eventually(is_idle, "the server idle")
    return time.monotonic() - began


@pytest.mark.parametrize("name", TIME)
def test_small_calls_and_health_stay_fast_under_load(name: str, figures: Figures) -> None:
    probes = probe.probes()
    what = TIME[name].what
    with server_on_two_processors() as server:
        probe.warm(probes, server.address)
        with Attack(name, server.address) as attack:
            with probe.running(probes, server.address):
                time.sleep(SECONDS)
            client_share = cpu_seconds(attack.process.pid) / SECONDS
        idle_after = seconds_until_idle(server)
    for one in probes:
        shares = ", ".join(f"p{p} {ms(one.percentile(p))}" for p in (50, 99))
        figures.add(
            "time",
            f"{one.what}, during {what}",
            f"{shares}, max {ms(max(one.seconds))}, {one.refused} of {len(one.seconds)} refused",
            f"p99 {ms(one.goal * SLACK)}; goal {ms(one.goal)}",
        )
    figures.add("time", f"{what}: the load's own processor time", f"{client_share:.0%}")
    figures.add(
        "time",
        f"{what}: connections closed, until idle",
        f"{idle_after:.1f} s",
        f"{MOST_SECONDS_OF_UNWANTED_WORK} s",
    )
    assert not [one.what for one in probes if one.percentile(99) > one.goal * SLACK]
    assert not [one.what for one in probes if one.refused > len(one.seconds) / 2]
    assert idle_after <= MOST_SECONDS_OF_UNWANTED_WORK


@pytest.mark.parametrize("name", UNWANTED)
def test_cancelled_work_stops(name: str, figures: Figures) -> None:
    with server_on_two_processors() as server, Attack(name, server.address):
        time.sleep(WANTED_SECONDS)
        idle_after = seconds_until_idle(server)
    how = "deadline passed" if name.startswith("expired") else "reset"
    figures.add(
        "time",
        f"{UNWANTED[name].what}: {how}, until idle",
        f"{idle_after:.1f} s",
        f"{MOST_SECONDS_OF_UNWANTED_WORK} s",
    )
    assert idle_after <= MOST_SECONDS_OF_UNWANTED_WORK
