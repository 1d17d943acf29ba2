# SPDX-License-Identifier: Apache-2.0
"""Fails when a file includes a layer that it may not know about."""

import pathlib
import re
import tempfile
import unittest
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {".h", ".cc", ".inc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
IMPORT = re.compile(r'^\s*import\s+(?:public\s+)?"([^"]+)"', re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class Layer(NamedTuple):
    """Includes that a folder may have of ours, must not have of others, and calls it must not
    make."""

    ours: tuple[str, ...]
    foreign: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()


RPC_ALONE = ("grpc", "spdlog/", "prometheus/")
RPC = (*RPC_ALONE, "google/")
CUDA = ("cuda", "cublas")
# The most specific folder decides. attnbias/v1/ is what protoc makes of proto/; the
# rest of attnbias/ are the C++ client's public headers.
IMPURE = ("getenv", "_clock::now")
# The folders of core/, each after its dependencies. core/checksum is known to engine alone of
# them, and knows no other.
CORE = {
    "base": (),
    "file": ("base",),
    "safetensors": ("base", "file"),
    "tensor": (),
    "numerics": ("tensor",),
    "kernel": ("tensor", "numerics"),
    "table": ("base", "safetensors", "tensor"),
    "request": ("base", "tensor", "table"),
    "encoding": ("base", "tensor", "numerics", "kernel", "table", "request"),
    "mount": ("base", "file", "safetensors", "table", "request", "encoding"),
    "cache": ("base", "tensor", "encoding"),
    "engine": ("base", "checksum", "tensor", "numerics", "kernel", "request", "encoding", "cache"),
    "logits": ("base", "tensor", "numerics", "kernel", "table", "request", "encoding", "cache"),
}
# Rooms that take the contract's messages.
OF_MESSAGES = ("request", "encoding", "mount", "engine", "logits")
# The rooms of core/encoding, each after its dependencies; the last, the families, know no other
# family. "" is what lies in core/encoding itself.
ENCODING = {
    "": (),
    "common/": ("",),
    "sinusoid/": ("", "common/"),
    **dict.fromkeys(
        ("absolute/", "bias/", "vector/", "grid/", "tupe/"), ("", "common/", "sinusoid/")
    ),
}
ENCODING_HEADERS = ("encoding.h", "make_encoding.h")
# The rooms of server/, each after its dependencies.
SERVER = {
    "schedule": (),
    "observe": (),
    "access": ("observe",),
    "service": ("schedule", "observe", "access"),
    "service/oip": ("schedule", "observe", "access", "service"),
    "run": ("schedule", "observe", "access", "service", "service/oip"),
}


def encoding_room(room: str) -> tuple[str, ...]:
    """Returns the folders that a folder of core/encoding may include."""
    rooms = {room, *ENCODING[room]}
    inside = [each for each in rooms if each]
    if "" in rooms:
        inside += ENCODING_HEADERS
    return (
        "attnbias/v1/",
        *(f"core/{name}/" for name in CORE["encoding"]),
        *(f"core/encoding/{each}" for each in inside),
    )


def core_layer(name: str) -> Layer:
    ours = tuple(f"core/{known}/" for known in (name, *CORE[name]))
    if name in OF_MESSAGES:
        return Layer((*ours, "attnbias/v1/"), (*RPC_ALONE, *CUDA), IMPURE)
    return Layer(ours, (*RPC, *CUDA), IMPURE)


def server_layer(name: str) -> Layer:
    ours = tuple(f"server/{known}/" for known in (name, *SERVER[name]))
    inside = tuple(f"server/{other}/" for other in SERVER if other.startswith(f"{name}/"))
    return Layer((*ours, "core/", "proto/", "attnbias/v1/"), (*inside, *CUDA))


LAYERS = {
    "core": Layer((), RPC, IMPURE),  # a new folder has no arrows before it has a row
    "core/checksum": Layer(("core/checksum/",), (*RPC, "absl/"), IMPURE),
    **{f"core/{name}": core_layer(name) for name in CORE},
    **{
        f"core/encoding/{room}".rstrip("/"): Layer(encoding_room(room), (*RPC_ALONE, *CUDA), IMPURE)
        for room in ENCODING
    },
    "core/kernel/cuda": Layer(
        ("core/base/", "core/tensor/", "core/numerics/", "core/kernel/"), RPC, IMPURE
    ),
    "server": Layer((), CUDA),
    **{f"server/{name}": server_layer(name) for name in SERVER},
    "client/cpp": Layer(("client/cpp/", "core/checksum/", "attnbias/"), ("spdlog/", "prometheus/")),
    "client/cli": Layer(
        ("client/cli/", "core/file/", "core/safetensors/", "proto/", "attnbias/"),
        ("spdlog/", "prometheus/"),
    ),
}
OURS = ("core/", "server/", "client/", "tests/", "proto/", "attnbias/")


def layer_of(path: pathlib.PurePath) -> str:
    fitting = [name for name in LAYERS if path.is_relative_to(name)]
    return max(fitting, key=len)


def complaints_about_source(path: pathlib.PurePath, text: str) -> Iterator[str]:
    name = layer_of(path)
    layer = LAYERS[name]
    for included in INCLUDE.findall(text):
        climbs = ".." in included.split("/")
        strange = included.startswith(OURS) and not included.startswith(layer.ours)
        if climbs or strange or included.startswith(layer.foreign):
            yield f"{path}: {name}/ may not include {included}"
    code = COMMENT.sub("", text)
    for call in layer.calls:
        if call in code:
            yield f"{path}: {name}/ may not call {call}"


def complaints_about_proto(path: pathlib.PurePath, text: str) -> Iterator[str]:
    for imported in IMPORT.findall(text):
        if not imported.startswith(("attnbias/", "google/")):
            yield f"{path}: proto/ may not import {imported}"


def complaints(root: pathlib.Path) -> Iterator[str]:
    for top in ("core", "server", "client"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES:
                yield from complaints_about_source(path.relative_to(root), path.read_text())
    for path in sorted((root / "proto").rglob("*.proto")):
        yield from complaints_about_proto(path.relative_to(root), path.read_text())


class Layers(unittest.TestCase):
    def test_no_include_violates_the_layers(self) -> None:
        self.assertEqual(list(complaints(ROOT)), [])

    def test_folders_depend_only_on_earlier_ones(self) -> None:
        for folders, known in ((CORE, {"checksum", "file", "safetensors"}), (SERVER, set())):
            before = set(known)
            for name, knows in folders.items():
                self.assertLessEqual(set(knows), before, name)
                before.add(name)

    def test_every_layer_has_sources(self) -> None:
        for name in LAYERS:
            sources = [path for path in (ROOT / name).rglob("*") if path.suffix in SOURCES]
            self.assertTrue(sources, f"{name}/ holds no source files")


class PlantedViolations(unittest.TestCase):
    """The test of the test: each wrong arrow, alone in a tree, is seen."""

    def found(self, name: str, line: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True)
            path.write_text(f"// A comment that says getenv.\n{line}\n")
            return list(complaints(pathlib.Path(folder)))

    def test_forbidden_includes_are_reported(self) -> None:
        for name, line in (
            ("core/cache/a.h", '#include "server/run/config.h"'),
            ("core/cache/a.h", '#include "client/cpp/client.h"'),
            ("core/cache/a.cc", '#include "attnbias/v1/tensor.pb.h"'),
            ("core/cache/a.cc", "#  include <grpcpp/grpcpp.h>"),
            ("core/cache/a.cc", "#include <google/protobuf/message.h>"),
            ("core/cache/a.cc", "#include <spdlog/spdlog.h>"),
            ("core/cache/a.cc", '#include "../server/run/config.h"'),
            ("core/cache/a.cc", 'auto* value = std::getenv("X");'),
            ("core/cache/a.cc", "auto now = std::chrono::steady_clock::now();"),
            ("core/checksum/a.cc", '#include "core/tensor/positions.h"'),
            ("core/safetensors/a.cc", '#include "core/table/table.h"'),
            ("core/file/a.cc", '#include "core/safetensors/safetensors.h"'),
            ("core/table/a.h", '#include "core/request/rules.h"'),
            ("core/kernel/a.cc", '#include "attnbias/v1/tensor.pb.h"'),
            ("core/numerics/a.cc", "#include <google/protobuf/message.h>"),
            ("core/request/a.cc", '#include "core/encoding/encoding.h"'),
            ("core/engine/a.cc", "#include <grpcpp/grpcpp.h>"),
            ("core/encoding/a.cc", '#include "core/mount/registry.h"'),
            ("core/encoding/a.cc", '#include "core/encoding/common/network.h"'),
            ("core/encoding/common/a.cc", '#include "core/encoding/sinusoid/sinusoid.h"'),
            ("core/encoding/bias/a.cc", '#include "core/encoding/grid/a.h"'),
            ("core/cache/a.cc", '#include "core/engine/plan.h"'),
            ("core/new/a.h", '#include "core/base/sha256.h"'),
            ("core/cache/a.cc", '#include "tests/unit/support/a.h"'),
            ("server/a.cc", '#include "server/run/config.h"'),
            ("server/new/a.h", '#include "core/base/sha256.h"'),
            ("server/schedule/a.h", '#include "server/observe/metrics.h"'),
            ("server/observe/a.cc", '#include "server/access/access.h"'),
            ("server/access/a.cc", '#include "server/service/call.h"'),
            ("server/service/a.cc", '#include "server/service/oip/model.h"'),
            ("server/service/oip/a.cc", '#include "server/run/config.h"'),
            ("server/run/a.cc", '#include "client/cpp/client.h"'),
            ("client/cpp/a.cc", '#include "core/tensor/positions.h"'),
            ("client/cpp/a.cc", '#include "server/run/config.h"'),
            ("client/cpp/a.cc", '#include "core/safetensors/safetensors.h"'),
            ("client/cli/a.cc", '#include "core/checksum/crc32c.h"'),
            ("client/cli/a.cc", '#include "client/cpp/src/retry.h"'),
            ("server/service/a.cc", '#include "attnbias/client.h"'),
            ("core/engine/a.cc", '#include "attnbias/client.h"'),
            ("proto/attnbias/v1/a.proto", 'import "other/v1/b.proto";'),
        ):
            with self.subTest(name=name, line=line):
                self.assertEqual(len(self.found(name, line)), 1)

    def test_allowed_includes_are_accepted(self) -> None:
        for name, line in (
            ("core/cache/a.cc", '#include "absl/status/status.h"'),
            ("core/engine/a.cc", '#include "core/checksum/crc32c.h"'),
            ("core/mount/a.cc", '#include "core/table/table.h"'),
            ("core/engine/a.cc", '#include "core/request/rules.h"'),
            ("core/encoding/bias/a.cc", '#include "attnbias/v1/encodings.pb.h"'),
            ("core/request/a.cc", '#include "google/protobuf/message.h"'),
            ("core/encoding/bias/a.cc", '#include "core/encoding/make_encoding.h"'),
            ("core/encoding/bias/a.cc", '#include "core/encoding/sinusoid/sinusoid.h"'),
            ("server/schedule/a.cc", '#include "core/tensor/positions.h"'),
            ("server/observe/a.cc", "#include <spdlog/spdlog.h>"),
            ("server/service/a.cc", '#include "attnbias/v1/service.grpc.pb.h"'),
            ("server/service/oip/a.cc", '#include "server/service/call.h"'),
            ("server/run/a.cc", '#include "server/service/oip/model.h"'),
            ("client/cpp/a.cc", '#include "core/checksum/crc32c.h"'),
            ("client/cpp/a.cc", "#include <grpcpp/grpcpp.h>"),
            ("client/cli/a.cc", '#include "core/safetensors/safetensors.h"'),
            ("client/cli/a.cc", '#include "attnbias/client.h"'),
            ("proto/attnbias/v1/a.proto", 'import "google/protobuf/descriptor.proto";'),
        ):
            with self.subTest(name=name, line=line):
                self.assertEqual(self.found(name, line), [])


if __name__ == "__main__":
    unittest.main()
