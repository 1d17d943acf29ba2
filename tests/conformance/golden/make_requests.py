# SPDX-License-Identifier: Apache-2.0
"""Writes requests/*.jsonl: random requests and a server's answers.

./dev golden [NAME...]

Hyperparameters come from tests/support/cases.py. Extents and outputs are drawn from the contract's
descriptors; a combination that the server rejects is drawn again. Every field is then set to values
at and beyond the contract's bounds. Rejected requests are stored with their errors, the others with
their answers.
"""

import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any

import crc32c
import grpc
from google.protobuf import json_format

from tests.conformance.golden import stored
from tests.conformance.golden.stored import Json
from tests.support.cases import ENCODINGS, FAR, Case, case_of
from tests.support.contract import message, option
from tests.support.server import Stub

Random = random.Random

# Number of served requests per name, and of additional ones per field.
SERVED, SERVED_FOR_FIELD = 48, 2
# Each field is changed in at least BASES requests per name, and takes all its values in the first
# TRIES of them. Only a SHARED fraction of the fields in shared messages takes all values. A field
# with at most FEW values has a request for each of them.
BASES, TRIES, SHARED, FEW = 12, 6, 0.1, 8
MOST_DRAWN = 10000
MAX_BYTES = 1 << 17
LARGE_BYTES = 8 << 20
BORDER_BYTES = 2 << 20


def with_neighbours(*bounds: float) -> list[float]:
    ends = (-math.inf, math.inf)
    return sorted({*bounds, *(math.nextafter(bound, end) for bound in bounds for end in ends)})


# Bounds that the contract sets for some field, and values just beyond them.
BOUNDS = with_neighbours(0, 1e-30, 1e-6, 1e-3, 1, 2, 1e3, 1024, 1e6, 1e9, 1e18, 1e30, 2.0**40)
DOUBLES = [-1e6, -1.0, -0.5, *BOUNDS]
BAD_DOUBLES = ["NaN", "Infinity", "-Infinity", 1e300, -1e-300]
POWERS = [2**8, 2**12, 2**16, 2**20, 2**30]
INTEGERS = [-1, 0, 1, 2, 3, 4, *(n + more for n in POWERS for more in (-1, 0, 1)), 2**31 - 1]
FAR_POSITIONS = [2**38, 2**38 + 1, 2**40 - 1, 2**40, 2**40 + 1]
LARGE_INTEGERS = [
    -(2**63),
    *(-n for n in FAR_POSITIONS[::-1]),
    *INTEGERS,
    *FAR_POSITIONS,
    2**63 - 1,
]


class Recipes:
    """Draws recipes, each with its own seed."""

    def __init__(self) -> None:
        self._seed = 0

    def of(self, kind: str, data_type: str, shape: list[Any]) -> str:
        self._seed += 1
        sides = "x".join(map(str, shape))
        return f"{kind} {self._seed} {data_type.removeprefix('DATA_TYPE_')} {sides}"

    def in_tables(self, value: Any, kind: str) -> Any:
        """Returns the JSON with recipes for tables that have no numbers yet."""
        if isinstance(value, list):
            return [self.in_tables(item, kind) for item in value]
        if not isinstance(value, dict):
            return value
        if {"data_type", "shape"} <= value.keys() and " " not in value["data"]:
            return value | {"data": self.of(kind, value["data_type"], value["shape"])}
        return {name: self.in_tables(item, kind) for name, item in value.items()}


def window(draw: Random, length: int) -> Json:
    begin = draw.randrange(max(0, length - 40), length) if draw.random() < 0.5 else 0
    end = min(length, begin + draw.randint(1, 40))
    return {"begin": begin, "end": end}


def position_list(draw: Random, first: int, last: int, count: int) -> Json:
    if count > 40:
        return {"positions": f"drawn {draw.randrange(MOST_DRAWN)} {count} {first} {last}"}
    if draw.random() < 0.3:  # a range
        count = min(count, last - first + 1)
        begin = draw.randint(first, last - count + 1)
        return {"positions": list(range(begin, begin + count))}
    return {"positions": [draw.randint(first, last) for _ in range(count)]}


# Encodings whose positions may be doubles.
REAL = ("sinusoidal", "rotary")


