# SPDX-License-Identifier: Apache-2.0
"""A request for positional logits: a term, and what else the contract's spec holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from attnbias._checks import require_instance, set_number
from attnbias._dtypes import BFLOAT16, to_data_type
from attnbias._encodings import ShawValues
from attnbias._enums import set_enum
from attnbias._fields import LogitsTerm
from attnbias._tables import TableInfo, to_table_ref
from attnbias._torch import is_torch_tensor, to_numpy
from attnbias.v1 import logits_pb2

if TYPE_CHECKING:
    from attnbias._dtypes import DType

_AXES = 3  # heads, queries and a row
_WANTED_TERM = "attnbias.ShawKeys(...) or another LogitsTerm (Client.get takes encodings)"


class LogitsOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.logits`` that describe the answer."""

    align: Literal["start", "end"] | None
    query_offset: int | None
    dtype: DType | None
    fill: float | Literal["lowest"] | None
    scale: float | None
    query_bias: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitsRequest:
    """A term and the rows to compute it of, as ``Client.logits`` describes them."""

    term: LogitsTerm
    rows: Any
    keys: int | None
    direction: Literal["left_to_right", "right_to_left", "bidirectional"]
    queries: int | None = None
    align: Literal["start", "end"] | None = None
    query_offset: int | None = None
    dtype: DType | None = None
    fill: float | Literal["lowest"] | None = None
    scale: float | None = None
    query_bias: Any = None

    def __post_init__(self) -> None:
        require_instance(self.term, LogitsTerm, "term", _WANTED_TERM)

    def array(self) -> npt.NDArray[Any]:
        """The rows ``[heads, queries, width]``, little-endian. For a bias alone width is 0.

        Raises:
            TypeError: rows are missing or of another type than floats.
            ValueError: rows have another number of axes.
        """
        if self.rows is None:
            if self.query_bias is None or self.queries is None:
                raise TypeError("rows: got None, which goes with query_bias and queries")
            return np.empty((_length(self.query_bias, 0, "query_bias"), self.queries, 0), "<f4")
        rows = to_numpy(self.rows.cpu()) if is_torch_tensor(self.rows) else np.asarray(self.rows)
        if rows.dtype != BFLOAT16 and rows.dtype.kind != "f":
            raise TypeError(f"rows: got an array of {rows.dtype}, want f64, f32, f16 or bf16")
        if rows.ndim != _AXES:
            raise ValueError(f"rows: got shape {rows.shape}, want [heads, queries, width]")
        if self.queries is not None:
            raise TypeError("queries: given beside rows, want it only where rows is None")
        return rows.astype(rows.dtype.newbyteorder("<"), copy=False)

    def to_spec(self, rows: npt.NDArray[Any]) -> logits_pb2.LogitsSpec:
        """The contract's message for rows as array() made them.

        Raises:
            TypeError: a value is of the wrong type.
            ValueError: a value does not fit its field, or an enum has no such value.
        """
        spec = logits_pb2.LogitsSpec()
        message = getattr(spec, self.term.field)
        message.SetInParent()
        self.term.set_fields(message, self.term.field)
        spec.num_heads, spec.query_length, width = rows.shape
        if isinstance(self.term, ShawValues):
            if self.keys not in {None, width}:
                raise ValueError(f"keys: got {self.keys}, want {width}, the weights in a row")
            spec.key_length, spec.head_dim = width, _length(self.term.table, -1, "table")
        else:
            if self.keys is None:
                raise TypeError("keys: got None, want the number of keys")
            set_number(spec, "key_length", self.keys, "keys")
            spec.head_dim = (
                width if self.rows is not None else _length(self.query_bias, -1, "query_bias")
            )
        set_enum(spec, "direction", self.direction, "direction")
        spec.data_type = to_data_type(rows.dtype)
        self._set_optional(spec)
        spec.bias_alone = self.rows is None
        return spec

    def _set_optional(self, spec: logits_pb2.LogitsSpec) -> None:
        if self.align is not None and self.query_offset is not None:
            raise ValueError("query_offset: given beside align, want one of the two")
        if self.align is not None:
            set_enum(spec, "alignment", self.align, "align")
        set_number(spec, "query_offset", self.query_offset, "query_offset")
        if self.dtype is not None:
            spec.output_data_type = to_data_type(self.dtype)
        if isinstance(self.fill, str):
            if self.fill != "lowest":
                raise ValueError(f"fill: got {self.fill!r}, want a number or 'lowest'")
            spec.fill_lowest = True
        else:
            set_number(spec, "fill_value", self.fill, "fill")
        set_number(spec, "scale", self.scale, "scale")
        if self.query_bias is not None:
            spec.query_bias.CopyFrom(to_table_ref(self.query_bias, None, "query_bias"))


def _length(table: Any, axis: int, name: str) -> int:
    """One length of a table whose shape is known here. That of a mere name is not."""
    shape = table.shape if isinstance(table, TableInfo) else np.shape(table)
    if not shape:
        raise TypeError(f"{name}: got {table!r}, want an array or a TableInfo, for its shape")
    return int(shape[axis])
