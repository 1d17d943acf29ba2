# SPDX-License-Identifier: Apache-2.0
"""A request for positional logits: a term, and what else the contract's spec holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypedDict

import numpy as np
import numpy.typing as npt

from attnbias._arrays.convert import is_torch_tensor, to_numpy
from attnbias._checks import require_instance
from attnbias._spec.arguments import set_fields
from attnbias._spec.dtypes import BFLOAT16, to_data_type
from attnbias._spec.encodings import ShawValues
from attnbias._spec.fields import LogitsTerm
from attnbias._spec.tables import TableInfo
from attnbias.v1 import logits_pb2

if TYPE_CHECKING:
    from attnbias._spec.dtypes import DType

_AXES = 3  # heads, queries and a row
_WANTED_TERM = "attnbias.ShawKeys(...) or another LogitsTerm (Client.get takes encodings)"


class LogitsOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.logits`` that describe the answer."""

    alignment: Literal["start", "end"] | None
    query_offset: SupportsIndex | None
    output_data_type: DType | None
    fill_value: float | None
    fill_lowest: bool
    scale: float | None
    query_bias: Any


@dataclass(frozen=True, eq=False)
class LogitsRequest:
    """A term and the rows to compute it of, as ``Client.logits`` describes them."""

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
        """The rows ``[heads, queries, width]``, little-endian. For a bias alone width is 0.

        Raises:
            TypeError: rows are missing or of another type than floats.
            ValueError: rows have another number of axes.
        """
        if self.rows is None:
            if self.query_bias is None or self.query_length is None:
                raise TypeError("rows: got None, which goes with query_bias and query_length")
            return np.empty(
                (_length(self.query_bias, 0, "query_bias"), self.query_length, 0), "<f4"
            )
        rows = to_numpy(self.rows.cpu()) if is_torch_tensor(self.rows) else np.asarray(self.rows)
        if rows.dtype != BFLOAT16 and rows.dtype.kind != "f":
            raise TypeError(f"rows: got an array of {rows.dtype}, want f64, f32, f16 or bf16")
        if rows.ndim != _AXES:
            raise ValueError(f"rows: got shape {rows.shape}, want [heads, queries, width]")
        if self.query_length is not None:
            raise TypeError("query_length: given beside rows, want it only where rows is None")
        return rows.astype(rows.dtype.newbyteorder("<"), copy=False)

    def to_spec(self, rows: npt.NDArray[Any]) -> logits_pb2.LogitsSpec:
        """The contract's message for rows as array() made them.

        Raises:
            TypeError: a value is of the wrong type.
            ValueError: a value does not fit its field, an enum has no such value, or two fields
                are given of which there can be one.
        """
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
    """One length of a table whose shape is known here. That of a mere name is not."""
    shape = table.shape if isinstance(table, TableInfo) else np.shape(table)
    if not shape:
        raise TypeError(f"{name}: got {table!r}, want an array or a TableInfo, for its shape")
    return int(shape[axis])
