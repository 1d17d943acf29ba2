# SPDX-License-Identifier: Apache-2.0
"""Learned tables as the contract's TableRef. Knows arrays, torch tensors and mounted tables."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from attnbias._arrays.convert import is_torch_tensor, to_numpy
from attnbias._spec.dtypes import BFLOAT16, to_data_type
from attnbias._spec.enums import enum_name, set_enum
from attnbias.v1 import tensor_pb2

if TYPE_CHECKING:
    import numpy.typing as npt

    from attnbias._spec.fields import Encoding

_MOST_BYTES: Final = 2 << 20  # of a table in a request, by the contract
_DIGEST_PREFIX: Final = "sha256:"
_DIGEST: Final = re.compile(f"{_DIGEST_PREFIX}([0-9a-f]{{64}})")


@dataclass(frozen=True)
class TableInfo:
    """A learned table that a server has mounted.

    Attributes:
        name: what an encoding's ``table`` may say; the TableInfo itself does too, by its digest.
        sha256: the same numbers on any server: ``table="sha256:" + sha256``.
        source: the file and tensor that the numbers came from.
        encoding: for a table out of a checkpoint, where its use is known: the encoding that uses
            it, by name, as the checkpoint was trained.
    """

    name: str
    sha256: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    source: str
    encoding: Encoding | None


def to_table_ref(table: Any, layout: str | None, name: str) -> tensor_pb2.TableRef:
    """Makes a TableRef of an array, or of a mounted table: its name, ``"sha256:..."``, or itself.

    Errors name the field ``name``.
    """
    reference = tensor_pb2.TableRef()
    if layout is not None:
        set_enum(reference, "layout", layout, f"{name}_layout")
    if isinstance(table, TableInfo):
        reference.sha256 = table.sha256
    elif isinstance(table, str) and table.startswith(_DIGEST_PREFIX):
        match = _DIGEST.fullmatch(table)
        if match is None:
            raise ValueError(f"{name}: got {table!r}, want 64 hex digits after {_DIGEST_PREFIX!r}")
        reference.sha256 = match[1]
    elif isinstance(table, str):
        reference.name = table
    else:
        reference.inline_table.CopyFrom(_inline(table, name))
    return reference


def digest_of(table: npt.NDArray[Any]) -> str:
    """What a server names a table of two axes by, as ``TableInfo.sha256`` (docs/protocol.md)."""
    rows, columns = table.shape
    domain = b"attnbias.table"
    head = struct.pack("<I", len(domain)) + domain + struct.pack("<I", 1)
    for field, value in enumerate((to_data_type(table.dtype), rows, columns, table.nbytes), 1):
        head += struct.pack("<IQ", field, value)
    return hashlib.sha256(head + _little_endian(table).tobytes()).hexdigest()


def from_table_ref(reference: tensor_pb2.TableRef) -> tuple[str, str]:
    """The table and the layout of a reference that a server made: a name or a digest."""
    named = reference.WhichOneof("source") == "name"
    table = reference.name if named else f"{_DIGEST_PREFIX}{reference.sha256}"
    return table, enum_name(tensor_pb2.TableLayout.DESCRIPTOR, reference.layout)


def _inline(table: Any, name: str) -> tensor_pb2.InlineTable:
    array = to_numpy(table.cpu()) if is_torch_tensor(table) else np.asarray(table)
    if array.dtype != BFLOAT16 and array.dtype.kind != "f":
        raise TypeError(f"{name}: got an array of {array.dtype}, want f64, f32, f16 or bf16")
    if array.nbytes > _MOST_BYTES:
        raise ValueError(
            f"{name}: got {array.nbytes} bytes, want at most {_MOST_BYTES} in a request; "
            "a larger table is mounted by the server (--tables)"
        )
    data = _little_endian(array).tobytes()
    return tensor_pb2.InlineTable(data_type=to_data_type(array.dtype), shape=array.shape, data=data)


def _little_endian(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
