# SPDX-License-Identifier: Apache-2.0
"""Derives from a request what its answer must be, and compares the two.

The contract's own options (options.proto) describe each encoding, so this module names none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from attnbias._arrays.mask import Mask
from attnbias._errors import DataLossError, escaped
from attnbias._spec.enums import enum_name
from attnbias.v1 import encodings_pb2, options_pb2, service_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")
_NAMES: Final = {
    tensor_pb2.FORM_TOEPLITZ: "diagonals",
    tensor_pb2.FORM_KEY_ROW: "row",
    tensor_pb2.FORM_DENSE: "dense",
    tensor_pb2.FORM_BLOCK_TOEPLITZ: "block",
}
_BORDER_LENGTH: Final = 3
_IMPOSSIBLE: Final = (ArithmeticError, LookupError, ValueError)
"""Raised while reading a request that a server refuses."""

Length = int | None
"""Length of an axis; None if the request does not determine it."""
Axis = Sequence[int]
"""Positions of queries, keys or a table; a range if they are consecutive."""


class ExpectedPart(NamedTuple):
    """A part that an answer must have.

    Attributes:
        name: of the part.
        form: of the part.
        shape: of the part, without the axis of heads if ``may_have_heads``.
        may_have_heads: whether an axis of heads may come first: of vectors, only the table tells.
        first_relative_position: key position minus query position of diagonal 0; 0 in other forms.
    """

    name: str
    form: tensor_pb2.Form
    shape: tuple[Length, ...]
    may_have_heads: bool = False
    first_relative_position: int = 0

    def has_shape(self, shape: Sequence[int]) -> bool:
        rank = len(self.shape)
        if self.may_have_heads and len(shape) == rank + 1 and shape[0] > 0:
            shape = shape[1:]
        return len(shape) == rank and all(
            got > 0 and want in (None, got) for got, want in zip(shape, self.shape, strict=True)
        )


def check_answer(header: service_pb2.TensorHeader, spec: encodings_pb2.TensorSpec) -> None:
    """Raises DataLossError if a header describes another tensor than the request."""
    for name in ("fingerprint", "encoding_fingerprint"):
        value = getattr(header, name)
        if not _FINGERPRINT.fullmatch(value):
            raise DataLossError(
                f"header.{name}: got '{escaped(value)}', want 64 lowercase hex digits"
            )
    try:
        request = _Request(spec)
        wanted, masked = request.parts(), request.masked_rows()
    except _IMPOSSIBLE:
        raise DataLossError("header: got an answer to a request that can have none") from None
    _check_parts(header, wanted, request.data_type())
    _check_column_axes(header, request)
    if not _describes(header, request):
        raise DataLossError("header.resolved_spec: got another request, want the one that was made")
    rows = [(each.begin, each.end) for each in header.fully_masked_rows]
    if rows != masked:
        got, want = (escaped(str(list(map(list, each)))) for each in (rows, masked))
        raise DataLossError(f"header.fully_masked_rows: got {got}, want {want}")


def axes_of(spec: encodings_pb2.TensorSpec) -> Sequence[Axis]:
    """Returns the positions of a request's queries and keys."""
    return _Request(spec).axes()


def query_stride_of(spec: encodings_pb2.TensorSpec) -> tuple[int, ...]:
    """Returns the stride of a grid request's queries on each axis."""
    return _Request(spec).query_stride()


def _describes(header: service_pb2.TensorHeader, request: _Request) -> bool:
    """Reports whether the resolved spec has the request's encoding, positions, heads and parts."""
    resolved = header.resolved_spec
    if resolved.WhichOneof("encoding") != request.encoding:
        return False
    try:
        understood = _Request(resolved)
        if understood.window() != request.window():
            return False
        _check_parts(header, understood.parts(), understood.data_type())
    except (DataLossError, *_IMPOSSIBLE):
        return False
    return True


