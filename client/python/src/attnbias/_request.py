# SPDX-License-Identifier: Apache-2.0
"""What is asked for: an encoding, an extent, an output. Turns Python's idiom into a TensorSpec."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from attnbias._checks import require_instance, set_number
from attnbias._dtypes import to_data_type
from attnbias._enums import set_enum
from attnbias._fields import Encoding
from attnbias._shown import Shown
from attnbias._span import Span, bounds
from attnbias.v1 import service_pb2, tensor_pb2

if TYPE_CHECKING:
    from attnbias._dtypes import DType

Ids = Sequence[int] | npt.NDArray[np.integer[Any]]
"""Explicit positions."""


CompactForm: TypeAlias = Literal["table", "toeplitz", "key_row", "block_toeplitz_2d"]
Form: TypeAlias = Literal[CompactForm, "dense"]


class CompactOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.get`` that leave an encoding its compact form."""

    positions: Span | None
    position_ids: Ids | Sequence[Ids] | None
    queries: Span | None
    keys: Span | None
    heads: Span | None
    align: Literal["start", "end"] | None
    query_offset: int | None
    dtype: DType | None
    values: Literal["bias", "buckets"] | None
    causal: bool
    window_left: int | None
    window_right: int | None
    fill: float | Literal["lowest"] | None
    scale: float | None


class ListOptions(CompactOptions, total=False):
    """Those, and the lists of positions, of which most have no compact form."""

    query_position_ids: Ids | None
    key_position_ids: Ids | None


class RequestOptions(ListOptions, total=False):
    """All keyword arguments of ``Client.get`` that describe the tensor; see ``Request``."""

    form: Form | None


@dataclass(frozen=True, eq=False, repr=False)
class Request(Shown):
    """One tensor to ask for.

    Lengths and windows are a length n, which is [0, n), or a half-open tuple
    (begin, end). A window is cut out of a whole of length end.

    Attributes:
        encoding: what to compute, as ``attnbias.ALiBi(num_heads=8)``.
        positions: consecutive positions of an encoding of absolute positions.
        position_ids: explicit positions instead; for an encoding of several axes, one sequence for
            each.
        queries: without align or query_offset as many as keys, the first at position 0. Of an
            encoding whose tokens lie in a grid, and so for keys: which tokens; None is all.
        keys: the first at position 0.
        heads: None is all.
        align: "start" where the first query meets the first key, "end" where the last meets the
            last.
        query_offset: position of query 0, instead of align.
        query_position_ids: explicit positions instead of queries.
        key_position_ids: explicit positions instead of keys.
        dtype: "f64", "f32", "f16", "bf16", or numpy's or torch's dtype. None is f32 (i32 for
            buckets).
        form: None is the encoding's compact form; or "dense".
        values: "bias" (None too), or "buckets", the indices into its learned table.
        causal: masks keys after the query.
        window_left: masks keys more than so many positions before the query.
        window_right: masks keys more than so many positions after the query.
        fill: what masked elements become: a number, or the dtype's lowest. None is -inf. Goes with
            a mask alone: causal, window_left or window_right.
        scale: factor applied before the one rounding.
    """

    encoding: Encoding[Any]
    _: KW_ONLY
    positions: Span | None = None
    position_ids: Ids | Sequence[Ids] | None = None
    queries: Span | None = None
    keys: Span | None = None
    heads: Span | None = None
    align: Literal["start", "end"] | None = None
    query_offset: int | None = None
    query_position_ids: Ids | None = None
    key_position_ids: Ids | None = None
    dtype: DType | None = None
    form: Form | None = None
    values: Literal["bias", "buckets"] | None = None
    causal: bool = False
    window_left: int | None = None
    window_right: int | None = None
    fill: float | Literal["lowest"] | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        require_instance(self.encoding, Encoding, "encoding", _WANTED_ENCODING)
        self._refuse_both("positions", "position_ids")
        self._refuse_both("queries", "query_position_ids")
        self._refuse_both("keys", "key_position_ids")
        self._refuse_both("align", "query_offset")
        masks = self.causal or self.window_left is not None or self.window_right is not None
        if self.fill is not None and not masks:
            message = f"fill: got {self.fill!r} without causal, window_left or window_right"
            raise ValueError(message)
        fields, why, needed = _EXTENTS[self.encoding.extent]
        self._refuse_beside(fields, why)
        for name, ids in needed:
            if getattr(self, name) is None and getattr(self, ids) is None:
                message = f"{name}: got None, want a length, (begin, end), or {ids}"
                raise ValueError(message)

    @property
    def num_queries(self) -> int:
        """Rows of the window asked for; 0 for an encoding of absolute positions."""
        return _count(self.queries, self.query_position_ids)

    @property
    def num_keys(self) -> int:
        """Columns of the window asked for; 0 for an encoding of absolute positions."""
        return _count(self.keys, self.key_position_ids)

    def brief(self) -> str:
        """What is asked for in one line, as it was said."""
        said = [repr(self.encoding)]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not field.default:
                said.append(f"{field.name}={reprlib.repr(value)}")
        return ", ".join(said)

    def to_spec(self) -> service_pb2.TensorSpec:
        """The contract's message.

        Raises:
            TypeError: a value is of the wrong type.
            ValueError: a value does not fit its field, or an enum has no such value.
        """
        spec = self.encoding.to_spec()
        if self.encoding.extent == "grid":
            if any(getattr(self, name) is not None for name in _GRID_FIELDS):
                spec.grid.CopyFrom(self._grid_extent())
        elif self.encoding.extent == "table":
            spec.table.CopyFrom(self._table_extent())
        else:
            spec.pair.CopyFrom(self._pair_extent())
        output = self._output()
        if output.ByteSize() > 0:
            spec.output.CopyFrom(output)
        return spec

    def _refuse_both(self, first: str, second: str) -> None:
        if getattr(self, first) is not None and getattr(self, second) is not None:
            message = f"{second}: given beside {first}, want one of the two"
            raise ValueError(message)

    def _refuse_beside(self, allowed: tuple[str, ...], why: str) -> None:
        for name in (*_TABLE_FIELDS, *_PAIR_FIELDS):
            if name not in allowed and getattr(self, name) is not None:
                message = f"{name}: got a value, want none: {self.encoding.field} {why}"
                raise ValueError(message)

    def _table_extent(self) -> tensor_pb2.TableExtent:
        extent = tensor_pb2.TableExtent()
        if self.positions is not None:
            extent.positions.CopyFrom(_to_range(self.positions, "positions"))
        for ids in _axes(self.position_ids):
            extent.position_ids.append(_to_list(ids, "position_ids"))
        return extent

    def _pair_extent(self) -> tensor_pb2.PairExtent:
        extent = tensor_pb2.PairExtent()
        _set_side(extent, "query", self.queries, self.query_position_ids)
        _set_side(extent, "key", self.keys, self.key_position_ids)
        if self.align is not None:
            set_enum(extent, "alignment", self.align, "align")
        set_number(extent, "query_offset", self.query_offset, "query_offset")
        if self.heads is not None:
            extent.heads.CopyFrom(_to_range(self.heads, "heads"))
        return extent

    def _grid_extent(self) -> tensor_pb2.GridExtent:
        extent = tensor_pb2.GridExtent()
        for name in _GRID_FIELDS:
            span = getattr(self, name)
            if span is not None:
                getattr(extent, name).CopyFrom(_to_range(span, name))
        return extent

    def _output(self) -> tensor_pb2.Output:
        output = tensor_pb2.Output()
        if self.dtype is not None:
            output.data_type = to_data_type(self.dtype)
        if self.form is not None:
            set_enum(output, "form", self.form, "form")
        if self.values is not None:
            set_enum(output, "values", self.values, "values")
        mask = self.to_mask()
        if mask.ByteSize() > 0:
            output.mask.CopyFrom(mask)
        set_number(output, "scale", self.scale, "scale")
        return output

    def to_mask(self) -> tensor_pb2.Mask:
        """The contract's message of what is to be hidden."""
        require_instance(self.causal, (bool, np.bool_), "causal", "True or False")
        mask = tensor_pb2.Mask(causal=bool(self.causal))
        set_number(mask, "window_left", self.window_left, "window_left")
        set_number(mask, "window_right", self.window_right, "window_right")
        if isinstance(self.fill, str):
            if self.fill != "lowest":
                message = f"fill: got {self.fill!r}, want a number or 'lowest'"
                raise ValueError(message)
            mask.fill_lowest = True
        else:
            set_number(mask, "fill_value", self.fill, "fill")
        return mask


