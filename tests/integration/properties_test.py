# SPDX-License-Identifier: Apache-2.0
"""Properties that follow from an encoding's structure, for every encoding, with random
hyperparameters and extents: the dense form equals the expanded compact form, a window is a slice of
the whole, lists of positions match offsets, a mask hides only its own elements, and a narrower type
is a single rounding of the same number.
"""

from typing import Any

import grpc
import numpy as np
import pytest

from tests.support import ways
from tests.support.cases import ENCODINGS, Case, Random, case_of
from tests.support.server import Stub, refused

SEEDS = range(100, 108)
Spec = dict[str, Any]

# Significant bits, and the exponent of the smallest normal number.
FORMATS = {"F32": (24, -126), "F16": (11, -14), "BF16": (8, -126)}


class Whole:
    """An encoding over an extent, parts of which the tests request."""

    def __init__(self, stub: Stub, case: Case, random: Random) -> None:
        self.case = case
        self.random = random
        self._stub = stub
        self.stride = [int(random.integers(1, 4)) for _ in case.fields.get("window") or ()]
        self.queries, self.keys = self._lengths()
        self.origin = int(random.integers(max(case.first, -25), 45))
        self.values = "VALUES_BIAS"
        if case.has_buckets and (not case.has_bias or random.random() < 0.2):
            self.values = "VALUES_BUCKETS"

    def _lengths(self) -> tuple[int, int]:
        if self.case.extent == "grid":
            return self.case.tokens(self.stride), self.case.tokens()
        return int(self.random.integers(1, 40)), int(self.random.integers(1, 60))

    def ask(
        self, extent: Spec | None = None, *, lists: Spec | None = None, **output: Any
    ) -> dict[str, Any]:
        """Returns arrays keyed by part name. `extent` modifies the extent; `lists` replaces it."""
        output.setdefault("values", self.values)
        if self.case.extent == "grid":
            message = {"grid": {"query_stride": self.stride} | (extent or {})}
        else:
            whole = {
                "query_length": self.queries,
                "key_length": self.keys,
                "query_offset": self.origin,
            }
            message = {"pair": lists or whole | (extent or {})}
        spec = self.case.spec(**message, output=output)
        return {k: ways.array_of(part) for k, part in ways.by_stream(self._stub, spec).items()}

    def dense(self, extent: Spec | None = None, **other: Any) -> Any:
        """Returns [heads, queries, keys, columns], with axes of length 1 for missing ones."""
        (array,) = self.ask(extent, form="FORM_DENSE", **other).values()
        return self._with_all_axes(array, 2)

    def _with_all_axes(self, array: Any, pair_axes: int) -> Any:
        if not (self.case.vectors and self.values == "VALUES_BIAS"):
            array = array[..., None]
        return array.reshape((1,) * (pair_axes + 2 - array.ndim) + array.shape)

    def expanded(
        self, parts: dict[str, Any], lengths: tuple[int, int], first: tuple[int, int]
    ) -> Any:
        """Returns the dense tensor for the compact form, by the contract's definition; `first`
        holds the positions of the first query and key.
        """
        queries, keys = lengths
        i, j = np.ogrid[:queries, :keys]
        if "dense" in parts:
            return self._with_all_axes(parts["dense"], 2)
        if "row" in parts:
            row = self._with_all_axes(parts["row"], 1)
            return np.repeat(row[:, None], queries, axis=1)
        if "diagonals" in parts:
            array = self._with_all_axes(parts["diagonals"], 1)[:, j - i + queries - 1]
        else:
            array = self._expanded_block(parts["block"], with_class="border" in parts)
        if "border" in parts:
            self._put_border(array, parts["border"], first)
        return array

    def _expanded_block(self, block: Any, *, with_class: bool) -> Any:
        sides = self.case.sides
        keys = np.indices(sides)
        queries = keys[(slice(None), *(slice(None, None, n) for n in self.stride))]
        keys, queries = (places.reshape(len(sides), -1) for places in (keys, queries))
        places = keys[:, None, :] - queries[:, :, None] + np.subtract(sides, 1)[:, None, None]
        inside = block.reshape(-1, *block.shape[-len(sides) :])[(slice(None), *places)]
        if with_class:
            inside = np.pad(inside, ((0, 0), (1, 0), (1, 0)))
        return inside[..., None]

    @staticmethod
    def _put_border(array: Any, border: Any, first: tuple[int, int]) -> None:
        query, key = (first[axis] + np.arange(array.shape[1 + axis]) == 0 for axis in (0, 1))
        for head, (to_keys, from_queries, to_itself) in enumerate(border.reshape(-1, 3)):
            array[head, :, key] = from_queries
            array[head, query] = to_keys
            array[head][np.ix_(query, key)] = to_itself


