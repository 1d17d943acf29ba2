# SPDX-License-Identifier: Apache-2.0
"""Generates attnbias/v1/*_pb2.py and its stubs from the contract at build time."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "attnbias/v1"


def _proto_root(root: Path) -> Path:
    """Finds proto/: in an unpacked sdist it lies inside, in the repository two levels up."""
    for candidate in (root / "proto", root.parent.parent / "proto"):
        if (candidate / _PACKAGE).is_dir():
            return candidate
    message = f"no {_PACKAGE}/*.proto found in {root / 'proto'} or {root.parent.parent / 'proto'}"
    raise FileNotFoundError(message)


def _generate(protos: Path, target: Path) -> None:
    # Imported here: building an sdist needs no compiler.
    from grpc_tools import protoc  # noqa: PLC0415

    well_known = importlib.resources.files("grpc_tools") / "_proto"
    sources = sorted(str(p.relative_to(protos)) for p in (protos / _PACKAGE).glob("*.proto"))
    arguments = [f"-I{protos}", f"-I{well_known}", f"--python_out={target}", f"--pyi_out={target}"]
    if protoc.main(["protoc", *arguments, *sources]) != 0:
        message = f"protoc failed on {protos / _PACKAGE}"
        raise RuntimeError(message)


class ContractBuildHook(BuildHookInterface[Any]):
    """Generates code for wheels and editable installs; puts the contract into sdists."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling."""
        del version  # "standard" and "editable" need the same files
        root = Path(self.root)
        protos = _proto_root(root)
        if self.target_name == "sdist":
            build_data["force_include"][str(protos / _PACKAGE)] = f"proto/{_PACKAGE}"
        else:
            _generate(protos, root / "src")