def real_list(draw: Random, count: int) -> Json:
    """Returns doubles with magnitudes from below 1 to 2^40, few of them integers."""
    numbers = [draw.uniform(-1, 1) * 2.0 ** draw.randint(-9, 40) for _ in range(count)]
    numbers[0] = draw.choice([0.5, -0.0, 0.1, 2.0**-149, 999.75, float(draw.randint(-9, 9))])
    return {"doubles": numbers}


def zero_sums(draw: Random, encoding: str) -> Json:
    """Returns tokens on small grids and an integer matrix for which some angles are 0."""
    axes, pairs, count = draw.randint(2, 4), draw.randint(1, 8), draw.randint(2, 12)
    stretch = draw.choice([{}, {"scale": -1.7, "length": 7.0}, {"offset": -1.0, "eps": 0.1}])
    fields = {
        "dim" if encoding == "sinusoidal" else "head_dim": 2 * pairs,
        "axes": [stretch] * axes,
        "frequency_matrix": inline(draw, [axes, pairs]),
    }
    lists = [{"positions": [draw.randint(-2, 2) for _ in range(count)]} for _ in range(axes)]
    return {encoding: fields, "table": {"position_ids": lists}}


def within(draw: Random, case: Case) -> tuple[int, int]:
    """Returns bounds for a request's positions: close to 0, or up to a power of two away."""
    reach = 2 ** draw.randint(5, 40) if draw.random() < 0.5 else 100
    return max(case.first, -reach), min(case.last, reach)


def table_extent(draw: Random, case: Case) -> Json:
    first, last = within(draw, case)
    if draw.random() < 0.5:
        count = draw.choice([5000, *[draw.randint(1, 30)] * 12])
        return {"position_ids": [position_list(draw, first, last, count) for _ in range(case.axes)]}
    length = min(draw.choice([1, 3, 17, 40, 300]), last - first + 1)
    begin = draw.choice([first, last - length + 1, draw.randint(first, last - length + 1)])
    return {"positions": {"begin": begin, "end": begin + length}}


def table_grid(draw: Random, case: Case) -> Json:
    first, last = within(draw, case)
    lengths = [draw.randint(1, 6) for _ in range(case.axes)]
    offset = [draw.randint(first, last - length + 1) for length in lengths]
    return {"grid": lengths} | draw.choice([{}, {"grid_offset": offset}])


def pair_extent(draw: Random, case: Case) -> Json:
    first, last = within(draw, case)
    extent: Json = {}
    most = min(60, last - max(first, 0) + 1)
    for side, plural in (("query", "queries"), ("key", "keys")):
        if draw.random() < 0.25:
            count = draw.choice([300, *[draw.randint(1, 25)] * 12])
            extent[f"{side}_positions"] = position_list(draw, max(first, 0), last, count)
            continue
        length = draw.randint(1, most)
        if draw.random() < 0.2:
            length = min(2 ** draw.randint(7, 40), last + 1)
        extent[f"{side}_length"] = length
        if length > most or draw.random() < 0.3:
            extent[plural] = window(draw, length)
    origin = draw.choice(["none", "alignment", "query_offset", "query_offset"])
    if origin == "alignment":
        extent[origin] = draw.choice(["ALIGNMENT_START", "ALIGNMENT_END"])
    elif origin == "query_offset":
        extent[origin] = draw.randint(first, max(first, last - 60))
    elif draw.random() < 0.8 and "query_length" in extent and "key_length" in extent:
        extent |= {"query_length": extent["key_length"]}
        extent.pop("queries", None)
        if "keys" in extent:
            extent["queries"] = extent["keys"]
    if draw.random() < 0.3:
        begin = draw.randrange(case.heads)
        extent["heads"] = {"begin": begin, "end": draw.randint(begin + 1, case.heads)}
    return extent


def grid_extent(draw: Random, case: Case) -> Json:
    extent: Json = {}
    if draw.random() < 0.35:
        extent["query_stride"] = [draw.randint(1, 3) for _ in case.sides]
    queries = case.tokens(extent.get("query_stride", ()))
    lengths = {"queries": queries, "keys": case.tokens(), "heads": case.heads}
    windows = {name: window(draw, n) for name, n in lengths.items() if draw.random() < 0.35}
    return extent | windows


