# SPDX-License-Identifier: Apache-2.0
"""Reads and writes payloads and structures as .npy and .safetensors files.

docs/protocol.md documents the metadata of a .safetensors file.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf import json_format
from google.protobuf.message import Message
from safetensors import safe_open
from safetensors.numpy import save_file

from attnbias._arrays.convert import BFLOAT16
from attnbias._arrays.grid import BlockToeplitz, BorderedToeplitz
from attnbias._arrays.mask import Mask
from attnbias._arrays.structure import RingShard, Structure
from attnbias._arrays.tables import GridTable, RotaryTables, XposTables, to_grid_tables, to_tables
from attnbias._arrays.toeplitz import KeyRow, Toeplitz
from attnbias._checks import require_instance
from attnbias._spec.info import TensorInfo, query_stride_of
from attnbias.v1 import encodings_pb2, tensor_pb2

_SUFFIXES: Final = (".npy", ".safetensors")
_PREFIX: Final = "attnbias."
_NO_INDEX: Final = "none"

_Message = TypeVar("_Message", bound="Message")
Loaded = npt.NDArray[Any] | Structure | RotaryTables | XposTables


def save(bias: Structure, path: str | os.PathLike[str]) -> None:
    """Writes a structure to a file that ``load`` can read.

    The file appears whole or not at all.

    Args:
        bias: a Toeplitz, KeyRow, BlockToeplitz or BorderedToeplitz, or a window of one of these; or
            a GridTable.
        path: a name that ends in .safetensors or .npy; a .npy file holds only the values.

    Raises:
        OSError: the file cannot be written.
        TypeError: bias is not one of these structures.
        ValueError: the suffix is neither .npy nor .safetensors, or a .npy would hold several parts.
    """
    require_instance(bias, Structure, "bias", "a Toeplitz or another structure")
    if isinstance(bias, RingShard):
        raise TypeError("bias: got a RingShard; want the whole tensor, bias.whole")
    if isinstance(bias, GridTable) and not bias.is_whole():
        raise TypeError("bias: got a window of a GridTable; want the whole table, or bias.dense()")
    write(to_path(path), bias.parts(), metadata_of(bias, bias))


def load(path: str | os.PathLike[str]) -> Loaded:
    """Reads a file that ``Client.save``, ``attnbias.save`` or the command-line tool wrote.

    Args:
        path: a name that ends in .npy or .safetensors.

    Returns:
        The result of ``Client.get``: an array, a named tuple of tables, or a structure with its
        positions, fingerprint and ``resolved_spec``. A .npy file yields an array; for a structure,
        this is the array of its values.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged, or was not written by attnbias.
    """
    path = to_path(path)
    try:
        if path.suffix == ".safetensors":
            return _load_safetensors(path)
        # Mapped first, so that a header that claims too many bytes is rejected before memory is
        # allocated.
        array: npt.NDArray[Any] = np.array(np.lib.format.open_memmap(path, mode="r"))
        # .npy has no bfloat16: numpy writes its raw bytes, two per element.
        return array.view(BFLOAT16) if array.dtype == np.dtype("V2") else array
    except (OSError, MemoryError):
        raise
    except Exception as error:  # the three parsers raise errors of their own types
        raise ValueError(f"{path}: {error}") from error


def to_path(path: str | os.PathLike[str]) -> Path:
    """Returns a file's path; rejects a name with neither format's suffix."""
    want = f"a name that ends in {' or '.join(_SUFFIXES)}"
    require_instance(path, (str, os.PathLike), "path", want)
    path = Path(path)
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"path: got {str(path)!r}, want {want}")
    return path


def write(path: Path, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, str]) -> None:
    """Writes arrays under their names, or a single array to a .npy. Replaces an existing file."""
    if path.suffix == ".npy" and len(arrays) != 1:
        message = f"path: a .npy holds one array, got {', '.join(arrays)}; want a .safetensors"
        raise ValueError(message)
    with tempfile.TemporaryDirectory(prefix=".attnbias-", dir=path.parent) as folder:
        draft = Path(folder) / f"draft{path.suffix}"
        draft.touch()
        mode = draft.stat().st_mode  # honors the umask; safetensors sets its own mode
        draft.unlink()
        if path.suffix == ".npy":
            (array,) = arrays.values()
            np.save(draft, array, allow_pickle=False)
        else:
            whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            save_file(whole, draft, metadata)
        draft.chmod(mode)
        os.replace(draft, path)


def metadata_of(result: Any, source: Structure | TensorInfo) -> dict[str, str]:
    """Returns the metadata for a result (a structure, an array or tables) from its description."""
    values: dict[str, Any] = {}
    if source.fingerprint:
        values["fingerprint"] = source.fingerprint
    if isinstance(source, TensorInfo):
        values["encoding_fingerprint"] = source.encoding_fingerprint
    if source.resolved_spec is not None:
        values["resolved_spec"] = _to_json(source.resolved_spec)
    first = result[0] if isinstance(result, tuple) else result
    if isinstance(first, GridTable):
        values["column_axes"] = ",".join(map(str, first.column_axes))
    elif isinstance(result, Structure) and not _is_whole_grid(result):
        values["query_length"], values["key_length"] = result._lengths()
    toeplitz = result.toeplitz if isinstance(result, BorderedToeplitz) else result
    if isinstance(toeplitz, Toeplitz):
        values["diagonals.first_relative_position"] = toeplitz.first_relative_position
        values["diagonals.vectors"] = str(toeplitz.vectors).lower()
        if toeplitz.mask is not None:
            values["diagonals.mask"] = _to_json(tensor_pb2.Mask(**vars(toeplitz.mask)))
    if isinstance(result, BlockToeplitz) and not _is_whole_grid(result):
        values["block.first_query"] = result.queries[0]
        values["block.first_key"] = result.keys[0]
        values["block.query_stride"] = ",".join(map(str, result.query_stride))
    if isinstance(result, BorderedToeplitz):
        for name in ("class_query", "class_key"):
            index = getattr(result, name)
            values[f"border.{name}"] = _NO_INDEX if index is None else index
    return {f"{_PREFIX}{name}": str(value) for name, value in values.items()}


def _to_json(message: Message) -> str:
    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None)


def _is_whole_grid(result: Structure) -> bool:
    """Reports whether a server sent this whole grid, in which case the file needs no window."""
    return isinstance(result, BlockToeplitz) and bool(result.fingerprint) and result.is_whole()


def _load_safetensors(path: Path) -> Loaded:
    with open(path, "rb"):  # its errors name the file
        pass
    with safe_open(path, framework="numpy") as file:
        metadata = _Metadata(file.metadata() or {})
        names = file.keys()
        arrays: dict[str, npt.NDArray[Any]] = {name: file.get_tensor(name) for name in names}
    if not metadata:
        want = "want a file written by Client.save, attnbias.save or the tool"
        raise ValueError(f"it has no attnbias metadata; {want}")
    if column_axes := metadata.integers("column_axes"):
        _require_one("dtype", arrays)
        found: Loaded | None = to_grid_tables(dict(sorted(arrays.items())), column_axes)
    else:
        found = _to_structure(arrays, metadata)
    if isinstance(found, Structure):
        return found._named(metadata.text("fingerprint", ""), metadata.spec())
    if found is not None:
        return found
    tables = to_tables({name: arrays[name] for name in XposTables._fields if name in arrays})
    if tables is not None and len(tables) == len(arrays):
        _require_one("dtype", arrays)
        _require_one("shape", arrays)
        return tables
    if len(arrays) == 1:
        (array,) = arrays.values()
        return array
    raise ValueError(f"its tensors {', '.join(arrays)} do not form an attnbias response")


def _require_one(what: str, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Rejects arrays that differ in ``what``, which is "dtype" or "shape"."""
    values = {name: getattr(array, what) for name, array in arrays.items()}
    if len(set(values.values())) > 1:
        got = ", ".join(map(str, values.values()))
        raise ValueError(f"{', '.join(values)}: got {what}s {got}; want the same {what}")


