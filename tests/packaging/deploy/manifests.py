# SPDX-License-Identifier: Apache-2.0
"""Renders manifests with kustomize and Helm, and validates them."""

import functools
import json
import os
import pathlib
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
BASE = ROOT / "deploy" / "kubernetes"
ENVOY = ROOT / "deploy" / "envoy"
CHART = ROOT / "deploy" / "helm" / "attnbias"
# The Kubernetes version whose schemas are used.
VERSION = os.environ["KUBERNETES"]

Resource = dict[str, Any]
Values = dict[str, Any]
# The reasons why Pod Security rejects each pod template.
Reasons = Callable[[Iterable[Resource]], list[list[str]]]


def documents(text: str) -> list[Resource]:
    return [document for document in yaml.safe_load_all(text) if document]


@functools.cache
def kustomized(folder: pathlib.Path = BASE) -> list[Resource]:
    built = subprocess.run(
        ["kustomize", "build", folder], check=True, stdout=subprocess.PIPE, text=True
    )
    return documents(built.stdout)


def helm(
    *arguments: str | pathlib.Path, values: Values | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs helm with the values as its last values file."""
    command = ["helm", *arguments, "--values", "-"]
    return subprocess.run(
        command, input=json.dumps(values or {}), capture_output=True, text=True, check=False
    )


def rendered(values: Values, chart: pathlib.Path = CHART) -> list[Resource]:
    made = helm("template", "attnbias", chart, values=values)
    assert made.returncode == 0, made.stderr
    return documents(made.stdout)


def of_kind(resources: Iterable[Resource], kind: str) -> list[Resource]:
    return [resource for resource in resources if resource["kind"] == kind]


def workload(resources: Iterable[Resource]) -> Resource:
    [found] = [one for one in resources if one["kind"] in ("Deployment", "DaemonSet")]
    return found


def pod_of(resources: Iterable[Resource]) -> dict[str, Any]:
    return dict(workload(resources)["spec"]["template"]["spec"])


def server_of(resources: Iterable[Resource]) -> dict[str, Any]:
    return dict(pod_of(resources)["containers"][0])


def files_of(resources: Iterable[Resource]) -> dict[str, str]:
    """Returns the files in the server's ConfigMap, which has the server's name."""
    found = list(resources)
    name = workload(found)["metadata"]["name"]
    [config] = [one for one in of_kind(found, "ConfigMap") if one["metadata"]["name"] == name]
    return dict(config["data"])


def settings_of(resources: Iterable[Resource]) -> dict[str, Any]:
    """Returns the server's configuration."""
    return tomllib.loads(files_of(resources)["attnbias.toml"])


def kubeconform(schemas: pathlib.Path, resources: Iterable[Resource]) -> list[str]:
    """Returns the verdict on every resource, as "status kind message"."""
    answer = subprocess.run(
        [
            "kubeconform",
            "-strict",
            "-verbose",
            "-output=json",
            f"-kubernetes-version={VERSION}",
            f"-schema-location={schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
        ],
        input=yaml.safe_dump_all(resources),
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(answer.stdout)["resources"]
    return [f"{one['status']} {one['kind']} {one.get('msg', '')}".strip() for one in found]


def strict(schema: Any) -> Any:
    """Returns a custom resource's schema with unlisted fields made invalid."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: {name: strict(one) for name, one in value.items()}
        if key == "properties"
        else strict(value)
        for key, value in schema.items()
    }
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    return closed


def custom_schemas(definition: Resource) -> Iterator[tuple[str, Any]]:
    """Yields a CustomResourceDefinition's schemas under the file names that kubeconform expects."""
    spec = definition["spec"]
    kind, group = spec["names"]["kind"].lower(), spec["group"].split(".")[0]
    for version in spec["versions"]:
        name = f"{kind}-{group}-{version['name']}.json"
        yield name, strict(version["schema"]["openAPIV3Schema"])
