# SPDX-License-Identifier: Apache-2.0
"""Random hyperparameters for every encoding, drawn according to the contract's rules.

They are valid and small, and every field and enum value occurs for some seed. A table is an array;
if its axes are swapped, the field next to it states its layout. TIED describes dependencies between
an encoding's fields that the rules do not express.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

from tests.support import ways
from tests.support.contract import message, option

Random = np.random.Generator
Fields = dict[str, Any]
Options = dict[str, Any]
"""The Python client's arguments: fields of the extent, the output and the mask."""

FAR = 1 << 40
TABLE_TYPES: list[Any] = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
MOST = {"table": 70, "pair": 16, "grid": 5}
"""Maximum amount by which integers exceed their minimum, keyed by their encoding's extent."""
FACTOR = 10
"""Maximum ratio of a real number to its default, or of the default to the number."""


@dataclass(frozen=True)
class Case:
    """An encoding and its possible requests."""

    encoding: str
    fields: Fields

    @property
    def owner(self) -> Any:
        """The encoding's descriptor."""
        return _owner(self.encoding)

    @property
    def extent(self) -> str:
        return str(option(self.owner, "extent")[-1 if self._is_restructured else 0])

    @property
    def _is_restructured(self) -> bool:
        """True if one of the fields that change the structure is set."""
        fields = (field for field in self.owner.fields if field.name in self.fields)
        return any(option(field, "rule").structure_if_set for field in fields)

    @property
    def axes(self) -> int:
        """Returns the number of position lists that an absolute encoding takes."""
        return len(self.fields.get("axes") or "1")

    @property
    def has_grid(self) -> bool:
        """True if a table is requested over a grid: each column then depends on one of several
        axes."""
        return self.axes > 1 and "frequency_matrix" not in self.fields

    @property
    def positions(self) -> tuple[int, int]:
        """Returns the encoding's first and last positions."""
        return POSITIONS.get(self.encoding, lambda _: None)(self.fields) or (-FAR, FAR)

    @property
    def first(self) -> int:
        return self.positions[0]

    @property
    def last(self) -> int:
        return self.positions[1]

    @property
    def has_bias(self) -> bool:
        """True if the encoding has values other than BUCKETS."""
        return not option(self.owner, "buckets_only")

    @property
    def has_buckets(self) -> bool:
        rules = {field.name: option(field, "rule") for field in self.owner.fields}
        if self._is_restructured:
            return False
        return not self.has_bias or any(rule.of_bias for rule in rules.values())

    @property
    def vectors(self) -> bool:
        columns = (field.name for field in self.owner.fields if option(field, "rule").columns)
        return self.extent == "pair" and not self.fields.keys().isdisjoint(columns)

    @property
    def sides(self) -> list[int]:
        """Returns the sides of a grid."""
        return list(self.fields["window"])

    def tokens(self, stride: Sequence[int] = ()) -> int:
        """Returns the number of tokens in a grid, including its class token: all tokens, or every
        n-th on each axis."""
        strides = stride or [1] * len(self.sides)
        places = (range(0, side, n) for side, n in zip(self.sides, strides, strict=True))
        return math.prod(map(len, places)) + bool(self.fields.get("class_token"))

    @property
    def heads(self) -> int:
        shape = getattr(self.fields.get("vectors"), "shape", ())
        return int(self.fields.get("num_heads") or (shape[0] if len(shape) == 3 else 1))

    @property
    def needs_lengths(self) -> bool:
        """True if values depend on a length, which lists do not specify."""
        return self.fields.get("variant") == "KEY_FROM_END"

    def spec(self, **extent_and_output: Any) -> Any:
        """Returns a TensorSpec in the classes that the test compiles from the contract."""
        spec = message("TensorSpec")(**extent_and_output)
        owner = getattr(spec, self.encoding)
        owner.SetInParent()
        _set_fields(owner, self.fields)
        return spec

    def asked(self, options: Options) -> Any:
        """Returns a TensorSpec with these `options`."""
        spec = self.spec(output={})
        for owner in (getattr(spec, self.extent), spec.output, spec.output.mask):
            for name, value in options.items():
                if name in owner.DESCRIPTOR.fields_by_name:
                    _set_option(owner, name, value)
        return spec