def _to_structure(arrays: dict[str, npt.NDArray[Any]], metadata: _Metadata) -> Structure | None:
    """Returns the structure with these parts; None if no structure has them."""
    names = set(arrays)
    if "border" in names:
        _require_one("dtype", arrays)
    if names == {"row"}:
        bias = KeyRow(arrays["row"], query_length=metadata.length("query_length"))
        keys, name = metadata.length("key_length"), f"{_PREFIX}key_length"
        if bias.key_length != keys:
            raise ValueError(f"row: got length {bias.key_length}, want {keys} ({name})")
        return bias
    if names in ({"block"}, {"block", "border"}):
        block, spec = arrays["block"], metadata.spec()
        strides = metadata.integers("block.query_stride") or (spec and query_stride_of(spec, block))
        return BlockToeplitz(
            block,
            border=arrays.get("border"),
            query_stride=strides or (1, 1),
            queries=metadata.span("block.first_query", "query_length"),
            keys=metadata.span("block.first_key", "key_length"),
        )
    if names not in ({"diagonals"}, {"diagonals", "border"}):
        return None
    toeplitz = Toeplitz(
        arrays["diagonals"],
        query_length=metadata.length("query_length"),
        key_length=metadata.length("key_length"),
        first_relative_position=metadata.integer("diagonals.first_relative_position"),
        vectors=metadata.flag("diagonals.vectors"),
        mask=metadata.mask(),
    )
    if "border" not in arrays:
        return toeplitz
    return BorderedToeplitz(
        toeplitz,
        arrays["border"],
        class_query=metadata.index("border.class_query"),
        class_key=metadata.index("border.class_key"),
    )


