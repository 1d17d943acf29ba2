# SPDX-License-Identifier: Apache-2.0
"""Every encoding's value at any index, computed by mpmath from the contract's definition.

A formula is a function of an index: head, query, key and column for pairs; head, and the row and
column of key minus query, for image windows; part, positions and column for tables. Nothing here
depends on how the service computes.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain, zip_longest
from typing import Any
from unittest import mock

import mpmath
import numpy as np
import torch
from mpmath import mpf
from real import PRECISION, alibi_slopes, rounded
from resampling import filter_of, grid_of
from t5_rules import exact_starts, rounded_log, torch_buckets
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from tests.conformance.golden import stored
from tests.support.ways import Part, array_of

# Error of float64 sums in a fixed order, relative to the sum of their terms' magnitudes.
SUMS = mpf(2) ** -44
# Smallest relative distance from a tie at which PRECISION bits suffice to round a sum.
UNSEEN = mpf(2) ** (50 - PRECISION)


def default(owner: Any, name: str, value: Any) -> Any:
    return getattr(owner, name) if owner.HasField(name) else value


def enum(owner: Any, name: str, value: str) -> str:
    """Returns the name of an enum field's value; `value` if the field is not set."""
    return stored.name_of(owner, name) if getattr(owner, name) else value


def table(ref: Any) -> Any:
    """Returns the numbers as float64, [rows, columns], in either layout."""
    if ref.WhichOneof("source") != "inline_table":
        return stored.numbers(stored.MOUNTED).astype("f8")
    inline = ref.inline_table
    data_type = stored.name_of(inline, "data_type")
    array = array_of(Part(data_type, tuple(inline.shape), inline.data)).astype("f8")
    return array.T if enum(ref, "layout", "") == "HEADS_BUCKETS" else array


def network(x: Sequence[mpf], weight: Any, bias: Any) -> tuple[list[mpf], list[mpf]]:
    """Returns a linear layer's outputs, and the magnitudes of their terms."""
    outputs, magnitudes = [], []
    for row, first in zip(weight, bias, strict=True):
        terms = [mpf(first), *(mpf(w) * v for w, v in zip(row, x, strict=True))]
        outputs.append(mpmath.fsum(terms))
        magnitudes.append(mpmath.fsum(abs(term) for term in terms))
    return outputs, magnitudes


def zeros_if_unset(owner: Any, name: str, count: int) -> Any:
    return table(getattr(owner, name)) if owner.HasField(name) else np.zeros(count)


class Near:
    """A number defined by float64 operations, and its error bound."""

    def __init__(self, value: mpf, distance: mpf) -> None:
        self.value = value
        self.distance = distance


# Returns the value for a pair of positions.
Formula = Callable[[int, int, int, int], Any]


@cache
def starts_of(num_buckets: int, max_distance: int) -> list[int]:
    return exact_starts(num_buckets, max_distance)


def t5_bucket(relative: int, both: bool, num_buckets: int, max_distance: int, rule: str) -> int:
    if rule == "FLOAT32_LOG":
        with mock.patch.object(torch, "log", rounded_log):
            return int(
                torch_buckets(
                    np.array([relative]),
                    bidirectional=both,
                    num_buckets=num_buckets,
                    max_distance=max_distance,
                )[0]
            )
    distance = abs(relative) if both else max(-relative, 0)
    half = num_buckets // 2 if both else num_buckets
    bucket = int(np.searchsorted(starts_of(half, max_distance), distance, side="right")) - 1
    return bucket + (half if both and relative > 0 else 0)


def t5(e: Any, buckets: bool) -> Formula:
    settings = (
        e.bidirectional,
        default(e, "num_buckets", 32),
        default(e, "max_distance", 128),
        enum(e, "bucket_rule", "EXACT"),
    )
    rows = None if buckets else table(e.table)

    def number(h: int, i: int, j: int, _: int) -> Any:
        bucket = t5_bucket(j - i, *settings)
        return bucket if rows is None else mpf(rows[bucket, h])

    return number


