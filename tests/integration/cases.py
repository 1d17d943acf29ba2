# SPDX-License-Identifier: Apache-2.0
"""Random hyperparameters of every encoding, in the contract's words: one function for each.

They are valid and small, and reach every field and enum value for some seed. A table is an array;
one whose axes are turned around has its layout beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

from tests.integration import ways
from tests.integration.contract import message

Random = np.random.Generator
Fields = dict[str, Any]
Options = dict[str, Any]
"""Arguments of Python's client: fields of the extent, the output and the mask."""

FAR = 1 << 40
TABLE_TYPES: list[Any] = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


@dataclass(frozen=True)
class Case:
    """An encoding and what it can be asked for."""

    encoding: str
    fields: Fields
    extent: str
    axes: int = 1
    """Lists of positions, of an encoding of absolute ones."""
    first: int = -FAR
    last: int = FAR
    """Positions that it has."""
    has_bias: bool = True
    """Whether it has other values than BUCKETS."""
    has_buckets: bool = False
    vectors: bool = False
    side: tuple[int, int] = (1, 1)
    """Of a grid, its rows and columns."""
    heads: int = 1
    ends_at: str = field(default="", kw_only=True)
    """The length that its numbers depend on, which lists do not have: "key_length"."""

    def spec(self, **extent_and_output: Any) -> Any:
        """A TensorSpec, of the contract compiled by the test."""
        spec = message("TensorSpec")(**extent_and_output)
        owner = getattr(spec, self.encoding)
        owner.SetInParent()
        _set_fields(owner, self.fields)
        return spec

    def asked(self, options: Options) -> Any:
        """A TensorSpec with what `options` say."""
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
    elif descriptor.message_type is None:
        setattr(owner, name, value)
    elif descriptor.message_type.name == "Range":
        getattr(owner, name).CopyFrom(message("Range")(begin=value[0], end=value[1]))
    elif descriptor.is_repeated:
        for positions in value if isinstance(value[0], list) else [value]:
            getattr(owner, name).add(positions=positions)
    else:
        getattr(owner, name).positions.extend(value)


def _enum_value(descriptor: Any, name: str) -> str:
    """BUCKET_RULE_EXACT for EXACT."""
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
        elif descriptor.message_type is not None:
            for part in value:
                _set_fields(getattr(owner, name).add(), part)
        elif descriptor.enum_type is not None:
            setattr(owner, name, _enum_value(descriptor, value))
        elif descriptor.is_repeated:
            getattr(owner, name).extend(value)
        else:
            setattr(owner, name, value)


def _table(random: Random, *shape: int) -> Any:
    numbers = random.standard_normal(shape) * 3
    return numbers.astype(random.choice(TABLE_TYPES))


def _int(random: Random, first: int, last: int) -> int:
    """Both ends are among them."""
    return int(random.integers(first, last + 1))


def _float(random: Random, first: float, last: float) -> float:
    return float(random.uniform(first, last))


