# SPDX-License-Identifier: Apache-2.0
"""A certificate that is replaced: new connections have it, and no call fails."""

import pytest

from tests.envoy.calls_test import small
from tests.envoy.conftest import StartEdge
from tests.envoy.mounted_secret import NAMES
from tests.integration.server import eventually
from tests.integration.traffic import Traffic


def test_a_new_certificate_is_taken_over_under_load(start_edge: StartEdge) -> None:
    edge = start_edge()
    seen = {edge.presented()}

    def call() -> None:
        with edge.stub() as stub:  # a handshake each time
            small(stub)

    with Traffic(call) as traffic:
        for _ in range(3):
            edge.secret.publish(edge.new_certificate())
            eventually(lambda: edge.presented() not in seen, "the new certificate")
            seen.add(edge.presented())
        traffic.wait_for(20)
    assert traffic.failures == []
    assert len(seen) == 4


def test_files_that_are_moved_into_place_are_read_too(start_edge: StartEdge) -> None:
    edge = start_edge(count=1)
    before = edge.presented()
    for file, name in zip(edge.new_certificate(), NAMES, strict=True):
        file.rename(edge.folder / "tls" / name)
    eventually(lambda: edge.presented() != before, "the new certificate")


@pytest.mark.parametrize("broken", ["certificate", "key"])
def test_what_is_no_certificate_changes_nothing(start_edge: StartEdge, broken: str) -> None:
    edge = start_edge(count=1)
    before = edge.presented()
    with edge.stub() as stub, Traffic(lambda: small(stub)) as traffic:
        pair = edge.new_certificate()
        getattr(pair, broken).write_text("garbage")
        edge.secret.publish(pair)
        eventually(lambda: edge.stats()["sds.edge.key_rotation_failed"] > 0, "it is looked at")
        traffic.wait_for(20)
    assert traffic.failures == []
    assert edge.presented() == before
    assert "Failed to reload certificates" in edge.log()
