# SPDX-License-Identifier: Apache-2.0
"""Builds images without an engine or a registry.

The base image is created once with debootstrap and has this machine's network settings. buildah
builds with chroot isolation, which needs only root. To run an image for another architecture, the
kernel must be able to run its programs, which need_arm64 in setup.sh enables.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ["ATTNBIAS_CACHE"])
BASE = "debian:sid-slim"


def output(*command: object, **environment: str) -> str:
    return subprocess.run(
        [str(word) for word in command],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    ).stdout.strip()


class Buildah:
    """buildah with its own storage."""

    def __init__(self, folder: pathlib.Path, machine: list[str]) -> None:
        # Unlike other storage drivers, vfs needs neither overlay nor a user namespace.
        storage = folder / "storage.conf"
        storage.write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
        )
        environment = (f"CONTAINERS_STORAGE_CONF={storage}", "BUILDAH_ISOLATION=chroot")
        self._machine = (*machine, "env", *environment, "CONTAINER_ENGINE=buildah")

    def __call__(self, *words: object) -> str:
        return output(*self._machine, "buildah", *words)

    def build_base(self) -> None:
        self("build", "--quiet", "--pull-never", "--tag", BASE, _base_context())

    def build_as_users_do(self, *more: str) -> None:
        output(*self._machine, ROOT / "dev", "image", "--quiet", "--pull-never", *more)

    def write_bill(self) -> None:
        output(*self._machine, ROOT / "dev", "bill")

    def config(self, image: str) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self("inspect", "--type=image", image))["Docker"]
        return dict(config["config"])


@contextlib.contextmanager
def root_mount() -> Iterator[list[str]]:
    """Yields the words to prepend to a command that needs "/" to be a mount, if it is not one.

    In a plain chroot, "/" is not a mount; bind-mounting it elsewhere makes it one there.
    """
    mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    if any(line.split()[4] == "/" for line in mounts):
        yield []
        return
    # Not in a folder from pytest, which later removes those with their contents.
    folder = tempfile.mkdtemp(prefix="attnbias-machine-")
    output("mount", "--rbind", "/", folder)
    try:
        yield ["chroot", folder]
    finally:
        output("umount", "--recursive", "--lazy", folder)
        os.rmdir(folder)


@contextlib.contextmanager
def buildah_in(folder: pathlib.Path, machine: list[str]) -> Iterator[Buildah]:
    """Yields buildah with the base image, until the `with` block ends."""
    buildah = Buildah(folder, machine)
    buildah.build_base()
    yield buildah
    buildah("rm", "--all")
    buildah("rmi", "--all", "--force")


def _base_context() -> pathlib.Path:
    """Returns the folder, made by debootstrap, from which the base image is built."""
    context = CACHE / "debian-sid"
    with context.with_suffix(".lock").open("w") as lock:  # other clones share the cache
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not context.exists():
            part = context.with_suffix(".part")
            output("rm", "-rf", part)
            (part / "root").mkdir(parents=True)
            make = f'source {ROOT}/tests/tools/bare_machine.sh && make_machine "$0" sid'
            output("bash", "-euc", make, part / "root")
            output("tar", "-C", part / "root", "-cf", part / "root.tar", ".")
            output("rm", "-rf", part / "root")
            (part / "Dockerfile").write_text("FROM scratch\nADD root.tar /\n")
            part.rename(context)
    return context


_IN_PLACE = """#!/bin/sh
root=$(dirname "$0")/root
exec "$root"/lib64/ld-linux-*.so.* --library-path "$root/usr/lib/$(uname -m)-linux-gnu" \\
  "$root/usr/local/bin/attnbias-server" "$@"
"""


def unpack(folder: pathlib.Path) -> None:
    """Builds the image and copies its files to `folder`/root.

    `folder`/attnbias-server runs the image's server there with the image's loader and libraries,
    but sees this machine's files.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (
        tempfile.TemporaryDirectory() as storage,
        root_mount() as machine,
        buildah_in(pathlib.Path(storage), machine) as buildah,
    ):
        buildah.build_as_users_do()
        container = buildah("from", "--pull-never", "attnbias")
        output("cp", "--archive", buildah("mount", container), folder / "root")
        buildah("umount", container)
    script = folder / "attnbias-server"
    script.write_text(_IN_PLACE)
    script.chmod(0o755)


def archive(folder: pathlib.Path, version: str) -> None:
    """Builds the image for both architectures; writes OCI archives and their bills of materials.

    Files have the timestamp SOURCE_DATE_EPOCH.
    """
    time = f"--timestamp={os.environ['SOURCE_DATE_EPOCH']}"
    for architecture in ("amd64", "arm64"):
        name = folder / f"attnbias-image-{version}-{architecture}"
        with (
            tempfile.TemporaryDirectory() as storage,
            root_mount() as machine,
            buildah_in(pathlib.Path(storage), machine) as buildah,
        ):
            buildah.build_as_users_do(f"--platform=linux/{architecture}", time)
            buildah("push", "attnbias", f"oci-archive:{name}.tar:attnbias:{version}")
            buildah.write_bill()
        shutil.copy(ROOT / "build/image.spdx.json", f"{name}.spdx.json")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["unpack", folder]:
            unpack(pathlib.Path(folder))
        case ["archive", folder, version]:
            archive(pathlib.Path(folder), version)