def alibi(e: Any, _: bool, keys: int) -> Formula:
    if e.slopes:
        slopes = [mpf(slope) for slope in e.slopes]
    else:
        slopes = alibi_slopes(e.num_heads, default(e, "alibi_bias_max", 8))
    variant = enum(e, "variant", "SYMMETRIC")
    factors: dict[str, Callable[[int, int], int]] = {
        "SYMMETRIC": lambda i, j: -abs(i - j),
        "CAUSAL": lambda i, j: -max(i - j, 0),
        "KEY_FROM_START": lambda _, j: j,
        "KEY_FROM_END": lambda _, j: j - (keys - 1),
    }
    return lambda h, i, j, _: slopes[h] * factors[variant](i, j)


def clipped_row(e: Any, relative: int) -> int:
    """Returns the row in a table that spans -left to right in the direction of its sign."""
    clipped = min(max(relative, -e.left), e.right)
    backwards = enum(e, "sign", "KEY_MINUS_QUERY") == "QUERY_MINUS_KEY"
    return int(e.right - clipped if backwards else clipped + e.left)


def learned_relative(e: Any, buckets: bool) -> Formula:
    rows = None if buckets else table(getattr(e, e.WhichOneof("rows")))

    def number(h: int, i: int, j: int, column: int) -> Any:
        row = min(abs(j - i), e.right) if e.symmetric else clipped_row(e, j - i)
        if rows is None:
            return row
        if e.HasField("scalars"):
            return mpf(rows[row, h if rows.shape[1] > 1 else 0])
        return mpf(rows[h, row, column] if rows.ndim == 3 else rows[row, column])

    return number


def kerple(e: Any, _: bool) -> Formula:
    def of(values: Any, h: int) -> mpf:
        return mpf(values[h if len(values) > 1 else 0])

    def number(h: int, i: int, j: int, _: int) -> mpf:
        p, a, distance = of(e.p, h), of(e.a, h), abs(i - j)
        if enum(e, "kernel", "") == "LOG":
            return -p * mpmath.log(1 + a * distance)
        return -a * (mpf(distance) ** p if distance else 0)

    return number


