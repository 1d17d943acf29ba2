# SPDX-License-Identifier: Apache-2.0
"""Envoy's manifests are valid for Kubernetes, and agree with Envoy's configuration."""

import pathlib
import re
import shutil
import subprocess
from typing import Any

import yaml

from tests.packaging.deploy.manifests import ENVOY, kustomized, of_kind, pod_of, server_of, workload

MIB = 1 << 20


def config() -> dict[str, Any]:
    return dict(yaml.safe_load((ENVOY / "envoy.yaml").read_text()))


def test_selectors_match_the_pods() -> None:
    resources = kustomized(ENVOY)
    [service] = of_kind(resources, "Service")
    [budget] = of_kind(resources, "PodDisruptionBudget")
    labels = workload(resources)["spec"]["template"]["metadata"]["labels"].items()
    for selector in (
        service["spec"]["selector"],
        budget["spec"]["selector"]["matchLabels"],
        workload(resources)["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels


def test_container_ports_match_listeners() -> None:
    resources = kustomized(ENVOY)
    listening = {
        listener["address"]["socket_address"]["port_value"]
        for listener in config()["static_resources"]["listeners"]
    }
    ports = {port["name"]: port["containerPort"] for port in server_of(resources)["ports"]}
    assert set(ports.values()) == listening
    metadata = workload(resources)["spec"]["template"]["metadata"]
    assert metadata["annotations"]["prometheus.io/port"] == str(ports["metrics"])


def test_every_configured_file_is_mounted() -> None:
    container, pod = server_of(kustomized(ENVOY)), pod_of(kustomized(ENVOY))
    folder = pathlib.PurePath(container["workingDir"])
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    files = {"envoy.yaml", "certificate.yaml", "ca.yaml"}
    assert mounted == {str(folder / name) for name in (*files, "tls", "ca")}
    [made] = of_kind(kustomized(ENVOY), "ConfigMap")
    assert set(made["data"]) == files
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["config"]["configMap"]["name"] == made["metadata"]["name"]


def test_documented_edits_connect_to_chart_over_tls(tmp_path: pathlib.Path) -> None:
    folder = shutil.copytree(ENVOY, tmp_path / "envoy")
    page = (ENVOY / "README.md").read_text().partition("### The chart with TLS and tokens")[2]
    edits = re.findall("^sed .*$", page, re.MULTILINE)
    subprocess.run(["bash", "-euc", "\n".join(edits)], cwd=folder, check=True)
    [made] = of_kind(kustomized(folder), "ConfigMap")
    [cluster, _] = yaml.safe_load(made["data"]["envoy.yaml"])["static_resources"]["clusters"]
    [endpoint] = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    name = "prod-pe-attnbias-headless"
    assert endpoint["endpoint"]["address"]["socket_address"]["address"] == name
    tls = cluster["transport_socket"]["typed_config"]["common_tls_context"]
    trusted = tls["combined_validation_context"]
    [wanted] = trusted["default_validation_context"]["match_typed_subject_alt_names"]
    assert wanted["matcher"] == {"exact": name}
    [secret] = yaml.safe_load(made["data"]["ca.yaml"])["resources"]
    assert secret["name"] == trusted["validation_context_sds_secret_config"]["name"]


def test_heap_limit_is_below_memory_limit() -> None:
    limit = server_of(kustomized(ENVOY))["resources"]["limits"]["memory"]
    [heap] = [
        monitor["typed_config"]["max_heap_size_bytes"]
        for monitor in config()["overload_manager"]["resource_monitors"]
        if monitor["name"] == "envoy.resource_monitors.fixed_heap"
    ]
    assert heap == 0.8 * int(limit.removesuffix("Mi")) * MIB
