# SPDX-License-Identifier: Apache-2.0
"""Releases of the chart are ready when Helm reports that they are; tables and certificates that
change in ConfigMaps and Secrets are reloaded without failed calls."""

import pathlib
import ssl
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest
from safetensors.numpy import save_file

import attnbias
from tests.packaging.deploy.manifests import CHART
from tests.packaging.kubernetes.cluster import Cluster
from tests.packaging.kubernetes.service import Load, Service, seconds_until
from tests.support.certificates import Authority, Pair
from tests.support.figures import Figures

HEADS = 2


def helm(service: Service, *words: str | pathlib.Path) -> None:
    waits = [] if "test" in words else ["--wait"]
    subprocess.run(
        ["helm", f"--namespace={service.namespace}", *words, *waits, "--timeout=4m"],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def put(service: Service, *words: str) -> None:
    """Creates an object as `kubectl create` does, replacing any existing one."""
    made = service.kubectl("create", *words, "--dry-run=client", "--output=json")
    service.cluster.kubectl("apply", "--filename=-", stdin=made)


@pytest.fixture(scope="module")
def service(cluster: Cluster, figures: Figures) -> Iterator[Service]:
    service = Service(cluster, "charted")
    began = time.monotonic()
    helm(service, "install", "attnbias", CHART)
    assert len(service.ready()) == 2
    seconds = time.monotonic() - began
    figures.add("kubernetes", "helm install --wait, two replicas", f"{seconds:.0f} s")
    yield service
    service.remove()


def test_both_services_answer_calls(service: Service, figures: Figures) -> None:
    with Load(service) as load:
        time.sleep(5)
    load.tell(figures, "Helm's, nothing happens")


def test_helm_test_passes(service: Service) -> None:
    helm(service, "test", "attnbias")


def test_table_in_config_map_is_reloaded(
    service: Service, figures: Figures, tmp_path: pathlib.Path
) -> None:
    old = np.arange(32 * HEADS, dtype="f4").reshape(32, HEADS)

    def publish(table: np.ndarray) -> None:
        save_file({"weight": table}, tmp_path / "t5.safetensors")
        put(service, "configmap", "tables", f"--from-file={tmp_path / 't5.safetensors'}")

    publish(old)
    helm(service, "upgrade", "attnbias", CHART, "--set=tables.configMap=tables")
    replicas = [attnbias.Client(f"{pod.address}:50051") for pod in service.settle()]

    def first_numbers() -> set[float]:
        """Returns the first number in each replica's table."""
        t5 = attnbias.T5(num_heads=HEADS, num_buckets=32, bidirectional=True, table="t5:weight")
        return {
            float(one.get(t5, query_length=1, key_length=1).dense()[0, 0, 0]) for one in replicas
        }

    assert first_numbers() == {old[0, 0]}
    with Load(service) as load:
        publish(old + 1000)
        seconds = seconds_until(lambda: first_numbers() == {old[0, 0] + 1000}, "the new table")
    figures.add("kubernetes", "a ConfigMap's table, until all have the new one", f"{seconds:.0f} s")
    load.tell(figures, "a table changed in its ConfigMap")


def test_certificate_in_secret_is_reloaded(
    service: Service, figures: Figures, tmp_path: pathlib.Path
) -> None:
    authority = Authority(tmp_path)
    names = f"DNS:attnbias.{service.namespace},DNS:attnbias-headless.{service.namespace}"

    def publish(pair: Pair) -> None:
        files = (f"--cert={pair.certificate}", f"--key={pair.key}")
        put(service, "secret", "tls", "certificate", *files)

    publish(authority.sign("first", alternatives=names))
    helm(service, "upgrade", "attnbias", CHART, "--set=tls.secret=certificate")
    addresses = [(pod.address, 50051) for pod in service.settle()]
    second = authority.sign("second", alternatives=names)
    wanted = {ssl.PEM_cert_to_DER_cert(second.certificate.read_text())}

    def presented() -> set[bytes]:
        shown = [ssl.get_server_certificate(one, timeout=10) for one in addresses]
        return set(map(ssl.PEM_cert_to_DER_cert, shown))

    assert presented() != wanted
    with Load(service, tls=attnbias.Tls(ca=authority.certificate)) as load:
        publish(second)
        seconds = seconds_until(lambda: presented() == wanted, "the new certificate")
    figures.add(
        "kubernetes", "a Secret's certificate, until all show the new one", f"{seconds:.0f} s"
    )
    load.tell(figures, "TLS rotated in its Secret")
    helm(service, "test", "attnbias")
