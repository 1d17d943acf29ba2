# SPDX-License-Identifier: Apache-2.0
"""Replaced certificates: new connections use them, and no call fails."""

import pathlib
import ssl

import pytest
import yaml

from tests.packaging.envoy.calls_test import small
from tests.packaging.envoy.conftest import StartEdge
from tests.packaging.envoy.edge import DEPLOYED, NAME, Config, cluster_of
from tests.packaging.envoy.mounted_secret import Files, MountedSecret, tls
from tests.support.certificates import Authority
from tests.support.server import Server, eventually, refused
from tests.support.traffic import Traffic


def test_new_certificate_is_used_under_load(start_edge: StartEdge) -> None:
    edge = start_edge()
    seen = {edge.presented()}

    def call() -> None:
        with edge.stub() as stub:  # a new handshake each time
            small(stub)

    with Traffic(call) as traffic:
        for _ in range(3):
            edge.secret.publish(edge.new_certificate())
            eventually(lambda: edge.presented() not in seen, "the new certificate")
            seen.add(edge.presented())
        traffic.wait_for(20)
    assert traffic.failures == []
    assert len(seen) == 4


def test_renamed_certificate_files_are_reloaded(start_edge: StartEdge) -> None:
    edge = start_edge(count=1)
    before = edge.presented()
    for name, file in edge.new_certificate().items():
        file.rename(edge.folder / "tls" / name)
    eventually(lambda: edge.presented() != before, "the new certificate")


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key"])
def test_invalid_certificate_keeps_the_old_one(start_edge: StartEdge, broken: str) -> None:
    edge = start_edge(count=1)
    before = edge.presented()
    with edge.stub() as stub, Traffic(lambda: small(stub)) as traffic:
        files = edge.new_certificate()
        files[broken].write_text("garbage")
        edge.secret.publish(files)
        eventually(lambda: edge.stats()["sds.edge.key_rotation_failed"] > 0, "it is looked at")
        traffic.wait_for(20)
    assert traffic.failures == []
    assert edge.presented() == before
    assert "Failed to reload certificates" in edge.log()


def with_tls_of_replicas(config: Config) -> None:
    shown = yaml.safe_load((DEPLOYED / "replica_tls.yaml").read_text())
    cluster_of(config, "attnbias").update(shown)


def shown_by(server: Server) -> str:
    host, port = server.address.rsplit(":", 1)
    return ssl.get_server_certificate((host, int(port)))


def test_replica_authority_rotates_under_load(
    start_edge: StartEdge, tmp_path: pathlib.Path
) -> None:
    """Follows the order in docs/operations/upgrade.md."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    both = tmp_path / "both"
    both.write_text(old.certificate.read_text() + new.certificate.read_text())

    def signed_by(authority: Authority) -> Files:
        return tls(authority.sign("replica", alternatives=f"DNS:{NAME}"))

    own = MountedSecret(tmp_path / "replica", signed_by(old))
    trusted = MountedSecret(tmp_path / "ca", {"ca.crt": old.certificate})
    folder = tmp_path / "replica"
    edge = start_edge(
        f"--tls-cert={folder / 'tls.crt'}",
        f"--tls-key={folder / 'tls.key'}",
        change=with_tls_of_replicas,
    )

    def trust(file: pathlib.Path) -> None:
        name = "cluster.attnbias.client_ssl_socket_factory.ssl_context_update_by_sds"
        before = edge.stats()[name]
        trusted.publish({"ca.crt": file})
        eventually(lambda: edge.stats()[name] > before, "Envoy has read it")

    def show(authority: Authority) -> None:
        before = [shown_by(server) for server in edge.replicas.servers]
        own.publish(signed_by(authority))
        for server in edge.replicas.servers:
            eventually(lambda server=server: shown_by(server) not in before, "it is shown")

    def call() -> None:
        with edge.stub() as stub:  # handshakes with Envoy, and between Envoy and a replica
            small(stub)

    with Traffic(call) as traffic:
        trust(both)
        show(new)
        trust(new.certificate)
        traffic.wait_for(20)
    assert traffic.failures == []
    show(old)
    with edge.stub() as stub:
        refused(lambda: small(stub))
    assert edge.stats()["cluster.attnbias.ssl.fail_verify_error"] > 0
