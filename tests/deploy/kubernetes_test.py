# SPDX-License-Identifier: Apache-2.0
"""The manifests are what Kubernetes accepts, and agree with each other and the image."""

import json
import os
import pathlib
import re
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
SCHEMAS = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
VERSION = os.environ["KUBERNETES"]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The schemas with references that kubeconform can follow without a network."""
    folder = tmp_path_factory.mktemp("schemas")
    for path in (SCHEMAS / f"v{VERSION}-local-strict").glob("*.json"):
        schema = json.loads(path.read_text().replace('"/api/_definitions', '"_definitions'))
        schema.pop("$id", None)
        (folder / path.name).write_text(json.dumps(schema))
    return folder


def kubeconform(schemas: pathlib.Path, text: str) -> list[str]:
    """The verdict on every resource, as "status kind message"."""
    answer = subprocess.run(
        [
            "kubeconform",
            "-strict",
            "-verbose",
            "-output=json",
            f"-kubernetes-version={VERSION}",
            f"-schema-location={schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
        ],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(answer.stdout)["resources"]
    return [f"{one['status']} {one['kind']} {one.get('msg', '')}".strip() for one in found]


def resources() -> list[dict[str, Any]]:
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    return [doc for name in listed for doc in yaml.safe_load_all((MANIFESTS / name).read_text())]


def only(kind: str) -> dict[str, Any]:
    [found] = [doc for doc in resources() if doc["kind"] == kind]
    return found


def test_schemas_accept_every_resource(schemas: pathlib.Path) -> None:
    verdicts = kubeconform(schemas, yaml.safe_dump_all(resources()))
    assert sorted(verdicts) == sorted(f"statusValid {doc['kind']}" for doc in resources())


@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        ("readOnlyRootFilesystem:", "readOnlyRootFileSystem:", "readOnlyRootFileSystem"),
        ("port: 50051", "port: grpc", "/startupProbe/grpc/port"),
    ],
)
def test_schemas_refuse_a_mistake(
    schemas: pathlib.Path, right: str, wrong: str, named: str
) -> None:
    text = (MANIFESTS / "deployment.yaml").read_text()
    assert right in text
    [verdict] = kubeconform(schemas, text.replace(right, wrong))
    assert verdict.startswith("statusInvalid Deployment")
    assert named in verdict


def test_kustomization_lists_every_manifest() -> None:
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    present = sorted(path.name for path in MANIFESTS.glob("*.yaml"))
    assert sorted([*listed, "kustomization.yaml"]) == present


def test_selectors_find_the_pods() -> None:
    labels = only("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    deployment = only("Deployment")["spec"]["selector"]["matchLabels"].items()
    budget = only("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items()
    services = [doc["spec"]["selector"].items() for doc in resources() if doc["kind"] == "Service"]
    for selector in [deployment, budget, *services]:
        assert selector <= labels


def test_ports_and_user_are_those_of_the_image() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    pod = only("Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    exposed = {int(port) for port in re.findall(r"^EXPOSE (.*)$", dockerfile, re.M)[0].split()}
    assert {port["containerPort"] for port in container["ports"]} == exposed
    [user] = re.findall(r"^USER (\d+):\d+$", dockerfile, re.M)
    assert pod["securityContext"]["runAsUser"] == int(user)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["grpc"]["port"] in exposed
