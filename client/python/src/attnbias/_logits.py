# SPDX-License-Identifier: Apache-2.0
"""The terms of positional logits, one class each, and what else a request for them says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from attnbias._checks import require_instance, set_number
from attnbias._dtypes import BFLOAT16, to_data_type
from attnbias._encodings import Sinusoidal
from attnbias._enums import set_enum
from attnbias._shown import Shown
from attnbias._tables import TableInfo, to_table_ref
from attnbias._torch import is_torch_tensor, to_numpy
from attnbias.v1 import logits_pb2

if TYPE_CHECKING:
    from attnbias._choices import RelativeSign
    from attnbias._dtypes import DType

_AXES = 3  # heads, queries and a row
_WANTED_TERM = "attnbias.ShawKeys(...) or another LogitsTerm (Client.get takes encodings)"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LogitsTerm(Shown):
    """A term: which vector the position of a key has for a query."""

    field: ClassVar[str]
    """Its name in the contract's ``LogitsSpec``."""

    def fill_in(self, message: Any) -> None:
        """Sets the fields of this term's message."""
        raise NotImplementedError

    def _set_numbers(self, message: Any, *names: str) -> None:
        for name in names:
            set_number(message, name, getattr(self, name), f"{self.field}.{name}")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _RelativeTable(LogitsTerm):
    table: Any
    left: int
    right: int
    sign: RelativeSign | None = None

    def fill_in(self, message: Any) -> None:
        message.table.CopyFrom(to_table_ref(self.table, None, f"{self.field}.table"))
        self._set_numbers(message, "left", "right")
        if self.sign is not None:
            set_enum(message, "sign", self.sign, f"{self.field}.sign")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ShawKeys(_RelativeTable):
    """Shaw et al. 2018, keys: ``q_i . table[clip(j - i, -left, right) + left]``.

    Attributes:
        table: learned vectors ``[left + right + 1, head_dim]``, or that for each head. What a table
            may be is said at T5.
        left: keys farther before the query than this use the vector of this distance.
        right: keys farther after the query than this use the vector of this distance.
        sign: what the table counts: "key_minus_query" (default; the paper) is j - i, from -left on;
            "query_minus_key" (BERT's relative_key) i - j, from -right on.
    """

    field: ClassVar[str] = "shaw_keys"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ShawValues(_RelativeTable):
    """The same paper's values: ``sum_j weights[i, j] table[clip(j - i, -left, right) + left]``.

    Rows are attention weights ``[heads, queries, keys]``; the answer is
    ``[heads, queries, head_dim]``. Weights of keys that are not seen do not count. Its fields are
    those of ``ShawKeys``.
    """

    field: ClassVar[str] = "shaw_values"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SinusoidalDistances(LogitsTerm):
    """``q_i . W_kR R(i - j)``: Transformer-XL's (b), with ``query_bias`` (b) + (d).

    XLNet and Conformer have the same term with signed distances.

    What needs a key's content, (a) and (c) with u, is not served.

    Attributes:
        sinusoidal: R, its layout said: "concatenated" for Transformer-XL and XLNet, "interleaved"
            for Conformer.
        projection: W_kR ``[heads * head_dim, dim]``, as a linear layer stores it; without it dim is
            head_dim.
        clamp_len: distances are clipped to it in both directions.
        symmetric: ``R(|i - j|)``.
    """

    field: ClassVar[str] = "sinusoidal_distances"

    sinusoidal: Sinusoidal
    projection: Any = None
    clamp_len: int | None = None
    symmetric: bool = False

    def fill_in(self, message: Any) -> None:
        """See the base class."""
        path = f"{self.field}.sinusoidal"
        require_instance(self.sinusoidal, Sinusoidal, path, "attnbias.Sinusoidal(...)")
        message.sinusoidal.CopyFrom(self.sinusoidal.to_spec().sinusoidal)
        if self.projection is not None:
            path = f"{self.field}.projection"
            message.projection.CopyFrom(to_table_ref(self.projection, None, path))
        self._set_numbers(message, "clamp_len", "symmetric")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AbsoluteKeys(LogitsTerm):
    """``q_i . W_k positions[j]``.

    Attributes:
        positions: ``[at least keys, dim]``.
        projection: W_k ``[heads * head_dim, dim]``; without it dim is head_dim.
    """

    field: ClassVar[str] = "absolute_keys"

    positions: Any
    projection: Any = None

    def fill_in(self, message: Any) -> None:
        """See the base class."""
        path = f"{self.field}.positions"
        message.positions.CopyFrom(to_table_ref(self.positions, None, path))
        if self.projection is not None:
            path = f"{self.field}.projection"
            message.projection.CopyFrom(to_table_ref(self.projection, None, path))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DecomposedRelativePositions(LogitsTerm):
    """``q_i . (H[f(row i, row j)] + W[f(column i, column j)])`` for tokens of a grid.

    This is what SAM, ViTDet and MViTv2 add to their scores (Li et al. 2022, MViTv2, eq. 4;
    Kirillov et al. 2023). Queries and keys are the tokens of a grid each, row after row. The
    places in H and W are those of transformers' ``get_rel_pos``.

    Ask with ``direction="bidirectional"``, and with ``align="start"`` where the grids differ. SAM's
    windows are asked for one at a time; its queries are not scaled, so there is no ``scale``.

    A ``DecomposedRelativePositions`` that does not fit the rows, or grids of more than 256 a side,
    raise ``InvalidArgumentError``, which names the field.

    Attributes:
        rel_pos_h: learned vectors ``[rows, head_dim]`` of f64, f32, f16 or bf16, which all heads
            share. For sides q and k, H is this table; with other than ``2 max(q, k) - 1`` rows it
            is stretched to as many, linearly, as torch's ``interpolate`` does.
        rel_pos_w: the same for W.
        query_height: rows of tokens in the grid of queries.
        query_width: columns of them.
        key_height: rows in the grid of keys. By default ``query_height``.
        key_width: columns of them. By default ``query_width``.
    """

    field: ClassVar[str] = "decomposed_relative_positions"

    rel_pos_h: Any
    rel_pos_w: Any
    query_height: int
    query_width: int
    key_height: int | None = None
    key_width: int | None = None

    def fill_in(self, message: Any) -> None:
        """See the base class."""
        for name in ("rel_pos_h", "rel_pos_w"):
            table = to_table_ref(getattr(self, name), None, f"{self.field}.{name}")
            getattr(message, name).CopyFrom(table)
        self._set_numbers(message, "query_height", "query_width")
        message.key_height, message.key_width = message.query_height, message.query_width
        self._set_numbers(message, "key_height", "key_width")


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
        self.term.fill_in(message)
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
