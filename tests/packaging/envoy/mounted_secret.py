# SPDX-License-Identifier: Apache-2.0
"""A folder like a Secret mounted by Kubernetes: files are links into ..data, which is itself a
link."""

import pathlib
import shutil
from collections.abc import Mapping

from tests.support.certificates import Pair

Files = Mapping[str, pathlib.Path]


def tls(pair: Pair) -> Files:
    """Returns the files in a Secret of type kubernetes.io/tls."""
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


class MountedSecret:
    """Holds copies of the most recently published files, by name."""

    def __init__(self, folder: pathlib.Path, files: Files) -> None:
        self._folder = folder
        self._versions = 0
        folder.mkdir()
        for name in files:
            (folder / name).symlink_to(f"..data/{name}")
        self.publish(files)

    def publish(self, files: Files) -> None:
        """Replaces all files atomically."""
        self._versions += 1
        version = self._folder / f"..version{self._versions}"
        version.mkdir()
        for name, file in files.items():
            shutil.copy(file, version / name)
        link = self._folder / "..data_new"
        link.symlink_to(version.name)
        link.rename(self._folder / "..data")
