# SPDX-License-Identifier: Apache-2.0
"""Compares the stored requests of tests/conformance/golden, and newly drawn ones, with formulas:
the corners and a sample of each answer's values, rounded once.
"""

import json
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import grpc
import ml_dtypes
import mpmath
import numpy as np
import pytest
from formulas import (
    PAIRS,
    TABLES,
    Formula,
    Near,
    alibi,
    class_number,
    clipped_row,
    default,
    enum,
    grid_number,
    resampled,
    sinusoidal,
    table,
    tupe,
)
from mpmath import mpf
from real import NUMPY_TYPES, PRECISION, rounded

from tests.conformance.golden import stored
from tests.conformance.golden.make_requests import MOST_DRAWN, Recipes, tensors
from tests.support.cases import ENCODINGS, Case
from tests.support.contract import message
from tests.support.server import Stub
from tests.support.ways import Part, array_of

SAMPLES = 8
REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE)
# The number of a part's axes other than heads and columns.
AXES = {"TOEPLITZ": 1, "KEY_ROW": 1, "DENSE": 2}


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    with stored.serving() as connected:
        yield connected


class Answer:
    """A request with its served answer, and the formula's value for every element."""

    def __init__(self, spec: Any, header: Any) -> None:
        self.spec = spec
        self._column_axes = list(header.column_axes)
        self._form = stored.name_of(header.parts[0], "form")
        self.name = spec.WhichOneof("encoding")
        self.encoding = getattr(spec, self.name)
        given = {field.name: value for field, value in self.encoding.ListFields()}
        self.case = Case(self.name, given)
        self.buckets = enum(spec.output, "values", "BIAS") == "BUCKETS" or not self.case.has_bias
        self.scale = mpf(default(spec.output, "scale", 1.0))

    def element(self, part: Any, index: tuple[int, ...]) -> Any:
        """Returns the number at an index of a part, or None if it is masked."""
        form = stored.name_of(part, "form")
        if self.case.extent == "table":
            return self._in_table(part.name, *index)
        has_columns = self.case.vectors and not self.buckets
        *place, column = index if has_columns else (*index, 0)
        axes = 1 if part.name == "border" else AXES.get(form) or len(self.encoding.window)
        h = place.pop(0) + self._first_head() if len(place) > axes else 0
        if part.name == "border":
            return class_number(self.encoding, self.name, self.buckets, h, place[0])
        if self.case.extent == "grid":
            return self._in_grid(form, h, place)
        return self._at_pair(part, form, h, place, column)

    def _first_head(self) -> int:
        extent = getattr(self.spec, self.spec.WhichOneof("extent") or "grid")
        return int(extent.heads.begin)

    def _in_table(self, name: str, row: int, column: int) -> Any:
        table, _, own = name.partition(".axis")
        if not own:
            return self._table(table, self._at(row), column)
        axis, extent = int(own), self.spec.table
        # Other axes have other positions.
        position = (extent.grid_offset or [0] * len(extent.grid))[axis] + row
        positions = [position + (other != axis) for other in range(len(extent.grid))]
        columns = [n for n, each in enumerate(self._column_axes) if each == axis]
        return self._table(table, positions, columns[column])

    def _at(self, row: int) -> list[int]:
        extent = self.spec.table
        if extent.HasField("positions"):
            return [extent.positions.begin + row] * 4
        if extent.grid:
            offset = extent.grid_offset or [0] * len(extent.grid)
            return [
                int(i) + o for i, o in zip(np.unravel_index(row, extent.grid), offset, strict=True)
            ]
        return [[*axis.positions, *axis.doubles][row] for axis in extent.position_ids]

    def _in_grid(self, form: str, h: int, rest: list[int]) -> Any:
        e = self.encoding
        number = grid_number(e, self.name, self.buckets)
        if form != "DENSE":
            return number(h, (np.subtract(rest, e.window) + 1).tolist())
        i = rest[0] + self.spec.grid.queries.begin
        j = rest[1] + self.spec.grid.keys.begin
        if self._is_masked(i, j):
            return None
        if e.class_token:
            if i == 0 or j == 0:
                which = 2 if i == j else 0 if i == 0 else 1
                return class_number(e, self.name, self.buckets, h, which)
            i, j = i - 1, j - 1
        strides = list(self.spec.grid.query_stride) or [1] * len(e.window)
        queried = [len(range(0, side, n)) for side, n in zip(e.window, strides, strict=True)]
        query = np.multiply(np.unravel_index(i, queried), strides)
        return number(h, np.subtract(np.unravel_index(j, e.window), query).tolist())

    def _at_pair(self, part: Any, form: str, h: int, rest: list[int], column: int) -> Any:
        queries, keys = self._sides()
        if form == "TOEPLITZ":
            diagonal = rest[0] - (len(queries) - 1)
            i = max(0, -diagonal)
            i, j = queries[i], keys[i + diagonal]
            assert part.first_relative_position + rest[0] == j - i
        elif form == "KEY_ROW":
            i, j = queries[0], keys[rest[0]]
        else:
            i, j = queries[rest[0]], keys[rest[1]]
        if form != "KEY_ROW" and self._is_masked(i, j):
            return None
        return self._pair(h, i, j, column)

    @cached_property
    def _table(self) -> Any:
        return TABLES[self.name](self.encoding)

    @cached_property
    def _pair(self) -> Formula:
        if self.name == "tupe":
            # The border has the class token's own values.
            return tupe(self.encoding, self.buckets, inside=self._form == "TOEPLITZ")
        if self.name == "alibi":
            return alibi(self.encoding, self.buckets, self.spec.pair.key_length)
        return PAIRS[self.name](self.encoding, self.buckets)

    def _sides(self) -> tuple[Sequence[int], Sequence[int]]:
        pair = self.spec.pair
        sides = []
        for side, window, first in (("query", "queries", offset_of(pair)), ("key", "keys", 0)):
            if pair.HasField(f"{side}_positions"):
                sides.append(getattr(pair, f"{side}_positions").positions)
                continue
            begin, end = 0, getattr(pair, f"{side}_length")
            if pair.HasField(window):
                begin, end = getattr(pair, window).begin, getattr(pair, window).end
            sides.append(range(first + begin, first + end))
        return sides[0], sides[1]

    def _is_masked(self, i: int, j: int) -> bool:
        mask = self.spec.output.mask
        return bool(
            (mask.causal and j > i)
            or (mask.HasField("window_left") and j < i - mask.window_left)
            or (mask.HasField("window_right") and j > i + mask.window_right)
        )


