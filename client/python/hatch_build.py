# SPDX-License-Identifier: Apache-2.0
"""Generates the modules for the contract's protos and for the public protos that they import.

Only a few protobuf runtimes accept the Python code that protoc generates. The generated modules
therefore hold file descriptors, which any runtime can read; the stubs are protoc's.
"""

from __future__ import annotations

import importlib.resources
import re
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_HERE: Final = Path(__file__).parent
_OURS: Final = "attnbias/v1"
# These have their own package and descriptor pool, since other packages in a program may contain
# them too.
_PUBLIC: Final = ("google/rpc", "grpc/health/v1")
_PUBLIC_PACKAGE: Final = "attnbias/_public"

_MODULE: Final = '''\
"""Generated from {name}. Do not edit."""

{imports}from attnbias import _generated

_generated.load(globals(), _generated.{pool}, {serialized!r})
'''


def version() -> str:
    """Returns the project's version from CMakeLists.txt; in an sdist, PKG-INFO states it."""
    text = (_proto_root().parent / "CMakeLists.txt").read_text()
    found = re.search(r"project\(attnbias VERSION (\S+)", text)
    assert found is not None
    return found[1]


def _proto_root() -> Path:
    """Returns the path of proto/: inside an unpacked sdist, but two levels up in a repository."""
    candidates = (_HERE / "proto", _HERE.parent.parent / "proto")
    for candidate in candidates:
        if (candidate / _OURS).is_dir():
            return candidate
    message = (
        f"contract: got {_HERE} without {candidates[0]} or {candidates[1]}, want a folder with the "
        "files that define the messages. client/python alone is not enough: install it inside "
        "a clone of the whole repository, or from a wheel or an sdist"
    )
    raise FileNotFoundError(message)


def _generate(protos: Path, target: Path) -> None:
    # Imported here: building an sdist needs no compiler.
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415
    from grpc_tools import protoc  # noqa: PLC0415

    well_known = importlib.resources.files("grpc_tools") / "_proto"
    for folders, package, pool in (((_OURS,), "", "OURS"), (_PUBLIC, _PUBLIC_PACKAGE, "PUBLIC")):
        sources = [
            path.relative_to(protos).as_posix()
            for folder in folders
            for path in sorted((protos / folder).glob("*.proto"))
        ]
        (target / package).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            descriptors = Path(scratch) / "set"
            arguments = [f"-I{protos}", f"-I{well_known}", f"--pyi_out={target / package}"]
            arguments.append(f"--descriptor_set_out={descriptors}")
            if protoc.main(["protoc", *arguments, *sources]) != 0:
                message = f"protoc failed on {protos}"
                raise RuntimeError(message)
            files = FileDescriptorSet.FromString(descriptors.read_bytes()).file
        for file in files:
            _clear_json_names(file)
            module = target / package / file.name.replace(".proto", "_pb2.py")
            serialized = file.SerializeToString()
            imports = "".join(
                f"import {name.removesuffix('.proto').replace('/', '.')}_pb2\n"
                for name in file.dependency
                if name.startswith(_OURS)
            )
            text = _MODULE.format(name=file.name, imports=imports, pool=pool, serialized=serialized)
            module.write_text(text)


def _clear_json_names(file: Any) -> None:
    """Makes a descriptor identical to the one in protoc's Python code: one pool can hold both."""

    def clear(messages: Any) -> None:
        for message in messages:
            for field in (*message.field, *message.extension):
                field.ClearField("json_name")
            clear(message.nested_type)

    for field in file.extension:
        field.ClearField("json_name")
    clear(file.message_type)


class ContractBuildHook(BuildHookInterface[Any]):
    """Generates code for wheels and editable installs, and adds the contract to sdists."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Implements hatchling's hook."""
        del version  # "standard" and "editable" need the same files
        protos = _proto_root()
        if self.target_name == "sdist":
            for folder in (_OURS, *_PUBLIC):
                build_data["force_include"][str(protos / folder)] = f"proto/{folder}"
        else:
            _generate(protos, _HERE / "src")