def sandwich(e: Any, _: bool) -> Formula:
    dim, base = default(e, "dim", 128), mpf(default(e, "base", 1e4))

    @cache
    def sum_at(distance: int) -> mpf:
        with mpmath.workprec(PRECISION):
            return mpmath.fsum(
                mpmath.cos(distance * base ** (mpf(-2 * k) / dim)) for k in range(dim // 2)
            )

    return lambda h, i, j, _: sum_at(i - j) * e.num_heads / (8 * (h + 1))


def fire(e: Any, _: bool) -> Formula:
    c, threshold, eps = (
        mpf(default(e, name, value))
        for name, value in (("c", 0.1), ("threshold", 512.0), ("eps", 1e-6))
    )
    hidden, output = table(e.hidden_weight), table(e.output_weight)
    hidden_bias = zeros_if_unset(e, "hidden_bias", len(hidden))
    output_bias = zeros_if_unset(e, "output_bias", len(output))

    def number(h: int, i: int, j: int, _: int) -> Near:
        x = mpmath.log(c * abs(i - j) + 1) / (mpmath.log(c * max(i, threshold) + 1) + eps)
        units, magnitudes = network([x], hidden, hidden_bias)
        (value,), _unused = network(
            [max(u, 0) for u in units], output[h : h + 1], output_bias[h : h + 1]
        )
        (most,) = network(magnitudes, abs(output[h : h + 1]), abs(output_bias[h : h + 1]))[0]
        return Near(value, SUMS * most)

    return number


def mlp_outputs(e: Any) -> Callable[[tuple[int, ...]], list[Near]]:
    """Returns the biases of all heads, indexed by query - key along the axes."""
    layers = [
        (
            table(layer.weight),
            zeros_if_unset(layer, "bias", len(table(layer.weight))),
            (table(layer.norm_weight), table(layer.norm_bias))
            if layer.HasField("norm_weight")
            else None,
        )
        for layer in e.layers
    ]
    kind = enum(e, "coordinates", "LINEAR")
    has_sigmoid = enum(e, "output", "IDENTITY") == "SIGMOID_16"
    has_relu = enum(e, "activation", "") == "RELU"

    def coordinate(axis: int, distance: int) -> mpf:
        if kind == "LINEAR":
            return mpf(distance)
        if kind == "SIGNED_LOG":
            return mpmath.sign(distance) * mpmath.log(abs(mpf(distance)) + 1)
        t = mpf(8 * distance) / max((e.pretrained_window or e.window)[axis] - 1, 1)
        return mpmath.sign(t) * mpmath.log(abs(t) + 1, 2) / 3

    def finished(value: mpf, most: mpf) -> Near:
        if not has_sigmoid:
            return Near(value, SUMS * most)
        sigmoid = 1 / (1 + mpmath.exp(-value))
        # The slope of the sigmoid, and the error of its float64 argument.
        return Near(16 * sigmoid, 16 * sigmoid * (1 - sigmoid) * SUMS * most + SUMS * sigmoid)

    @cache
    def outputs(differences: tuple[int, ...]) -> list[Near]:
        values = [coordinate(axis, d) for axis, d in enumerate(differences)]
        most = mpf(0)
        for index, (weight, bias, norm) in enumerate(layers):
            values, magnitudes = network(values, weight, bias)
            most = max(most, *magnitudes)
            if norm is not None:
                mean = mpmath.fsum(values) / len(values)
                variance = mpmath.fsum((v - mean) ** 2 for v in values) / len(values)
                root = mpmath.sqrt(variance + mpf("1e-5"))
                values = [
                    (v - mean) / root * mpf(w) + mpf(b)
                    for v, w, b in zip(values, *norm, strict=True)
                ]
                most *= 1 + 1 / root * float(np.abs(norm[0]).max())
            if index < len(layers) - 1:
                values = [max(v, 0) if has_relu else v / (1 + mpmath.exp(-v)) for v in values]
                most *= 1 + float(np.abs(layers[index + 1][0]).sum(1).max())
        return [finished(value, most) for value in values]

    return outputs


def mlp_bias(e: Any, _: bool) -> Formula:
    outputs = mlp_outputs(e)
    return lambda h, i, j, _: outputs((i - j,))[h]


def deberta_bucket(distance: int, size: int, most: int, rule: str) -> int:
    """Returns the log bucket for a non-negative distance."""
    if rule == "FLOAT32_LOG":
        with mock.patch.object(torch, "log", rounded_log):
            return int(make_log_bucket_position(torch.tensor([distance]), size, most)[0])
    middle = size // 2
    if distance <= middle:
        return distance
    # The smallest k with (distance / m)^(m - 1) <= ((most - 1) / m)^k. The two sides count as
    # equal if 500 bits agree.
    with mpmath.workprec(600):
        steps = mpmath.log(mpf(distance) / middle) / mpmath.log(mpf(most - 1) / middle)
        steps *= middle - 1
        nearest = int(mpmath.nint(steps))
        is_whole = abs(steps - nearest) < mpf(2) ** -500
    return middle + (nearest if is_whole else int(mpmath.ceil(steps)))


def deberta(e: Any, _: bool) -> Formula:
    size, most = default(e, "bucket_size", 256), default(e, "max_position", 512)
    span = size or most

    def number(_h: int, i: int, j: int, _: int) -> int:
        distance = i - j
        if size:
            if enum(e, "edge", "MICROSOFT") == "MICROSOFT":
                distance = min(max(distance, 1 - most), most - 1)
            bucket = deberta_bucket(abs(distance), size, most, enum(e, "bucket_rule", "EXACT"))
            distance = int(math.copysign(bucket, distance))
        match enum(e, "term", "CONTENT_TO_POSITION"):
            case "BUCKET":
                return distance
            case "POSITION_TO_CONTENT":
                distance = -distance
        return min(max(distance + span, 0), 2 * span - 1)

    return number


def relative_sinusoidal(e: Any, _: bool) -> Formula:
    row = sinusoidal(e)
    sign = enum(e, "sign", "QUERY_MINUS_KEY")

    def number(_h: int, i: int, j: int, column: int) -> Any:
        if e.causal and j > i:
            return mpf(0)
        relative = max(j - i, -default(e, "left", 1 << 62))
        relative = min(relative, default(e, "right", 1 << 62))
        distance = -relative if sign == "QUERY_MINUS_KEY" else relative
        return row("", [abs(relative) if e.symmetric else distance], column)

    return number


def tupe_index(e: Any, i: int, j: int, inside: bool) -> int:
    num_buckets = default(e, "num_buckets", 32)
    if e.reset_class_token and not inside:
        if i == 0:
            return int(num_buckets // 2)
        if j == 0:
            return int(num_buckets)
    return t5_bucket(j - i, True, num_buckets, default(e, "max_distance", 128), "EXACT")


def tupe(e: Any, buckets: bool, *, inside: bool) -> Formula:
    relative = table(e.relative_table) if e.HasField("relative_table") else None
    heads = e.num_heads or (relative.shape[1] if relative is not None else 0)
    absolute = tupe_products(e, heads) if e.HasField("position_table") else None

    def number(h: int, i: int, j: int, _: int) -> Any:
        if buckets:
            return tupe_index(e, i, j, inside)
        value = mpf(0) if relative is None else mpf(relative[tupe_index(e, i, j, inside), h])
        if absolute is None:
            return value
        product, most = absolute(h, i, j)
        return Near(value + product, SUMS * most + UNSEEN * abs(value))

    return number


def tupe_products(e: Any, heads: int) -> Callable[[int, int, int], tuple[mpf, mpf]]:
    positions = table(e.position_table)
    dim = positions.shape[1]
    scale = (
        mpf(e.position_scale)
        if e.HasField("position_scale")
        else 1 / mpmath.sqrt(mpf(2 * dim) / heads)
    )

    @cache
    def projected(name: str, row: int) -> tuple[list[mpf], list[mpf]]:
        x = [mpf(v) for v in positions[row]]
        if e.HasField("norm_weight"):
            mean = mpmath.fsum(x) / dim
            variance = mpmath.fsum((v - mean) ** 2 for v in x) / dim
            root = mpmath.sqrt(variance + mpf(default(e, "norm_eps", 1e-5)))
            weight, bias = table(e.norm_weight), table(e.norm_bias)
            x = [
                (v - mean) / root * mpf(w) + mpf(b) for v, w, b in zip(x, weight, bias, strict=True)
            ]
        return network(x, table(getattr(e, f"{name}_weight")), table(getattr(e, f"{name}_bias")))

    def product(h: int, i: int, j: int) -> tuple[mpf, mpf]:
        if e.reset_class_token:
            i, j = (0, 0) if i == 0 else (1, 1) if j == 0 else (i + 1, j + 1)
        columns = slice(h * dim // heads, (h + 1) * dim // heads)
        (q, q_most), (k, k_most) = projected("query", i), projected("key", j)
        value = mpmath.fdot(q[columns], k[columns]) * scale
        # Deviations from a mean lose more digits if all values are alike.
        return value, 64 * abs(scale) * mpmath.fdot(q_most[columns], k_most[columns])

    return product


def grid_number(e: Any, name: str, buckets: bool) -> Callable[[int, Sequence[int]], Any]:
    """Returns a head's value at a displacement from query to key."""
    if name == "mlp_bias":
        outputs = mlp_outputs(e)
        return lambda h, to_key: outputs(tuple(-d for d in to_key))[h]
    sides = [side if e.symmetric else 2 * side - 1 for side in e.window]
    sign = 1 if enum(e, "sign", "QUERY_MINUS_KEY") == "KEY_MINUS_QUERY" else -1
    rows = None if buckets else table(e.table)

    def number(h: int, to_key: Sequence[int]) -> Any:
        places = (
            abs(d) if e.symmetric else side - 1 + sign * d
            for d, side in zip(to_key, e.window, strict=True)
        )
        index = int(np.ravel_multi_index(tuple(places), sides))
        if rows is None:
            return index
        if e.HasField("resample"):
            own = rows[: len(rows) - 3 * e.class_token]
            return resampled(own, e.resample, sides, index, h)
        return mpf(rows[index, h])

    return number


def class_number(e: Any, name: str, buckets: bool, h: int, which: int) -> Any:
    """Returns the border's value: class to all, all to class, or class to itself."""
    if name == "mlp_bias":
        return mpf(0)
    if name == "grid_relative":
        index = math.prod(side if e.symmetric else 2 * side - 1 for side in e.window) + which
        return index if buckets else mpf(table(e.table)[which - 3, h])
    index = (default(e, "num_buckets", 32) // 2, default(e, "num_buckets", 32))[which == 1]
    return index if buckets else mpf(table(e.relative_table)[index, h])


def waves_of(e: Any, dims: list[int]) -> list[tuple[int, int, Any]]:
    """Returns the axis, frequency and function of each nonzero column."""
    parts = [
        (
            [(axis, k, mpmath.sin) for k in range((dim + 1) // 2)],
            [(axis, k, mpmath.cos) for k in range(dim // 2)],
        )
        for axis, dim in enumerate(dims)
    ]
    if getattr(e, "across_axes", False):
        sines, cosines = zip(*parts, strict=True)
        parts = [(list(chain(*sines)), list(chain(*cosines)))]
    order, waves = enum(e, "columns", "INTERLEAVED"), []
    for sines, cosines in parts:
        if order == "INTERLEAVED":
            waves += filter(None, chain(*zip_longest(sines, cosines)))
        else:
            waves += sines + cosines if order == "SINES_COSINES" else cosines + sines
    return waves


def ladder(message: Any, k: int, dims: list[int]) -> mpf:
    """Returns frequency k of the progression that these axes share."""
    kind = message.WhichOneof("kind")
    if kind == "frequencies":
        return mpf(message.frequencies.values[k])
    if kind == "timescales":
        first = mpf(default(message.timescales, "min", 1.0))
        ratio = mpf(default(message.timescales, "max", 1e4)) / first
        return first * ratio ** (mpf(-k) / max(sum((dim + 1) // 2 for dim in dims) - 1, 1))
    return mpf(message.base if kind else 1e4) ** (mpf(-2 * k) / sum(dims))


def sum_of_axes(e: Any) -> Callable[[Sequence[float], int], Fraction]:
    """Returns the function for a pair's exact angle, given a frequency matrix."""
    matrix = table(e.frequency_matrix)

    def x(axis: int, position: float) -> Fraction:
        if not e.axes:
            return Fraction(position)
        given = e.axes[axis]
        moved = Fraction(position) + Fraction(default(given, "offset", 0.0))
        length = Fraction(default(given, "length", 1.0)) + Fraction(default(given, "eps", 0.0))
        return moved * Fraction(default(given, "scale", 1.0)) / length

    def angle(at: Sequence[float], pair: int) -> Fraction:
        rows = range(len(matrix))
        return sum((x(row, at[row]) * Fraction(matrix[row, pair]) for row in rows), Fraction())

    return angle


def has_matrix(e: Any) -> bool:
    return "frequency_matrix" in e.DESCRIPTOR.fields_by_name and e.HasField("frequency_matrix")


def sinusoidal(e: Any) -> Any:
    if has_matrix(e):
        columns, angle = waves_of(e, [e.dim]), sum_of_axes(e)

        def of_sum(_: str, at: Sequence[float], column: int) -> mpf:
            _axis, pair, function = columns[column]
            exact = angle(at, pair)
            with mpmath.workprec(PRECISION):
                return function(mpf(exact.numerator) / exact.denominator)

        return of_sum
    axes = list(getattr(e, "axes", ())) or [None]
    dims = list(getattr(e, "axis_dims", ())) or [e.dim // len(axes)] * len(axes)
    if enum(e, "odd", "SINE") == "ZERO":
        dims = [dim // 2 * 2 for dim in dims]
    waves = waves_of(e, dims)
    own = [axis is not None and axis.HasField("ladder") for axis in axes]
    shared = [axis for axis in range(len(axes)) if not own[axis]]

    @cache
    def frequency(axis: int, k: int) -> mpf:
        if own[axis]:
            return ladder(axes[axis].ladder, k, [dims[axis]])
        before = sum((dims[each] + 1) // 2 for each in shared if each < axis)
        return ladder(e.ladder, before + k, [dims[each] for each in shared])

    def number(_: str, at: Sequence[int], column: int) -> mpf:
        if column >= len(waves):
            return mpf(0)
        axis, k, function = waves[column]
        with mpmath.workprec(PRECISION):
            x = mpf(at[axis])
            if (given := axes[axis]) is not None:
                x = (x + mpf(default(given, "offset", 0.0))) * mpf(default(given, "scale", 1.0))
                x /= mpf(default(given, "length", 1.0)) + mpf(default(given, "eps", 0.0))
            return function(x * frequency(axis, k))

    return number


def learned_absolute(e: Any) -> Any:
    rows = table(e.table)

    def number(_: str, at: Sequence[int], column: int) -> mpf:
        row = at[0] + default(e, "offset", 0)
        if e.HasField("resample"):
            prefix = default(e.resample, "prefix_rows", 0)
            if row >= prefix:
                target = list(e.resample.target)
                return resampled(rows[prefix:], e.resample, target, row - prefix, column)
        rests = e.HasField("padding_idx") and row == e.padding_idx
        return mpf(0) if rests else mpf(rows[row, column])

    return number


def rope_frequencies(e: Any) -> tuple[list[mpf], mpf]:
    """Returns the angle per position for each pair, and the attention factor."""
    theta, head = mpf(default(e, "rope_theta", 1e4)), e.head_dim
    dim = int(head * Fraction(default(e, "partial_rotary_factor", 1.0))) // 2 * 2
    if e.inverse_frequencies:
        return [mpf(f) for f in e.inverse_frequencies], mpf(1)
    kind = e.WhichOneof("extension")
    own = getattr(e, kind) if kind else None
    factor = mpf(own.factor or 1) if kind else mpf(1)
    if kind == "ntk":
        theta *= factor ** (mpf(dim) / (dim - 2))
    if kind == "dynamic":
        most = own.max_position_embeddings
        stretch = factor * max(own.sequence_length, most) / most - (factor - 1)
        theta *= stretch ** (mpf(dim) / (dim - 2))
    n = dim // 2
    inverse = [theta ** (mpf(-2 * m) / dim) for m in range(n)]
    attention = mpf(1)
    match kind:
        case "linear":
            inverse = [f / factor for f in inverse]
        case "yarn":
            inverse, attention = yarn(own, inverse, theta, dim, factor)
        case "longrope":
            original = own.original_max_position_embeddings
            divisors = own.long_factor if own.sequence_length > original else own.short_factor
            inverse = [f / mpf(d) for f, d in zip(inverse, divisors, strict=True)]
            if own.HasField("max_position_embeddings"):
                factor = mpf(own.max_position_embeddings) / original
            if factor > 1:
                attention = mpmath.sqrt(1 + mpmath.log(factor) / mpmath.log(original))
            if own.HasField("attention_factor"):
                attention = mpf(own.attention_factor)
        case "llama3":
            low, high = mpf(own.low_freq_factor), mpf(own.high_freq_factor)
            for m, f in enumerate(inverse):
                turns = own.original_max_position_embeddings * f / (2 * mpmath.pi)
                kept = min(max((turns - low) / (high - low), 0), 1)
                inverse[m] = kept * f + (1 - kept) * f / factor
        case "proportional":
            inverse = [theta ** (mpf(-2 * m) / head) / factor for m in range(n)]
            inverse += [mpf(0)] * (head // 2 - n)
    return inverse, attention


def yarn(e: Any, inverse: list[mpf], theta: mpf, dim: int, factor: mpf) -> Any:
    def border(beta: float) -> mpf:
        turns = mpf(e.original_max_position_embeddings) / (2 * mpmath.pi * mpf(beta))
        return dim * mpmath.log(turns) / (2 * mpmath.log(theta))

    low, high = border(default(e, "beta_fast", 32.0)), border(default(e, "beta_slow", 1.0))
    if default(e, "truncate", True):
        low, high = mpmath.floor(low), mpmath.ceil(high)
    low, high = max(low, mpf(0)), min(high, mpf(dim - 1))
    if low == high:
        high += mpf("0.001")
    blended = []
    for m, f in enumerate(inverse):
        stretched = min(max((m - low) / (high - low), 0), 1)
        blended.append(f * (1 - stretched) + f / factor * stretched)

    def temperature(t: float) -> mpf:
        return 1 + mpf("0.1") * mpf(t) * mpmath.log(factor) if factor > 1 else mpf(1)

    if e.HasField("attention_factor"):
        return blended, mpf(e.attention_factor)
    if e.HasField("mscale"):
        return blended, temperature(e.mscale) / temperature(e.mscale_all_dim)
    return blended, temperature(1)


def ladder_frequency(ladder: Any, k: int, n: int) -> mpf:
    match ladder.WhichOneof("kind"):
        case "frequencies":
            return mpf(ladder.frequencies.values[k])
        case "timescales":
            first = mpf(default(ladder.timescales, "min", 1.0))
            ratio = mpf(default(ladder.timescales, "max", 1e4)) / first
            return first * ratio ** (mpf(-k) / max(n - 1, 1))
    return mpf(default(ladder, "base", 1e4)) ** (mpf(-k) / n)


def axis_position(axis: Any, position: int) -> mpf:
    length = mpf(default(axis, "length", 1.0)) + mpf(default(axis, "eps", 0.0))
    moved = position + mpf(default(axis, "offset", 0.0))
    return moved * mpf(default(axis, "scale", 1.0)) / length


def columns_of(layout: str, column: int, pairs: int) -> int:
    return {"HALF": column % pairs, "INTERLEAVED": column // 2, "COMPACT": column}[layout]


def rotary(e: Any) -> Any:
    if has_matrix(e):
        angle_of, pairs = sum_of_axes(e), e.head_dim // 2

        def of_sum(part: str, at: Sequence[float], column: int) -> mpf:
            exact = angle_of(at, columns_of(enum(e, "layout", "HALF"), column, pairs))
            with mpmath.workprec(PRECISION):
                angle = mpf(exact.numerator) / exact.denominator
                return mpmath.cos(angle) if part == "cos" else mpmath.sin(angle)

        return of_sum
    with mpmath.workprec(PRECISION):
        inverse, attention = rope_frequencies(e)
        n = len(inverse)
        axis_of = list(e.pair_axis) or [m * max(len(e.axes), 1) // n for m in range(n)]
        for number_of_axis, axis in enumerate(e.axes):
            own = [m for m in range(n) if axis_of[m] == number_of_axis]
            for k, m in enumerate(own if axis.HasField("ladder") else ()):
                inverse[m] = ladder_frequency(axis.ladder, k, len(own))

    def number(part: str, at: Sequence[int], column: int) -> mpf:
        pair = columns_of(enum(e, "layout", "HALF"), column, len(inverse))
        position: Any = at[axis_of[pair]]
        if part == "scale":
            gamma = mpf(default(e.decay, "gamma", 0.4))
            steps = (position - e.decay.center) / mpf(default(e.decay, "scale_base", 512.0))
            return ((mpf(pair) / len(inverse) + gamma) / (1 + gamma)) ** steps
        if enum(e, "angle", "EXACT") == "FLOAT32":
            single = np.float32(rounded(inverse[pair], "f32"))
            angle = mpf(float(np.float32(position) * single))
        else:
            if e.axes:
                position = axis_position(e.axes[axis_of[pair]], position)
            angle = position * inverse[pair]
        return attention * (mpmath.cos(angle) if part == "cos" else mpmath.sin(angle))

    return number


TABLES: dict[str, Any] = {f.__name__: f for f in (sinusoidal, learned_absolute, rotary)}
PAIRS: dict[str, Any] = {
    f.__name__: f
    for f in (t5, learned_relative, kerple, sandwich, fire, mlp_bias, deberta, relative_sinusoidal)
}


def resampled(rows: Any, resample: Any, target: Sequence[int], row: int, column: int) -> mpf:
    grid = grid_of(resample, target, len(rows))
    exact = grid.value(rows, filter_of(resample), row, column)
    return mpf(exact.numerator) / exact.denominator
