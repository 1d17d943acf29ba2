# SPDX-License-Identifier: Apache-2.0
"""Requests for a tensor or for positional logits, with the contract's names."""

from __future__ import annotations

import hashlib
import itertools
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, Required, SupportsIndex, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message

from attnbias._checks import require_instance
from attnbias._spec.encodings import ShawValues
from attnbias._spec.enums import DType, to_data_type
from attnbias._spec.fields import Encoding, LogitsTerm, TableInfo, set_fields, to_floats
from attnbias._spec.options import (
    CompactOptions,
    GridOptions,
    ListOptions,
    RequestFields,
    RequestOptions,
)
from attnbias.v1 import encodings_pb2, logits_pb2, tensor_pb2

if TYPE_CHECKING:
    import jax
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Placement


CompactForm: TypeAlias = Literal["table", "toeplitz", "key_row", "block_toeplitz"]


class AnyCall(RequestOptions, total=False):
    """All keyword arguments of ``Client.get`` except those for storing the result."""

    progress: bool | None
    timeout: float | None


class NewCall(TypedDict, total=False):
    """Arguments that do not describe the tensor, for a call that returns new memory."""

    out: None
    progress: bool | None
    timeout: float | None


class CompactCall(CompactOptions, NewCall, total=False):
    """Arguments that select an encoding's compact form."""

    form: CompactForm | None


class GridCall(GridOptions, NewCall):
    """Arguments for a request over a grid."""


class DenseCall(ListOptions, NewCall, total=False):
    """Arguments that select an array."""

    form: Required[Literal["dense"]]


class MeshCall(AnyCall):
    """Arguments that select a DTensor."""

    device_mesh: DeviceMesh
    placements: Sequence[Placement]


class JaxCall(AnyCall):
    """Arguments that select a jax.Array."""

    sharding: jax.sharding.Sharding


@dataclass(frozen=True, eq=False, repr=False)
class Request(RequestFields):
    """A request for one tensor.

    A window is a half-open tuple (begin, end), or n for (0, n).

    Attributes:
        encoding: the encoding to compute, such as ``attnbias.ALiBi(num_heads=8)``.
        positions: a window of consecutive positions, for an encoding of absolute positions.
        position_ids: explicit positions instead of ``positions``; one sequence per axis for an
            encoding with several axes. For sinusoidal and rotary tables, they may be fractions.
        grid: lengths of a grid instead of ``positions``; one per axis for an encoding with several
            axes; selects all its tokens, row-major. The result is a ``GridTable`` or, with form
            "dense", an array.
        grid_offset: position of the grid's first token on each axis; None means 0.
        query_length: total number of queries.
        key_length: total number of keys, the first at position 0.
        alignment: "start" aligns the first query with the first key, "end" the last query with the
            last key. Not needed if the numbers of queries and keys are equal.
        query_offset: position of query 0, instead of alignment.
        queries: a window of the queries, or of a grid's tokens; None means all.
        keys: a window of the keys.
        heads: a window of the heads.
        query_positions: explicit positions instead of query_length, alignment and queries.
        key_positions: explicit positions instead of key_length and keys; queries then need a
            query_offset, or explicit positions too.
        query_stride: stride of the queries on each axis of a window of tokens: with stride n, every
            n-th token is a query; None means 1.
        data_type: "f64", "f32", "f16", "bf16", a full name such as "float64", or a numpy, ml_dtypes
            or torch dtype. None means f32 (i32 for buckets).
        form: "dense"; None means the encoding's compact form.
        values: "bias" (also None), or "buckets" for the indices into the encoding's learned table.
        scale: factor applied before the single rounding.
        causal: masks keys after the query.
        window_left: masks keys more than this many positions before the query.
        window_right: masks keys more than this many positions after the query.
        fill_value: value of masked elements; None means -inf. Allowed only with a mask: causal,
            window_left or window_right.
        fill_lowest: fills masked elements with the data type's lowest finite value, instead of
            ``fill_value``.
    """

    def __post_init__(self) -> None:
        require_instance(self.encoding, Encoding, "encoding", _WANTED_ENCODING)
        taken = _EXTENTS[self.encoding.extent]
        for name in itertools.chain(*_EXTENTS.values()):
            if name not in taken and getattr(self, name) is not None:
                takes = f"{self.encoding.field} takes {', '.join(taken)}"
                raise ValueError(f"{name}: got a value, want none: {takes}")
        if self.causal or self.window_left is not None or self.window_right is not None:
            return
        for name in ("fill_value", "fill_lowest"):
            value = getattr(self, name)
            if value is not None and value is not False:
                message = f"{name}: got {value!r} without causal, window_left or window_right"
                raise ValueError(message)

    def brief(self) -> str:
        """Returns the request on one line, as the caller wrote it."""
        said = [repr(self.encoding)]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not field.default:
                said.append(f"{field.name}={reprlib.repr(value)}")
        return ", ".join(said)

    def to_spec(self) -> encodings_pb2.TensorSpec:
        """Returns the contract's message; raises an error for an invalid value."""
        spec = self.encoding.to_spec()
        extent = getattr(spec, self.encoding.extent)
        extent.SetInParent()
        for message in (extent, spec.output, spec.output.mask):
            set_fields(message, self)
        return spec

    def to_mask(self) -> tensor_pb2.Mask:
        mask = tensor_pb2.Mask()
        set_fields(mask, self)
        return mask