def same_bits(got: Any, want: Any) -> bool:
    """Treats -0 and 0 as different."""
    kind = (got.dtype, got.shape)
    return kind == (want.dtype, want.shape) and got.tobytes() == want.tobytes()


def some_range(random: Random, length: int) -> tuple[int, int]:
    begin = int(random.integers(length))
    return begin, int(random.integers(begin, length)) + 1


def as_range(window: tuple[int, int]) -> Spec:
    return {"begin": window[0], "end": window[1]}


def names_of(*extents: str) -> list[str]:
    return [name for name in ENCODINGS if case_of(name, 0).extent in extents]


def whole_of(stub: Stub, encoding: str, seed: int) -> Whole:
    return Whole(stub, case_of(encoding, seed), np.random.default_rng(seed))


# Encodings that have only indices accept neither a mask nor a data type.
INDICES = {name for name in ENCODINGS if not case_of(name, 0).has_bias}
CASES_OF_PAIRS = [
    (name, seed) for name in ENCODINGS for seed in SEEDS if case_of(name, seed).extent == "pair"
]
# Vectors do not accept a mask.
MASKABLE = [
    (name, seed)
    for name, seed in CASES_OF_PAIRS
    if name not in INDICES and not case_of(name, seed).vectors
]

over_pairs = pytest.mark.parametrize("encoding", names_of("pair", "grid"))
with_seeds = pytest.mark.parametrize("seed", SEEDS)


@with_seeds
@over_pairs
def test_dense_equals_expanded_compact_form(stub: Stub, encoding: str, seed: int) -> None:
    whole = whole_of(stub, encoding, seed)
    types = ["DATA_TYPE_UNSPECIFIED"]
    if whole.values == "VALUES_BIAS":
        types = [f"DATA_TYPE_{name}" for name in ("F64", *FORMATS)]
    for data_type in types:
        want = whole.dense(data_type=data_type)
        assert want.shape[1:3] == (whole.queries, whole.keys)
        parts = whole.ask(data_type=data_type)
        origin = 0 if whole.case.extent == "grid" else whole.origin
        got = whole.expanded(parts, (whole.queries, whole.keys), (origin, 0))
        assert same_bits(np.ascontiguousarray(got), want)


@with_seeds
@over_pairs
def test_window_equals_slice_of_whole(stub: Stub, encoding: str, seed: int) -> None:
    whole = whole_of(stub, encoding, seed)
    dense = whole.dense()
    for _ in range(3):
        queries = some_range(whole.random, whole.queries)
        keys = some_range(whole.random, whole.keys)
        extent = {"queries": as_range(queries), "keys": as_range(keys)}
        heads = (0, len(dense))
        if len(dense) > 1:
            heads = some_range(whole.random, len(dense))
            extent["heads"] = as_range(heads)
        want = dense[slice(*heads), slice(*queries), slice(*keys)]
        assert same_bits(whole.dense(extent), np.ascontiguousarray(want))
        if whole.case.extent == "pair":
            parts = whole.ask(extent)
            got = whole.expanded(parts, want.shape[1:3], (whole.origin + queries[0], keys[0]))
            assert same_bits(np.ascontiguousarray(got), np.ascontiguousarray(want))


@pytest.mark.parametrize(("encoding", "seed"), CASES_OF_PAIRS)
def test_position_lists_match_offsets(stub: Stub, encoding: str, seed: int) -> None:
    whole = whole_of(stub, encoding, seed)
    dense = whole.dense()
    queries = whole.random.integers(whole.queries, size=17)
    keys = whole.random.integers(whole.keys, size=23)
    lists = {
        "query_positions": {"positions": (whole.origin + queries).tolist()},
        "key_positions": {"positions": keys.tolist()},
    }
    if whole.case.needs_lengths:
        error = refused(lambda: whole.dense(lists=lists))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        return
    want = dense[:, queries][:, :, keys]
    assert same_bits(whole.dense(lists=lists), np.ascontiguousarray(want))


