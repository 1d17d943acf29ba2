# SPDX-License-Identifier: Apache-2.0
"""The manifests are valid for Kubernetes, and agree with each other and the image."""

import copy
import pathlib
import re

import pytest

from tests.packaging.deploy.manifests import (
    BASE,
    ENVOY,
    ROOT,
    Reasons,
    Resource,
    kubeconform,
    kustomized,
    of_kind,
    pod_of,
    server_of,
    workload,
)

of_each = pytest.mark.parametrize("folder", [BASE, ENVOY], ids=lambda folder: folder.name)


@of_each
def test_schemas_accept_every_resource(folder: pathlib.Path, schemas: pathlib.Path) -> None:
    resources = kustomized(folder)
    verdicts = kubeconform(schemas, resources)
    assert sorted(verdicts) == sorted(f"statusValid {one['kind']}" for one in resources)


def test_schemas_reject_unknown_field(schemas: pathlib.Path) -> None:
    wrong = copy.deepcopy(workload(kustomized()))
    security = wrong["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    security["readOnlyRootFileSystem"] = security.pop("readOnlyRootFilesystem")
    [verdict] = kubeconform(schemas, [wrong])
    assert verdict.startswith("statusInvalid Deployment")
    assert "readOnlyRootFileSystem" in verdict


def test_schemas_reject_value_of_wrong_type(schemas: pathlib.Path) -> None:
    wrong = copy.deepcopy(workload(kustomized()))
    wrong["spec"]["template"]["spec"]["containers"][0]["startupProbe"]["grpc"]["port"] = "grpc"
    [verdict] = kubeconform(schemas, [wrong])
    assert verdict.startswith("statusInvalid Deployment")
    assert "/startupProbe/grpc/port" in verdict


@of_each
def test_pods_are_restricted(folder: pathlib.Path, restricted: Reasons) -> None:
    assert restricted([workload(kustomized(folder))["spec"]["template"]]) == [[]]


# The profile's requirements, each violated once: pod fields, container fields, reason.
BROKEN: list[tuple[Resource, Resource, str]] = [
    ({"hostNetwork": True}, {}, "host namespaces"),
    ({"volumes": [{"name": "v", "hostPath": {"path": "/v"}}]}, {}, "restricted volume types"),
    ({"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}, {}, "restricted volume"),
    ({"securityContext": {"runAsUser": 65532}}, {}, "runAsNonRoot != true"),
    ({"securityContext": {"runAsNonRoot": True}}, {}, "seccompProfile"),
    ({"securityContext": {"runAsUser": 0}}, {}, "runAsUser=0"),
    (
        {"securityContext": {"sysctls": [{"name": "kernel.x", "value": "1"}]}},
        {},
        "forbidden sysctls",
    ),
    ({}, {"securityContext": {}}, "allowPrivilegeEscalation != false"),
    ({}, {"securityContext": {"allowPrivilegeEscalation": False}}, "unrestricted capabilities"),
    ({}, {"securityContext": {"privileged": True}}, "privileged"),
    ({}, {"securityContext": {"procMount": "Unmasked"}}, "procMount"),
    ({}, {"securityContext": {"seLinuxOptions": {"user": "u"}}}, "seLinuxOptions"),
    ({}, {"ports": [{"containerPort": 50051, "hostPort": 50051}]}, "hostPort"),
    ({}, {"livenessProbe": {"tcpSocket": {"port": 1, "host": "h"}}}, "probe or lifecycle host"),
]


@pytest.mark.parametrize(("pod", "container", "reason"), BROKEN, ids=str)
def test_unrestricted_pod_is_reported(
    restricted: Reasons, pod: Resource, container: Resource, reason: str
) -> None:
    template = copy.deepcopy(workload(kustomized())["spec"]["template"])
    template["spec"].update(pod)
    template["spec"]["containers"][0].update(container)
    [found] = restricted([template])
    assert [one for one in found if one.startswith(reason)]


@pytest.mark.parametrize("folder", [BASE, ENVOY], ids=["attnbias", "envoy"])
def test_single_replica_does_not_block_node_drain(folder: pathlib.Path) -> None:
    [budget] = of_kind(kustomized(folder), "PodDisruptionBudget")
    spec = {name: value for name, value in budget["spec"].items() if name != "selector"}
    assert spec["maxUnavailable"] == 1
    assert "minAvailable" not in spec
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_ports_and_user_match_image() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    container = server_of(kustomized())
    exposed = {int(port) for port in re.findall(r"^EXPOSE (.*)$", dockerfile, re.M)[0].split()}
    assert {port["containerPort"] for port in container["ports"]} == exposed
    [user] = re.findall(r"^USER (\d+):\d+$", dockerfile, re.M)
    assert pod_of(kustomized())["securityContext"]["runAsUser"] == int(user)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["grpc"]["port"] in exposed