_WANTED_ENCODING = (
    "an encoding, such as attnbias.ALiBi(num_heads=8) (pass logits terms to Client.logits)"
)
_EXTENTS = {
    "table": list(tensor_pb2.TableExtent.DESCRIPTOR.fields_by_name),
    "pair": list(tensor_pb2.PairExtent.DESCRIPTOR.fields_by_name),
    "grid": list(tensor_pb2.GridExtent.DESCRIPTOR.fields_by_name),
}
"""The fields of each extent."""


_AXES = 3  # axes: heads, queries and a row
_WANTED_TERM = "attnbias.ShawKeys(...) or another LogitsTerm (Client.get takes encodings)"


class LogitsOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.logits`` that describe the result."""

    alignment: Literal["start", "end"] | None
    query_offset: SupportsIndex | None
    output_data_type: DType | None
    fill_value: float | None
    fill_lowest: bool
    scale: float | None
    query_bias: Any


@dataclass(frozen=True, eq=False)
class LogitsRequest:
    """A term and its input rows, as ``Client.logits`` describes them."""

    term: LogitsTerm
    rows: Any
    key_length: SupportsIndex | None
    direction: Literal["left_to_right", "right_to_left", "bidirectional"]
    query_length: SupportsIndex | None = None
    alignment: Literal["start", "end"] | None = None
    query_offset: SupportsIndex | None = None
    output_data_type: DType | None = None
    fill_value: float | None = None
    fill_lowest: bool = False
    scale: float | None = None
    query_bias: Any = None

    def __post_init__(self) -> None:
        require_instance(self.term, LogitsTerm, "term", _WANTED_TERM)

    def array(self) -> npt.NDArray[Any]:
        """Returns the rows ``[heads, queries, width]``, little-endian; a bias alone has width 0."""
        if self.rows is None:
            if self.query_bias is None or self.query_length is None:
                raise TypeError("rows: got None, which needs query_bias and query_length")
            return np.empty(
                (_length(self.query_bias, 0, "query_bias"), self.query_length, 0), "<f4"
            )
        rows = to_floats(self.rows, "rows")
        if rows.ndim != _AXES:
            raise ValueError(f"rows: got shape {rows.shape}, want [heads, queries, width]")
        if self.query_length is not None:
            raise TypeError("query_length: given with rows, want it only if rows is None")
        return rows.astype(rows.dtype.newbyteorder("<"), copy=False)

    def to_spec(self, rows: npt.NDArray[Any]) -> logits_pb2.LogitsSpec:
        """Returns the contract's message for rows that array() made."""
        spec = logits_pb2.LogitsSpec()
        set_fields(spec, self)
        message = getattr(spec, self.term.field)
        message.SetInParent()
        set_fields(message, self.term, f"{self.term.field}.")
        spec.num_heads, spec.query_length, width = rows.shape
        spec.data_type = to_data_type(rows.dtype)
        spec.bias_alone = self.rows is None
        if isinstance(self.term, ShawValues):
            spec.head_dim = _length(self.term.table, -1, "table")
            spec.key_length = spec.key_length or width
        else:
            spec.head_dim = (
                width if self.rows is not None else _length(self.query_bias, -1, "query_bias")
            )
        return spec


def _length(table: Any, axis: int, name: str) -> int:
    """Returns one length of a table; rejects a named table, whose shape is unknown here."""
    shape = table.shape if isinstance(table, TableInfo) else np.shape(table)
    if not shape:
        raise TypeError(f"{name}: got {table!r}, want an array or a TableInfo, for its shape")
    return int(shape[axis])


_KEY_PREFIX: Final = b"attnbias request 1\n"


def key_of(spec: encodings_pb2.TensorSpec) -> str:
    """Returns the key under which the cache stores a request."""
    return hashlib.sha256(_KEY_PREFIX + spec.SerializeToString(deterministic=True)).hexdigest()


def names_a_table(message: Message) -> bool:
    """Reports whether a request names a table, whose values a server may change."""
    if isinstance(message, tensor_pb2.TableRef):
        source: str | None = message.WhichOneof("source")
        return source == "name"
    for field, value in message.ListFields():
        if field.message_type is not None:
            inner = [value] if isinstance(value, Message) else value
            if any(names_a_table(each) for each in inner):
                return True
    return False
