# SPDX-License-Identifier: Apache-2.0
"""Descriptions of payloads and servers as plain values, and memory for payloads.

Rejects a header that contradicts itself, and an ``out`` that does not fit.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from attnbias._arrays.convert import is_torch_tensor, to_numpy
from attnbias._errors import DataLossError, ResourceExhaustedError, UnimplementedError, escaped
from attnbias._spec.enums import enum_name, from_data_type
from attnbias._spec.fields import TableInfo, from_spec
from attnbias.v1 import encodings_pb2, service_pb2, tensor_pb2

_MOST_AXES: Final = 64  # maximum axes of an array
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_NAME: Final = re.compile("[a-z0-9._]{1,64}")


@dataclass(frozen=True)
class TensorPart:
    """One named tensor inside a payload.

    Attributes:
        name: "positions", "diagonals", "row", "block", "border" or "dense"; over a grid
            "positions.axis0" and so on.
        form: "table", "toeplitz", "key_row", "block_toeplitz" or "dense".
        offset: offset of its first byte in the payload.
        first_relative_position: for a Toeplitz only: key position minus query position of diagonal
            0.
    """

    name: str
    dtype: np.dtype[Any]
    form: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    first_relative_position: int


@dataclass(frozen=True)
class TensorInfo:
    """Description of a request's payload.

    Attributes:
        nbytes: bytes of all parts together.
        fingerprint: 64 hex digits; equal fingerprints mean equal bytes, on any replica at any time.
        encoding_fingerprint: the same, but independent of extent, dtype, form and mask: equal for
            all requests for one encoding.
        resolved_spec: the request as the server resolved it: defaults filled in, tables as digests.
        fully_masked_rows: half-open ranges of queries for which every key is masked, counted from
            the start of the window.
        derived: the encoding's own intermediate results, such as Rotary's "inverse_frequencies".
        column_axes: for a table over a grid with one part per axis, the axis of each column.
    """

    parts: tuple[TensorPart, ...]
    nbytes: int
    fingerprint: str
    encoding_fingerprint: str
    resolved_spec: encodings_pb2.TensorSpec
    fully_masked_rows: tuple[tuple[int, int], ...]
    derived: Mapping[str, tuple[float, ...]]
    column_axes: tuple[int, ...]


@dataclass(frozen=True)
class ServerLimits:
    """Bounds beyond which a server rejects requests."""

    max_unary_bytes: int
    max_tensor_bytes: int
    max_chunk_bytes: int
    max_inline_table_bytes: int
    max_position_list_length: int
    memory_budget_bytes: int


@dataclass(frozen=True)
class ServerInfo:
    """Description of a server.

    Attributes:
        backends: the backend in use comes first.
        instruction_sets: the set in use comes first.
    """

    version: str
    backends: tuple[str, ...]
    instruction_sets: tuple[str, ...]
    encodings: tuple[str, ...]
    dtypes: tuple[str, ...]
    limits: ServerLimits


def to_table_info(table: service_pb2.TableInfo) -> TableInfo:
    """Converts an entry of ListTables; rejects an invalid one."""
    name, shape = escaped(table.name), list(table.shape)
    dtype = from_data_type(table.data_type)
    if dtype is None:
        raise UnimplementedError(f"table {name} has data_type {table.data_type}")
    if not _DIGEST.fullmatch(table.sha256):
        raise DataLossError(
            f"table {name} has sha256 {escaped(table.sha256)}, want 64 lowercase hex digits"
        )
    if min(shape, default=0) < 1:
        raise DataLossError(f"table {name} has shape {shape}, want lengths of at least 1")
    try:
        encoding = from_spec(table.spec)
    except (TypeError, ValueError) as error:
        raise DataLossError(f"table {name} has an invalid spec: {error}") from None
    return TableInfo(
        name=table.name,
        sha256=table.sha256,
        dtype=dtype,
        shape=tuple(shape),
        source=table.source,
        encoding=encoding,
    )


def to_tensor_info(header: service_pb2.TensorHeader) -> TensorInfo:
    """Checks and converts a header; rejects one that contradicts itself."""
    for field in ("fingerprint", "encoding_fingerprint"):
        if not _DIGEST.fullmatch(value := getattr(header, field)):
            raise DataLossError(
                f"header.{field}: got '{escaped(value)}', want 64 lowercase hex digits"
            )
    parts = tuple(_to_part(part) for part in header.parts)
    if not parts:
        raise DataLossError("header: has no parts")
    if len({part.name for part in parts}) < len(parts):
        names = ", ".join(part.name for part in parts)
        raise DataLossError(f"header.parts: got [{escaped(names)}], want distinct names")
    end = 0
    for part in header.parts:
        if part.offset != end:
            raise _not_adding_up(part)
        end += part.size_bytes
    if end != header.total_bytes:
        raise DataLossError(
            f"header.total_bytes: got {header.total_bytes}, want {end}, the sum of its parts"
        )
    _check_window(header)
    _check_columns(header)
    return TensorInfo(
        parts=parts,
        nbytes=header.total_bytes,
        fingerprint=header.fingerprint,
        encoding_fingerprint=header.encoding_fingerprint,
        resolved_spec=header.resolved_spec,
        fully_masked_rows=tuple((rows.begin, rows.end) for rows in header.fully_masked_rows),
        derived={value.name: tuple(value.values) for value in header.derived},
        column_axes=tuple(header.column_axes),
    )


def axes_of(spec: encodings_pb2.TensorSpec) -> tuple[Sequence[int], Sequence[int]]:
    """Returns the positions of queries and keys in a spec that a server has resolved."""
    pair = spec.pair
    queries: Sequence[int] = range(
        pair.queries.begin + pair.query_offset, pair.queries.end + pair.query_offset
    )
    keys: Sequence[int] = range(pair.keys.begin, pair.keys.end)
    return (
        tuple(pair.query_positions.positions) or queries,
        tuple(pair.key_positions.positions) or keys,
    )


def query_stride_of(spec: encodings_pb2.TensorSpec, block: npt.NDArray[Any]) -> tuple[int, ...]:
    """Returns the query stride on each axis of a block; empty if the resolved spec has no grid."""
    axes = block.ndim - spec.grid.HasField("heads") if spec.HasField("grid") else 0
    return tuple(spec.grid.query_stride) or (1,) * axes


def _check_window(header: service_pb2.TensorHeader) -> None:
    """Rejects masked rows that are not ascending ranges of queries in the window."""
    try:
        queries, _ = map(len, axes_of(header.resolved_spec))
    except OverflowError:
        says = "header.resolved_spec: got a window of more than 2^63 positions"
        raise DataLossError(says) from None
    end = 0
    for rows in header.fully_masked_rows:
        if not end <= rows.begin < rows.end <= queries:
            raise DataLossError(
                f"header.fully_masked_rows: got [{rows.begin}, {rows.end}), want ascending ranges "
                f"in [0, {queries})"
            )
        end = rows.end


def _check_columns(header: service_pb2.TensorHeader) -> None:
    """Rejects column axes that do not match the parts of the grid's axes."""
    if not header.column_axes:
        return
    columns, axes = Counter(header.column_axes), len(header.resolved_spec.table.grid)
    fits = all(0 <= axis < axes for axis in columns) and all(
        list(part.shape[1:]) == [columns[index % axes]] for index, part in enumerate(header.parts)
    )
    if not fits or len(header.parts) % axes != 0:
        raise DataLossError("header.column_axes: got columns that differ from those of the parts")