def offset_of(extent: Any) -> int:
    """Returns the offset of queries relative to keys."""
    if extent.WhichOneof("origin") == "query_offset":
        return int(extent.query_offset)
    ends = enum(extent, "alignment", "START") == "END"
    return int(extent.key_length - extent.query_length) if ends else 0


def fill_of(owner: Any, data_type: str) -> float:
    """Returns the value for elements that a mask or a direction hides."""
    if owner.fill_lowest:
        return float(ml_dtypes.finfo(NUMPY_TYPES[data_type]).min)
    value = default(owner, "fill_value", -math.inf)
    return value if math.isinf(value) else rounded(mpf(value), data_type)


def sampled(shape: tuple[int, ...], seed: int) -> list[tuple[int, ...]]:
    """Returns the corners and some other indices."""
    count = math.prod(shape)
    random = np.random.default_rng(seed)
    chosen = {0, count - 1, *random.integers(count, size=SAMPLES - 2).tolist()}
    return [tuple(int(n) for n in np.unravel_index(flat, shape)) for flat in sorted(chosen)]


def same(got: float, want: float) -> bool:
    """Treats zeros of either sign as equal."""
    return got == want or (math.isnan(got) and math.isnan(want))


def as_stored(value: mpf, data_type: str) -> float:
    with np.errstate(over="ignore"):
        return float(np.float64(rounded(value, data_type)).astype(NUMPY_TYPES[data_type]))


def is_right(got: float, want: Any, scale: mpf, data_type: str) -> bool:
    if data_type == "i32":
        return got == want
    if not isinstance(want, Near):
        return same(got, as_stored(want * scale, data_type))
    near = abs(want.distance * scale)
    low, high = (as_stored(want.value * scale + sign * near, data_type) for sign in (-1, 1))
    return low <= got <= high


