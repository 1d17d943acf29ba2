# SPDX-License-Identifier: Apache-2.0
"""Saves the images for the nodes: `python -m tests.packaging.kubernetes.images FOLDER`."""

import pathlib
import sys
import tempfile

from tests.packaging.deploy.manifests import BASE, documents, server_of
from tests.support.image import BASE as DEBIAN
from tests.support.image import buildah_in, root_mount

PAUSE = "localhost/pause:1"
"""Image of the container that holds a pod's namespaces."""


def deployed() -> str:
    """Returns the full name of the service's image, from deploy/kubernetes."""
    server = server_of(documents((BASE / "attnbias.yaml").read_text()))
    return f"docker.io/library/{server['image']}"


def save(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as storage,
        root_mount() as machine,
        buildah_in(pathlib.Path(storage), machine) as buildah,
    ):
        buildah.build_as_users_do()
        buildah("push", "attnbias", _archive(folder / "attnbias.tar", deployed()))
        pause = buildah("from", "--pull-never", DEBIAN)
        buildah("config", "--cmd", '["sleep", "infinity"]', pause)
        buildah("commit", "--quiet", pause, PAUSE)
        buildah("push", PAUSE, _archive(folder / "pause.tar", PAUSE))


def _archive(path: pathlib.Path, name: str) -> str:
    path.unlink(missing_ok=True)
    return f"docker-archive:{path}:{name}"


if __name__ == "__main__":
    save(pathlib.Path(sys.argv[1]))