def to_server_info(response: service_pb2.GetServerInfoResponse) -> ServerInfo:
    limits = {field: getattr(response.limits, field) for field in ServerLimits.__annotations__}
    enum = tensor_pb2.DataType.DESCRIPTOR
    return ServerInfo(
        version=response.version,
        backends=tuple(response.backends),
        instruction_sets=tuple(response.instruction_sets),
        encodings=tuple(response.encodings),
        dtypes=tuple(enum_name(enum, number) for number in response.data_types),
        limits=ServerLimits(**limits),
    )


def _to_part(part: tensor_pb2.TensorPart) -> TensorPart:
    if not _NAME.fullmatch(part.name):
        raise DataLossError(
            f"header.parts: got the name '{escaped(part.name)}', want 1 to 64 characters from "
            "a-z, 0-9, . and _"
        )
    dtype = from_data_type(part.data_type)
    for field, is_known in (
        ("data_type", dtype is not None),
        ("form", part.form in tensor_pb2.Form.values() and part.form != 0),
    ):
        if not is_known:
            raise UnimplementedError(
                f"header: part {part.name} has {field} {getattr(part, field)}, which this client "
                "does not recognize"
            )
    assert dtype is not None
    shape = tuple(part.shape)
    if len(shape) > _MOST_AXES:
        raise DataLossError(
            f"header: part {part.name} has {len(shape)} axes, want at most {_MOST_AXES}"
        )
    if min(shape, default=0) < 1 or math.prod(shape) * dtype.itemsize != part.size_bytes:
        raise _not_adding_up(part)
    first = part.first_relative_position
    if first != 0 and part.form != tensor_pb2.FORM_TOEPLITZ:
        raise DataLossError(f"header: part {part.name} has first_relative_position {first}, want 0")
    return TensorPart(
        name=part.name,
        dtype=dtype,
        form=enum_name(tensor_pb2.Form.DESCRIPTOR, part.form),
        shape=shape,
        offset=part.offset,
        nbytes=part.size_bytes,
        first_relative_position=first,
    )


