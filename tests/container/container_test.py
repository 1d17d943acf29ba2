# SPDX-License-Identifier: Apache-2.0
"""The image builds from the Dockerfile and serves, without an engine or a registry."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.container.hardening import lacks
from tests.tools.image import ROOT, Buildah, buildah_in, output, root_mount
from tests.tools.server_process import running_server

# Of the Dockerfile; none for the default.
TARGET = os.environ.get("ATTNBIAS_IMAGE_TARGET")
# As Debian names it; none for this machine's.
ARCHITECTURE = os.environ.get("ATTNBIAS_IMAGE_ARCHITECTURE")
SMALL_ALIBI = '{"spec":{"alibi":{"num_heads":8},"pair":{"query_length":4,"key_length":4}}}'
ROTARY = '{"spec":{"rotary":{"head_dim":64},"table":{"positions":{"begin":99000,"end":99064}}}}'


def fetched(server: str, request: str) -> str:
    method = "attnbias.v1.AttentionBiasService/GetTensor"
    return output("grpcurl", "-plaintext", "-d", request, server, method)


@pytest.fixture(scope="module")
def machine() -> Iterator[list[str]]:
    with root_mount() as machine:
        yield machine


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory, machine: list[str]) -> Iterator[Buildah]:
    with buildah_in(tmp_path_factory.mktemp("buildah"), machine, ARCHITECTURE) as buildah:
        yield buildah


def target_options(target: str) -> Iterator[str]:
    """A target of the Dockerfile, and what this machine's network was told of pip's index."""
    yield f"--target={target}"
    told = {
        "/etc/ssl/certs/ca-certificates.crt": "/usr/local/share/ca-certificates/host.crt",
        "/etc/pip.conf": "/etc/pip.conf",
    }
    for here, there in told.items():
        if os.path.exists(here):
            yield f"--volume={here}:{there}:ro"


@pytest.fixture(scope="module")
def container(buildah: Buildah) -> str:
    platform = [f"--platform=linux/{ARCHITECTURE}"] if ARCHITECTURE else []
    buildah.build_as_users_do(*platform, *(target_options(TARGET) if TARGET else ()))
    return buildah("from", "--pull-never", "attnbias")


@pytest.fixture(scope="module")
def root(buildah: Buildah, container: str) -> str:
    """The container's file system as a folder."""
    return buildah("mount", container)


@contextlib.contextmanager
def read_only_server(machine: list[str], root: str, config: dict[str, Any]) -> Iterator[str]:
    """The image's entry point, as its user, on a root that nobody can write to."""
    script = (
        'mount --bind "$0" "$0" && mount -t proc proc "$0/proc"'
        ' && mount -o remount,bind,ro "$0" && exec chroot "$@"'
    )
    chroot = [f"--userspec={config['User']}", root]
    chroot += ["env", "--ignore-environment", *config["Env"], *config["Entrypoint"]]
    private = [*machine, "unshare", "--mount", "sh", "-c", script, root]
    with running_server([*private, *chroot]) as address:
        yield address


def test_the_image_says_how_it_is_run(buildah: Buildah, container: str) -> None:
    config = buildah.config("attnbias")
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["attnbias-server"]
    assert sorted(config["ExposedPorts"]) == ["50051/tcp", "9464/tcp"]
    assert config["Healthcheck"]["Test"] == ["CMD", "attnbias", "health"]


def test_it_is_for_the_architecture_asked_for(root: str) -> None:
    architecture = ("dpkg", "--print-architecture")
    assert output("chroot", root, *architecture) == (ARCHITECTURE or output(*architecture))


def test_the_readme_runs_it_as_it_is(buildah: Buildah, container: str) -> None:
    [command] = re.findall(r"^docker run (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--rm", action="store_true")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--publish", action="append")
    parser.add_argument("image")
    told = parser.parse_args(shlex.split(command))
    ports = [port.split("/")[0] for port in sorted(buildah.config(told.image)["ExposedPorts"])]
    assert told.publish == [f"{port}:{port}" for port in ports]
    assert told.read_only  # as test_it_serves_from_a_read_only_root runs it