EXTENTS = {"table": table_extent, "pair": pair_extent, "grid": grid_extent}


def large(case: Case) -> Json:
    """Returns a request that takes several chunks or tiles."""
    if case.extent == "grid":
        return {}
    last = min(case.last, max(case.first, 0) + 20000)
    if case.extent == "table":
        return {"table": {"positions": {"begin": max(case.first, 0), "end": last}}}
    length = min(last + 1, 700)
    pair = {"query_length": length, "key_length": length}
    return {"pair": pair, "output": {"form": "FORM_DENSE"}}


def enum_value(draw: Random, owner: str, field: str) -> str:
    """Returns a random value for the field, other than the unspecified one."""
    values = message(owner).DESCRIPTOR.fields_by_name[field].enum_type.values
    return str(draw.choice(values[1:]).name)


def fill(draw: Random) -> Json:
    filled = [{}, {"fill_lowest": True}, {"fill_value": draw.choice([0.0, -0.0, -1e4, 0.1])}]
    return draw.choice([*filled, {"fill_value": "-Infinity"}])


def mask(draw: Random) -> Json:
    made: Json = {"causal": True} if draw.random() < 0.6 else {}
    for side in ("window_left", "window_right"):
        if draw.random() < 0.4:
            made[side] = draw.randint(0, 30)
    return made | fill(draw)


def output(draw: Random) -> Json:
    made: Json = {}
    for field, share in (("data_type", 0.75), ("form", 0.5), ("values", 0.5)):
        if draw.random() < share:
            made[field] = enum_value(draw, "Output", field)
    if draw.random() < 0.25:
        made["scale"] = draw.choice([0.125, -1.7, 1e30, 1e-40, draw.uniform(-3, 3)])
    if draw.random() < 0.4:
        made["mask"] = mask(draw)
    return {"output": made} if made else {}


def tensors(encoding: str, recipes: Recipes, digest: str, first: int = 0) -> Iterator[Json]:
    for seed in range(first, first + MOST_DRAWN):
        draw = Random(f"{encoding}{seed}")
        case = case_of(encoding, seed)
        spec = json_format.MessageToDict(case.spec(), preserving_proto_field_name=True)
        fields = spec[encoding]
        if encoding == "t5" and draw.random() < 0.1:  # uses the mounted table
            source = {"name": stored.MOUNTED_NAME} if draw.random() < 0.5 else {"sha256": digest}
            fields |= {"num_buckets": 32, "num_heads": 4, "table": source}
        if case.heads > 1 and fields.keys() & {"table", "scalars"} and draw.random() < 0.3:
            fields.pop("num_heads", None)
        made = output(draw)
        if made.get("output", {}).get("values") == "VALUES_BUCKETS" and draw.random() < 0.7:
            for field in case.owner.fields:
                if option(field, "rule").of_bias:
                    fields.pop(field.name, None)
        spec = recipes.in_tables(spec, "uniform")
        extent = EXTENTS[case.extent](draw, case)
        if seed == 0:
            yield {"tensor": spec | large(case)}
        yield {"tensor": spec | ({case.extent: extent} if extent else {}) | made}
        if encoding in REAL and draw.random() < 0.2:
            yield {"tensor": recipes.in_tables(zero_sums(draw, encoding), "integers") | made}
        if encoding in REAL and draw.random() < 0.5:
            count = draw.randint(2, 12)
            lists = [real_list(draw, count) for _ in range(case.axes)]
            yield {"tensor": spec | {"table": {"position_ids": lists}} | made}
        if case.has_grid:
            form = draw.choice([{}, {"form": "FORM_TABLE"}, {"form": "FORM_DENSE"}])
            kept = {
                name: value
                for name, value in made.get("output", {}).items()
                if name in ("data_type", "scale")
            }
            yield {"tensor": spec | {"table": table_grid(draw, case), "output": kept | form}}


