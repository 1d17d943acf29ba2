# SPDX-License-Identifier: Apache-2.0
"""Copies the licenses of the libraries inside a wheel: collect_licenses.py WHEEL ROOT FOLDER.

These are the licenses of the Debian packages that auditwheel lists in the wheel's bill of
materials, as installed under ROOT, and the common license texts to which they refer.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

_COMMON = Path("/usr/share/common-licenses")


def _packages(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        libraries = [name for name in names if re.match(r"attnbias_server\.libs/.", name)]
        (bill,) = (name for name in names if name.endswith("/sboms/auditwheel.cdx.json"))
        _wheel_itself, *components = json.loads(archive.read(bill))["components"]
    if len(components) != len(libraries):
        known = f"{len(components)} of them from known packages"
        raise ValueError(f"{wheel} has {len(libraries)} libraries, {known}")
    return {component["name"] for component in components}


def _main(wheel: Path, root: Path, folder: Path) -> None:
    common = set()
    for package in _packages(wheel):
        text = (root / "usr/share/doc" / package / "copyright").read_bytes()
        target = folder / package / "copyright"
        target.parent.mkdir(parents=True)
        target.write_bytes(text)
        found = re.findall(rb"%s/([\w.+-]*[\w+])" % bytes(_COMMON), text)
        common |= {name.decode() for name in found}
    (folder / "common-licenses").mkdir()
    for name in common:
        shutil.copyfile(_COMMON / name, folder / "common-licenses" / name)


if __name__ == "__main__":
    _main(*map(Path, sys.argv[1:]))