class _Metadata:
    """The attnbias metadata in a file; errors name the invalid value."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = {
            name.removeprefix(_PREFIX): value
            for name, value in values.items()
            if name.startswith(_PREFIX)
        }

    def __bool__(self) -> bool:
        return bool(self._values)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name, default)
        if value is None:
            raise ValueError(f"{_PREFIX}{name}: missing from its metadata")
        return value

    def integer(self, name: str) -> int:
        return _to_integer(self.text(name), name)

    def integers(self, name: str) -> list[int]:
        """Parses comma-separated integers; returns [] if the file has none."""
        return [_to_integer(text, name) for text in filter(None, self.text(name, "").split(","))]

    def length(self, name: str) -> int:
        value = self.integer(name)
        if value < 1:
            raise ValueError(f"{_PREFIX}{name}: got {value}, want at least 1")
        return value

    def flag(self, name: str) -> bool:
        text = self.text(name)
        if text not in ("true", "false"):
            raise ValueError(f"{_PREFIX}{name}: got {text!r}, want true or false")
        return text == "true"

    def index(self, name: str) -> int | None:
        return None if self.text(name) == _NO_INDEX else self.integer(name)

    def span(self, first: str, length: str) -> tuple[int, int] | None:
        """Returns a window's bounds; None if the file has the whole tensor."""
        if first not in self._values:
            return None
        begin = self.integer(first)
        return begin, begin + self.length(length)

    def spec(self) -> encodings_pb2.TensorSpec | None:
        return self._message("resolved_spec", encodings_pb2.TensorSpec())

    def mask(self) -> Mask | None:
        """Returns the diagonals' mask, which the command-line tool writes only in the spec."""
        mask = self._message("diagonals.mask", tensor_pb2.Mask())
        if mask is None:
            mask = (self.spec() or encodings_pb2.TensorSpec()).output.mask
        return Mask.of(mask)

    def _message(self, name: str, empty: _Message) -> _Message | None:
        text = self._values.get(name)
        if text is None:
            return None
        return json_format.Parse(text, empty, ignore_unknown_fields=True)


def _to_integer(text: str, name: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{_PREFIX}{name}: got {text!r}, want an integer") from None
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{_PREFIX}{name}: got {text!r}, want a 64-bit integer")
    return value
