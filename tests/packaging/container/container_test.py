# SPDX-License-Identifier: Apache-2.0
"""The image builds from the Dockerfile and serves, without an engine or a registry."""

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import zoneinfo
from collections.abc import Iterator
from typing import Any

import pytest

from tests.packaging.container.hardening import lacks
from tests.support.certificates import Authority
from tests.support.image import ROOT, Buildah, buildah_in, output, root_mount
from tests.support.server_process import running_server

# Target in the Dockerfile; None for the default.
TARGET = os.environ.get("ATTNBIAS_IMAGE_TARGET")
# Debian's name for the architecture; None for this machine's.
ARCHITECTURE = os.environ.get("ATTNBIAS_IMAGE_ARCHITECTURE")
PROGRAMS = ("usr/local/bin/attnbias", "usr/local/bin/attnbias-server")
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
    with buildah_in(tmp_path_factory.mktemp("buildah"), machine) as buildah:
        yield buildah


@pytest.fixture(scope="module")
def container(buildah: Buildah) -> str:
    platform = [f"--platform=linux/{ARCHITECTURE}"] if ARCHITECTURE else []
    buildah.build_as_users_do(*platform, *([f"--target={TARGET}"] if TARGET else ()))
    return buildah("from", "--pull-never", "attnbias")


@pytest.fixture(scope="module")
def root(buildah: Buildah, container: str) -> str:
    """Returns the container's file system as a folder."""
    return buildah("mount", container)


@contextlib.contextmanager
def read_only_server(machine: list[str], root: str, config: dict[str, Any]) -> Iterator[str]:
    """Runs the image's entry point on a read-only root, as the image's user."""
    script = (
        'mount --bind "$0" "$0" && mount -t proc proc "$0/proc"'
        ' && mount -o remount,bind,ro "$0"'
        f' && exec env --ignore-environment {shlex.join(config["Env"])} /usr/sbin/chroot "$@"'
    )
    [program] = config["Entrypoint"]
    private = [*machine, "unshare", "--mount", "sh", "-c", script, root]
    prefix = [*private, f"--userspec={config['User']}", root]
    with running_server(prefix=prefix, program=program) as address:
        yield address


def test_image_config_states_how_to_run_it(buildah: Buildah, container: str) -> None:
    config = buildah.config("attnbias")
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["attnbias-server"]
    assert sorted(config["ExposedPorts"]) == ["50051/tcp", "9464/tcp"]
    assert config["Healthcheck"]["Test"] == ["CMD", "attnbias", "health"]


def test_programs_are_for_requested_architecture(root: str) -> None:
    machines = {"amd64": "X86-64", "arm64": "AArch64"}
    wanted = machines[ARCHITECTURE or output("dpkg", "--print-architecture")]
    for program in PROGRAMS:
        header = output("readelf", "--file-header", pathlib.Path(root, program))
        assert re.search(rf"^ *Machine: .*\b{wanted}$", header, re.MULTILINE)


def test_readme_docker_command_matches_image(buildah: Buildah, container: str) -> None:
    [command] = re.findall(r"^docker run (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--rm", action="store_true")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--publish", action="append")
    parser.add_argument("image")
    told = parser.parse_args(shlex.split(command))
    ports = [port.split("/")[0] for port in sorted(buildah.config(told.image)["ExposedPorts"])]
    assert told.publish == [f"{port}:{port}" for port in ports]
    assert told.read_only  # as test_serves_from_read_only_root runs it


def test_image_holds_only_our_programs(root: str) -> None:
    libraries = re.compile(r"usr/lib(64)?/[^ ]*\.so(\.[0-9.]+)?")
    files = (path for path in pathlib.Path(root).rglob("*") if path.is_file())
    names = {str(path.relative_to(root)) for path in files if path.stat().st_mode & 0o111}
    assert {name for name in names if not libraries.fullmatch(name)} == set(PROGRAMS)


def linked(root: str, file: str) -> set[str]:
    """Returns the libraries that the image's own loader finds, as paths in the image."""
    segments = output("readelf", "--program-headers", pathlib.Path(root, PROGRAMS[0]))
    [loader] = re.findall(r"interpreter: (\S+)\]", segments)
    found = output("chroot", root, loader, "--list", f"/{file}")
    assert "not found" not in found
    return {loader, *re.findall(r" => (/\S+)", found)}


@pytest.mark.parametrize("program", PROGRAMS)
def test_sbom_names_every_linked_library(buildah: Buildah, root: str, program: str) -> None:
    buildah.write_bill()
    bill = json.loads((ROOT / "build" / "image.spdx.json").read_text())
    named = {item["name"] for item in bill["packages"]}
    # Packages, keyed by the checksums of their files.
    owners = {
        line.split()[0]: sums.stem
        for sums in pathlib.Path(root, "var/lib/dpkg/status.d").glob("*.md5sums")
        for line in sums.read_text().splitlines()
    }
    libraries = [pathlib.Path(root, path.lstrip("/")) for path in linked(root, program)]
    sums = [hashlib.md5(path.read_bytes(), usedforsecurity=False) for path in libraries]
    packages = {owners[digest.hexdigest()] for digest in sums}
    assert {"libc6"} <= packages <= named
    for package in packages:
        assert pathlib.Path(root, "usr/share/doc", package, "copyright").is_file()