def relative_table(draw: Random, spec: Json) -> Json:
    left, right = draw.randint(0, 9), draw.randint(0, 9)
    heads = [spec["num_heads"]] if draw.random() < 0.4 else []
    table = inline(draw, [*heads, left + right + 1, spec["head_dim"]])
    made = {"table": table, "left": left, "right": right}
    if draw.random() < 0.6:
        made["sign"] = enum_value(draw, "RelativeTable", "sign")
    return made


def inline(draw: Random, shape: list[int]) -> Json:
    data_type = draw.choice(["F64", "F32", "F16", "BF16"])
    return {"inline_table": {"data_type": f"DATA_TYPE_{data_type}", "shape": shape, "data": ""}}


def projection(draw: Random, spec: Json, dim: int) -> Json:
    return {"projection": inline(draw, [spec["num_heads"] * spec["head_dim"], dim])}


def sinusoidal_distances(draw: Random, spec: Json) -> Json:
    made: Json = {"clamp_len": draw.randint(1, 30)} if draw.random() < 0.4 else {}
    if draw.random() < 0.3:
        made["symmetric"] = True
    dim = spec["head_dim"]
    if draw.random() < 0.4:
        dim = 2 * draw.randint(1, 8)
        made |= projection(draw, spec, dim)
    sinusoidal: Json = {
        "dim": dim,
        "columns": enum_value(draw, "Sinusoidal", "columns"),
        "odd": enum_value(draw, "Sinusoidal", "odd"),
    }
    if draw.random() < 0.5:
        longest = draw.choice([500.0, draw.uniform(1, 1e5)])
        sinusoidal["ladder"] = draw.choice([{"base": longest}, {"timescales": {"max": longest}}])
    return made | {"sinusoidal": sinusoidal}


def absolute_keys(draw: Random, spec: Json) -> Json:
    rows = spec["key_length"] + draw.randint(0, 5)
    if draw.random() < 0.5:
        dim = draw.randint(1, 9)
        return {"positions": inline(draw, [rows, dim])} | projection(draw, spec, dim)
    heads = [spec["num_heads"]] if draw.random() < 0.5 else []
    return {"positions": inline(draw, [*heads, rows, spec["head_dim"]])}


def decomposed_relative_positions(draw: Random, spec: Json) -> Json:
    sides = {
        f"{of}_{side}": draw.randint(1, 6)
        for of in ("query", "key")
        for side in ("height", "width")
    }
    spec["query_length"] = sides["query_height"] * sides["query_width"]
    spec["key_length"] = sides["key_height"] * sides["key_width"]
    spec["direction"] = "DIRECTION_BIDIRECTIONAL"
    for name, side in (("rel_pos_h", "height"), ("rel_pos_w", "width")):
        rows = 2 * max(sides[f"query_{side}"], sides[f"key_{side}"]) - 1
        rows = rows if draw.random() < 0.6 else draw.randint(1, 9)
        sides |= {name: inline(draw, [rows, spec["head_dim"]])}
    return sides


TERMS: dict[str, Callable[[Random, Json], Json]] = {
    "shaw_keys": relative_table,
    "shaw_values": relative_table,
    "sinusoidal_distances": sinusoidal_distances,
    "absolute_keys": absolute_keys,
    "decomposed_relative_positions": decomposed_relative_positions,
}


# Terms whose values are not integers, so each query picks out a single one.
PICKED = ("sinusoidal_distances", "decomposed_relative_positions")