def _check_parts(
    header: service_pb2.TensorHeader, wanted: list[ExpectedPart], data_type: tensor_pb2.DataType
) -> None:
    names = [[part.name for part in parts] for parts in (header.parts, wanted)]
    if names[0] != names[1]:
        got, want = (escaped(", ".join(each)) for each in names)
        raise DataLossError(f"header.parts: got [{got}], want [{want}]")
    for index, part in enumerate(header.parts):
        expected = wanted[index]
        if index > 0 and expected.shape[0] is None:  # A border has the heads of the first part.
            expected = expected._replace(shape=(header.parts[0].shape[0], *expected.shape[1:]))
        for field, number in (("data_type", int(data_type)), ("form", int(expected.form))):
            if getattr(part, field) != number:
                enum: Any = part.DESCRIPTOR.fields_by_name[field].enum_type
                numbers = (getattr(part, field), number)
                raise _other(part, field, *(enum_name(enum, each).upper() for each in numbers))
        if not expected.has_shape(part.shape):
            raise _other(part, "shape", list(part.shape), _written(expected))
        first, wanted_first = part.first_relative_position, expected.first_relative_position
        if first != wanted_first:
            raise _other(part, "first_relative_position", first, wanted_first)


def _check_column_axes(header: service_pb2.TensorHeader, request: _Request) -> None:
    axes = request.axes_of_table()
    columns = [list(header.column_axes).count(axis) for axis in range(axes)]
    fits = all(part.shape[1] == columns[i % axes] for i, part in enumerate(header.parts) if axes)
    if not fits or not len(header.column_axes) == sum(columns) == request.columns() * (axes > 0):
        raise DataLossError("header.column_axes: got other columns, want those of the parts")


def _other(part: tensor_pb2.TensorPart, field: str, got: object, want: object) -> DataLossError:
    return DataLossError(f"header: part {part.name} has {field} {got}, want {want}")


def _written(part: ExpectedPart) -> str:
    lengths = ", ".join("any" if length is None else str(length) for length in part.shape)
    return f"[{lengths}]" + (", perhaps after an axis of heads" if part.may_have_heads else "")


