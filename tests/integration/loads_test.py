# SPDX-License-Identifier: Apache-2.0
"""The loads of tests/load/attack, which runs seldom, are requests of the contract as it is."""

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
def test_a_load_s_bodies_can_be_made(name: str) -> None:
    assert LOADS[name].body(0)


def test_the_calls_beside_a_load_can_be_made() -> None:
    assert small_table(0)