def _set_option(owner: Any, name: str, value: Any) -> None:
    descriptor = owner.DESCRIPTOR.fields_by_name[name]
    if descriptor.enum_type is not None:
        setattr(owner, name, _enum_value(descriptor, value.upper()))
    elif descriptor.message_type is None and descriptor.is_repeated:
        getattr(owner, name).extend(value)
    elif descriptor.message_type is None:
        setattr(owner, name, value)
    elif descriptor.message_type.name == "Range":
        getattr(owner, name).CopyFrom(message("Range")(begin=value[0], end=value[1]))
    elif descriptor.is_repeated:
        for positions in value if isinstance(value[0], list) else [value]:
            are_doubles = any(isinstance(position, float) for position in positions)
            getattr(owner, name).add(**{"doubles" if are_doubles else "positions": positions})
    else:
        getattr(owner, name).positions.extend(value)


def _enum_value(descriptor: Any, name: str) -> str:
    """Returns BUCKET_RULE_EXACT for EXACT."""
    unspecified: str = descriptor.enum_type.values_by_number[0].name
    return unspecified.removesuffix("UNSPECIFIED") + name


def _set_fields(owner: Any, fields: Fields) -> None:
    for name, value in fields.items():
        if name.endswith("_layout") and name.removesuffix("_layout") in fields:
            continue
        descriptor = owner.DESCRIPTOR.fields_by_name[name]
        if isinstance(value, np.ndarray):
            layout = fields.get(f"{name}_layout")
            more = {"layout": f"TABLE_LAYOUT_{layout}"} if layout else {}
            getattr(owner, name).CopyFrom(ways.table(value, **more))
        elif isinstance(value, str) and descriptor.message_type is not None:
            getattr(owner, name).name = value
        elif isinstance(value, dict):
            getattr(owner, name).SetInParent()
            _set_fields(getattr(owner, name), value)
        elif descriptor.message_type is not None and not descriptor.is_repeated:
            getattr(owner, name).values.extend(value)
        elif descriptor.message_type is not None:
            for part in value:
                _set_fields(getattr(owner, name).add(), part)
        elif descriptor.enum_type is not None:
            setattr(owner, name, _enum_value(descriptor, value))
        elif descriptor.is_repeated:
            getattr(owner, name).extend(value)
        else:
            setattr(owner, name, value)


def _owner(encoding: str) -> Any:
    return message("TensorSpec").DESCRIPTOR.fields_by_name[encoding].message_type


def _table(random: Random, *shape: int) -> Any:
    numbers = random.standard_normal(shape) * 3
    return numbers.astype(random.choice(TABLE_TYPES))


def _int(random: Random, first: int, last: int) -> int:
    """Returns a random integer between the two, both included."""
    return int(random.integers(first, last + 1))


def _float(random: Random, first: float, last: float) -> float:
    return float(random.uniform(first, last))