class _Request:
    """The properties of an answer that the request's fields determine."""

    def __init__(self, spec: encodings_pb2.TensorSpec) -> None:
        self._spec = spec
        self.encoding = spec.WhichOneof("encoding") or ""
        self._encoding: Any = getattr(spec, self.encoding)
        self._fields = self._encoding.DESCRIPTOR.fields_by_name
        self._options = self._encoding.DESCRIPTOR.GetOptions().Extensions
        self._has_indices = (
            spec.output.values == tensor_pb2.VALUES_BUCKETS
            or self._options[options_pb2.buckets_only]
        )
        self._structure = self._options[options_pb2.structure]
        self._has_border = False
        self._added_parts: list[str] = []
        for field, value in self._encoding.ListFields():
            rule = _rule_of(field)
            self._has_border |= rule.border_if_set
            self._added_parts += filter(None, [rule.adds_part])
            self._structure = rule.structure_if_set or self._structure
            if field.enum_type is not None:
                options = field.enum_type.values_by_number[value].GetOptions().Extensions
                self._structure = options[options_pb2.structure_of_value] or self._structure

    def data_type(self) -> tensor_pb2.DataType:
        """Returns the element type of every part."""
        default = tensor_pb2.DATA_TYPE_I32 if self._has_indices else tensor_pb2.DATA_TYPE_F32
        return self._spec.output.data_type or default

    def parts(self) -> list[ExpectedPart]:
        """Returns the parts in the order of the payload."""
        if self._structure == options_pb2.STRUCTURE_TABLE:
            names = [*(self._options[options_pb2.parts] or ["positions"]), *self._added_parts]
            axes, grid = self.axes(), self._spec.table.grid
            if self.axes_of_table():
                return [
                    ExpectedPart(f"{name}.axis{i}", tensor_pb2.FORM_TABLE, (len(axis), None))
                    for name in names
                    for i, axis in enumerate(axes)
                ]
            form = tensor_pb2.FORM_DENSE if grid else tensor_pb2.FORM_TABLE
            shape = (math.prod(grid) if grid else len(axes[0]), *self._columns())
            return [ExpectedPart(name, form, shape) for name in names]
        queries, keys = self.axes()
        form = self._spec.output.form or self._compact_form(queries, keys)
        heads, may_have_heads = self._heads()
        shape = (*heads, *self._inner_shape(form, queries, keys), *self._columns())
        first = keys[0] - queries[-1] if form == tensor_pb2.FORM_TOEPLITZ else 0
        parts = [ExpectedPart(_NAMES[form], form, shape, may_have_heads, first)]
        if self._has_border and form != tensor_pb2.FORM_DENSE:
            parts.append(ExpectedPart("border", tensor_pb2.FORM_TABLE, (*heads, _BORDER_LENGTH)))
        return parts

    def axes_of_table(self) -> int:
        """Returns the number of parts of a table over a grid; 0 if a table is one part."""
        is_dense = self._spec.output.form == tensor_pb2.FORM_DENSE
        return 0 if is_dense else len(self._spec.table.grid)

    def columns(self) -> int:
        """Returns the columns of a table that is not the server's."""
        return next(iter(self._columns()), 0) or 0

    def axes(self) -> Sequence[Axis]:
        """Returns the positions of queries and keys; of a table, those along each distinct axis."""
        if self._structure == options_pb2.STRUCTURE_TABLE:
            extent = self._spec.table
            if extent.HasField("positions"):
                return [_range_of(extent.positions)]
            if extent.grid:
                offsets = extent.grid_offset or [0] * len(extent.grid)
                lengths = zip(offsets, extent.grid, strict=True)
                return [range(first, first + length) for first, length in lengths]
            axes = [_axis_of(ids) for ids in extent.position_ids]
            return axes if any(axis != axes[0] for axis in axes) else axes[:1]
        if self._structure == options_pb2.STRUCTURE_BLOCK_TOEPLITZ:
            return self._grid_axes()
        return self._pair_axes()

    def window(self) -> tuple[Sequence[Axis], int, tuple[int, ...]]:
        """Returns the axes, the first head, and the strides of a grid's queries."""
        if self._structure == options_pb2.STRUCTURE_TABLE:
            return self.axes(), 0, ()
        heads = self._head_window()
        return self.axes(), heads.start if heads else 0, self.query_stride()

    def masked_rows(self) -> list[tuple[int, int]]:
        """Returns half-open ranges of queries, counted inside the window, that see no key."""
        mask = Mask.of(self._spec.output.mask)
        if mask is None or self._structure == options_pb2.STRUCTURE_TABLE:
            return []
        return mask.rows_without_keys(*self.axes())

    def _compact_form(self, queries: Axis, keys: Axis) -> tensor_pb2.Form:
        are_ranges = isinstance(queries, range) and isinstance(keys, range)
        if self._structure == options_pb2.STRUCTURE_TOEPLITZ and are_ranges:
            return tensor_pb2.FORM_TOEPLITZ
        if self._structure == options_pb2.STRUCTURE_KEY_ROW:
            return tensor_pb2.FORM_KEY_ROW
        whole = self._whole_grid()
        if self._structure == options_pb2.STRUCTURE_BLOCK_TOEPLITZ and (queries, keys) == whole:
            return tensor_pb2.FORM_BLOCK_TOEPLITZ
        return tensor_pb2.FORM_DENSE

    def _inner_shape(self, form: tensor_pb2.Form, queries: Axis, keys: Axis) -> Iterable[int]:
        """Returns the axes between heads and columns."""
        if form == tensor_pb2.FORM_TOEPLITZ:
            return (len(queries) + len(keys) - 1,)
        if form == tensor_pb2.FORM_KEY_ROW:
            return (len(keys),)
        if form == tensor_pb2.FORM_BLOCK_TOEPLITZ:
            return [2 * side - 1 for side in self._sides()]
        return (len(queries), len(keys))

    def query_stride(self) -> tuple[int, ...]:
        return tuple(self._spec.grid.query_stride) or (1,) * len(self._sides())

    def _whole_grid(self) -> tuple[range, range]:
        """Returns all queries and all keys of a grid, with its class token."""
        strides = zip(self._sides(), self.query_stride(), strict=True)
        queries = math.prod(-(-side // stride) for side, stride in strides)
        keys = math.prod(self._sides())
        return range(queries + self._has_border), range(keys + self._has_border)

    def _sides(self) -> Sequence[int]:
        return tuple(getattr(self._encoding, "window", ()))

    def _grid_axes(self) -> tuple[Axis, Axis]:
        extent, (queries, keys) = self._spec.grid, self._whole_grid()
        return (
            _range_of(extent.queries) if extent.HasField("queries") else queries,
            _range_of(extent.keys) if extent.HasField("keys") else keys,
        )

    def _pair_axes(self) -> tuple[Axis, Axis]:
        extent = self._spec.pair
        offset = extent.query_offset
        if extent.alignment == tensor_pb2.ALIGNMENT_END:
            offset = extent.key_length - extent.query_length
        return (_axis(extent, "query", "queries", offset), _axis(extent, "key", "keys", 0))

    def _columns_field(self) -> Any:
        """Returns the number or table that determines an answer's columns; None if it has none."""
        for name, field in self._fields.items():
            if not _rule_of(field).columns:
                continue
            if field.message_type is None or self._encoding.HasField(name):
                return getattr(self._encoding, name)
        return None

    def _columns(self) -> tuple[Length, ...]:
        """Returns the last axis of an answer whose numbers have columns."""
        value = self._columns_field()
        if self._has_indices or value is None:
            return ()
        if isinstance(value, tensor_pb2.TableRef):
            return (_shape_of(value)[-1],) if _shape_of(value) else (None,)
        return (self._rotated(value),)

    def _rotated(self, columns: int) -> int:
        """Returns the columns of a rotary table; of other tables, all of them."""
        if not self._spec.HasField("rotary"):
            return columns
        rotary = self._spec.rotary
        if rotary.HasField("partial_rotary_factor") and not rotary.HasField("proportional"):
            columns = int(columns * rotary.partial_rotary_factor)
        columns -= columns % 2
        is_compact = rotary.layout == encodings_pb2.ROTARY_LAYOUT_COMPACT
        return columns // 2 if is_compact else columns

    def _head_window(self) -> range | None:
        extent = getattr(self._spec, self._spec.WhichOneof("extent") or "grid")
        return _range_of(extent.heads) if extent.HasField("heads") else None

    def _heads(self) -> tuple[tuple[Length, ...], bool]:
        """Returns the first axis of an answer with heads, and whether heads may precede it."""
        if self._has_indices:
            return (), False
        window = self._head_window()
        if window is not None:
            return (len(window),), False
        value = self._columns_field()
        if isinstance(value, tensor_pb2.TableRef):
            *heads, _rows, _columns = _shape_of(value) or (None, None)
            return tuple(heads), not _shape_of(value)
        if "num_heads" not in self._fields:
            return (), False
        return (self._encoding.num_heads or self._given_heads() or None,), False

    def _given_heads(self) -> int:
        """Returns the heads of tables or lists that replace num_heads; 0 if unknown."""
        given_by = _rule_of(self._fields["num_heads"]).given_by
        return max(map(self._heads_of, given_by.split("|"))) if given_by else 0

    def _heads_of(self, name: str) -> int:
        """Returns a list's length, a table's columns, or a weight's or last layer's outputs."""
        value = getattr(self._encoding, name)
        if self._fields[name].message_type is None:
            return len(value)
        table = value if isinstance(value, tensor_pb2.TableRef) else value[-1].weight
        rows, columns = _shape_of(table) or (0, 0)
        if table.layout == tensor_pb2.TABLE_LAYOUT_HEADS_BUCKETS:
            rows, columns = columns, rows
        return rows if table is not value or name.endswith("weight") else columns


def _rule_of(field: Any) -> options_pb2.FieldRule:
    rule: options_pb2.FieldRule = field.GetOptions().Extensions[options_pb2.rule]
    return rule


def _shape_of(table: tensor_pb2.TableRef) -> tuple[int, ...]:
    """Returns the shape of a table in the request; () for one that the server has."""
    return tuple(table.inline_table.shape)


def _range_of(span: tensor_pb2.Range) -> range:
    return range(span.begin, span.end)


def _axis_of(ids: tensor_pb2.PositionList) -> Axis:
    positions: list[Any] = [*ids.positions, *ids.doubles]
    if positions[0] != positions[0] // 1:  # a fraction, infinite, or not a number
        return positions
    whole = range(int(positions[0]), int(positions[0]) + len(positions))
    return whole if positions == list(whole) else positions


def _axis(extent: tensor_pb2.PairExtent, side: str, window: str, offset: int) -> Axis:
    if extent.HasField(f"{side}_positions"):
        return _axis_of(getattr(extent, f"{side}_positions"))
    if extent.HasField(window):
        span = _range_of(getattr(extent, window))
    else:
        span = range(getattr(extent, f"{side}_length"))
    return range(span.start + offset, span.stop + offset)
