# SPDX-License-Identifier: Apache-2.0
# Generated from proto/ by ./dev generate. Do not edit.
"""Encodings of models: constants and names for more general encodings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnbias._arrays.tables import XposTables
from attnbias._spec.choices import (
    BeyondReach,
    Columns,
    Coordinates,
    RelativeSign,
    RotaryLayout,
    TableLayout,
)
from attnbias._spec.encodings import (
    Axis,
    Decay,
    GridRelative,
    Ladder,
    LearnedRelative,
    MlpBias,
    MlpLayer,
    RelativeSinusoidal,
    Resample,
    Rotary,
    Sinusoidal,
    Timescales,
)

__all__ = [
    "Beit",
    "Conformer",
    "DetrSinusoidal",
    "DynamicPositionBias",
    "LeViT",
    "MaeSinusoidal",
    "RelPosMlp",
    "Shaw",
    "Swin",
    "Swin3D",
    "SwinV2",
    "SymmetricSinusoidal",
    "Tensor2Tensor",
    "TransformerXL",
    "XLNet",
    "Xpos",
]


def Tensor2Tensor(  # noqa: N802
    dim: int,
    *,
    min_timescale: float | None = None,
    max_timescale: float | None = None,
) -> Sinusoidal:
    """tensor2tensor's timing signal: sinusoids that end at the longest timescale.

    Sines precede cosines; an odd ``dim`` ends with a zero. Found in fairseq, M2M100, Whisper,
    OpenNMT and DDPM.

    A Sinusoidal with ``ladder.timescales`` and ``columns="sines_cosines"`` and ``odd="zero"``.

    Args:
        dim: Number of columns in the table. In [1, 65536].
        min_timescale: First frequency. In [1e-6, 1e6]. Default: 1.
        max_timescale: Longest timescale, if ``min`` is 1. To make f the last frequency, use ``min^2
            / f``. In [1, 1e18]. Default: 10000.
    """
    return Sinusoidal(
        dim=dim,
        ladder=Ladder(timescales=Timescales(min=min_timescale, max=max_timescale)),
        columns="sines_cosines",
        odd="zero",
    )._with_names(
        "Tensor2Tensor",
        {"ladder.timescales.min": "min_timescale", "ladder.timescales.max": "max_timescale"},
    )


def DetrSinusoidal(  # noqa: N802
    dim: int,
    *,
    height: float,
    width: float,
    temperature: float | None = None,
    offset: float | None = None,
) -> Sinusoidal:
    """DETR's sinusoids (Carion et al. 2020): positions normalized by the image size.

    Rows precede columns, and positions start at 1. Found in Conditional and Deformable DETR,
    Grounding DINO, Mask2Former and SAM 2. Each image in a padded batch has its own lengths.

    A Sinusoidal with ``axes.0.scale=6.283185307179586`` and ``axes.0.eps=1e-06`` and
    ``axes.0.ladder`` and ``axes.1.scale=6.283185307179586`` and ``axes.1.eps=1e-06`` and
    ``axes.1.ladder``.

    Args:
        dim: Number of columns in the table. In [1, 65536].
        height: Number of rows in the feature map, excluding padding. In [1e-6, 1e12].
        width: Number of columns, excluding padding. In [1e-6, 1e12].
        temperature: Base of the progression on both axes: 20 in DAB-DETR and Grounding DINO. In [1,
            1e18]. Default: 10000.
        offset: Added to every position: -1/2 in Deformable DETR. In [-2^40, 2^40], 0 or of
            magnitude at least 1e-30. Default: 0.
    """
    return Sinusoidal(
        dim=dim,
        axes=(
            Axis(
                length=height,
                offset=offset,
                scale=6.283185307179586,
                eps=1e-06,
                ladder=Ladder(base=temperature),
            ),
            Axis(
                length=width,
                offset=offset,
                scale=6.283185307179586,
                eps=1e-06,
                ladder=Ladder(base=temperature),
            ),
        ),
    )._with_names(
        "DetrSinusoidal",
        {
            "axes[0].length": "height",
            "axes[1].length": "width",
            "axes[0].ladder.base": "temperature",
            "axes[1].ladder.base": "temperature",
            "axes[0].offset": "offset",
            "axes[1].offset": "offset",
        },
    )


def MaeSinusoidal(  # noqa: N802
    dim: int,
    *,
    temperature: float | None = None,
    scale: float | None = None,
) -> Sinusoidal:
    """Sinusoids of row and column (He et al. 2021), each with half of the table's columns.

    Sines precede cosines. Axes are in the order of the position lists: columns before rows in MAE,
    AIMv2 and DiT, rows before columns in RT-DETR and D-FINE.

    A Sinusoidal with ``axes.0.ladder`` and ``axes.1.ladder`` and ``columns="sines_cosines"``.

    Args:
        dim: Number of columns in the table. In [1, 65536].
        temperature: Base of the progression on both axes. In [1, 1e18]. Default: 10000.
        scale: Factor applied to positions on both axes: in DiT, the base size divided by both the
            side and the interpolation scale. Not 0, in [-1e6, 1e6], of magnitude at least 1e-12.
            Default: 1.
    """
    return Sinusoidal(
        dim=dim,
        axes=(
            Axis(scale=scale, ladder=Ladder(base=temperature)),
            Axis(scale=scale, ladder=Ladder(base=temperature)),
        ),
        columns="sines_cosines",
    )._with_names(
        "MaeSinusoidal",
        {
            "axes[0].ladder.base": "temperature",
            "axes[1].ladder.base": "temperature",
            "axes[0].scale": "scale",
            "axes[1].scale": "scale",
        },
    )


def TransformerXL(  # noqa: N802
    dim: int,
    *,
    base: float | None = None,
    clamp_len: int | None = None,
) -> RelativeSinusoidal:
    """Transformer-XL's R (Dai et al. 2019): sinusoids of the distance i - j.

    Sines precede cosines.

    A RelativeSinusoidal with ``columns="sines_cosines"`` and ``causal=True``.

    Args:
        dim: Number of columns in a vector: the model's d_model. In [1, 65536].
        base: Base of a geometric progression: ``base^(-k/n)``, where a sine without a cosine counts
            as half a pair. In [1, 1e18]. Default: 10000.
        clamp_len: Largest distance; larger distances are clamped to it. Unset: no clamping. In [1,
            2^40].
    """
    return RelativeSinusoidal(
        dim=dim,
        left=clamp_len,
        ladder=None if base is None else Ladder(base=base),
        columns="sines_cosines",
        causal=True,
    )._with_names("TransformerXL", {"ladder.base": "base", "left": "clamp_len"})


def XLNet(  # noqa: N802
    dim: int,
    *,
    base: float | None = None,
    clamp_len: int | None = None,
    causal: bool = False,
    sign: RelativeSign | None = None,
) -> RelativeSinusoidal:
    """XLNet's relative positions (Yang et al. 2019): sinusoids of the distance i - j.

    Sines precede cosines. The model's ``attn_type`` "uni" corresponds to ``causal``. For the half
    of a batch that its ``bi_data`` reverses, ``sign`` is "key_minus_query".

    A RelativeSinusoidal with ``columns="sines_cosines"``.

    Args:
        dim: Number of columns in a vector: the model's d_model. In [1, 65536].
        base: Base of a geometric progression: ``base^(-k/n)``, where a sine without a cosine counts
            as half a pair. In [1, 1e18]. Default: 10000.
        clamp_len: Distances are clamped to [-clamp_len, clamp_len]. Unset: no clamping. In [1,
            2^40].
        causal: Zeroes the vectors for keys to the right of the query, which a decoder masks.
        sign: Sign of the relative position that selects the vector for a pair.
            - "key_minus_query": j - i: keys to the right are positive (Shaw's paper, tensor2tensor,
              wav2vec2-BERT).
            - "query_minus_key" (default): i - j: keys to the left are positive (BERT's relative_key
              in transformers, Transformer-XL).
    """
    return RelativeSinusoidal(
        dim=dim,
        left=clamp_len,
        right=None if causal else clamp_len,
        causal=causal,
        sign=sign,
        ladder=None if base is None else Ladder(base=base),
        columns="sines_cosines",
    )._with_names("XLNet", {"ladder.base": "base", "left": "clamp_len", "right": "clamp_len"})


def Conformer(  # noqa: N802
    dim: int,
    *,
    base: float | None = None,
) -> RelativeSinusoidal:
    """Conformer's relative positions (Gulati et al. 2020): sinusoids of the distance i - j.

    Sines and cosines are interleaved, as in ESPnet, fairseq, wav2vec2-Conformer and Parakeet.

    A RelativeSinusoidal with ``columns="interleaved"``.

    Args:
        dim: Number of columns in a vector: the model's d_model. In [1, 65536].
        base: Base of a geometric progression: ``base^(-k/n)``, where a sine without a cosine counts
            as half a pair. In [1, 1e18]. Default: 10000.
    """
    return RelativeSinusoidal(
        dim=dim, ladder=None if base is None else Ladder(base=base), columns="interleaved"
    )._with_names("Conformer", {"ladder.base": "base"})


def SymmetricSinusoidal(  # noqa: N802
    dim: int,
    *,
    columns: Columns | None = None,
    base: float | None = None,
) -> RelativeSinusoidal:
    """Sinusoids of |i - j|, ignoring direction.

    Found in SpeechBrain as RelPosEncXL.

    A RelativeSinusoidal with ``symmetric=True``.

    Args:
        dim: Number of columns in a vector: the model's d_model. In [1, 65536].
        columns: Order of sines and cosines in a vector.
            - "interleaved" (default): ``s0 c0 s1 c1 ...`` (the paper, fairseq's Conformer,
              keras-hub, DETR).
            - "sines_cosines": ``s0 s1 ... c0 c1 ...`` (Transformer-XL, XLNet, Marian, GPT-J,
              tensor2tensor, RT-DETR, MAE).
            - "cosines_sines": ``c0 c1 ... s0 s1 ...`` (Stable Diffusion's timesteps).
        base: Base of a geometric progression: ``base^(-k/n)``, where a sine without a cosine counts
            as half a pair. In [1, 1e18]. Default: 10000.
    """
    return RelativeSinusoidal(
        dim=dim, columns=columns, ladder=None if base is None else Ladder(base=base), symmetric=True
    )._with_names("SymmetricSinusoidal", {"ladder.base": "base"})


def Shaw(  # noqa: N802
    right: int,
    *,
    left: int | None = None,
    table: Any = None,
    sign: RelativeSign | None = None,
    beyond: BeyondReach | None = None,
) -> LearnedRelative:
    """Relative position representations (Shaw et al. 2018): learned vectors.

    Keys and values have separate tables. The paper's k is both ``left`` and ``right``.

    A LearnedRelative with ``vectors``.

    Args:
        right: Farthest relative position to the right that has its own row. In [0, 2^30 - 1].
        left: Farthest relative position to the left that has its own row. Required. In [0, 2^30 -
            1].
        table: Learned vectors, with a leading axis of at most 65536 heads if they differ between
            heads. Required with values "bias". Shape ``[heads?, left + right + 1, dim]``.
        sign: Direction in which the table is indexed: its first row is for a j - i of -left, or for
            an i - j of -right.
            - "key_minus_query" (default): j - i: keys to the right are positive (Shaw's paper,
              tensor2tensor, wav2vec2-BERT).
            - "query_minus_key": i - j: keys to the left are positive (BERT's relative_key in
              transformers, Transformer-XL).
        beyond: Result for relative positions beyond left or right.
            - "clip" (default): The row for the farthest position on that side.
            - "refuse": Returns ``OutOfRangeError``.
    """
    return LearnedRelative(
        right=right, left=left, vectors=table, sign=sign, beyond=beyond
    )._with_names("Shaw", {"vectors": "table"})


def Swin(  # noqa: N802
    window: Sequence[int],
    *,
    num_heads: int | None = None,
    table: Any = None,
    table_layout: TableLayout | None = None,
    resample: Resample | None = None,
) -> GridRelative:
    """Swin's relative position bias (Liu et al. 2021) inside a window.

    A GridRelative.

    Args:
        window: Sides of the window, which has at most 65536 tokens: frames Wt if any, rows Wh,
            columns Ww. With one side, the tokens form a sequence. At most 3, each in [1, 256].
        num_heads: Number of heads in the table. In [1, 65536]. Default: that of ``table``.
        table: Learned bias, with ``(2 Wh - 1)(2 Ww - 1)`` rows. Required with values "bias". Shape
            ``[rows, num_heads]``.
        table_layout: Axes of ``table``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
        resample: Resamples a table made for another window. ``source`` holds the sides of that
            table's grid: ``2 Wh - 1`` and ``2 Ww - 1`` for that window, or ``Wh`` and ``Ww`` if
            symmetric. The class token's rows are copied. The window has at most two axes.
    """
    return GridRelative(
        window=window,
        num_heads=num_heads,
        table=table,
        resample=resample,
        table_layout=table_layout,
    )._with_names("Swin", {})


def Swin3D(  # noqa: N802
    window: Sequence[int],
    *,
    num_heads: int | None = None,
    table: Any = None,
    table_layout: TableLayout | None = None,
) -> GridRelative:
    """Video Swin's relative position bias (Liu et al. 2022): a window of frames.

    Found in torchvision as Swin3D.

    A GridRelative.

    Args:
        window: Sides of the window in tokens: frames Wt, rows Wh, columns Ww. At most 3, each in
            [1, 256].
        num_heads: Number of heads in the table. In [1, 65536]. Default: that of ``table``.
        table: Learned bias, with ``(2 Wt - 1)(2 Wh - 1)(2 Ww - 1)`` rows. Required with values
            "bias". Shape ``[rows, num_heads]``.
        table_layout: Axes of ``table``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
    """
    return GridRelative(
        window=window, num_heads=num_heads, table=table, table_layout=table_layout
    )._with_names("Swin3D", {})


def Beit(  # noqa: N802
    window: Sequence[int],
    *,
    num_heads: int | None = None,
    table: Any = None,
    table_layout: TableLayout | None = None,
    resample: Resample | None = None,
) -> GridRelative:
    """BEiT's relative position bias (Bao et al. 2021): Swin's plus a class token.

    A GridRelative with ``class_token=True``.

    Args:
        window: Sides of the window, which has at most 65536 tokens: frames Wt if any, rows Wh,
            columns Ww. With one side, the tokens form a sequence. At most 3, each in [1, 256].
        num_heads: Number of heads in the table. In [1, 65536]. Default: that of ``table``.
        table: Learned bias, with ``(2 Wh - 1)(2 Ww - 1) + 3`` rows. Required with values "bias".
            Shape ``[rows, num_heads]``.
        table_layout: Axes of ``table``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
        resample: Resamples a table made for another window. ``source`` holds the sides of that
            table's grid: ``2 Wh - 1`` and ``2 Ww - 1`` for that window, or ``Wh`` and ``Ww`` if
            symmetric. The class token's rows are copied. The window has at most two axes.
    """
    return GridRelative(
        window=window,
        num_heads=num_heads,
        table=table,
        resample=resample,
        table_layout=table_layout,
        class_token=True,
    )._with_names("Beit", {})


def LeViT(  # noqa: N802
    window: Sequence[int],
    *,
    num_heads: int | None = None,
    table: Any = None,
    table_layout: TableLayout | None = None,
    resample: Resample | None = None,
) -> GridRelative:
    """LeViT's attention bias (Graham et al. 2021): unsigned displacements.

    Also found in EfficientFormer and TinyViT. Between stages, LeViT and EfficientFormerV2 use a
    ``query_stride`` of 2 on each axis, which is an argument of the request.

    A GridRelative with ``symmetric=True``.

    Args:
        window: Sides of the window, which has at most 65536 tokens: frames Wt if any, rows Wh,
            columns Ww. With one side, the tokens form a sequence. At most 3, each in [1, 256].
        num_heads: Number of heads in the table. In [1, 65536]. Default: that of ``table``.
        table: Learned bias, with ``Wh Ww`` rows. Required with values "bias". Shape ``[rows,
            num_heads]``.
        table_layout: Axes of ``table``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
        resample: Resamples a table made for another window. ``source`` holds the sides of that
            table's grid: ``2 Wh - 1`` and ``2 Ww - 1`` for that window, or ``Wh`` and ``Ww`` if
            symmetric. The class token's rows are copied. The window has at most two axes.
    """
    return GridRelative(
        window=window,
        num_heads=num_heads,
        table=table,
        resample=resample,
        table_layout=table_layout,
        symmetric=True,
    )._with_names("LeViT", {})


def Xpos(  # noqa: N802
    head_dim: int,
    *,
    center: int | None = None,
    scale_base: float | None = None,
    gamma: float | None = None,
    rope_theta: float | None = None,
    layout: RotaryLayout | None = None,
) -> Rotary[XposTables]:
    """Rotary positions with a decay: xPos (Sun et al. 2022).

    torchscale and x-transformers use the ``layout`` "interleaved".

    A Rotary with ``decay``.

    Args:
        head_dim: Dimension of each head. Even, in [2, 65536].
        center: Position at which scale is 1. For a length L, floor(L / 2) in x-transformers and
            flash-attention, and ceil(L / 2) in torchscale. Products of rows are consistent only if
            the rows have the same center. In [-2^40, 2^40]. Default: 0.
        scale_base: Number of positions over which scale is multiplied by its base. In [1, 1e9].
            Default: 512.
        gamma: Determines the base of scale: ``(m / n + gamma) / (1 + gamma)`` for pair m. In (0,
            1e6]. Default: 0.4.
        rope_theta: Base of the progression: ``inv_m = rope_theta^(-2m/dim)``. In [1, 1e18].
            Default: 10000.
        layout: Column layout of the tables.
            - "half" (default): ``f0 f1 ... f0 f1 ...`` (GPT-NeoX, Llama).
            - "interleaved": ``f0 f0 f1 f1 ...`` (GPT-J; x-transformers' and torchscale's xPos).
            - "compact": ``f0 f1 ...``, half as many columns (ONNX Runtime, flash-attention).
    """
    return Rotary(
        head_dim=head_dim,
        rope_theta=rope_theta,
        layout=layout,
        decay=Decay(center=center, scale_base=scale_base, gamma=gamma),
    )._with_names(
        "Xpos", {"decay.center": "center", "decay.scale_base": "scale_base", "decay.gamma": "gamma"}
    )


def SwinV2(  # noqa: N802
    layers: Sequence[MlpLayer],
    *,
    window: Sequence[int],
    pretrained_window: Sequence[int] | None = None,
    num_heads: int | None = None,
    class_token: bool = False,
) -> MlpBias:
    """Swin-V2's continuous position bias (Liu et al. 2022): an MLP over logarithmic coordinates.

    An MlpBias with ``activation="relu"`` and ``coordinates="log2_normalized"`` and
    ``output="sigmoid_16"``.

    Args:
        layers: Hidden layer with a bias, and output layer without one. At most 64.
        window: Sides of the window in tokens: rows, then columns. At most 3, each in [1, 256].
        pretrained_window: Sides of the window that the model was trained with. A side may be 1 only
            if the same side of ``window`` is 1. Empty: ``window``. As many as ``window``. At most
            3, each in [1, 256].
        num_heads: Number of heads in the bias. In [1, 65536]. Default: that of ``layers``.
        class_token: Adds a class token as token 0, before the window, with a bias of 0 (timm's
            ``prefix_tokens`` of 1). Only with ``window``.
    """
    return MlpBias(
        layers=layers,
        window=window,
        pretrained_window=pretrained_window,
        num_heads=num_heads,
        class_token=class_token,
        activation="relu",
        coordinates="log2_normalized",
        output="sigmoid_16",
    )._with_names("SwinV2", {})


def RelPosMlp(  # noqa: N802
    layers: Sequence[MlpLayer],
    *,
    window: Sequence[int],
    num_heads: int | None = None,
    class_token: bool = False,
) -> MlpBias:
    """An MLP over logarithmic coordinates: RelPosMlp in timm, mode "cr" (Swin-V2-CR, MaxxViT).

    For its mode "swin", use SwinV2.

    An MlpBias with ``activation="relu"`` and ``coordinates="signed_log"``.

    Args:
        layers: Hidden layer and output layer, each with a bias. At most 64.
        window: Sides of the window in tokens: rows, then columns. At most 3, each in [1, 256].
        num_heads: Number of heads in the bias. In [1, 65536]. Default: that of ``layers``.
        class_token: Adds a class token as token 0, before the window, with a bias of 0 (timm's
            ``prefix_tokens`` of 1). Only with ``window``.
    """
    return MlpBias(
        layers=layers,
        window=window,
        num_heads=num_heads,
        class_token=class_token,
        activation="relu",
        coordinates="signed_log",
    )._with_names("RelPosMlp", {})


def DynamicPositionBias(  # noqa: N802
    layers: Sequence[MlpLayer],
    *,
    num_heads: int | None = None,
    coordinates: Coordinates | None = None,
) -> MlpBias:
    """x-transformers' dynamic position bias: an MLP applied to the distance i - j, with SiLU.

    An MlpBias with ``activation="silu"``.

    Args:
        layers: Layers, first to last. The first has one input per coordinate; the last has
            ``num_heads`` outputs and no LayerNorm. All weights together have at most 2^22 values.
            At most 64.
        num_heads: Number of heads in the bias. In [1, 65536]. Default: that of ``layers``.
        coordinates: Function of the distance: "signed_log" is x-transformers' ``log_distance``.
            - "linear" (default): ``d`` (CrossFormer, x-transformers).
            - "signed_log": ``sign(d) ln(|d| + 1)`` (timm's RelPosMlp in mode "cr", x-transformers'
              ``log_distance``).
            - "log2_normalized": ``sign(t) log2(|t| + 1) / 3``, where ``t = 8 d / (side - 1)`` and
              side is taken from ``pretrained_window`` (Swin-V2).
    """
    return MlpBias(
        layers=layers, num_heads=num_heads, coordinates=coordinates, activation="silu"
    )._with_names("DynamicPositionBias", {})
