# SPDX-License-Identifier: Apache-2.0
# Generated from proto/ by ./dev generate. Do not edit.
"""Encodings and terms of positional logits, a class for each message of the contract."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy.typing as npt

from attnbias._arrays.grid import BlockToeplitz, BorderedToeplitz
from attnbias._arrays.toeplitz import KeyRow, Toeplitz
from attnbias._spec.fields import Compact, Encoding, Fields, LogitsTerm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnbias._arrays.tables import RotaryTables, XposTables
    from attnbias._spec.choices import (
        Activation,
        AlibiVariant,
        AnglePrecision,
        BeyondReach,
        BucketRule,
        Columns,
        Coordinates,
        DebertaEdge,
        DebertaTerm,
        Filter,
        KerpleKernel,
        MlpOutput,
        OddColumn,
        RelativeSign,
        RotaryLayout,
        TableLayout,
    )

__all__ = [
    "T5",
    "ALiBi",
    "AbsoluteKeys",
    "Axis",
    "Deberta",
    "Decay",
    "DecomposedRelativePositions",
    "Dynamic",
    "Fire",
    "GridRelative",
    "Kerple",
    "Ladder",
    "LearnedAbsolute",
    "LearnedRelative",
    "Linear",
    "Llama3",
    "Longrope",
    "MlpBias",
    "MlpLayer",
    "Ntk",
    "Proportional",
    "RelativeSinusoidal",
    "Resample",
    "Rotary",
    "Sandwich",
    "ShawKeys",
    "ShawValues",
    "Sinusoidal",
    "SinusoidalDistances",
    "Timescales",
    "Tupe",
    "Yarn",
]


@dataclass(frozen=True, repr=False)
class Timescales(Fields):
    """Ends of a geometric progression.

    Frequency k is ``min (max/min)^(-k / m)``, where m is n - 1, but at least 1.

    Attributes:
        min: First frequency. In [1e-6, 1e6]. Default: 1.
        max: Longest timescale, if ``min`` is 1. To make f the last frequency, use ``min^2 / f``. In
            [1, 1e18]. Default: 10000.
    """

    _: KW_ONLY
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, repr=False)
class Ladder(Fields):
    """Frequencies of n column pairs, in radians per unit of x.

    The pair index k starts at 0.

    Attributes:
        base: Base of a geometric progression: ``base^(-k/n)``, where a sine without a cosine counts
            as half a pair. In [1, 1e18]. Default: 10000. Not with ``timescales``, ``frequencies``.
        timescales: First and last timescales of a geometric progression. Not with ``base``,
            ``frequencies``.
        frequencies: n explicit frequencies, each either 0 or between 1e-30 and 1e6 in magnitude.
            Not with ``base``, ``timescales``.
    """

    _: KW_ONLY
    base: float | None = None
    timescales: Timescales | None = None
    frequencies: Sequence[float] | None = None


@dataclass(frozen=True, repr=False)
class Axis(Fields):
    """One position axis.

    Position p on the axis becomes ``x = (p + offset) scale / (length + eps)``, in real arithmetic.

    Attributes:
        scale: Factor applied to every position. Not 0, in [-1e6, 1e6], of magnitude at least 1e-12.
            Default: 1.
        offset: Added to every position. In [-2^40, 2^40], 0 or of magnitude at least 1e-30.
            Default: 0.
        length: Length of the axis, if positions are fractions of it. In [1e-6, 1e12]. Default: 1.
        eps: Added to the length. In [0, 1], 0 or of magnitude at least 1e-30. Default: 0.
        ladder: Frequencies of this axis's pairs. Unset: those of the encoding's common progression,
            which in Rotary spans all n pairs, and in Sinusoidal only the pairs that have no ladder
            of their own.
    """

    _: KW_ONLY
    scale: float | None = None
    offset: float | None = None
    length: float | None = None
    eps: float | None = None
    ladder: Ladder | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Sinusoidal(Encoding[npt.NDArray[Any]]):
    """Sinusoidal absolute positions (Vaswani et al. 2017, section 3.5).

    A column pair is the sine and cosine of ``x w``, where w is the pair's frequency and x is the
    position on its axis. With several axes, each axis has its own list of position_ids. Positions
    are in [-2^40, 2^40]; in position_ids they may be fractions. Values are correctly rounded, so
    they are not bit-identical to the framework's. Found in the original Transformer, Marian,
    fairseq, Whisper, DETR, Mask2Former, SAM 2, RT-DETR, MAE and DiT.

    A table ``[positions, dim]``; request it with ``positions`` or ``position_ids``. Request a
    GridTable over several axes with ``grid``.

    Attributes:
        dim: Number of columns in the table. In [1, 65536].
        ladder: Frequencies of the column pairs on all axes that have no ladder of their own.
        axes: Position axes. Unset: one axis, with x equal to the position. At most 4.
        axis_dims: Number of columns for each axis, ``dim`` in total. Unset: the same number for
            each axis (with ``odd`` "zero", the largest even number that fits). As many as ``axes``.
            Each in [2, 65536]. Only with ``axes``. Not with ``frequency_matrix``.
        columns: Order of sines and cosines in the columns of an axis.
            - "interleaved" (default): ``s0 c0 s1 c1 ...`` (the paper, fairseq's Conformer,
              keras-hub, DETR).
            - "sines_cosines": ``s0 s1 ... c0 c1 ...`` (Transformer-XL, XLNet, Marian, GPT-J,
              tensor2tensor, RT-DETR, MAE).
            - "cosines_sines": ``c0 c1 ... s0 s1 ...`` (Stable Diffusion's timesteps).
        across_axes: Puts the sines of all axes before or after all cosines, as ``columns``
            specifies (timm). Not with ``columns`` "interleaved". Only with ``axes``. Not with
            ``frequency_matrix``.
        odd: Last column of an axis with an odd number of columns.
            - "sine" (default): The sine of an additional frequency.
            - "zero": Zero, at the end of the row (tensor2tensor, diffusers).
        frequency_matrix: Frequency matrix W: the angle of pair m is the sum of ``x_a W[a, m]`` over
            the axes a, and ``dim`` is twice the number of pairs. Cannot be combined with ladders,
            ``odd``, a ``grid``, or more than 262144 positions. Shape ``[num_axes, pairs]``. Each in
            [-1e6, 1e6], 0 or of magnitude at least 1e-30.
    """

    field: ClassVar[str] = "sinusoidal"

    dim: int
    _: KW_ONLY
    ladder: Ladder | None = None
    axes: Sequence[Axis] | None = None
    axis_dims: Sequence[int] | None = None
    columns: Columns | None = None
    across_axes: bool = False
    odd: OddColumn | None = None
    frequency_matrix: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class T5(Encoding[Toeplitz]):
    """T5's bucketed relative position bias (Raffel et al. 2020).

    ``bias[h, i, j] = table[bucket(j - i), h]``, where i and j are the absolute positions of query
    and key. Bit-identical to the framework. Found in T5, mT5, UMT5, LongT5, MPNet, WavLM, UniLM,
    LayoutLMv3 and UDOP.

    A Toeplitz; request it with ``query_length`` and ``key_length``. With ``values="buckets"`` the
    answer is indices, i32 without heads. ``num_heads`` and ``table`` need not be set then.

    Attributes:
        bidirectional: True for an encoder; false for a decoder, where keys to the right of the
            query are in bucket 0. There is no default, because a wrong value is the most common
            error with T5.
        num_heads: Number of heads in the table. In [1, 65536]. Default: that of ``table``.
        num_buckets: Number of rows in the table. If bidirectional, even and at least 4: half of the
            rows are for keys to the right of the query. In [2, 4096]. Default: 32.
        max_distance: Distance at which logarithmic buckets end: all keys at least this far away,
            and some nearer ones, are in the last bucket. Must be larger than the number of exact
            buckets. In [1, 2^31 - 1]. Default: 128.
        table: Learned bias. Required with values "bias". Shape ``[num_buckets, num_heads]``.
        table_layout: Axes of ``table``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
        bucket_rule: Rounding of the boundaries of logarithmic buckets.
            - "exact" (default): Exact arithmetic.
            - "float32_log": Correctly rounded float32 logarithm, float32 division and
              multiplication, as torch computes them on a CPU.
    """

    field: ClassVar[str] = "t5"

    _: KW_ONLY
    bidirectional: bool
    num_heads: int | None = None
    num_buckets: int | None = None
    max_distance: int | None = None
    table: Any = None
    table_layout: TableLayout | None = None
    bucket_rule: BucketRule | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ALiBi(Encoding[Compact]):
    """Attention with linear biases (Press et al. 2022).

    If the number of heads H is a power of two, slope h is ``2^(-alibi_bias_max (h+1) / H)``.
    Otherwise, the slopes are those for the next lower power of two, followed by every other slope
    for the next higher power of two. With the framework's slopes, bit-identical to the framework.
    Found in BLOOM, MPT and Falcon.

    A Toeplitz; request it with ``query_length`` and ``key_length``. A KeyRow with ``variant``
    "key_from_start" or "key_from_end".

    Attributes:
        num_heads: Number of slopes. In [1, 65536]. Default: that of ``slopes``.
        alibi_bias_max: Negated exponent of the last slope. In (0, 1024]. Default: 8. Not with
            ``slopes``.
        slopes: Slopes from another implementation, one per head, to use instead of the computed
            ones. As many as ``num_heads``. Each finite.
        variant: Formula for the bias, where i and j are the absolute positions of query and key.
            - "symmetric" (default): ``-slope |i - j|`` (x-transformers, llm-foundry ``full``,
              flash-attention without a causal mask).
            - "causal": ``-slope max(i - j, 0)``: zero for keys to the right (Megatron).
            - "key_from_start": ``slope j`` (BLOOM, Falcon, the paper's own code).
            - "key_from_end": ``slope (j - (key_length - 1))`` (MPT, keras-hub).
    """

    field: ClassVar[str] = "alibi"

    _: KW_ONLY
    num_heads: int | None = None
    alibi_bias_max: float | None = None
    slopes: Sequence[float] | None = None
    variant: AlibiVariant | None = None

    if TYPE_CHECKING:  # variant determines the result

        @overload
        def __init__(
            self: ALiBi[Toeplitz],
            *,
            num_heads: int | None = None,
            alibi_bias_max: float | None = None,
            slopes: Sequence[float] | None = None,
            variant: Literal["symmetric", "causal"] | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self: ALiBi[KeyRow],
            *,
            num_heads: int | None = None,
            alibi_bias_max: float | None = None,
            slopes: Sequence[float] | None = None,
            variant: Literal["key_from_start", "key_from_end"],
        ) -> None: ...
        @overload
        def __init__(
            self: ALiBi[Toeplitz | KeyRow],
            *,
            num_heads: int | None = None,
            alibi_bias_max: float | None = None,
            slopes: Sequence[float] | None = None,
            variant: AlibiVariant | None = None,
        ) -> None: ...
        def __init__(self, *first: Any, **fields: Any) -> None: ...


@dataclass(frozen=True, repr=False)
class Resample(Fields):
    """Resampling of a table whose rows form a line or a row-major grid.

    Along an axis with n rows, row r of the m target rows is at ``x = (r + 1/2) step - 1/2``, where
    step is n / m:

        target[r] = sum_j filter(j - x) source[clamp(j, 0, n - 1)]

    If there are two axes, their weights are multiplied. The results are those of torch's
    ``interpolate``, computed in rational arithmetic and rounded once.

    Attributes:
        source: Sides of the table's grid: rows, then columns. Unset: the table is a line. At most
            2, each in [1, 2^20].
        target: Sides of the result, as many as ``source`` has, or one if ``source`` is unset. Not
            allowed in GridRelative, which uses the sides of its window. At most 2, each in [1,
            2^20].
        prefix_rows: Number of leading rows that are copied unchanged, such as a class token's row.
            Not allowed in GridRelative, where the class token's rows come last. In [0, 2^20].
            Default: 0.
        filter: Filter along each axis.
            - "linear" (default): ``max(1 - |d|, 0)`` (torch's modes "linear" and "bilinear").
            - "cubic": ``(a + 2)|d|^3 - (a + 3)|d|^2 + 1`` up to 1 and ``a (|d| - 1)(|d| - 2)^2`` up
              to 2 (torch's mode "bicubic"; Keys 1981).
        cubic_a: Parameter a of "cubic": the slope at distance 1. Only with ``filter`` "cubic".
            Unset: -0.75, or -0.5 with ``antialias``, as in torch. In [-1, 0].
        align_corners: Aligns the first and the last rows of source and target: x is ``r (n - 1) /
            (m - 1)``, or 0 if m is 1. With ``antialias``, x is as in the formula above, and step is
            ``(n - 1) / (m - 1)``.
        antialias: Stretches the filter by step if step is greater than 1. Drops the weights of rows
            beyond the table, and divides the remaining weights by their sum.
        step: Step for each axis, to use instead of n / m: 1 / ``scale_factor``. On an axis with n =
            m, torch ignores ``scale_factor`` if the filter is "linear" or ``antialias`` is set, so
            the step there is 1. At most 2, each in [1e-6, 1e6]. Not with ``align_corners``.
    """

    _: KW_ONLY
    source: Sequence[int] | None = None
    target: Sequence[int] | None = None
    prefix_rows: int | None = None
    filter: Filter | None = None
    cubic_a: float | None = None
    align_corners: bool = False
    antialias: bool = False
    step: Sequence[float] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class LearnedAbsolute(Encoding[npt.NDArray[Any]]):
    """Learned absolute positions (Gehring et al. 2017): row p + offset of a table.

    A position outside the table returns ``OutOfRangeError``. Found in BERT, GPT-2, RoBERTa, OPT,
    BART, ViT and DeiT.

    A table ``[positions, dim]``; request it with ``positions`` or ``position_ids``.

    Attributes:
        table: Learned vectors. Shape ``[num_positions, dim]``.
        offset: Added to every position: 2 for OPT and BART, ``padding_idx + 1`` for fairseq and
            RoBERTa. In [-2^40, 2^40]. Default: 0.
        padding_idx: Table row that is returned as zeros. Unset: none. Not with ``resample``.
        resample: Resamples the table: position p is row p + offset of the result.
    """

    field: ClassVar[str] = "learned_absolute"

    table: Any
    _: KW_ONLY
    offset: int | None = None
    padding_idx: int | None = None
    resample: Resample | None = None


@dataclass(frozen=True, repr=False)
class Linear(Fields):
    """Position interpolation (Chen et al. 2023).

    Every frequency is ``inv_m / factor``.

    Attributes:
        factor: Stretch factor. In [1, 1e6].
    """

    factor: float
    _: KW_ONLY


@dataclass(frozen=True, repr=False)
class Dynamic(Fields):
    """Dynamic NTK: ``rope_theta`` grows with the length.

    It is multiplied by ``(factor L/M - (factor - 1))^(dim / (dim - 2))``, where M is
    ``max_position_embeddings`` and L is the larger of ``sequence_length`` and M.

    Attributes:
        factor: Stretch factor. In [1, 1e6].
        max_position_embeddings: Length for which the model was trained. In [1, 2^40].
        sequence_length: Length for which the table is computed. Requesting a window of positions
            does not change it. In [1, 2^40].
    """

    factor: float
    _: KW_ONLY
    max_position_embeddings: int
    sequence_length: int


@dataclass(frozen=True, repr=False)
class Ntk(Fields):
    """Static NTK.

    ``rope_theta`` is multiplied by ``factor^(dim / (dim - 2))``.

    Attributes:
        factor: Stretch factor. In [1, 1e6].
    """

    factor: float
    _: KW_ONLY


@dataclass(frozen=True, repr=False)
class Yarn(Fields):
    """YaRN (Peng et al. 2023).

    High frequencies are unchanged, low frequencies become ``inv_m / factor``, and frequencies in
    between are blended. The attention factor is ``0.1 mscale ln(factor) + 1``, divided by the same
    expression with ``mscale_all_dim``, or ``0.1 ln(factor) + 1`` if neither is set.

    Attributes:
        factor: Stretch factor. In [1, 1e6].
        original_max_position_embeddings: Length before extension. In [1, 2^40].
        beta_fast: Minimum number of rotations for a pair to remain unchanged; at least
            ``beta_slow``. In [1e-6, 1e6]. Default: 32.
        beta_slow: Maximum number of rotations for a pair to be stretched by the full factor. In
            [1e-6, 1e6]. Default: 1.
        mscale: Coefficient in the numerator of the attention factor. In [1e-6, 1e6].
        mscale_all_dim: Coefficient in the denominator of the attention factor. In [1e-6, 1e6]. Only
            with ``mscale``, and then required.
        attention_factor: Replaces the computed attention factor. In [1e-6, 1e6]. Not with
            ``mscale``.
        truncate: Rounds the correction range outward to whole pairs. Default: True.
    """

    factor: float
    _: KW_ONLY
    original_max_position_embeddings: int
    beta_fast: float | None = None
    beta_slow: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool | None = None


@dataclass(frozen=True, repr=False)
class Longrope(Fields):
    """LongRoPE (Ding et al. 2024; Phi-3).

    Every frequency has its own divisor. The attention factor is ``sqrt(1 + ln(factor) /
    ln(original_max_position_embeddings))``. Exactly one of ``factor``, ``max_position_embeddings``
    and ``attention_factor`` must be set.

    Attributes:
        short_factor: Divisors for the n frequencies at lengths up to the original length. Each in
            [1e-6, 1e6].
        long_factor: Divisors for the n frequencies at lengths beyond the original length. Each in
            [1e-6, 1e6].
        original_max_position_embeddings: Length before extension. In [2, 2^40].
        sequence_length: Length for which the table is computed, which selects the divisors.
            Requesting a window of positions does not change it. In [1, 2^40].
        factor: Stretch factor. In [1, 1e6]. Not with ``max_position_embeddings``,
            ``attention_factor``.
        max_position_embeddings: Length after extension. Its ratio to the original length is the
            stretch factor. In [1, 2^40]. Not with ``factor``, ``attention_factor``.
        attention_factor: Explicit attention factor. In [1e-6, 1e6]. Not with ``factor``,
            ``max_position_embeddings``.
    """

    short_factor: Sequence[float]
    _: KW_ONLY
    long_factor: Sequence[float]
    original_max_position_embeddings: int
    sequence_length: int
    factor: float | None = None
    max_position_embeddings: int | None = None
    attention_factor: float | None = None


@dataclass(frozen=True, repr=False)
class Llama3(Fields):
    """Llama 3.1.

    With ``x = original_max_position_embeddings / wavelength``, frequencies with x above
    ``high_freq_factor`` are unchanged, those with x below ``low_freq_factor`` become ``inv_m /
    factor``, and those in between are blended.

    Attributes:
        factor: Stretch factor. In [1, 1e6].
        original_max_position_embeddings: Length before extension. In [1, 2^40].
        low_freq_factor: A pair is stretched if it makes fewer rotations than this over the original
            length. In [1e-6, 1e6].
        high_freq_factor: A pair is unchanged if it makes more rotations than this. Must be larger
            than ``low_freq_factor``. In [1e-6, 1e6].
    """

    factor: float
    _: KW_ONLY
    original_max_position_embeddings: int
    low_freq_factor: float
    high_freq_factor: float


@dataclass(frozen=True, repr=False)
class Proportional(Fields):
    """Frequencies spaced over the whole head, only part of which rotates (Gemma).

    Frequencies span ``head_dim`` and are zero beyond the rotating part: n is ``head_dim / 2``.

    Attributes:
        factor: Divisor of the frequencies. In [1, 1e6]. Default: 1.
    """

    _: KW_ONLY
    factor: float | None = None


@dataclass(frozen=True, repr=False)
class Decay(Fields):
    """Decay of rotary positions (xPos: Sun et al. 2022).

    Queries are multiplied by scale, and keys are divided by it:

        scale(p, m) = ((m / n + gamma) / (1 + gamma))^((p - center) / scale_base)

    Positions at which scale would leave [2^-512, 2^512] return ``OutOfRangeError``.

    Attributes:
        center: Position at which scale is 1. For a length L, floor(L / 2) in x-transformers and
            flash-attention, and ceil(L / 2) in torchscale. Products of rows are consistent only if
            the rows have the same center. In [-2^40, 2^40]. Default: 0.
        scale_base: Number of positions over which scale is multiplied by its base. In [1, 1e9].
            Default: 512.
        gamma: Determines the base of scale: ``(m / n + gamma) / (1 + gamma)`` for pair m. In (0,
            1e6]. Default: 0.4.
    """

    _: KW_ONLY
    center: int | None = None
    scale_base: float | None = None
    gamma: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Rotary(Encoding[Compact]):
    """Rotary position embedding (Su et al. 2021) and its length extensions.

    Fields are named as in transformers' rope_parameters. The angle for position p and pair m is ``p
    inv_m``. There are n = dim / 2 pairs, where dim is the part of ``head_dim`` that rotates.
    Cosines and sines are multiplied by the attention factor. Values are correctly rounded, so they
    are not bit-identical to the framework's.

    With ``axes``, p is the coordinate x on the pair's axis: the position on that axis, shifted and
    scaled. Positions in position_ids may be fractions if ``angle`` is "exact" and ``decay`` is
    unset.

    The header's ``derived`` holds ``inverse_frequencies`` (in radians per position),
    ``attention_factor`` and, if used, ``rope_theta``. Found in Llama, GPT-NeoX, GPT-J, Qwen, Gemma,
    Phi-3 and torchscale.

    RotaryTables of ``cos``, ``sin``, each ``[positions, columns]``; request it with ``positions``
    or ``position_ids``. XposTables with ``decay``. Request a GridTable over several axes with
    ``grid``.

    Attributes:
        head_dim: Dimension of each head. Even, in [2, 65536].
        rope_theta: Base of the progression: ``inv_m = rope_theta^(-2m/dim)``. In [1, 1e18].
            Default: 10000. Not with ``inverse_frequencies``.
        partial_rotary_factor: Fraction of ``head_dim`` that rotates: dim is floor(head_dim *
            factor), rounded down to an even number. In (0, 1]. Default: 1.
        layout: Column layout of the tables.
            - "half" (default): ``f0 f1 ... f0 f1 ...`` (GPT-NeoX, Llama).
            - "interleaved": ``f0 f0 f1 f1 ...`` (GPT-J; x-transformers' and torchscale's xPos).
            - "compact": ``f0 f1 ...``, half as many columns (ONNX Runtime, flash-attention).
        linear: Position interpolation. Not with ``dynamic``, ``ntk``, ``yarn``, ``longrope``,
            ``llama3``, ``proportional``.
        dynamic: Dynamic NTK. Not with ``linear``, ``ntk``, ``yarn``, ``longrope``, ``llama3``,
            ``proportional``.
        ntk: Static NTK. Not with ``linear``, ``dynamic``, ``yarn``, ``longrope``, ``llama3``,
            ``proportional``.
        yarn: YaRN. Not with ``linear``, ``dynamic``, ``ntk``, ``longrope``, ``llama3``,
            ``proportional``.
        longrope: LongRoPE. Not with ``linear``, ``dynamic``, ``ntk``, ``yarn``, ``llama3``,
            ``proportional``.
        llama3: Llama 3.1. Not with ``linear``, ``dynamic``, ``ntk``, ``yarn``, ``longrope``,
            ``proportional``.
        proportional: Frequencies spaced over the whole head, only part of which rotates. Not with
            ``linear``, ``dynamic``, ``ntk``, ``yarn``, ``longrope``, ``llama3``.
        axes: Position axes, in the order of ``position_ids``, with at least one pair each. Unset:
            one axis. Pairs of an axis with a ladder use that ladder, starting at its first
            frequency; all others use the progression over n pairs. A ladder cannot be combined with
            ``inverse_frequencies`` or a length extension. At most 4.
        pair_axis: Axis index, from 0, for each of the n pairs. Unset: the pairs are divided equally
            among the axes, in order. Each in [0, 3]. Only with ``axes``. Not with
            ``frequency_matrix``.
        angle: Precision of the angle ``p inv_m``.
            - "exact" (default): The product in real arithmetic.
            - "float32": The float32 product of the position and the float32 frequency: within 1 ulp
              of torch with transformers' own ``inverse_frequencies``.
        inverse_frequencies: n frequencies from another implementation, to use instead of the
            computed ones. Cannot be combined with a length extension; pass an attention factor as
            the request's scale. Each in [0, 1e6], 0 or of magnitude at least 1e-30.
        decay: Adds xPos's decay: a third table, ``scale``, to which no attention factor is applied.
            Not with ``axes``.
        frequency_matrix: Frequency matrix W, with a column for each of the n pairs: the angle of
            pair m is the sum of ``x_a W[a, m]`` over the axes a. Cannot be combined with ladders,
            other frequencies, a length extension, ``decay``, ``angle`` "float32", a ``grid``, or
            more than 262144 positions. Shape ``[num_axes, pairs]``. Each in [-1e6, 1e6], 0 or of
            magnitude at least 1e-30. Not with ``inverse_frequencies``.
    """

    field: ClassVar[str] = "rotary"

    head_dim: int
    _: KW_ONLY
    rope_theta: float | None = None
    partial_rotary_factor: float | None = None
    layout: RotaryLayout | None = None
    linear: Linear | None = None
    dynamic: Dynamic | None = None
    ntk: Ntk | None = None
    yarn: Yarn | None = None
    longrope: Longrope | None = None
    llama3: Llama3 | None = None
    proportional: Proportional | None = None
    axes: Sequence[Axis] | None = None
    pair_axis: Sequence[int] | None = None
    angle: AnglePrecision | None = None
    inverse_frequencies: Sequence[float] | None = None
    decay: Decay | None = None
    frequency_matrix: Any = None

    if TYPE_CHECKING:  # decay determines the result

        @overload
        def __init__(
            self: Rotary[RotaryTables],
            head_dim: int,
            *,
            rope_theta: float | None = None,
            partial_rotary_factor: float | None = None,
            layout: RotaryLayout | None = None,
            linear: Linear | None = None,
            dynamic: Dynamic | None = None,
            ntk: Ntk | None = None,
            yarn: Yarn | None = None,
            longrope: Longrope | None = None,
            llama3: Llama3 | None = None,
            proportional: Proportional | None = None,
            axes: Sequence[Axis] | None = None,
            pair_axis: Sequence[int] | None = None,
            angle: AnglePrecision | None = None,
            inverse_frequencies: Sequence[float] | None = None,
            decay: None = None,
            frequency_matrix: Any = None,
        ) -> None: ...
        @overload
        def __init__(
            self: Rotary[XposTables],
            head_dim: int,
            *,
            rope_theta: float | None = None,
            partial_rotary_factor: float | None = None,
            layout: RotaryLayout | None = None,
            linear: Linear | None = None,
            dynamic: Dynamic | None = None,
            ntk: Ntk | None = None,
            yarn: Yarn | None = None,
            longrope: Longrope | None = None,
            llama3: Llama3 | None = None,
            proportional: Proportional | None = None,
            axes: Sequence[Axis] | None = None,
            pair_axis: Sequence[int] | None = None,
            angle: AnglePrecision | None = None,
            inverse_frequencies: Sequence[float] | None = None,
            decay: Decay,
            frequency_matrix: Any = None,
        ) -> None: ...
        @overload
        def __init__(
            self: Rotary[RotaryTables | XposTables],
            head_dim: int,
            *,
            rope_theta: float | None = None,
            partial_rotary_factor: float | None = None,
            layout: RotaryLayout | None = None,
            linear: Linear | None = None,
            dynamic: Dynamic | None = None,
            ntk: Ntk | None = None,
            yarn: Yarn | None = None,
            longrope: Longrope | None = None,
            llama3: Llama3 | None = None,
            proportional: Proportional | None = None,
            axes: Sequence[Axis] | None = None,
            pair_axis: Sequence[int] | None = None,
            angle: AnglePrecision | None = None,
            inverse_frequencies: Sequence[float] | None = None,
            decay: Decay | None = None,
            frequency_matrix: Any = None,
        ) -> None: ...
        def __init__(self, *first: Any, **fields: Any) -> None: ...


@dataclass(frozen=True, eq=False, repr=False)
class LearnedRelative(Encoding[Toeplitz]):
    """A learned scalar or vector for every relative position (Shaw et al. 2018).

    ``bias[h, i, j] = scalars[row, h]``, or ``vector[i, j] = vectors[row]``. The row is j - i,
    clipped to [-left, right] and counted in the direction of ``sign``. If symmetric, it is |j - i|
    clipped to right. Found in wav2vec2-BERT, SeamlessM4T-v2 and BERT with ``relative_key``.

    A Toeplitz, over vectors with ``vectors``; request it with ``query_length`` and ``key_length``.
    With ``values="buckets"`` the answer is indices, i32 without heads. ``scalars``, ``vectors`` and
    ``num_heads`` need not be set then.

    Attributes:
        right: Farthest relative position to the right that has its own row. In [0, 2^30 - 1].
        scalars: Learned bias, with one column per head or one for all heads. Shape ``[left + right
            + 1, num_heads or 1]``. Not with ``vectors``; values "bias" require one of them.
        scalars_layout: Axes of ``scalars``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
        vectors: Learned vectors, for keys or for values, with a leading axis of at most 65536 heads
            if they differ between heads. Shape ``[heads?, left + right + 1, dim]``. Not with
            ``scalars``; values "bias" require one of them.
        num_heads: Number of heads in the result. In [1, 65536]. Default: that of ``scalars``. Not
            with ``vectors``.
        left: Farthest relative position to the left that has its own row. Required unless
            symmetric. In [0, 2^30 - 1]. Not with ``symmetric``.
        symmetric: Ignores the sign of j - i (Huang et al. 2020).
        sign: Direction in which the table is indexed: its first row is for a j - i of -left, or for
            an i - j of -right. Not with ``symmetric``.
            - "key_minus_query" (default): j - i: keys to the right are positive (Shaw's paper,
              tensor2tensor, wav2vec2-BERT).
            - "query_minus_key": i - j: keys to the left are positive (BERT's relative_key in
              transformers, Transformer-XL).
        beyond: Result for relative positions beyond left or right.
            - "clip" (default): The row for the farthest position on that side.
            - "refuse": Returns ``OutOfRangeError``.
    """

    field: ClassVar[str] = "learned_relative"

    right: int
    _: KW_ONLY
    scalars: Any = None
    scalars_layout: TableLayout | None = None
    vectors: Any = None
    num_heads: int | None = None
    left: int | None = None
    symmetric: bool = False
    sign: RelativeSign | None = None
    beyond: BeyondReach | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Kerple(Encoding[Toeplitz]):
    """KERPLE (Chi et al. 2022), kernelized biases.

    Symmetric; the models add a causal mask.

    A Toeplitz; request it with ``query_length`` and ``key_length``.

    Attributes:
        kernel: Kernel.
            - "log": ``-p ln(1 + a |i - j|)``.
            - "power": ``-a |i - j|^p``.
        p: One value per head, or one for all heads; each at most 2 with "power". As many as
            ``num_heads``, or ``1``. Each in [1e-30, 1e30].
        a: One value per head, or one for all heads. As many as ``num_heads``, or ``1``. Each in
            [1e-30, 1e30].
        num_heads: Number of heads in the bias. In [1, 65536]. Default: that of ``p`` or ``a``.
    """

    field: ClassVar[str] = "kerple"

    kernel: KerpleKernel
    _: KW_ONLY
    p: Sequence[float]
    a: Sequence[float]
    num_heads: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Sandwich(Encoding[Toeplitz]):
    """Sandwich (Chi et al. 2023), sums of cosines.

        bias[h, i, j] = H / (8 (h + 1)) sum over k < dim / 2 of cos((i - j) w_k)
        w_k = base^(-2k / dim)

    A Toeplitz; request it with ``query_length`` and ``key_length``.

    Attributes:
        num_heads: Number H of heads in the bias. In [1, 65536].
        dim: Number of columns in the sinusoid. Even, in [2, 65536]. Default: 128.
        base: Base of the progression. In [1, 1e18]. Default: 10000.
    """

    field: ClassVar[str] = "sandwich"

    num_heads: int
    _: KW_ONLY
    dim: int | None = None
    base: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Fire(Encoding[npt.NDArray[Any]]):
    """FIRE (Li et al. 2023): an MLP over logarithmic distances, normalized row by row.

    With one hidden layer and ReLU:

        bias[h, i, j] = MLP(ln(c |i - j| + 1) / (ln(c max(i, threshold) + 1) + eps))_h

    A dense array; request it with ``query_length`` and ``key_length``.

    Attributes:
        hidden_weight: Weight of the hidden layer, as torch's Linear stores it. At most 65536 hidden
            units. Shape ``[hidden, 1]``.
        output_weight: Weight of the output layer, with at most 2^22 values. Shape ``[num_heads,
            hidden]``.
        num_heads: Number of heads in the bias. In [1, 65536]. Default: that of ``output_weight``.
        c: Factor applied to the distance inside the logarithm. In [1e-30, 1e30]. Default: 0.1.
        threshold: Position up to which rows share the normalizer: the model's learned ``|init_L *
            L_multiplier|``. In [1e-30, 2^40]. Default: 512.
        eps: Added to the normalizer. In [0, 1]. Default: 1e-6.
        hidden_bias: Bias of the hidden layer. Unset: zeros. Shape ``[hidden]``.
        output_bias: Bias of the output layer. Unset: zeros. Shape ``[num_heads]``.
    """

    field: ClassVar[str] = "fire"

    hidden_weight: Any
    _: KW_ONLY
    output_weight: Any
    num_heads: int | None = None
    c: float | None = None
    threshold: float | None = None
    eps: float | None = None
    hidden_bias: Any = None
    output_bias: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class MlpLayer(Fields):
    """One linear layer of an MLP, as torch's Linear stores it.

    Attributes:
        weight: Weight, with at most 65536 outputs. Shape ``[out, in]``.
        bias: Bias. Unset: zeros. Shape ``[out]``.
        norm_weight: Weight of a LayerNorm (epsilon 1e-5) applied after the layer. Shape ``[out]``.
        norm_bias: Bias of the LayerNorm. Shape ``[out]``. Only with ``norm_weight``, and then
            required.
    """

    weight: Any
    _: KW_ONLY
    bias: Any = None
    norm_weight: Any = None
    norm_bias: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class MlpBias(Encoding[Toeplitz | BlockToeplitz]):
    """An MLP over relative coordinates (Liu et al. 2022; Wang et al. 2021).

    A coordinate x is a function of d, the query's position minus the key's, along one axis:

        bias[h, i, j] = output(MLP(x_1, ...))_h

    Without ``window``, there is one input, for i - j; with it, one per axis. Found in Swin-V2,
    CrossFormer, timm and x-transformers.

    A Toeplitz; request it with ``query_length`` and ``key_length``. A BlockToeplitz with
    ``window``, with a border if ``class_token``; request it without lengths, for windows with
    ``queries``, ``keys`` and ``heads``, or for every n-th query with ``query_stride``.

    Attributes:
        layers: Layers, first to last. The first has one input per coordinate; the last has
            ``num_heads`` outputs and no LayerNorm. All weights together have at most 2^22 values.
            At most 64.
        activation: Function applied between layers, after the layer's LayerNorm if it has one.
            - "relu": ``max(x, 0)`` (Swin-V2, CrossFormer, timm).
            - "silu": ``x / (1 + exp(-x))`` (x-transformers).
        num_heads: Number of heads in the bias. In [1, 65536]. Default: that of ``layers``.
        window: Sides of a window with at most 65536 tokens: frames if any, rows, columns. Empty:
            the tokens form a sequence, and ``coordinates`` is not "log2_normalized". At most 3,
            each in [1, 256].
        coordinates: Function applied to each d.
            - "linear" (default): ``d`` (CrossFormer, x-transformers).
            - "signed_log": ``sign(d) ln(|d| + 1)`` (timm's RelPosMlp in mode "cr", x-transformers'
              ``log_distance``).
            - "log2_normalized": ``sign(t) log2(|t| + 1) / 3``, where ``t = 8 d / (side - 1)`` and
              side is taken from ``pretrained_window`` (Swin-V2).
        pretrained_window: Sides of the window used in training. A side may be 1 only if the same
            side of ``window`` is 1. Only with ``coordinates`` "log2_normalized". Empty: ``window``.
            As many as ``window``. At most 3, each in [1, 256].
        output: Function applied to the last layer's outputs.
            - "identity" (default): ``y``.
            - "sigmoid_16": ``16 sigmoid(y)`` (Swin-V2).
        class_token: Adds a class token as token 0, before the window, with a bias of 0 (timm's
            ``prefix_tokens`` of 1). Only with ``window``.
    """

    field: ClassVar[str] = "mlp_bias"

    layers: Sequence[MlpLayer]
    _: KW_ONLY
    activation: Activation
    num_heads: int | None = None
    window: Sequence[int] | None = None
    coordinates: Coordinates | None = None
    pretrained_window: Sequence[int] | None = None
    output: MlpOutput | None = None
    class_token: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Deberta(Encoding[Toeplitz]):
    """DeBERTa-v2's logarithmic buckets (He et al. 2021).

    The values are indices into the model's relative embeddings. Span is ``bucket_size``, or
    ``max_position`` if there are no buckets. Found in DeBERTa v2 and v3.

    A Toeplitz; request it with ``query_length`` and ``key_length``. The numbers are i32, without
    heads.

    Attributes:
        bucket_size: transformers' position_buckets. 0 (-1 in transformers) means no buckets: the
            distances themselves. Other values must be at least 2. Even, in [0, 4096]. Default: 256.
        max_position: transformers' max_relative_positions. With buckets, must be larger than
            bucket_size / 2 + 1. In [1, 2^30]. Default: 512.
        term: Index to return.
            - "content_to_position" (default): ``clamp(bucket(i - j) + span, 0, 2 span - 1)``.
            - "position_to_content": ``clamp(-bucket(i - j) + span, 0, 2 span - 1)``: the paper's
              delta(j, i). Other implementations use these values as gather indices, with keys as
              rows.
            - "bucket": The signed bucket of i - j itself, neither shifted nor clamped.
        edge: Treatment of distances beyond ``max_position``. Only with ``bucket_size``.
            - "microsoft" (default): Distances are clamped to ``max_position - 1`` first
              (microsoft/DeBERTa).
            - "hf": Distances are not clamped (transformers).
        bucket_rule: Rounding of the boundaries of logarithmic buckets. Only with ``bucket_size``.
            - "exact" (default): Exact arithmetic.
            - "float32_log": Correctly rounded float32 logarithm, float32 division and
              multiplication, as torch computes them on a CPU.
    """

    field: ClassVar[str] = "deberta"

    _: KW_ONLY
    bucket_size: int | None = None
    max_position: int | None = None
    term: DebertaTerm | None = None
    edge: DebertaEdge | None = None
    bucket_rule: BucketRule | None = None


@dataclass(frozen=True, eq=False, repr=False)
class RelativeSinusoidal(Encoding[Toeplitz]):
    """Sinusoids of relative positions (Dai et al. 2019).

    The vector for query i and key j is Sinusoidal's row at position i - j, j - i or |i - j|,
    depending on ``sign`` and ``symmetric``. Values are correctly rounded, so they are not
    bit-identical to the framework's. Found in Transformer-XL, XLNet, ESPnet, wav2vec2-Conformer and
    Parakeet.

    A Toeplitz over vectors; request it with ``query_length`` and ``key_length``.

    Attributes:
        dim: Number of columns in a vector: the model's d_model. In [1, 65536].
        ladder: Frequencies of the column pairs, as in Sinusoidal.
        columns: Order of sines and cosines in a vector.
            - "interleaved" (default): ``s0 c0 s1 c1 ...`` (the paper, fairseq's Conformer,
              keras-hub, DETR).
            - "sines_cosines": ``s0 s1 ... c0 c1 ...`` (Transformer-XL, XLNet, Marian, GPT-J,
              tensor2tensor, RT-DETR, MAE).
            - "cosines_sines": ``c0 c1 ... s0 s1 ...`` (Stable Diffusion's timesteps).
        odd: Last column if ``dim`` is odd.
            - "sine" (default): The sine of an additional frequency.
            - "zero": Zero, at the end of the row (tensor2tensor, diffusers).
        sign: Sign of the relative position that selects the vector for a pair. Not with
            ``symmetric``.
            - "key_minus_query": j - i: keys to the right are positive (Shaw's paper, tensor2tensor,
              wav2vec2-BERT).
            - "query_minus_key" (default): i - j: keys to the left are positive (BERT's relative_key
              in transformers, Transformer-XL).
        symmetric: Uses |i - j| (SpeechBrain's RelPosEncXL).
        left: Largest i - j that has its own vector; keys farther left share that vector. Unset: no
            limit. In [1, 2^40].
        right: Largest j - i that has its own vector; keys farther right share that vector. Unset:
            no limit. In [1, 2^40]. Not with ``causal``.
        causal: Zeroes the vectors for keys to the right of the query, which a decoder masks.
    """

    field: ClassVar[str] = "relative_sinusoidal"

    dim: int
    _: KW_ONLY
    ladder: Ladder | None = None
    columns: Columns | None = None
    odd: OddColumn | None = None
    sign: RelativeSign | None = None
    symmetric: bool = False
    left: int | None = None
    right: int | None = None
    causal: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class GridRelative(Encoding[BlockToeplitz]):
    """Learned relative position bias in a window of a grid (Liu et al. 2021).

    For token i at row r_i, column c_i of a Wh by Ww window:

        bias[h, i, j] = table[index(i, j), h]
        index(i, j) = (r_i - r_j + Wh - 1)(2 Ww - 1) + c_i - c_j + Ww - 1

    In a Wt by Wh by Ww window, with frames, the index is larger by ``(t_i - t_j + Wt - 1)(2 Wh -
    1)(2 Ww - 1)``. Bit-identical to the framework. Found in Swin, BEiT, EVA, MaxViT, CoAtNet,
    LeViT, EfficientFormer, TinyViT and Video Swin.

    A BlockToeplitz, with a border if ``class_token``; request it without lengths, for windows with
    ``queries``, ``keys`` and ``heads``, or for every n-th query with ``query_stride``. With
    ``values="buckets"`` the answer is indices, i32 without heads. ``num_heads``, ``table`` and
    ``resample`` need not be set then.

    Attributes:
        window: Sides of the window, which has at most 65536 tokens: frames Wt if any, rows Wh,
            columns Ww. With one side, the tokens form a sequence. At most 3, each in [1, 256].
        num_heads: Number of heads in the table. In [1, 65536]. Default: that of ``table``.
        table: Learned bias, with ``(2 Wh - 1)(2 Ww - 1)`` rows, or ``Wh Ww`` if symmetric, and 3
            more with a class token. With one or three axes, there is one such factor for each axis.
            Required with values "bias". Shape ``[rows, num_heads]``.
        table_layout: Axes of ``table``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
        sign: Sign of all differences. With "key_minus_query", the index has r_j - r_i and c_j - c_i
            (MaxViT and CoAtNet in TensorFlow). Not with ``symmetric``.
            - "key_minus_query": j - i: keys to the right are positive (Shaw's paper, tensor2tensor,
              wav2vec2-BERT).
            - "query_minus_key" (default): i - j: keys to the left are positive (BERT's relative_key
              in transformers, Transformer-XL).
        symmetric: Ignores the signs: the index is ``|r_i - r_j| Ww + |c_i - c_j|`` (LeViT,
            EfficientFormer and TinyViT).
        class_token: Adds a class token as token 0, before the window. The last three rows of the
            table are for class to token, token to class, and class to class (BEiT).
        resample: Resamples a table made for another window. ``source`` holds the sides of that
            table's grid: ``2 Wh - 1`` and ``2 Ww - 1`` for that window, or ``Wh`` and ``Ww`` if
            symmetric. The class token's rows are copied. The window has at most two axes.
    """

    field: ClassVar[str] = "grid_relative"

    window: Sequence[int]
    _: KW_ONLY
    num_heads: int | None = None
    table: Any = None
    table_layout: TableLayout | None = None
    sign: RelativeSign | None = None
    symmetric: bool = False
    class_token: bool = False
    resample: Resample | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Tupe(Encoding[Toeplitz | npt.NDArray[Any] | BorderedToeplitz]):
    """TUPE (Ke et al. 2020): untied absolute and relative position terms.

    Position 0 is the class token. The relative term uses T5's bidirectional buckets. The absolute
    term uses ``position_table``, ``query_weight``, ``query_bias``, ``key_weight`` and ``key_bias``:
    set all of them or none.

    A Toeplitz; request it with ``query_length`` and ``key_length``. A dense array with
    ``position_table``. A BorderedToeplitz with ``reset_class_token``. With ``values="buckets"`` the
    answer is indices, i32 without heads. ``num_heads`` and ``relative_table`` need not be set then.

    Attributes:
        num_heads: Number of heads in the bias. In [1, 65536]. Default: that of ``relative_table``.
        relative_table: Learned bias of the relative term. With ``reset_class_token``, its last row
            is for "other to class". Unset: no relative term. Shape ``[num_buckets +
            reset_class_token, num_heads]``.
        relative_table_layout: Axes of ``relative_table``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
        num_buckets: Number of buckets in the relative term. Not allowed if there is only the
            absolute term. In [2, 4096]. Default: 32.
        max_distance: Maximum distance of the relative term, as in T5. In [1, 2^31 - 1]. Default:
            128.
        position_table: Learned positions for the absolute term, with at most 2^22 values, and one
            more row if ``reset_class_token`` is set. d_model is at most 4096 and a multiple of
            ``num_heads``. Shape ``[positions, d_model]``. Each in [-3.40282e38, 3.40282e38].
        query_weight: Query projection, as torch's Linear stores it. Shape ``[d_model, d_model]``.
            Each in [-3.40282e38, 3.40282e38]. Only with ``position_table``, and then required.
        query_bias: Bias of the query projection. Shape ``[d_model]``. Each in [-3.40282e38,
            3.40282e38]. Only with ``position_table``, and then required.
        key_weight: Key projection, as torch's Linear stores it. Shape ``[d_model, d_model]``. Each
            in [-3.40282e38, 3.40282e38]. Only with ``position_table``, and then required.
        key_bias: Bias of the key projection. Shape ``[d_model]``. Each in [-3.40282e38,
            3.40282e38]. Only with ``position_table``, and then required.
        norm_weight: Weight of a LayerNorm applied to the positions. Shape ``[d_model]``. Each in
            [-3.40282e38, 3.40282e38]. Only with ``position_table``.
        norm_bias: Bias of the LayerNorm. Shape ``[d_model]``. Each in [-3.40282e38, 3.40282e38].
            Only with ``norm_weight``, and then required.
        norm_eps: Epsilon of the LayerNorm. In (0, 1]. Default: 1e-5. Only with ``norm_weight``.
        reset_class_token: Unties the class token from positions: the class token has its own
            biases.
        position_scale: Factor applied to the absolute term. Unset: ``1 / sqrt(2 d_model /
            num_heads)``. Not 0, in [-3.40282e38, 3.40282e38]. Only with ``position_table``.
    """

    field: ClassVar[str] = "tupe"

    _: KW_ONLY
    num_heads: int | None = None
    relative_table: Any = None
    relative_table_layout: TableLayout | None = None
    num_buckets: int | None = None
    max_distance: int | None = None
    position_table: Any = None
    query_weight: Any = None
    query_bias: Any = None
    key_weight: Any = None
    key_bias: Any = None
    norm_weight: Any = None
    norm_bias: Any = None
    norm_eps: float | None = None
    reset_class_token: bool = False
    position_scale: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ShawKeys(LogitsTerm):
    """Shaw et al. 2018, keys: learned vectors for relative positions.

    Also for Transformer-XL's vectors, once projected.

    The vector for query i and key j is ``table[clip(j - i, -left, right) + left]``.

    Attributes:
        table: Learned vectors, with a leading head axis if they differ between heads. Shape
            ``[num_heads?, left + right + 1, head_dim]``.
        left: Farthest relative position to the left that has its own vector. In [0, 2^40].
        right: Farthest relative position to the right that has its own vector. In [0, 2^40].
        sign: Direction in which the table is indexed. With "query_minus_key", the vector is
            ``table[right - clip(j - i, -left, right)]``.
            - "key_minus_query" (default): j - i: keys to the right are positive (Shaw's paper,
              tensor2tensor, wav2vec2-BERT).
            - "query_minus_key": i - j: keys to the left are positive (BERT's relative_key in
              transformers, Transformer-XL).
    """

    field: ClassVar[str] = "shaw_keys"

    table: Any
    _: KW_ONLY
    left: int
    right: int
    sign: RelativeSign | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ShawValues(LogitsTerm):
    """Shaw et al. 2018, values: attention-weighted sums of vectors.

    Rows are attention weights [heads, queries, keys], and results are [heads, queries, head_dim].
    Weights of masked keys are ignored.

    The vector for query i and key j is ``table[clip(j - i, -left, right) + left]``.

    Attributes:
        table: Learned vectors, with a leading head axis if they differ between heads. Shape
            ``[num_heads?, left + right + 1, head_dim]``.
        left: Farthest relative position to the left that has its own vector. In [0, 2^40].
        right: Farthest relative position to the right that has its own vector. In [0, 2^40].
        sign: Direction in which the table is indexed. With "query_minus_key", the vector is
            ``table[right - clip(j - i, -left, right)]``.
            - "key_minus_query" (default): j - i: keys to the right are positive (Shaw's paper,
              tensor2tensor, wav2vec2-BERT).
            - "query_minus_key": i - j: keys to the left are positive (BERT's relative_key in
              transformers, Transformer-XL).
    """

    field: ClassVar[str] = "shaw_values"

    table: Any
    _: KW_ONLY
    left: int
    right: int
    sign: RelativeSign | None = None


@dataclass(frozen=True, eq=False, repr=False)
class SinusoidalDistances(LogitsTerm):
    """Sinusoids of the distance: Transformer-XL's (b), or (b) + (d) with query_bias.

    XLNet and Conformer have the same term.

    The vector for query i and key j is ``projection[h] R(i - j)``.

    Attributes:
        sinusoidal: R, without axes. Its ``columns`` must be set: "sines_cosines" for Transformer-XL
            and XLNet, "interleaved" for Conformer. Its dim is the model's.
        projection: W_kR, as a linear layer stores it. Unset: dim is head_dim and all heads share R.
            Shape ``[num_heads * head_dim, dim]``.
        clamp_len: Distances are clipped to [-clamp_len, clamp_len]. Unset: no clipping. In [1,
            2^40].
        symmetric: Uses R(|i - j|).
    """

    field: ClassVar[str] = "sinusoidal_distances"

    sinusoidal: Sinusoidal
    _: KW_ONLY
    projection: Any = None
    clamp_len: int | None = None
    symmetric: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class AbsoluteKeys(LogitsTerm):
    """Absolute key positions.

    The vector for key j is ``projection[h] positions[j]``.

    Attributes:
        positions: Vectors for at least key_length positions. Shape ``[num_heads?, positions,
            dim]``.
        projection: W_k, as a linear layer stores it. Unset: dim is head_dim, and positions may have
            a leading head axis. Shape ``[num_heads * head_dim, dim]``.
    """

    field: ClassVar[str] = "absolute_keys"

    positions: Any
    _: KW_ONLY
    projection: Any = None


@dataclass(frozen=True, eq=False, repr=False)
class DecomposedRelativePositions(LogitsTerm):
    """Tokens on a grid: SAM, ViTDet, MViTv2 (Li et al. 2022, eq. 4).

    SAM needs a request for each window, and does not scale these queries.

    Tokens in both grids are in row-major order and start at token 0. The direction is
    "bidirectional" and, if the grids differ, the alignment is "start". A pair has one vector for
    its rows and one for its columns, indexed as in transformers' get_rel_pos:

        H[f(row of i, row of j)] + W[f(column of i, column of j)]
        f(a, b) = a max(k/q, 1) - b max(q/k, 1) + (k - 1) max(q/k, 1)

    where q and k are the sides of the query and key grids. f is computed in float32 and truncated.
    H and W have 2 max(q, k) - 1 rows.

    Attributes:
        rel_pos_h: H, shared by all heads. A table with a different number of rows is resampled, as
            in learned_absolute with ``filter`` "linear". Shape ``[rows_h, head_dim]``.
        rel_pos_w: W, with the same rules. Shape ``[rows_w, head_dim]``.
        query_height: Number of rows in the query grid. query_length is query_height * query_width.
            In [1, 256].
        query_width: Number of columns in the query grid. In [1, 256].
        key_height: Number of rows in the key grid. key_length is key_height * key_width. In [1,
            256].
        key_width: Number of columns in the key grid. In [1, 256].
    """

    field: ClassVar[str] = "decomposed_relative_positions"

    rel_pos_h: Any
    _: KW_ONLY
    rel_pos_w: Any
    query_height: int
    query_width: int
    key_height: int
    key_width: int
