# SPDX-License-Identifier: Apache-2.0
"""A folder as Kubernetes mounts a Secret: files are links into ..data, a link itself."""

import pathlib
import shutil

from tests.integration.certificates import Pair

NAMES = Pair(pathlib.Path("tls.crt"), pathlib.Path("tls.key"))


class MountedSecret:
    """Has a certificate and its key, the last that were published."""

    def __init__(self, folder: pathlib.Path, pair: Pair) -> None:
        self._folder = folder
        self._versions = 0
        folder.mkdir()
        for name in NAMES:
            (folder / name).symlink_to("..data" / name)
        self.publish(pair)

    def publish(self, pair: Pair) -> None:
        """Puts both in the place of those before, at once."""
        self._versions += 1
        version = self._folder / f"..version{self._versions}"
        version.mkdir()
        for file, name in zip(pair, NAMES, strict=True):
            shutil.copy(file, version / name)
        link = self._folder / "..data_new"
        link.symlink_to(version.name)
        link.rename(self._folder / "..data")