def _not_adding_up(part: tensor_pb2.TensorPart) -> DataLossError:
    return DataLossError(
        f"header: part {part.name} at byte {part.offset} has shape {list(part.shape)} of "
        f"{tensor_pb2.DataType.Name(part.data_type)} in {part.size_bytes} bytes, which does not "
        "add up"
    )


_RAW_FORMATS = frozenset("bBc")


class Payload(NamedTuple):
    """Response to a request."""

    info: TensorInfo
    memory: npt.NDArray[np.uint8]
    header: service_pb2.TensorHeader
    """The server's description, from which ``info`` is made."""


def require_within(nbytes: int, limit: int) -> None:
    """Rejects a payload that is larger than the caller's limit."""
    if nbytes > limit:
        raise ResourceExhaustedError(
            f"max_tensor_bytes: the tensor has {nbytes} bytes, but this client accepts at most "
            f"{limit}"
        )


def allocate(info: TensorInfo) -> npt.NDArray[np.uint8]:
    return np.empty(info.nbytes, np.uint8)


def borrow(out: Any, info: TensorInfo) -> npt.NDArray[np.uint8]:
    """Returns the caller's memory as bytes; copies nothing.

    ``out`` is an array, a torch CPU tensor, or anything with the buffer protocol. Raw bytes accept
    any payload of their size. An array of other elements accepts only a payload of that type, and
    must have the payload's shape or one axis.
    """
    array = _as_array(out)
    if not array.flags.c_contiguous:
        raise ValueError(f"out: got strides {array.strides}, want C-contiguous memory")
    if not array.flags.writeable:
        raise ValueError("out: got read-only memory, want writable memory")
    wanted = {part.dtype for part in info.parts}
    raw = array.dtype.char in _RAW_FORMATS
    if not raw and wanted != {array.dtype}:
        names = ", ".join(sorted(str(dtype) for dtype in wanted))
        raise ValueError(f"out: got dtype {array.dtype}, want {names}")
    if array.nbytes != info.nbytes:
        shapes = ", ".join(str(part.shape) for part in info.parts)
        raise ValueError(
            f"out: got {array.nbytes} bytes of shape {array.shape}, "
            f"want {info.nbytes} bytes of shape {shapes}"
        )
    if not raw and array.ndim != 1 and array.shape != _shape_of(info):
        shapes = " and ".join(str(part.shape) for part in info.parts)
        raise ValueError(f"out: got shape {array.shape}, want {shapes}, or one axis")
    return array.reshape(-1).view(np.uint8)


def _shape_of(info: TensorInfo) -> tuple[int, ...] | None:
    """Returns the shape of a payload as one array; None if its parts differ."""
    shape = info.parts[0].shape
    if any(part.shape != shape for part in info.parts):
        return None
    return shape if len(info.parts) == 1 else (len(info.parts), *shape)


def _as_array(out: Any) -> npt.NDArray[Any]:
    if isinstance(out, np.ndarray):
        return out
    if is_torch_tensor(out):
        if out.device.type != "cpu":
            raise ValueError(f"out: got a tensor on {out.device}, want one on the CPU")
        return to_numpy(out)
    try:
        return np.asarray(memoryview(out))
    except TypeError as error:
        name = type(out).__name__
        raise TypeError(f"out: got {name}, want an array, a CPU tensor or a buffer") from error


def part_of(memory: npt.NDArray[np.uint8], info: TensorInfo, index: int) -> npt.NDArray[Any]:
    """Returns one part of a payload as an array over its memory."""
    part = info.parts[index]
    raw = memory[part.offset : part.offset + part.nbytes]
    return raw.view(part.dtype).reshape(part.shape)
