# SPDX-License-Identifier: Apache-2.0
"""The terms of positional logits, one class each, and what else a request for them says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, SupportsIndex, TypedDict

import numpy as np
import numpy.typing as npt

from attnbias._arguments import set_fields
from attnbias._checks import require_instance
from attnbias._dtypes import BFLOAT16, to_data_type
from attnbias._encodings import Sinusoidal
from attnbias._shown import Shown
from attnbias._tables import TableInfo
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
        set_fields(message, self, f"{self.field}.")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _RelativeTable(LogitsTerm):
    table: Any
    left: int
    right: int
    sign: RelativeSign | None = None


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
        super().fill_in(message)


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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DecomposedRelativePositions(LogitsTerm):
    """``q_i . (H[f(row i, row j)] + W[f(column i, column j)])`` for tokens of a grid.

    This is what SAM, ViTDet and MViTv2 add to their scores (Li et al. 2022, MViTv2, eq. 4;
    Kirillov et al. 2023). Queries and keys are the tokens of a grid each, row after row. The
    places in H and W are those of transformers' ``get_rel_pos``.

    Ask with ``direction="bidirectional"``, and with ``alignment="start"`` where the grids differ.
    SAM's windows are asked for one at a time; its queries are not scaled, so there is no ``scale``.

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
        super().fill_in(message)
        if self.key_height is None:
            message.key_height = message.query_height
        if self.key_width is None:
            message.key_width = message.query_width


class LogitsOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.logits`` that describe the answer."""

    alignment: Literal["start", "end"] | None
    query_offset: SupportsIndex | None
    output_data_type: DType | None
    fill_value: float | None
    fill_lowest: bool
    scale: float | None
    query_bias: Any


@dataclass(frozen=True, kw_only=True, eq=False)
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
        self.term.fill_in(message)
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