def _even(random: Random, most: int) -> int:
    return 2 * _int(random, 1, most // 2)


def _some(random: Random, **fields: Any) -> Fields:
    """Those that are given a value, and of these the half: the others have their default."""
    return {k: v for k, v in fields.items() if v is not None and random.random() < 0.5}


def _with_layout(random: Random, name: str, table: Any) -> Fields:
    """A table as it is, or with its axes turned around and saying so."""
    if random.random() < 0.5:
        return {name: table}
    return {name: np.ascontiguousarray(table.T), f"{name}_layout": "HEADS_BUCKETS"}


def _pick(random: Random, *values: str) -> str:
    return str(random.choice(values))


def _sinusoidal(random: Random) -> Case:
    layout = _pick(random, "INTERLEAVED", "CONCATENATED", "TENSOR2TENSOR")
    fields = {"dim": _int(random, 1, 70), "layout": layout}
    if layout == "TENSOR2TENSOR":
        fields |= _some(random, min_timescale=_float(random, 1, 4), max_timescale=777.7)
    else:
        fields |= _some(random, base=_float(random, 1, 1e6))
    return Case("sinusoidal", fields, "table")


def _multi_axis_sinusoidal(random: Random) -> Case:
    layout = _pick(random, "TENSOR2TENSOR", "INTERLEAVED", "CONCATENATED")
    axes = _int(random, 1, 4)
    fields = {"dim": 2 * axes * _int(random, 1, 9), "num_axes": axes, "layout": layout}
    if layout == "TENSOR2TENSOR":
        fields["dim"] += _int(random, 0, 3)
        fields |= _some(random, min_timescale=2.5, max_timescale=_float(random, 3, 1e5))
    else:
        fields |= _some(random, base=_float(random, 1, 1e6))
    if random.random() < 0.5:
        fields["axis_lengths"] = [_int(random, 1, 60) for _ in range(axes)]
        fields |= _some(
            random,
            axis_scale=_float(random, 0.001, 1000),
            axis_eps=_float(random, 0, 1),
            axis_offset=_int(random, -9, 9) / 2,
        )
    return Case("multi_axis_sinusoidal", fields, "table", axes=axes)


def _learned_absolute(random: Random) -> Case:
    rows, offset = _int(random, 60, 90), _int(random, -5, 5)
    fields = {"table": _table(random, rows, _int(random, 1, 9)), "offset": offset}
    how = _pick(random, "NONE", "LINEAR", "LINEAR_ALIGN_CORNERS")
    if how == "NONE":
        fields |= _some(random, padding_idx=_int(random, 0, rows - 1), interpolation=how)
    else:
        rows = _int(random, 60, 150)
        fields |= {"interpolation": how, "interpolated_length": rows}
    return Case("learned_absolute", fields, "table", first=-offset, last=rows - offset - 1)


def _stretched(random: Random, rope_type: str, pairs: int) -> Fields:
    """What a rope_type takes."""
    factor = {"factor": _float(random, 1, 40)}
    original = {"original_max_position_embeddings": _int(random, 500, 8192)}
    length = {"sequence_length": _int(random, 1, 30000)}
    match rope_type:
        case "LINEAR" | "NTK" | "PROPORTIONAL":
            return factor
        case "DYNAMIC":
            return factor | length | {"max_position_embeddings": 4096}
        case "YARN":
            more = _some(random, truncate=False, beta_fast=16.5, beta_slow=1.25)
            temperature: Fields = {"attention_factor": 0.75}
            if random.random() < 0.5:
                temperature = {"mscale": 0.707, "mscale_all_dim": _float(random, 0.5, 1)}
            return factor | original | more | temperature
        case "LONGROPE":
            divisors = {
                name: random.uniform(1, 50, pairs).tolist()
                for name in ("short_factor", "long_factor")
            }
            return original | length | divisors | {"max_position_embeddings": 131072}
        case "LLAMA3":
            return factor | original | {"low_freq_factor": 1.0, "high_freq_factor": 4.5}
    return {}


def _rotary(random: Random) -> Case:
    pairs = _int(random, 2, 24)
    layout = _pick(random, "HALF", "INTERLEAVED", "COMPACT")
    fields: Fields = {"head_dim": 2 * pairs, "layout": layout}
    axes = 1
    special = random.random()
    if special < 0.2:
        frequencies = (10.0 ** random.uniform(-6, 0, pairs)).tolist()
        fields |= {"inverse_frequencies": frequencies} | _some(
            random, angle=_pick(random, "EXACT", "FLOAT32")
        )
    elif special < 0.5:
        axes = _int(random, 2, min(4, pairs))
        order = _pick(random, "CHUNKED", "AXIAL", "INTERLEAVED")
        cuts = np.sort(random.choice(np.arange(1, pairs), axes - 1, replace=False))
        sections = np.diff([0, *cuts, pairs]).tolist()
        if order == "INTERLEAVED":  # all but the first are alike
            others = [_int(random, 1, pairs // axes)] * (axes - 1)
            sections = [pairs - sum(others), *others]
        fields |= {"mrope_section": sections}
        axial = random.random() < 0.3
        fields |= {"rope_type": "AXIAL"} if axial else {"mrope_order": order}
    else:
        types = ("DEFAULT", "LINEAR", "DYNAMIC", "NTK", "YARN", "LONGROPE", "LLAMA3")
        rope_type = _pick(random, *types, "PROPORTIONAL")
        fields |= {"rope_type": rope_type} | _stretched(random, rope_type, pairs)
        fields |= _some(random, rope_theta=_float(random, 100, 1e6))
        if rope_type in ("DEFAULT", "PROPORTIONAL") and random.random() < 0.5:
            fields["partial_rotary_factor"] = 0.5
    far = 1 << 20 if "angle" in fields else FAR
    return Case("rotary", fields, "table", axes=axes, first=-far, last=far)


def _xpos(random: Random) -> Case:
    length = _int(random, 1, 5000)
    fields = {"dim": _even(random, 40), "sequence_length": length}
    fields |= _some(
        random,
        rope_theta=_float(random, 100, 1e6),
        scale_base=_float(random, 100, 1000),
        gamma=_float(random, 0.1, 1),
        layout=_pick(random, "HALF", "INTERLEAVED", "COMPACT"),
    )
    return Case("xpos", fields, "table", first=-1000, last=6000)


def _t5(random: Random) -> Case:
    heads, both = _int(random, 1, 5), bool(random.integers(2))
    buckets = _even(random, 80) + 2
    fields = {"num_heads": heads, "num_buckets": buckets, "bidirectional": both}
    fields |= {"max_distance": _int(random, buckets, 900)}
    fields |= _some(random, bucket_rule=_pick(random, "EXACT", "FLOAT32_LOG"))
    fields |= _with_layout(random, "table", _table(random, buckets, heads))
    return Case("t5", fields, "pair", has_buckets=True, heads=heads)


def _alibi(random: Random) -> Case:
    heads = _int(random, 1, 20)
    variant = _pick(random, "SYMMETRIC", "CAUSAL", "KEY_FROM_START", "KEY_FROM_END")
    fields = {"num_heads": heads, "variant": variant}
    if random.random() < 0.5:
        fields["slopes"] = random.uniform(-1, 1, heads).tolist()
    else:
        fields |= _some(random, alibi_bias_max=_float(random, 1, 16))
    ends_at = "key_length" if variant == "KEY_FROM_END" else ""
    return Case("alibi", fields, "pair", heads=heads, ends_at=ends_at)


def _learned_relative(random: Random) -> Case:
    heads, left, right = _int(random, 1, 5), _int(random, 0, 30), _int(random, 0, 30)
    symmetric = bool(random.integers(2))
    positions, beyond = {}, _some(random, beyond="CLIP")
    if random.random() < 0.3:
        left = right = 150
        positions, beyond = {"first": 0, "last": 150}, {"beyond": "REFUSE"}
    rows = right + 1 if symmetric else left + right + 1
    columns = _pick(random, "own", "shared")
    fields: Fields = {"num_heads": heads, "right": right}
    fields |= {"symmetric": True} if symmetric else {"left": left}
    table = _table(random, rows, heads if columns == "own" else 1)
    fields |= _with_layout(random, "table", table) | beyond
    return Case("learned_relative", fields, "pair", has_buckets=True, heads=heads, **positions)


def _kerple(random: Random) -> Case:
    heads = _int(random, 1, 6)
    of_each = heads if random.random() < 0.5 else 1
    fields = {"kernel": _pick(random, "LOG", "POWER"), "num_heads": heads}
    fields |= {name: random.uniform(0.01, 2, of_each).tolist() for name in ("p", "a")}
    return Case("kerple", fields, "pair", heads=heads)


def _sandwich(random: Random) -> Case:
    heads = _int(random, 1, 6)
    fields = {"num_heads": heads}
    fields |= _some(random, dim=_even(random, 200), base=_float(random, 1, 1e6))
    return Case("sandwich", fields, "pair", heads=heads)


def _fire(random: Random) -> Case:
    heads, hidden = _int(random, 1, 5), _int(random, 1, 40)
    fields = {"num_heads": heads, "hidden_weight": _table(random, hidden, 1)}
    fields |= {"output_weight": _table(random, heads, hidden)}
    fields |= _some(
        random,
        c=_float(random, 0.01, 2),
        threshold=_float(random, 1, 60),
        eps=1e-3,
        hidden_bias=_table(random, hidden),
        output_bias=_table(random, heads),
    )
    return Case("fire", fields, "pair", first=0, heads=heads)


def _dynamic_position_bias(random: Random) -> Case:
    heads, width = _int(random, 1, 5), _int(random, 1, 12)
    sizes = [1, *[width] * _int(random, 0, 3), heads]
    layers = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        layer: Fields = {"weight": _table(random, outputs, inputs)}
        layer |= _some(random, bias=_table(random, outputs))
        if i < len(sizes) - 2 and random.random() < 0.5:
            layer |= {name: _table(random, outputs) for name in ("norm_weight", "norm_bias")}
        layers.append(layer)
    fields = {"num_heads": heads, "log_distance": bool(random.integers(2)), "layers": layers}
    return Case("dynamic_position_bias", fields, "pair", heads=heads)


def _deberta(random: Random) -> Case:
    buckets = _int(random, 0, 1) * _even(random, 60)
    fields = {"bucket_size": buckets, "max_position": buckets + _int(random, 2, 300)}
    fields |= _some(
        random, term=_pick(random, "CONTENT_TO_POSITION", "POSITION_TO_CONTENT", "BUCKET")
    )
    if buckets:
        fields |= _some(
            random,
            edge=_pick(random, "MICROSOFT", "HF"),
            bucket_rule=_pick(random, "EXACT", "FLOAT32_LOG"),
        )
    return Case("deberta", fields, "pair", has_bias=False, has_buckets=True)


def _shaw(random: Random) -> Case:
    left, right, dim = _int(random, 0, 20), _int(random, 0, 20), _int(random, 1, 6)
    heads = [_int(random, 1, 3)] if random.random() < 0.5 else []
    positions, beyond = {}, _some(random, beyond="CLIP")
    if random.random() < 0.3:
        left = right = 150
        positions, beyond = {"first": 0, "last": 150}, {"beyond": "REFUSE"}
    fields = {"left": left, "right": right, "table": _table(random, *heads, left + right + 1, dim)}
    fields |= _some(random, sign=_pick(random, "KEY_MINUS_QUERY", "QUERY_MINUS_KEY"))
    return Case(
        "shaw",
        fields | beyond,
        "pair",
        has_buckets=True,
        vectors=True,
        heads=heads[0] if heads else 1,
        **positions,
    )


def _distances(encoding: str, *, clamps: bool = False) -> Callable[[Random], Case]:
    def fields_of(random: Random) -> Case:
        fields: Fields = {"dim": _even(random, 16)} | _some(random, base=_float(random, 1, 1e6))
        if clamps:
            fields |= _some(random, clamp_len=_int(random, 1, 40))
        if encoding == "xlnet":
            fields |= _some(random, attn_type=_pick(random, "BIDIRECTIONAL", "UNIDIRECTIONAL"))
        if encoding == "symmetric_sinusoidal":
            fields |= _some(random, layout=_pick(random, "INTERLEAVED", "CONCATENATED"))
        return Case(encoding, fields, "pair", vectors=True)

    return fields_of


def _grid(random: Random) -> tuple[Fields, int, tuple[int, int]]:
    side = (_int(random, 1, 5), _int(random, 1, 5))
    heads = _int(random, 1, 4)
    fields = {"window_height": side[0], "window_width": side[1], "num_heads": heads}
    return fields, heads, side


def _learned_grid(encoding: str, more_rows: int) -> Callable[[Random], Case]:
    def fields_of(random: Random) -> Case:
        fields, heads, side = _grid(random)
        rows = (2 * side[0] - 1) * (2 * side[1] - 1) + more_rows
        fields |= _with_layout(random, "table", _table(random, rows, heads))
        return Case(encoding, fields, "grid", has_buckets=True, side=side, heads=heads)

    return fields_of


def _swin_v2(random: Random) -> Case:
    fields, heads, side = _grid(random)
    hidden = _int(random, 1, 20)
    fields |= {
        "hidden_weight": _table(random, hidden, 2),
        "hidden_bias": _table(random, hidden),
        "output_weight": _table(random, heads, hidden),
    }
    fields |= _some(random, pretrained_window_height=8, pretrained_window_width=12)
    return Case("swin_v2", fields, "grid", side=side, heads=heads)


def _tupe(random: Random) -> Case:
    heads = _int(random, 1, 3)
    columns, rows = heads * _int(random, 1, 4), 120
    reset = bool(random.integers(2))
    relative = random.random() < 0.7
    absolute = not relative or random.random() < 0.5
    fields: Fields = {"num_heads": heads, "reset_class_token": reset}
    first, last = -FAR, FAR
    if relative:
        buckets = 2 * _even(random, 20) + 2
        fields |= {"num_buckets": buckets, "max_distance": _int(random, buckets, 300)}
        table = _table(random, buckets + reset, heads)
        fields |= _with_layout(random, "relative_table", table)
    if absolute:
        first, last = 0, rows - 1
        fields["position_table"] = _table(random, rows + reset, columns)
        for name in ("query", "key"):
            fields[f"{name}_weight"] = _table(random, columns, columns)
            fields[f"{name}_bias"] = _table(random, columns)
        if random.random() < 0.5:
            fields |= {name: _table(random, columns) for name in ("norm_weight", "norm_bias")}
            fields |= _some(random, norm_eps=1e-3)
        fields |= _some(random, position_scale=_float(random, 0.1, 1))
    return Case(
        "tupe", fields, "pair", first=first, last=last, has_buckets=not absolute, heads=heads
    )


CASES: dict[str, Callable[[Random], Case]] = {
    "sinusoidal": _sinusoidal,
    "t5": _t5,
    "alibi": _alibi,
    "learned_absolute": _learned_absolute,
    "rotary": _rotary,
    "xpos": _xpos,
    "multi_axis_sinusoidal": _multi_axis_sinusoidal,
    "learned_relative": _learned_relative,
    "kerple": _kerple,
    "sandwich": _sandwich,
    "fire": _fire,
    "dynamic_position_bias": _dynamic_position_bias,
    "deberta": _deberta,
    "shaw": _shaw,
    "transformer_xl": _distances("transformer_xl", clamps=True),
    "xlnet": _distances("xlnet", clamps=True),
    "conformer": _distances("conformer"),
    "symmetric_sinusoidal": _distances("symmetric_sinusoidal"),
    "swin": _learned_grid("swin", 0),
    "swin_v2": _swin_v2,
    "beit": _learned_grid("beit", 3),
    "tupe": _tupe,
}


def encodings_of_the_contract() -> list[str]:
    oneof = message("TensorSpec").DESCRIPTOR.oneofs_by_name["encoding"]
    return [encoding.name for encoding in oneof.fields]


def case_of(encoding: str, seed: int) -> Case:
    return CASES[encoding](np.random.default_rng([seed, *encoding.encode()]))