def logits(term: str, recipes: Recipes) -> Iterator[Json]:
    """Yields requests whose sums of products are exact in any order, fused or not."""
    for seed in range(MOST_DRAWN):
        draw = Random(f"{term}{seed}")
        most = 40 if seed else 400
        spec: Json = {"num_heads": draw.randint(1, 4), "head_dim": draw.randint(1, 12)}
        spec |= {"query_length": draw.randint(most // 2, most), "key_length": draw.randint(1, most)}
        spec["direction"] = enum_value(draw, "LogitsSpec", "direction")
        spec[term] = TERMS[term](draw, spec)
        spec |= choices(draw, term, spec)
        picks = term in PICKED
        for owner, name in ((spec, "query_bias"), (spec[term], "projection")):
            if picks and name in owner:
                owner[name] = recipes.in_tables(owner[name], "units")
        spec = recipes.in_tables(spec, "uniform" if picks else "integers")
        kind = "units" if picks else "integers"
        rows = [rows_of(draw, spec, recipes, kind) for _ in range(draw.randint(1, 3))]
        yield {"logits": [{"spec": spec}, *rows]}


def choices(draw: Random, term: str, spec: Json) -> Json:
    """Draws the options common to all terms."""
    made: Json = {}
    if draw.random() < 0.4:
        made["alignment"] = enum_value(draw, "PairExtent", "alignment")
    elif draw.random() < 0.7:
        made["query_offset"] = draw.choice([0, draw.randint(-30, 30), FAR - 999, -FAR])
    else:
        made["query_length"] = spec["key_length"]
    for field in ("data_type", "output_data_type"):
        if draw.random() < 0.5:
            made[field] = enum_value(draw, "LogitsSpec", field)
    if draw.random() < 0.4:
        made["scale"] = draw.choice([0.125, -3.0, 1.5])
    if term == "shaw_values":
        return made
    if draw.random() < 0.3:
        made["query_bias"] = inline(draw, [spec["num_heads"], spec["head_dim"]])
        # A query in addition to the bias would make the result a sum of two numbers.
        made["bias_alone"] = draw.random() < 0.5 or term in PICKED
    return made | (fill(draw) if draw.random() < 0.5 else {})


def rows_of(draw: Random, spec: Json, recipes: Recipes, kind: str) -> Json:
    first = draw.randrange(spec["query_length"])
    count = draw.randint(1, spec["query_length"] - first)
    rows: Json = {"first_row": first, "num_rows": count}
    if not spec.get("bias_alone"):
        width = spec["key_length"] if "shaw_values" in spec else spec["head_dim"]
        shape = [spec["num_heads"], count, width]
        rows["data"] = recipes.of(kind, spec.get("data_type", "F32"), shape)
    if draw.random() < 0.3:
        (made,) = stored.logits_requests({"logits": [rows]})
        rows["crc32c"] = crc32c.crc32c(made.data)
    return rows


def changes(draw: Random, field: Any, value: Any) -> list[Any]:
    """Returns other values for a field, as JSON; None stands for its absence."""
    if field.message_type is not None and field.message_type.name == "TableRef":
        return table_changes(value)
    if field.is_repeated:
        return [None, *repeated_changes(draw, field, value)]
    if field.message_type is not None:
        return [None]
    if field.enum_type is not None:
        return [None, 99, *(value.name for value in field.enum_type.values[1:])]
    kinds = {
        field.CPPTYPE_INT32: INTEGERS,
        field.CPPTYPE_INT64: LARGE_INTEGERS,
        field.CPPTYPE_DOUBLE: DOUBLES + BAD_DOUBLES,
        field.CPPTYPE_BOOL: [False, True],
        field.CPPTYPE_STRING: ["", "no such"],
        field.CPPTYPE_BYTES: ["", "AAAA"],
        field.CPPTYPE_UINT32: [1],
    }
    return [None, *kinds[field.cpp_type]]


def repeated_changes(draw: Random, field: Any, value: Any) -> list[Any]:
    if field.message_type is not None or isinstance(value, str):
        return [value[:-1], value + value[-1:]] if isinstance(value, list) else []
    edges = DOUBLES + BAD_DOUBLES if field.cpp_type == field.CPPTYPE_DOUBLE else INTEGERS
    given = value or [draw.choice(edges)]
    return [given[:-1], given + given[-1:], [draw.choice(edges), *given[1:]], [edges[0]]]


def edges(field: Any, given: Any) -> list[tuple[Any, Any]]:
    """Returns numbers in ascending order, each with the field value that contains it."""
    of_type = {
        field.CPPTYPE_INT32: INTEGERS,
        field.CPPTYPE_INT64: LARGE_INTEGERS,
        field.CPPTYPE_DOUBLE: DOUBLES,
    }
    found = of_type.get(field.cpp_type, [])
    if not field.is_repeated:
        return [(edge, edge) for edge in found]
    return [(edge, [edge, *given[1:]]) for edge in found] if isinstance(given, list) else []


def table_changes(value: Json | None) -> list[Any]:
    made: list[Any] = [None, {}, {"name": "no such"}, {"sha256": "a" * 64}, {"sha256": "A" * 63}]
    if value and "inline_table" in value:
        inline_table = value["inline_table"]
        shape = inline_table["shape"]
        layouts = ["TABLE_LAYOUT_HEADS_BUCKETS", "TABLE_LAYOUT_BUCKETS_HEADS", 99]
        others = ({"shape": shape[::-1]}, {"shape": [shape[0], *shape]}, {"shape": []})
        others += ({"data_type": "DATA_TYPE_I32"}, {"data_type": 0}, {"data": "AAAA"}, {"data": ""})
        made += [{"inline_table": inline_table | other} for other in others]
        made += [value | {"layout": layout} for layout in layouts]
    return made


def fields_of(owner: Any, value: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yields every field that a request for this owner can change, with its path."""
    for field in owner.fields:
        yield (*path, field.name), field
        inner = value.get(field.name)
        if field.message_type is not None and inner:
            index = (0,) if field.is_repeated else ()
            inner = inner[0] if field.is_repeated else inner
            if field.message_type.name not in ("TableRef", "InlineTable"):
                yield from fields_of(field.message_type, inner, (*path, field.name, *index))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Returns a copy with the value at the path replaced, or removed if it is None."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [*value[:step], changed(value[step], rest, new), *value[step + 1 :]]
    others = {name: inner for name, inner in value.items() if name != step}
    inner = changed(value.get(step, {}), rest, new) if rest else new
    return others if inner is None else others | {step: inner}


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path[:-1]:
        value = value[step]
    return value.get(path[-1])


def due(field: Any, values: list[Any]) -> Iterator[tuple[tuple[str, Any], Any]]:
    """Yields values that must occur in some request, each with its key: a field's absence, each
    value of a field with few values, and (for a single field) each state of a table.
    """
    is_table = field.message_type is not None and field.message_type.name == "TableRef"
    for index, value in enumerate(values):
        if value is None:
            yield (field.full_name, None), None
        elif is_table:
            yield ("TableRef", index), value
        elif len(values) <= FEW and not field.is_repeated:
            yield (field.full_name, value), value


def size(line: Json) -> int:
    return sum(math.prod(part[3]) for part in line.get("parts", []))


class Maker:
    """The lines for one name."""

    def __init__(
        self, stub: Stub, name: str, requests: Iterator[Json], done: set[tuple[Any, ...]]
    ) -> None:
        self._stub = stub
        self._name = name
        self._draw = Random(name)
        self._owner = stored.owner_of(name)
        choices = {field.message_type for field in self._owner.fields if field.containing_oneof}
        self._own = {self._owner, *choices}
        self._done = done
        self._outcomes: set[tuple[str, str | None]] = set()
        self._requests: set[str] = set()
        self.served: list[Json] = []
        self.refused: list[Json] = []
        self._draw_served(requests)
        self._change_every_field()

    def _draw_served(self, requests: Iterator[Json]) -> None:
        """Draws the required number of requests, then only requests that set a field for the first
        time, until every field has been set."""
        missing = {field.name for field in self._owner.fields}
        wanted = SERVED + SERVED_FOR_FIELD * len(missing)
        for content in requests:
            new = missing & self._fields_in(content).keys()
            if len(self.served) >= wanted and not new:
                continue
            line = self._ask(content, MAX_BYTES if self.served else LARGE_BYTES)
            if line and "code" not in line:
                self._store(line, ())
                missing -= new
            if len(self.served) >= wanted and not missing:
                return

    def _ask(self, content: Json, most: int = MAX_BYTES) -> Json | None:
        """Returns the line; None if the answer is too large or the JSON is not a valid message."""
        try:
            if "tensor" in content and self._bytes(stored.tensor_spec(content)) > most:
                return None
            if "logits" in content:
                stored.logits_requests(content)
        except json_format.ParseError:
            return None
        return content | stored.answer(self._stub, content)

    def _bytes(self, spec: Any) -> int:
        try:
            return int(self._stub.header(spec).total_bytes)
        except grpc.RpcError:
            return 0

    def _change_every_field(self) -> None:
        is_tried: dict[str, bool] = {}
        tries: Counter[str] = Counter()
        for base in sorted(self._bases(), key=size):
            content = {name: base[name] for name in ("tensor", "logits") if name in base}
            for path, field in changeable(content):
                own = field.containing_type in self._own
                tried = is_tried.setdefault(field.full_name, own or self._draw.random() < SHARED)
                tries[field.full_name] += 1
                all_values = tried and tries[field.full_name] <= TRIES
                self._change(content, path, field, all_values=all_values)
                if all_values:
                    self._find_borders(content, path, field)

    def _bases(self) -> list[Json]:
        """Returns some served requests that together set every field."""
        bases = self._draw.sample(self.served, BASES)
        for field in self._owner.fields:
            if not any(field.name in self._fields_in(line) for line in bases):
                bases += [line for line in self.served if field.name in self._fields_in(line)][:1]
        return bases

    def _fields_in(self, line: Json) -> Json:
        fields: Json = (line.get("tensor") or line["logits"][0]["spec"])[self._name]
        return fields

    def _change(
        self, content: Json, path: tuple[Any, ...], field: Any, *, all_values: bool
    ) -> None:
        """Stores a request for each required value that no request has yet; with `all_values`, also
        one served request and one per error code.
        """
        given = at(content, path)
        values = [value for value in changes(self._draw, field, given) if value != given]
        for key, value in due(field, values):
            if (*key, "served") in self._done:
                continue
            line = self._ask(changed(content, path, value))
            if line:
                outcome = "refused" if "code" in line else "served"
                self._store_once((*key, outcome), line, path)
        self._draw.shuffle(values)
        for value in values if all_values else []:
            line = self._ask(changed(content, path, value))
            if line and (key := (field.full_name, line.get("code"))) not in self._outcomes:
                self._store(line, path)
                self._outcomes.add(key)

    def _find_borders(self, content: Json, path: tuple[Any, ...], field: Any) -> None:
        """Stores pairs of adjacent edge values, one served and one rejected."""
        asked = [
            (edge, self._ask(changed(content, path, value), BORDER_BYTES))
            for edge, value in edges(field, at(content, path))
        ]
        for (edge, line), (next_edge, next_line) in pairwise(asked):
            if line and next_line and ("code" in line) != ("code" in next_line):
                for key, found in ((edge, line), (next_edge, next_line)):
                    self._store_once((field.full_name, "border", key, "code" in found), found, path)

    def _store_once(self, key: tuple[Any, ...], line: Json, path: tuple[Any, ...]) -> None:
        """Stores a line only once per key across all names."""
        if key not in self._done:
            self._done.add(key)
            self._store(line, path)

    def _store(self, line: Json, path: tuple[Any, ...]) -> None:
        if "code" in line:
            names = [step for step in path[1:] if isinstance(step, str)]
            line = {"changed": ".".join(names)} | line
        request = json.dumps(line.get("tensor") or line["logits"], sort_keys=True)
        if request not in self._requests:
            self._requests.add(request)
            (self.refused if "code" in line else self.served).append(line)

    def write(self) -> None:
        lines = [json.dumps(line, separators=(",", ":")) for line in self.served + self.refused]
        (stored.STORE / f"{self._name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def changeable(content: Json) -> Iterator[tuple[Any, Any]]:
    if "tensor" in content:
        owner = message("TensorSpec").DESCRIPTOR
        return fields_of(owner, content["tensor"], ("tensor",))
    owner = message("ComputeLogitsRequest").DESCRIPTOR
    first, rows, *_ = content["logits"]
    return chain(fields_of(owner, rows, ("logits", 1)), fields_of(owner, first, ("logits", 0)))


def main() -> None:
    done: set[tuple[Any, ...]] = set()
    with stored.serving() as stub:
        digest = stub.tables(message("ListTablesRequest")()).tables[0].sha256
        for name in sys.argv[1:] or stored.names():
            recipes = Recipes()
            requests = (
                tensors(name, recipes, digest) if name in ENCODINGS else logits(name, recipes)
            )
            maker = Maker(stub, name, requests, done)
            maker.write()
            print(f"{name}: {len(maker.served)} served, {len(maker.refused)} refused", flush=True)


if __name__ == "__main__":
    main()