def errors_of(spec: Any, header: Any, data: bytes, seed: int) -> list[str]:
    """Returns the samples of an answer that differ from the formula's values."""
    wrong = []
    answer = Answer(spec, header)
    for part in header.parts:
        shape = tuple(part.shape)
        data_type = stored.name_of(part, "data_type")
        piece = data[part.offset : part.offset + part.size_bytes]
        array = array_of(Part(data_type, shape, piece))
        for index in sampled(shape, seed):
            got = float(array[index])
            want = answer.element(part, index)
            kind = data_type.lower()
            if want is None:
                right = same(got, fill_of(spec.output.mask, kind))
            else:
                right = is_right(got, want, answer.scale, kind)
            if not right:
                shown = want.value if isinstance(want, Near) else want
                wrong.append(f"{part.name}{list(index)}: {got} {shown}")
    return wrong


@pytest.mark.parametrize("name", ENCODINGS)
def test_stored_tensors_match_formula(stub: Stub, name: str) -> None:
    wrong = []
    with mpmath.workprec(PRECISION):
        for line in stored.lines(name):
            if line.is_refused:
                continue
            spec = stored.tensor_spec(line.content)
            header, data = stored.payload(stub, spec)
            assert stored.sha256(data) == line.content["sha256"]
            wrong += [f"{line.where} {e}" for e in errors_of(spec, header, data, line.number)]
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])


@pytest.mark.exhaustive
@pytest.mark.parametrize("block", range(8))
@pytest.mark.parametrize("name", ENCODINGS)
def test_random_tensors_match_formula(stub: Stub, name: str, block: int) -> None:
    """Covers, together with the other blocks, 10,000 random requests."""
    digest = stub.tables(message("ListTablesRequest")()).tables[0].sha256
    drawn = tensors(name, Recipes(), digest, first=MOST_DRAWN * (1 + block))
    wrong, served = [], 0
    with mpmath.workprec(PRECISION):
        for number, content in enumerate(drawn):
            if served == 90:
                break
            spec = stored.tensor_spec(content)
            try:
                header, data = stored.payload(stub, spec)
            except grpc.RpcError as refusal:
                if refusal.code() not in REFUSALS:
                    raise
                continue
            served += 1
            errors = errors_of(spec, header, data, number)
            wrong += [f"{json.dumps(content)} {error}" for error in errors]
    assert served == 90
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:20])


