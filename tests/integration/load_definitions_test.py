# SPDX-License-Identifier: Apache-2.0
"""The loads in tests/load/attack, which rarely runs, are valid under the current contract."""

import pytest

from tests.load.attack.attack import small_table
from tests.load.attack.load import MEMORY, PROXY, TIME, UNWANTED, Calls

LOADS = {
    name: load
    for loads in (MEMORY, TIME, UNWANTED, PROXY)
    for name, load in loads.items()
    if isinstance(load, Calls)
}


@pytest.mark.parametrize("name", LOADS)
def test_load_bodies_can_be_built(name: str) -> None:
    assert LOADS[name].body(0)


def test_probe_calls_can_be_built() -> None:
    assert small_table(0)