def test_it_holds_run_time_libraries_only(root: str) -> None:
    packages = output("chroot", root, "dpkg-query", "-W", "-f", "${Package}\n").split()
    assert [name for name in packages if name.endswith("-dev")] == []
    assert {"g++", "cmake", "ccache", "protobuf-compiler"}.isdisjoint(packages)
    for program in ("attnbias", "attnbias-server"):
        assert "not found" not in output("chroot", root, "ldd", f"/usr/local/bin/{program}")


def test_its_bill_names_every_library_that_is_linked(buildah: Buildah, root: str) -> None:
    buildah.write_bill()
    bill = json.loads((ROOT / "build" / "image.spdx.json").read_text())
    named = {item["name"]: item.get("versionInfo") for item in bill["packages"]}
    for program in ("attnbias", "attnbias-server"):
        path = f"/usr/local/bin/{program}"
        linked = re.findall(r" => (/\S+)", output("chroot", root, "ldd", path))
        assert linked
        for library in linked:
            real = output("chroot", root, "realpath", library).removeprefix("/usr")
            owner = output("chroot", root, "dpkg-query", "--search", f"*{real}").split(":")[0]
            version = output("chroot", root, "dpkg-query", "-W", "-f", "${Version}", owner)
            assert named[owner] == version


@pytest.mark.parametrize("program", ["attnbias", "attnbias-server"])
def test_its_programs_are_hardened(root: str, program: str) -> None:
    assert lacks(pathlib.Path(root, "usr/local/bin", program)) == []


def test_a_program_without_protection_is_seen(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "bare"
    (tmp_path / "bare.c").write_text("int main(void) { return 0; }")
    without = ("-no-pie", "-fno-stack-protector", "-fcf-protection=none", "-Wl,-rpath,/elsewhere")
    linked = ("-Wl,-z,lazy", "-Wl,-z,norelro", "-Wl,-z,execstack")
    output("cc", *without, *linked, tmp_path / "bare.c", "-o", program)
    assert len(lacks(program)) == 8


@pytest.mark.skipif(TARGET != "cuda", reason="only the target cuda has it")
def test_it_holds_what_multiplies_on_a_device(root: str) -> None:
    assert "not found" not in output("chroot", root, "ldd", "/usr/lib/libcublas.so.13")


def test_it_serves_from_a_read_only_root(
    machine: list[str], buildah: Buildah, container: str, root: str
) -> None:
    config = buildah.config("attnbias")
    with read_only_server(machine, root, config) as server:
        answer = fetched(server, SMALL_ALIBI)
        assert json.loads(answer)["header"]["parts"][0]["shape"] == ["8", "7"]
        [_, *health] = config["Healthcheck"]["Test"]
        output(*buildah.command(container, "env", f"ATTNBIAS_SERVER={server}", *health))


@pytest.mark.skipif(ARCHITECTURE is None, reason="would compare this machine's with itself")
@pytest.mark.parametrize("request_", [SMALL_ALIBI, ROTARY])
def test_it_serves_what_a_server_of_this_machine_serves(
    machine: list[str], buildah: Buildah, root: str, request_: str
) -> None:
    there = read_only_server(machine, root, buildah.config("attnbias"))
    with there as server, running_server() as local:
        assert fetched(server, request_) == fetched(local, request_)


def test_the_health_check_fails_without_a_server(buildah: Buildah, container: str) -> None:
    [_, *health] = buildah.config("attnbias")["Healthcheck"]["Test"]
    nobody = ["env", "ATTNBIAS_SERVER=127.0.0.1:1"]
    result = subprocess.run(buildah.command(container, *nobody, *health), check=False)
    assert result.returncode != 0


def test_it_runs_without_privileges(buildah: Buildah, container: str) -> None:
    assert output(*buildah.command(container, "id", "-u")) == "65532"
    writable = "find / -xdev -writable -not -type l -not -path '/proc/*' -not -path '/dev/*'"
    found = output(*buildah.command(container, "sh", "-c", f"{writable} 2>/dev/null || true"))
    assert set(found.split()) <= {"/tmp", "/var/tmp", "/run/lock"}, shlex.quote(found)
