# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' schemas, and its own verdict on pods, for the manifest tests."""

import json
import os
import pathlib
import subprocess
from collections.abc import Iterable

import kubernetes_validate
import pytest

from tests.packaging.deploy.manifests import VERSION, Reasons, Resource, custom_schemas, documents


@pytest.fixture(scope="session")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The schemas with references that kubeconform can follow without a network."""
    folder = tmp_path_factory.mktemp("schemas")
    own = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    for path in (own / f"v{VERSION}-local-strict").glob("*.json"):
        schema = json.loads(path.read_text().replace('"/api/_definitions', '"_definitions'))
        schema.pop("$id", None)
        (folder / path.name).write_text(json.dumps(schema))
    for name in os.environ["CUSTOM_RESOURCE_DEFINITIONS"].split(":"):
        for definition in documents(pathlib.Path(name).read_text()):
            for file, schema in custom_schemas(definition):
                (folder / file).write_text(json.dumps(schema))
    return folder


@pytest.fixture(scope="session")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Reasons:
    """Returns the reasons why Pod Security's "restricted" profile rejects a pod, according to
    Kubernetes' own code."""
    program = tmp_path_factory.mktemp("pod_security") / "pod_security"
    sources = pathlib.Path(__file__).parent / "pod_security"
    subprocess.run(["go", "build", "-o", program, "."], cwd=sources, check=True)

    def reasons(templates: Iterable[Resource]) -> list[list[str]]:
        told = subprocess.run(
            [program],
            input=json.dumps(list(templates)),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return list(json.loads(told.stdout))

    return reasons