class Logits:
    """A call with its rows, and the formula's value for each element.

    The requests are chosen so that every product and sum before `scale` is exact, except the single
    sum of decomposed relative positions.
    """

    def __init__(self, requests: list[Any], work: str) -> None:
        self.spec = requests[0].spec
        self.term = self.spec.WhichOneof("term")
        self.fields = getattr(self.spec, self.term)
        self.work = work
        self.scale = mpf(default(self.spec, "scale", 1.0))
        self.offset = offset_of(self.spec)
        bias = self.spec.HasField("query_bias")
        self.bias = table(self.spec.query_bias) if bias else np.zeros(self.heads_and_width())

    def heads_and_width(self) -> tuple[int, int]:
        return self.spec.num_heads, self.spec.head_dim

    def rows(self, request: Any) -> Any:
        """Returns a request's queries or weights, as float64."""
        heads, width = self.heads_and_width()
        if self.term == "shaw_values":
            width = self.spec.key_length
        shape = (heads, request.num_rows, width)
        if self.spec.bias_alone:
            return np.broadcast_to(self.bias[:, None], shape)
        sent = array_of(Part(enum(self.spec, "data_type", "F32"), shape, request.data))
        rows = sent.astype("f8")
        return rows if self.term == "shaw_values" else rows + self.bias[:, None]

    def is_seen(self, i: int, j: int) -> bool:
        seen = {"LEFT_TO_RIGHT": j <= i, "RIGHT_TO_LEFT": j >= i, "BIDIRECTIONAL": True}
        return seen[enum(self.spec, "direction", "")]

    def element(self, row: Any, h: int, query: int, column: int) -> mpf | None:
        """Returns the element for a query (counted from 0), or None for a key that is not seen."""
        i = query + self.offset
        if self.term == "shaw_values":
            seen = [j for j in range(self.spec.key_length) if self.is_seen(i, j)]
            return mpmath.fsum(mpf(row[j]) * self.relative(h, i, j, column) for j in seen)
        if not self.is_seen(i, column):
            return None
        products = [
            mpmath.fdot([mpf(q) for q in row], vector) for vector in self.vectors(h, i, column)
        ]
        return mpf(rounded(mpmath.fsum(products), self.work))

    def vectors(self, h: int, i: int, j: int) -> list[list[mpf]]:
        columns = range(self.spec.head_dim)
        match self.term:
            case "shaw_keys":
                return [[self.relative(h, i, j, c) for c in columns]]
            case "sinusoidal_distances":
                distance = abs(i - j) if self.fields.symmetric else i - j
                clamp = default(self.fields, "clamp_len", 1 << 62)
                distance = min(max(distance, -clamp), clamp)
                number = sinusoidal(self.fields.sinusoidal)
                own = [number("", [distance], c) for c in range(self.fields.sinusoidal.dim)]
                return [self.projected(h, [mpf(rounded(value, "f64")) for value in own])]
            case "absolute_keys":
                rows = table(self.fields.positions)
                own = rows[h, j] if rows.ndim == 3 else rows[j]
                return [self.projected(h, [mpf(v) for v in own])]
        return [
            self.of_side("h", "height", i // self.fields.query_width, j // self.fields.key_width),
            self.of_side("w", "width", i % self.fields.query_width, j % self.fields.key_width),
        ]

    def relative(self, h: int, i: int, j: int, column: int) -> mpf:
        rows, row = table(self.fields.table), clipped_row(self.fields, j - i)
        return mpf(rows[h, row, column] if rows.ndim == 3 else rows[row, column])

    def projected(self, h: int, vector: list[mpf]) -> list[mpf]:
        if self.fields.HasField("projection"):
            dim = self.spec.head_dim
            weight = table(self.fields.projection)[h * dim : (h + 1) * dim]
            vector = [mpmath.fdot([mpf(w) for w in row], vector) for row in weight]
        return [mpf(rounded(value, self.work)) for value in vector]

    def of_side(self, name: str, side: str, a: int, b: int) -> list[mpf]:
        rows = table(getattr(self.fields, f"rel_pos_{name}"))
        q, k = (getattr(self.fields, f"{of}_{side}") for of in ("query", "key"))
        of_q, of_k = np.float32(max(k / q, 1.0)), np.float32(max(q / k, 1.0))
        place = np.float32(a) * of_q - np.float32(b) * of_k + np.float32(k - 1) * of_k
        length = 2 * max(q, k) - 1
        vector = []
        for column in range(self.spec.head_dim):
            value = resampled(rows, message("Resample")(), [length], int(place), column)
            vector.append(mpf(rounded(mpf(rounded(value, "f64")), self.work)))
        return vector


@pytest.mark.parametrize("name", [name for name in stored.names() if name not in ENCODINGS])
def test_stored_logits_match_formula(stub: Stub, name: str) -> None:
    wrong, compared = [], 0
    with mpmath.workprec(PRECISION):
        for line in stored.lines(name):
            if line.is_refused:
                continue
            requests = stored.logits_requests(line.content)
            replies = list(stub.logits(requests))
            data = b"".join(reply.data for reply in replies)
            assert stored.sha256(data) == line.content["sha256"]
            header = replies[0].header
            work = stored.name_of(header, "work_data_type").lower()
            data_type = stored.name_of(header, "data_type")
            call, begin = Logits(requests, work), 0
            for request in requests[1:]:
                rows = call.rows(request)
                shape = (header.num_heads, request.num_rows, header.width)
                size = math.prod(shape) * np.dtype(NUMPY_TYPES[data_type.lower()]).itemsize
                array = array_of(Part(data_type, shape, data[begin : begin + size]))
                begin += size
                for h, n, column in sampled(shape, line.number):
                    got = float(array[h, n, column])
                    value = call.element(rows[h, n], h, request.first_row + n, column)
                    want = fill_of(call.spec, data_type.lower())
                    if value is not None:
                        scaled = mpf(rounded(value * call.scale, work))
                        want = as_stored(scaled, data_type.lower())
                    compared += 1
                    if not same(got, want):
                        wrong.append(f"{line.where} {h, n, column}: got {got}, want {want}")
            assert begin == len(data)
    assert not wrong, f"{len(wrong)} of {compared}:\n" + "\n".join(wrong[:20])