def _even(random: Random, most: int) -> int:
    return 2 * _int(random, 1, most // 2)


def _pick(random: Random, *values: Any) -> Any:
    return values[random.integers(len(values))]


class _Drawing:
    """The fields of a message: the given fields that apply, and others drawn according to their
    rules."""

    def __init__(self, owner: Any, random: Random, most: int, given: Fields) -> None:
        self._owner = owner
        self._random = random
        self._most = most
        self._given = given
        self._needed = {name for name, value in given.items() if value is not None}
        self._idle = given.keys() - self._needed
        self._values: Fields = {}
        # Enums come first, and numbers precede the tables whose axes they define.
        fields = sorted(owner.fields, key=lambda field: field.enum_type is None)
        for field in sorted(fields, key=lambda field: field.message_type is not None):
            self._draw(field)
        self.fields = {name: value for name, value in self._values.items() if value is not None}

    def _draw(self, field: Any) -> Any:
        """Returns the field's value; None if it is not set."""
        if field.name not in self._values:
            is_set = self._is_set(field)
            self._values[field.name] = self._value(field) if is_set else None
            if is_set and ", num_heads" in option(field, "rule").shape:
                self._turn(field.name)
        return self._values[field.name]

    def _is_set(self, field: Any) -> bool:
        rule = option(field, "rule")
        if rule.only_with and not self._has(rule.only_with):
            return False
        if field.name in self._idle or (rule.not_with and self._has(rule.not_with)):
            return False
        is_bool = field.cpp_type == field.CPPTYPE_BOOL and not field.has_presence
        is_plain = field.message_type is None and not field.is_repeated and not is_bool
        is_needed = rule.required or rule.of_bias or (is_plain and not rule.HasField("default"))
        return is_needed or field.name in self._needed or self._random.random() < 0.5

    def _has(self, name: str) -> bool:
        """Evaluates a condition as FieldRule's only_with defines it."""
        field = self._owner.fields_by_name[name]
        value = self._draw(field)
        if value is None:
            value = float(option(field, "rule").default or 0)
        return isinstance(value, np.ndarray) or bool(value)

    def _turn(self, name: str) -> None:
        if self._random.random() < 0.5:
            self._values[f"{name}_layout"] = "HEADS_BUCKETS"
            self._values[name] = np.ascontiguousarray(self._values[name].T)

    def _value(self, field: Any) -> Any:
        given = self._given.get(field.name, ...)
        if field.message_type is not None and field.is_repeated:
            parts = given if given is not ... else [{}] * self._count(field)
            return [_Drawing(field.message_type, self._random, self._most, p).fields for p in parts]
        if given is not ...:
            inner = (field.message_type, self._random, self._most, given)
            return _Drawing(*inner).fields if isinstance(given, dict) else given
        if field.enum_type is not None:
            first, *others = (value.name for value in field.enum_type.values)
            return _pick(self._random, *others).removeprefix(first.removesuffix("UNSPECIFIED"))
        if field.message_type is not None:
            axes = option(field, "rule").shape.split(", ")
            axes = [axis for axis in axes if not axis.endswith("?")]
            return _table(self._random, *map(self._axis, axes))
        if field.is_repeated:
            return [self._number(field) for _ in range(self._count(field))]
        return self._number(field)

    def _number(self, field: Any) -> float:
        rule = option(field, "rule")
        if field.cpp_type == field.CPPTYPE_BOOL:
            return not field.has_presence or _pick(self._random, False, True)
        if field.cpp_type != field.CPPTYPE_DOUBLE:
            step = 2 if rule.even else 1
            first = max(int(rule.min), -self._most)
            last = min(int(rule.max), max(first, 0) + self._most)
            return step * _int(self._random, -(-first // step), last // step)
        if not rule.HasField("max"):
            return _float(self._random, -2, 2)
        near = abs(float(rule.default or 0)) or 1.0
        last = min(rule.max, near * FACTOR)
        if rule.min < 0:
            return _float(self._random, max(rule.min, -near * FACTOR), last)
        first = max(rule.min, rule.above, min(near, last) / FACTOR)
        return math.exp(_float(self._random, math.log(first), math.log(last)))

    def _count(self, field: Any) -> int:
        """Returns the length of a list: the value of the field that it determines, or perhaps 1 if
        several lists determine that field."""
        for other in self._owner.fields:
            given_by = option(other, "rule").given_by.split("|")
            if field.name in given_by:
                count = self._draw(other)
                return count if len(given_by) == 1 else _pick(self._random, 1, count)
        return _int(self._random, 1, min(option(field, "rule").max_items or 4, 4))

    def _axis(self, text: str) -> int:
        """Parses "(2 left + 1)(2 right + 1) or 1"; see FieldRule's shape."""

        def number(name: re.Match[str]) -> str:
            field = self._owner.fields_by_name.get(name[0])
            if field is None:
                return str(self._given.setdefault(name[0], _int(self._random, 1, 9)))
            value = self._draw(field)
            return str(int(option(field, "rule").default or 0 if value is None else value))

        numbers = re.sub(r"[a-z_]\w*", number, _pick(self._random, *text.split(" or ")))
        return int(eval(re.sub(r"(?<=\d) (?=\d)|(?<=\))(?=\()", "*", numbers)))


def _ladder(random: Random, pairs: int) -> Fields:
    """Returns one of the three kinds of ladder, or none."""
    frequencies = random.uniform(-2, 2, pairs) * _pick(random, 0, 1, 1e-3)
    kinds = {"base": ..., "timescales": {}, "frequencies": frequencies.tolist()}
    chosen = _pick(random, None, *kinds)
    return {kind: given if kind == chosen else None for kind, given in kinds.items()}


def _waves(dims: list[int], odd: Any) -> int:
    """Returns the number of frequencies that axes with these columns have."""
    return sum(dim // 2 if odd == "ZERO" else (dim + 1) // 2 for dim in dims)


def _sums(random: Random, pairs: int) -> Fields:
    """Returns a frequency matrix and its axes."""
    count = _int(random, 1, 4)
    offsets = [_pick(random, None, -0.5, 3.25) for _ in range(count)]
    axes = [{"offset": offset, "ladder": None} for offset in offsets]
    matrix = _table(random, count, pairs)
    return {"frequency_matrix": matrix, "axes": None if count == 1 else axes}


def _sinusoidal(random: Random) -> Fields:
    if random.random() < 0.15:
        pairs = _int(random, 1, 9)
        idle = dict.fromkeys(("ladder", "axis_dims", "odd", "across_axes"))
        return {"dim": 2 * pairs} | idle | _sums(random, pairs)
    odd = _pick(random, None, "SINE", "ZERO")
    count = _pick(random, 0, 0, 1, 2, 3, 4)
    dims = [_int(random, 2, 19) for _ in range(max(count, 1))]
    fields: Fields = {"odd": odd, "axis_dims": dims, "frequency_matrix": None}
    if count == 0 or _pick(random, False, True):
        more = _int(random, 0, count - 1) if count and odd == "ZERO" else 0
        dims = [dims[0]] * len(dims)
        fields |= {"dim": sum(dims) + more, "axis_dims": None}
    else:
        fields["dim"] = sum(dims)
    own = [_pick(random, False, True) for _ in range(count)]
    shared = [dim for dim, has_own in zip(dims, own or [False], strict=True) if not has_own]
    fields["ladder"] = _pick(random, None, _ladder(random, _waves(shared, odd))) if shared else None
    columns = _pick(random, None, "INTERLEAVED", "SINES_COSINES", "COSINES_SINES")
    if columns in (None, "INTERLEAVED"):
        fields["across_axes"] = None
    axes = [
        {"ladder": _ladder(random, _waves([dim], odd)) if has_own else None}
        for dim, has_own in zip(dims, own, strict=False)
    ]
    return fields | {"axes": axes or None, "columns": columns}


def _relative_sinusoidal(random: Random) -> Fields:
    dim, odd = _int(random, 1, 17), _pick(random, None, "SINE", "ZERO")
    ladder = _pick(random, None, _ladder(random, _waves([dim], odd)))
    return {"dim": dim, "odd": odd, "ladder": ladder}


def _resample(random: Random, source: list[int], target: list[int]) -> Fields:
    """Limits steps so that they stay within the table."""
    steps = [n / m * _float(random, 0.6, 1) for n, m in zip(source, target, strict=True)]
    kind = _pick(random, None, "LINEAR", "CUBIC")
    fields = {"filter": kind, "cubic_a": _pick(random, None, ...) if kind == "CUBIC" else None}
    return fields | {"source": source, "step": _pick(random, None, steps)}


def _learned_absolute(random: Random) -> Fields:
    prefix = _pick(random, 0, _int(random, 1, 3))
    source, target = (
        [[_int(random, 60, 150)], [_int(random, 6, 12), _int(random, 10, 14)]] for _ in range(2)
    )
    axes = _pick(random, 0, 1)
    resample = _resample(random, source[axes], target[axes])
    resample |= {"target": target[axes], "prefix_rows": prefix or None}
    if axes == 0:
        resample["source"] = _pick(random, None, source[0])
    rows = math.prod(source[axes]) + prefix
    fields = {"num_positions": rows, "offset": _int(random, -5, 5)}
    fields |= {"padding_idx": _pick(random, None, _int(random, 0, rows - 1))}
    return fields | {"resample": _pick(random, None, resample)}


def _axis(random: Random, pairs: int) -> Fields:
    """Returns an axis, sometimes with its own ladder."""
    frequencies = (10.0 ** random.uniform(-6, 0, pairs)).tolist()
    kinds = {"base": ..., "timescales": {"min": ...}, "frequencies": frequencies}
    kind = _pick(random, None, *kinds)
    ladder = kind and dict.fromkeys(kinds) | {kind: kinds[kind]}
    scale = random.uniform(0.1, 3) * _pick(random, -1, 1)
    fields = {"scale": scale, "offset": _pick(random, None, -0.5, ...)}
    return fields | {"length": _pick(random, None, ...), "eps": ..., "ladder": ladder}


def _extension(random: Random, kind: str, pairs: int) -> Fields:
    """The fields of one of rotary's length extensions."""
    if kind == "yarn":
        mscale = _pick(random, None, ...)
        fields: Fields = {"mscale": mscale, "mscale_all_dim": mscale, "beta_slow": 1.25}
        return fields | {"attention_factor": None if mscale else 0.75}
    if kind == "llama3":
        return {"low_freq_factor": 1.0, "high_freq_factor": 4.5}
    if kind not in ("dynamic", "longrope"):
        return {}
    fields = {"max_position_embeddings": 4096, "sequence_length": _int(random, 1, 30000)}
    if kind == "longrope":
        divisors = (random.uniform(1, 50, pairs).tolist() for _ in range(2))
        fields |= zip(("short_factor", "long_factor"), divisors, strict=True)
        sources = ("factor", "attention_factor", "max_position_embeddings")
        chosen = _pick(random, *sources)
        fields = {"factor": ..., "attention_factor": ...} | fields
        fields |= {source: None for source in sources if source != chosen}
    return fields


EXTENSIONS = ("linear", "dynamic", "ntk", "yarn", "longrope", "llama3", "proportional")


def _rotary(random: Random) -> Fields:
    pairs = _int(random, 2, 24)
    fields: Fields = {"head_dim": 2 * pairs, "partial_rotary_factor": None}
    fields |= {"decay": _pick(random, None, None, {"center": ...}), "axes": None}
    fields |= dict.fromkeys((*EXTENSIONS, "frequency_matrix"))
    if random.random() < 0.1:
        idle = dict.fromkeys(("inverse_frequencies", "angle", "rope_theta", "decay", "pair_axis"))
        return fields | idle | _sums(random, pairs)
    kind = _pick(random, "own", "axes", "extension", "extension")
    if kind == "own":
        frequencies = (10.0 ** random.uniform(-6, 0, pairs)).tolist()
        return fields | {"inverse_frequencies": frequencies, "angle": _pick(random, None, ...)}
    fields |= {"inverse_frequencies": None, "angle": None}
    if kind == "axes":
        count = _int(random, 2, min(4, pairs))
        dealt = [*range(count), *random.integers(count, size=pairs - count).tolist()]
        pair_axis = _pick(random, sorted(dealt), random.permutation(dealt).tolist())
        if pairs % count == 0 and random.random() < 0.3:
            dealt, pair_axis = [m * count // pairs for m in range(pairs)], None
        axes = [_axis(random, dealt.count(axis)) for axis in range(count)]
        rope_theta = None if all(axis["ladder"] for axis in axes) else ...
        how = {"rope_theta": rope_theta, "decay": None}
        return fields | how | {"axes": axes, "pair_axis": pair_axis}
    extension = _pick(random, None, *EXTENSIONS)
    if extension in (None, "proportional"):
        fields["partial_rotary_factor"] = _pick(random, None, 0.5)
    return fields | ({extension: _extension(random, extension, pairs)} if extension else {})


def _t5(random: Random) -> Fields:
    buckets = _even(random, 80) + 2
    return {"num_buckets": buckets, "max_distance": _int(random, buckets, 900)}


def _learned_relative(random: Random) -> Fields:
    fields = {"left": _int(random, 0, 20), "right": _int(random, 0, 20)}
    fields |= {"symmetric": _pick(random, None, True), "beyond": _pick(random, None, "CLIP")}
    if random.random() < 0.3:  # REFUSE applies beyond the positions that tests request
        fields |= {"left": 150, "right": 150, "beyond": "REFUSE"}
    if random.random() < 0.5:
        return fields | {"vectors": None}
    rows = fields["right"] + 1 + (0 if fields["symmetric"] else fields["left"])
    of_heads = _table(random, _int(random, 1, 3), rows, _int(random, 1, 6))
    return fields | {"scalars": None, "vectors": _pick(random, ..., of_heads)}


def _kerple(random: Random) -> Fields:
    heads = _int(random, 1, 6)
    return {"num_heads": heads, "p": random.uniform(0.01, 2, _pick(random, 1, heads)).tolist()}


def _window(random: Random) -> list[int]:
    axes = _pick(random, 1, 2, 2, 3)
    return [_int(random, 1, 6 if axes < 3 else 3) for _ in range(axes)]


def _mlp_bias(random: Random) -> Fields:
    heads, width = _int(random, 1, 5), _int(random, 1, 12)
    window = _pick(random, None, _window(random))
    layers: list[Fields] = []
    for sizes in pairwise([len(window or "1"), *[width] * _int(random, 0, 3), heads]):
        norm = _pick(random, None, ...)
        layers.append({"norm_weight": norm, "norm_bias": norm} | {"in": sizes[0], "out": sizes[1]})
    layers[-1] |= {"norm_weight": None, "norm_bias": None}
    fields = {"num_heads": heads, "layers": layers, "window": window, "pretrained_window": None}
    coordinates = _pick(random, None, "LINEAR", "SIGNED_LOG", *["LOG2_NORMALIZED"] * bool(window))
    fields |= {"coordinates": coordinates}
    if coordinates == "LOG2_NORMALIZED":
        pretrained = _pick(random, None, [_int(random, 2, 12) for _ in window])
        fields |= {"pretrained_window": pretrained}
    return fields | {"class_token": _pick(random, None, True) if window else None}


def _deberta(random: Random) -> Fields:
    buckets = _pick(random, 0, _even(random, 60))
    return {"bucket_size": buckets, "max_position": buckets + _int(random, 2, 300)}


def _grid_relative(random: Random) -> Fields:
    window = _window(random)
    other = [_int(random, 1, 6) for _ in window]
    symmetric, class_token = _pick(random, None, None, True), _pick(random, None, True)
    sides, source = (
        [side if symmetric else 2 * side - 1 for side in sides] for sides in (window, other)
    )
    resample = _pick(random, None, _resample(random, source, sides) if len(sides) < 3 else None)
    rows = math.prod(source if resample else sides)
    fields = {"window": window, "symmetric": symmetric, "class_token": class_token}
    if resample:
        resample |= {"target": None, "prefix_rows": None}
    return fields | {"rows": rows + 3 * bool(class_token), "resample": resample}


def _tupe(random: Random) -> Fields:
    heads = _int(random, 1, 3)
    relative, absolute = _pick(random, (..., ...), (..., None), (None, ...))
    norm = _pick(random, None, absolute)
    buckets = 2 * _even(random, 20) + 2 if relative else None
    fields = {"num_heads": heads, "positions": 121, "d_model": heads * _int(random, 1, 4)}
    fields |= {"num_buckets": buckets, "max_distance": buckets and _int(random, buckets, 300)}
    fields |= {"relative_table": relative, "norm_weight": norm, "norm_bias": norm}
    parts = ("position_table", "query_weight", "query_bias", "key_weight", "key_bias")
    fields |= dict.fromkeys(parts, absolute)
    return fields if absolute else fields | {"position_scale": None}


TIED: dict[str, Callable[[Random], Fields]] = {
    "sinusoidal": _sinusoidal,
    "relative_sinusoidal": _relative_sinusoidal,
    "learned_absolute": _learned_absolute,
    "rotary": _rotary,
    "t5": _t5,
    "learned_relative": _learned_relative,
    "kerple": _kerple,
    "mlp_bias": _mlp_bias,
    "deberta": _deberta,
    "grid_relative": _grid_relative,
    "tupe": _tupe,
}
"""Fields that depend on one another, and axis lengths. A field that others make meaningless is
omitted. None leaves a field unset; ... draws it according to its rule."""


def _rows(fields: Fields) -> tuple[int, int]:
    offset, rows, resample = fields.get("offset", 0), len(fields["table"]), fields.get("resample")
    if resample:
        rows = math.prod(resample["target"]) + resample.get("prefix_rows", 0)
    return -offset, rows - offset - 1


def _positions_of_rotary(fields: Fields) -> tuple[int, int] | None:
    if "decay" in fields:
        return -1000, 5000
    return (-1 << 20, 1 << 20) if "angle" in fields else None


POSITIONS: dict[str, Callable[[Fields], tuple[int, int] | None]] = {
    "learned_absolute": _rows,
    "rotary": _positions_of_rotary,
    "learned_relative": lambda fields: (0, 150) if fields.get("beyond") == "REFUSE" else None,
    "fire": lambda _: (0, FAR),
    "tupe": lambda fields: (0, 119) if "position_table" in fields else None,
}
"""First and last positions of encodings that do not accept all positions."""


def case_of(encoding: str, seed: int) -> Case:
    random = np.random.default_rng([seed, *encoding.encode()])
    owner, given = _owner(encoding), TIED.get(encoding, lambda _: {})(random)
    return Case(encoding, _Drawing(owner, random, MOST[option(owner, "extent")[0]], given).fields)


_ONEOF = message("TensorSpec").DESCRIPTOR.oneofs_by_name["encoding"]
ENCODINGS = [encoding.name for encoding in _ONEOF.fields]