_WANTED_ENCODING = (
    "an encoding, as attnbias.ALiBi(num_heads=8) (Client.logits takes the terms of logits)"
)
_TABLE_FIELDS = ("positions", "position_ids")
_GRID_FIELDS = ("queries", "keys", "heads")
_PAIR_FIELDS = (
    "queries",
    "keys",
    "heads",
    "align",
    "query_offset",
    "query_position_ids",
    "key_position_ids",
)
# By what the contract says that an encoding takes: which fields those are, why no others, and the
# pairs of which one is needed.
_EXTENTS = {
    "table": (_TABLE_FIELDS, "takes positions", [_TABLE_FIELDS]),
    "pair": (
        _PAIR_FIELDS,
        "takes queries and keys",
        [("queries", "query_position_ids"), ("keys", "key_position_ids")],
    ),
    "grid": (_GRID_FIELDS, "has its tokens in a grid", []),
}


def _count(span: Span | None, ids: Ids | None) -> int:
    if ids is not None:
        return len(ids)
    if span is None:
        return 0
    begin, end = bounds(span, "span")
    return end - begin


def _to_range(span: Span, name: str) -> tensor_pb2.Range:
    begin, end = bounds(span, name)
    try:
        return tensor_pb2.Range(begin=begin, end=end)
    except ValueError as error:
        raise ValueError(f"{name}: got {span!r}: {error}") from error


def _to_list(ids: Ids, name: str) -> tensor_pb2.PositionList:
    array = np.asarray(ids)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size > 0):
        message = f"{name}: got {array.dtype} of shape {array.shape}, want a sequence of integers"
        raise TypeError(message)
    return tensor_pb2.PositionList(positions=array.tolist())


def _axes(ids: Ids | Sequence[Ids] | None) -> Sequence[Ids]:
    if ids is None:
        return []
    nested = len(ids) > 0 and np.ndim(ids[0]) > 0
    return ids if nested else [ids]  # type: ignore[return-value, list-item]


def _set_side(extent: tensor_pb2.PairExtent, side: str, span: Span | None, ids: Ids | None) -> None:
    """Fills in one of the two sides; of a window (begin, end) the whole has length end."""
    if ids is not None:
        positions = _to_list(ids, f"{side}_position_ids")
        getattr(extent, f"{side}_positions").CopyFrom(positions)
    if span is not None:
        plural = "queries" if side == "query" else "keys"
        setattr(extent, f"{side}_length", _to_range(span, plural).end)
        if isinstance(span, tuple):
            getattr(extent, plural).CopyFrom(_to_range(span, plural))