def test_notice_names_every_source_package(buildah: Buildah) -> None:
    buildah.write_bill()
    bill = (ROOT / "build" / "image.spdx.json").read_text()
    sources = set(re.findall(r"pkg:deb/debian/([^@]+)@[^\"]*arch=source", bill))
    assert "glibc" in sources
    # The name of gcc's source package contains the version.
    names = {re.sub(r"^gcc-\d+$", "gcc", source) for source in sources}
    assert names <= set(re.findall(r"[-.\w]*\w", (ROOT / "NOTICE").read_text()))


def test_linked_grpc_is_the_pinned_one(root: str) -> None:
    [wanted] = re.findall(
        r"src:grpc:any\nPin: version ([0-9.]+)\.\*$",
        (ROOT / "cmake" / "current-grpc.pref").read_text(),
        re.MULTILINE,
    )
    assert [path for path in linked(root, PROGRAMS[0]) if f"libgrpc++.so.{wanted}" in path]


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_are_hardened(root: str, program: str) -> None:
    assert lacks(pathlib.Path(root, program)) == []


def test_unhardened_program_is_detected(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "bare"
    (tmp_path / "bare.c").write_text("int main(void) { return 0; }")
    without = ("-no-pie", "-fno-stack-protector", "-fcf-protection=none", "-Wl,-rpath,/elsewhere")
    linked = ("-Wl,-z,lazy", "-Wl,-z,norelro", "-Wl,-z,execstack")
    output("cc", *without, *linked, tmp_path / "bare.c", "-o", program)
    assert len(lacks(program)) == 8


@pytest.mark.skipif(TARGET != "cuda", reason="only the target cuda has it")
def test_cuda_image_holds_cublas(root: str) -> None:
    assert "/usr/lib/libcublasLt.so.13" in linked(root, "usr/lib/libcublas.so.13")
    assert linked(root, "usr/lib/libattnbias_cuda.so")


def test_serves_from_read_only_root(
    machine: list[str], buildah: Buildah, container: str, root: str
) -> None:
    config = buildah.config("attnbias")
    with read_only_server(machine, root, config) as server:
        answer = fetched(server, SMALL_ALIBI)
        assert json.loads(answer)["header"]["parts"][0]["shape"] == ["8", "7"]
        [_, *health] = config["Healthcheck"]["Test"]
        buildah("run", f"--env=ATTNBIAS_SERVER={server}", container, "--", *health)


@pytest.mark.skipif(ARCHITECTURE is None, reason="would compare this machine's with itself")
@pytest.mark.parametrize("request_", [SMALL_ALIBI, ROTARY])
def test_serves_same_bytes_as_native_server(
    machine: list[str], buildah: Buildah, root: str, request_: str
) -> None:
    there = read_only_server(machine, root, buildah.config("attnbias"))
    with there as server, running_server() as local:
        assert fetched(server, request_) == fetched(local, request_)


def test_health_check_fails_without_server(buildah: Buildah, container: str) -> None:
    [_, *health] = buildah.config("attnbias")["Healthcheck"]["Test"]
    with pytest.raises(subprocess.CalledProcessError):
        buildah("run", "--env=ATTNBIAS_SERVER=127.0.0.1:1", container, "--", *health)


def test_trusts_authorities_in_its_store(
    machine: list[str], root: str, tmp_path: pathlib.Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("server", alternatives="DNS:localhost,IP:127.0.0.1")
    flags = (f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}")
    with running_server(*flags) as server:
        ask = ["chroot", root, "/usr/local/bin/attnbias", "health", f"--server={server}", "--tls"]
        assert subprocess.run([*machine, *ask], check=False).returncode != 0
        bind = 'mount --bind "$0" "$1/etc/ssl/certs/ca-certificates.crt" && shift && exec "$@"'
        words = ["unshare", "--mount", "sh", "-c", bind, authority.certificate, root, *ask]
        output(*machine, *words)


def test_has_time_zones_and_os_release(root: str) -> None:
    zone = pathlib.Path(root, "usr/share/zoneinfo/Europe/Berlin")
    with zone.open("rb") as file:
        assert zoneinfo.ZoneInfo.from_file(file).tzname(datetime.datetime(2026, 7, 1)) == "CEST"
    assert "ID=debian" in pathlib.Path(root, "etc/os-release").read_text()


def test_only_tmp_is_world_writable(root: str) -> None:
    paths = (path for path in pathlib.Path(root).rglob("*") if not path.is_symlink())
    found = [path for path in paths if path.stat().st_mode & 0o002 or path.stat().st_uid != 0]
    assert found == [pathlib.Path(root, "tmp")]