@pytest.mark.parametrize(("encoding", "seed"), MASKABLE)
def test_mask_hides_exactly_its_pairs(stub: Stub, encoding: str, seed: int) -> None:
    whole = whole_of(stub, encoding, seed)
    whole.values = "VALUES_BIAS"
    random = whole.random
    left, right = (int(n) for n in random.integers(20, size=2))
    fill = float(random.integers(-8, 8))
    masks: list[Spec] = [
        {"causal": True, "fill_value": -0.0},
        {"window_left": left, "fill_value": fill},
        {"window_right": right, "fill_lowest": True},
        {"causal": True, "window_left": left, "fill_value": fill},
    ]
    dense = whole.dense()
    relative = np.arange(whole.keys) - (whole.origin + np.arange(whole.queries))[:, None]
    for mask in masks:
        hidden = relative > 0 if mask.get("causal") else np.zeros_like(relative, bool)
        if "window_left" in mask:
            hidden |= relative < -mask["window_left"]
        if "window_right" in mask:
            hidden |= relative > mask["window_right"]
        filled = mask.get("fill_value", -np.inf)
        if mask.get("fill_lowest"):
            filled = np.finfo(np.float32).min
        want = np.where(hidden[..., None], np.float32(filled), dense)
        assert same_bits(whole.dense(mask=mask), want)


def rounded(numbers: Any, data_type: str) -> Any:
    """Rounds float64 values to nearest, ties to even, and converts them back to float64."""
    significant, least = FORMATS[data_type]
    _, exponent = np.frexp(numbers)
    step = np.maximum(exponent - 1, least) - significant + 1
    nearest = np.ldexp(np.rint(np.ldexp(numbers, -step)), step)
    beyond = np.abs(nearest) >= 2.0 ** (2 - least)
    return np.where(beyond, np.copysign(np.inf, numbers), nearest)


def assert_one_rounding(got: Any, double: Any, data_type: str) -> None:
    """Compares elements with the float64 of the same real number, which is within half an ulp of
    it, so the element must lie between the float64's neighbors, rounded. Both neighbors round to
    the same element unless the float64 itself is halfway between two elements."""
    low, high = (rounded(np.nextafter(double, end), data_type) for end in (-np.inf, np.inf))
    exact = got.astype(np.float64)
    assert np.all((low <= exact) & (exact <= high))
    assert np.array_equal(np.signbit(exact), np.signbit(double))


@with_seeds
@pytest.mark.parametrize("encoding", sorted({*ENCODINGS} - INDICES))
def test_every_type_is_rounded_once(stub: Stub, encoding: str, seed: int) -> None:
    case = case_of(encoding, seed)
    random = np.random.default_rng(seed)
    scale = {"scale": float(random.uniform(-2, 2))} if seed % 2 else {}
    if case.extent == "table":
        ask = Rows(stub, case, random).ask
    else:
        whole = Whole(stub, case, random)
        whole.values = "VALUES_BIAS"
        ask = whole.ask
    double = ask(data_type="DATA_TYPE_F64", **scale)
    for data_type in FORMATS:
        narrow = ask(data_type=f"DATA_TYPE_{data_type}", **scale)
        assert narrow.keys() == double.keys()
        for name, numbers in double.items():
            assert_one_rounding(narrow[name], numbers, data_type)


class Rows:
    """Consecutive positions of an absolute encoding, parts of which the tests request."""

    def __init__(self, stub: Stub, case: Case, random: Random) -> None:
        self.case = case
        self._stub = stub
        self.length = int(random.integers(1, 50))
        self.first = int(random.integers(max(case.first, -1000), min(case.last, 100000) - 49))

    def ask(self, extent: Spec | None = None, **output: Any) -> dict[str, Any]:
        rows = {"positions": {"begin": self.first, "end": self.first + self.length}}
        spec = self.case.spec(table=extent or rows, output=output)
        return {k: ways.array_of(part) for k, part in ways.by_stream(self._stub, spec).items()}


@with_seeds
@pytest.mark.parametrize("encoding", names_of("table"))
def test_rows_by_range_and_list_match_the_whole(stub: Stub, encoding: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = Rows(stub, case_of(encoding, seed), random)
    for data_type in ("F64", *FORMATS):
        output = {"data_type": f"DATA_TYPE_{data_type}"}
        whole = rows.ask(**output)
        begin, end = some_range(random, rows.length)
        window = {"positions": as_range((rows.first + begin, rows.first + end))}
        chosen = random.integers(rows.length, size=31)
        lists = [{"positions": (rows.first + chosen).tolist()}] * rows.case.axes
        for extent, index in ((window, slice(begin, end)), ({"position_ids": lists}, chosen)):
            got = rows.ask(extent, **output)
            assert got.keys() == whole.keys()
            for name, array in whole.items():
                assert same_bits(got[name], np.ascontiguousarray(array[index]))
