# SPDX-License-Identifier: Apache-2.0
"""The client in one environment with packages that bring their own protobuf or generated code.

Each such neighbor is installed by pip from PyPI, both before and after the client, and the two are
imported in both orders.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Packages that pip installs, and the modules that a program imports.
NEIGHBOURS = {
    "tritonclient[grpc]": "import tritonclient.grpc",
    "kserve": "import kserve",
    "tensorflow": "import tensorflow",
    "opentelemetry-exporter-otlp-proto-grpc": (
        "from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter"
    ),
    "googleapis-common-protos": "from google.rpc import error_details_pb2, status_pb2",
    "grpcio-health-checking": "from grpc_health.v1 import health_pb2",
    "grpcio-status": "from grpc_status import rpc_status",
    "protobuf==4.25.0": "import google.protobuf",  # the oldest that the client accepts
    "protobuf<8": "import google.protobuf",
}
USE = """
with attnbias.LocalServer() as client:
    assert client.health()
    assert client.get(attnbias.ALiBi(num_heads=2), query_length=4, key_length=4).shape == (2, 4, 4)
    try:
        client.get(attnbias.ALiBi(num_heads=0), query_length=4, key_length=4)
    except attnbias.InvalidArgumentError as error:
        assert error.field_violations[0].field == "spec.alibi.num_heads"
    else:
        raise AssertionError("no error")
"""


@pytest.fixture
def python(tmp_path: Path) -> Iterator[str]:
    """Yields the interpreter of an empty environment, which may grow to several gigabytes."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    yield str(folder / "bin" / "python")
    shutil.rmtree(folder)


def run(*command: str) -> Any:
    # Uses only packages installed by pip, and none of pytest's own settings.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("first", ["client", "neighbour"])
@pytest.mark.parametrize("neighbour", NEIGHBOURS)
@pytest.mark.timeout(1800)
def test_both_packages_import_in_either_order(python: str, neighbour: str, first: str) -> None:
    packages = [os.environ["ATTNBIAS_WHEEL"], neighbour]
    for package in packages if first == "client" else reversed(packages):
        run(python, "-m", "pip", "install", "--quiet", package)
    run(python, "-m", "pip", "check")
    imports = ["import attnbias", NEIGHBOURS[neighbour]]
    for ordered in (imports, reversed(imports)):
        run(python, "-c", "\n".join(ordered) + USE)
