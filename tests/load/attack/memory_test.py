# SPDX-License-Identifier: Apache-2.0
"""In a 300 MiB container, no load gets the server killed or makes it exceed the documented memory.
Running all loads one after another in 256 MiB does not get it killed either."""

import contextlib
import time

import pytest

from tests.load.attack.attack import (
    BUDGET,
    MIB,
    PROCESS,
    RECOVERY_SECONDS,
    Attack,
    computes,
    is_well,
)
from tests.load.attack.load import MEMORY
from tests.support import control_groups
from tests.support.figures import Figures, mib
from tests.support.server import Server

CONTAINER = 300 * MIB
SMALL_CONTAINER = 256 * MIB
MOST_SECONDS = 5
"""Maximum time to wait for a load to reach its peak."""


def endure(server: Server, attack: Attack) -> int:
    """Waits until the load is complete or the server is killed; returns the peak memory."""
    deadline = time.monotonic() + MOST_SECONDS
    peak = 0
    while is_alive(server) and time.monotonic() < deadline:
        busy = computes(server.process, attack.process)
        peak = max(peak, server.peak_resident_bytes())
        if not busy:
            break
    return peak


def is_alive(server: Server) -> bool:
    return server.process.poll() is None


@pytest.mark.parametrize("threads", [2, 16, 64])
@pytest.mark.parametrize("name", MEMORY)
def test_memory_limit_holds_under_each_load(name: str, threads: int, figures: Figures) -> None:
    flags = (f"--threads={threads}", f"--memory-budget={BUDGET}")
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(control_groups.limited_memory(CONTAINER))
        prefix = control_groups.inside(group)
        server = stack.enter_context(Server(*flags, prefix=prefix))
        attack = stack.enter_context(Attack(name, server.address))
        peak = endure(server, attack)
        counts = attack.stop()
        recovered = is_well(server)
        if alive := is_alive(server):
            peak = max(peak, server.peak_resident_bytes())
    done = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    end = "" if recovered else ", silent afterwards" if alive else ", killed"
    figures.add(
        "memory",
        f"{MEMORY[name].what}; {threads} threads",
        f"{mib(peak)}{end} ({done})",
        mib(BUDGET + PROCESS),
    )
    assert alive, f"killed in a container of {mib(CONTAINER)}"
    assert peak <= BUDGET + PROCESS
    assert recovered, f"no small call answered in {RECOVERY_SECONDS} s after the attack"


def test_memory_limit_holds_under_successive_loads(figures: Figures) -> None:
    """One load's memory is released before the next load."""
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(control_groups.limited_memory(SMALL_CONTAINER))
        flags = ("--threads=1", f"--memory-budget={BUDGET}")
        server = stack.enter_context(Server(*flags, prefix=control_groups.inside(group)))
        for name, load in MEMORY.items():
            with Attack(name, server.address) as attack:
                endure(server, attack)
            assert is_well(server), f"killed or silent after {load.what}"
        peak = server.peak_resident_bytes()
    figures.add("memory", "all of them in turn", mib(peak), mib(SMALL_CONTAINER))
