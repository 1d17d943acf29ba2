# SPDX-License-Identifier: Apache-2.0
# Generated from proto/ by ./dev generate. Do not edit.
"""Encodings of models: constants and names for more general encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnbias._encodings import GridRelative, LearnedRelative, MlpBias, MlpLayer, RelativeSinusoidal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnbias._choices import (
        BeyondReach,
        Coordinates,
        RelativeSign,
        SinusoidalLayout,
        TableLayout,
    )

__all__ = [
    "Beit",
    "Conformer",
    "DynamicPositionBias",
    "LeViT",
    "RelPosMlp",
    "Shaw",
    "Swin",
    "SwinV2",
    "SymmetricSinusoidal",
    "TransformerXL",
    "XLNet",
]


def TransformerXL(  # noqa: N802
    dim: int,
    *,
    base: float | None = None,
    clamp_len: int | None = None,
) -> RelativeSinusoidal:
    """Transformer-XL's R (Dai et al. 2019): sinusoids of the distance i - j.

    Sines stand before cosines.

    A RelativeSinusoidal with ``layout="concatenated"`` and ``causal=True``.

    Args:
        dim: Columns of a vector: the model's d_model. In [1, 65536].
        base: Base of the progression, as in Sinusoidal. In [1, 1e18]. Default: 10000.
        clamp_len: Larger distances become this one. Unset: no clamping. In [1, 2^40].
    """
    encoding = RelativeSinusoidal(
        dim=dim, base=base, left=clamp_len, layout="concatenated", causal=True
    )
    return encoding._with_names("TransformerXL", {"left": "clamp_len"})


def XLNet(  # noqa: N802
    dim: int,
    *,
    base: float | None = None,
    clamp_len: int | None = None,
    causal: bool = False,
    sign: RelativeSign | None = None,
) -> RelativeSinusoidal:
    """XLNet's relative positions (Yang et al. 2019): sinusoids of the distance i - j.

    Sines stand before cosines. The model's ``attn_type`` "uni" is ``causal``; the half of a batch
    that its ``bi_data`` turns around has the ``sign`` "key_minus_query".

    A RelativeSinusoidal with ``layout="concatenated"``.

    Args:
        dim: Columns of a vector: the model's d_model. In [1, 65536].
        base: Base of the progression, as in Sinusoidal. In [1, 1e18]. Default: 10000.
        clamp_len: Distances are clamped to [-clamp_len, clamp_len]. Unset: no clamping. In [1,
            2^40].
        causal: Sets the vectors of keys to the right of the query, which a decoder masks, to zero.
        sign: Sign of the position whose row a pair has.
            - "key_minus_query": j - i: keys to the right are positive (Shaw's paper, tensor2tensor,
              wav2vec2-BERT).
            - "query_minus_key" (default): i - j: keys to the left are positive (transformers'
              relative_key of BERT, Transformer-XL).
    """
    encoding = RelativeSinusoidal(
        dim=dim,
        base=base,
        left=clamp_len,
        right=None if causal else clamp_len,
        causal=causal,
        sign=sign,
        layout="concatenated",
    )
    return encoding._with_names("XLNet", {"left": "clamp_len", "right": "clamp_len"})


def Conformer(  # noqa: N802
    dim: int,
    *,
    base: float | None = None,
) -> RelativeSinusoidal:
    """Relative positions of Conformer (Gulati et al. 2020): sinusoids of the distance i - j.

    Sines and cosines are interleaved, as in ESPnet, fairseq, wav2vec2-Conformer and Parakeet.

    A RelativeSinusoidal with ``layout="interleaved"``.

    Args:
        dim: Columns of a vector: the model's d_model. In [1, 65536].
        base: Base of the progression, as in Sinusoidal. In [1, 1e18]. Default: 10000.
    """
    encoding = RelativeSinusoidal(dim=dim, base=base, layout="interleaved")
    return encoding._with_names("Conformer", {})


def SymmetricSinusoidal(  # noqa: N802
    dim: int,
    *,
    layout: SinusoidalLayout | None = None,
    base: float | None = None,
    min_timescale: float | None = None,
    max_timescale: float | None = None,
) -> RelativeSinusoidal:
    """Sinusoids of |i - j|, without direction.

    Found in SpeechBrain as RelPosEncXL.

    A RelativeSinusoidal with ``symmetric=True``.

    Args:
        dim: Columns of a vector: the model's d_model. In [1, 65536].
        layout: Order of sines and cosines in a vector, as in Sinusoidal.
            - "interleaved" (default): ``s0 c0 s1 c1 ...``: column 2i is ``sin(p w_i)``, column 2i+1
              is ``cos(p w_i)``. An odd ``dim`` ends with a sine (the paper, fairseq's Conformer,
              keras-hub).
            - "concatenated": ``s0 s1 ... c0 c1 ...``: ceil(dim/2) sines, then floor(dim/2) cosines
              of the same frequencies (Transformer-XL, XLNet, Marian, GPT-J).
            - "tensor2tensor": ``s0 ... s(n-1) c0 ... c(n-1)``, then one zero column if ``dim`` is
              odd, with ``n = floor(dim/2)`` and other frequencies: ``w_i = min (max/min)^(-i /
              m)``, where min and max are the timescales and ``m = max(n-1, 1)`` (tensor2tensor's
              get_timing_signal_1d, which multiplies by ``min_timescale``; fairseq, Whisper,
              OpenNMT).
        base: Base of the progression, as in Sinusoidal. In [1, 1e18]. Default: 10000. Only with
            ``layout`` "interleaved", "concatenated".
        min_timescale: Factor in front of the progression of inverse timescales, as in Sinusoidal.
            In [1, 1e6]. Default: 1. Only with ``layout`` "tensor2tensor".
        max_timescale: Longest timescale, not less than ``min_timescale``. In [1, 1e18]. Default:
            10000. Only with ``layout`` "tensor2tensor".
    """
    encoding = RelativeSinusoidal(
        dim=dim,
        layout=layout,
        base=base,
        min_timescale=min_timescale,
        max_timescale=max_timescale,
        symmetric=True,
    )
    return encoding._with_names("SymmetricSinusoidal", {})


def Shaw(  # noqa: N802
    right: int,
    *,
    left: int | None = None,
    table: Any = None,
    sign: RelativeSign | None = None,
    beyond: BeyondReach | None = None,
) -> LearnedRelative:
    """Relative position representations (Shaw et al. 2018): learned vectors.

    Keys and values have a table each. The paper's k is both ``left`` and ``right``.

    A LearnedRelative with ``vectors``.

    Args:
        right: Farthest relative position to the right with a row of its own. In [0, 2^30 - 1].
        left: Farthest relative position to the left with a row of its own. Required. In [0, 2^30 -
            1].
        table: Learned vectors; if heads differ, with a first axis of at most 65536 heads. Required
            with values "bias". Shape ``[left + right + 1, dim]``.
        sign: Direction in which the table counts: its first row is j - i = -left, or i - j =
            -right.
            - "key_minus_query" (default): j - i: keys to the right are positive (Shaw's paper,
              tensor2tensor, wav2vec2-BERT).
            - "query_minus_key": i - j: keys to the left are positive (transformers' relative_key of
              BERT, Transformer-XL).
        beyond: Answer beyond left and right.
            - "clip" (default): The farthest row.
            - "refuse": Fails with ``OutOfRangeError``.
    """
    encoding = LearnedRelative(right=right, left=left, vectors=table, sign=sign, beyond=beyond)
    return encoding._with_names("Shaw", {"vectors": "table"})


def Swin(  # noqa: N802
    window: Sequence[int],
    *,
    num_heads: int | None = None,
    table: Any = None,
    table_layout: TableLayout | None = None,
) -> GridRelative:
    """Swin's relative position bias (Liu et al. 2021) inside a window.

    A GridRelative.

    Args:
        window: Sides of the window in tokens: rows Wh, columns Ww. Each in [1, 256].
        num_heads: Heads of the table. In [1, 65536]. Default: that of ``table``.
        table: Learned bias, with ``(2 Wh - 1)(2 Ww - 1)`` rows. Required with values "bias". Shape
            ``[rows, num_heads]``.
        table_layout: Axes of ``table``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
    """
    encoding = GridRelative(
        window=window, num_heads=num_heads, table=table, table_layout=table_layout
    )
    return encoding._with_names("Swin", {})


def Beit(  # noqa: N802
    window: Sequence[int],
    *,
    num_heads: int | None = None,
    table: Any = None,
    table_layout: TableLayout | None = None,
) -> GridRelative:
    """BEiT's relative position bias (Bao et al. 2021): Swin's, and a class token.

    A GridRelative with ``class_token=True``.

    Args:
        window: Sides of the window in tokens: rows Wh, columns Ww. Each in [1, 256].
        num_heads: Heads of the table. In [1, 65536]. Default: that of ``table``.
        table: Learned bias, with ``(2 Wh - 1)(2 Ww - 1) + 3`` rows. Required with values "bias".
            Shape ``[rows, num_heads]``.
        table_layout: Axes of ``table``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
    """
    encoding = GridRelative(
        window=window, num_heads=num_heads, table=table, table_layout=table_layout, class_token=True
    )
    return encoding._with_names("Beit", {})


def LeViT(  # noqa: N802
    window: Sequence[int],
    *,
    num_heads: int | None = None,
    table: Any = None,
    table_layout: TableLayout | None = None,
) -> GridRelative:
    """LeViT's attention bias (Graham et al. 2021): displacements without sign.

    Found in EfficientFormer and TinyViT, too.

    A GridRelative with ``symmetric=True``.

    Args:
        window: Sides of the window in tokens: rows Wh, columns Ww. Each in [1, 256].
        num_heads: Heads of the table. In [1, 65536]. Default: that of ``table``.
        table: Learned bias, with ``Wh Ww`` rows. Required with values "bias". Shape ``[rows,
            num_heads]``.
        table_layout: Axes of ``table``.
            - "buckets_heads" (default): Rows before heads (transformers, x-transformers,
              torchscale).
            - "heads_buckets": Heads before rows (T5X, flaxformer, FasterTransformer).
    """
    encoding = GridRelative(
        window=window, num_heads=num_heads, table=table, table_layout=table_layout, symmetric=True
    )
    return encoding._with_names("LeViT", {})


def SwinV2(  # noqa: N802
    layers: Sequence[MlpLayer],
    *,
    window: Sequence[int] | None = None,
    pretrained_window: Sequence[int] | None = None,
    num_heads: int | None = None,
    class_token: bool = False,
) -> MlpBias:
    """Swin-V2's continuous position bias (Liu et al. 2022): an MLP of logarithmic coordinates.

    A MlpBias with ``activation="relu"`` and ``coordinates="log2_normalized"`` and
    ``output="sigmoid_16"``.

    Args:
        layers: The hidden layer with its bias, and the output layer, which has none. At most 64.
        window: Sides of the window in tokens: rows, then columns. Required. Each in [1, 256].
        pretrained_window: Sides of the window that the model was trained with; a side is 1 only
            where the window's is. Empty: ``window``. Each in [1, 256].
        num_heads: Heads of the bias. In [1, 65536]. Default: that of ``layers``.
        class_token: Adds a class token as token 0, before the window, whose numbers are zero
            (timm's ``prefix_tokens`` of 1). Only with ``window``.
    """
    encoding = MlpBias(
        layers=layers,
        window=window,
        pretrained_window=pretrained_window,
        num_heads=num_heads,
        class_token=class_token,
        activation="relu",
        coordinates="log2_normalized",
        output="sigmoid_16",
    )
    return encoding._with_names("SwinV2", {})


def RelPosMlp(  # noqa: N802
    layers: Sequence[MlpLayer],
    *,
    window: Sequence[int] | None = None,
    num_heads: int | None = None,
    class_token: bool = False,
) -> MlpBias:
    """RelPosMlp of timm, mode "cr" (Swin-V2-CR, MaxxViT): an MLP of logarithmic coordinates.

    Its mode "swin" is SwinV2.

    A MlpBias with ``activation="relu"`` and ``coordinates="signed_log"``.

    Args:
        layers: The hidden layer and the output layer, each with its bias. At most 64.
        window: Sides of the window in tokens: rows, then columns. Required. Each in [1, 256].
        num_heads: Heads of the bias. In [1, 65536]. Default: that of ``layers``.
        class_token: Adds a class token as token 0, before the window, whose numbers are zero
            (timm's ``prefix_tokens`` of 1). Only with ``window``.
    """
    encoding = MlpBias(
        layers=layers,
        window=window,
        num_heads=num_heads,
        class_token=class_token,
        activation="relu",
        coordinates="signed_log",
    )
    return encoding._with_names("RelPosMlp", {})


def DynamicPositionBias(  # noqa: N802
    layers: Sequence[MlpLayer],
    *,
    num_heads: int | None = None,
    coordinates: Coordinates | None = None,
) -> MlpBias:
    """x-transformers' dynamic position bias: an MLP of the distance i - j, with SiLU.

    A MlpBias with ``activation="silu"``.

    Args:
        layers: First to last. The first has an input for each coordinate, the last ``num_heads``
            outputs and no LayerNorm. All weights together have at most 2^22 numbers. At most 64.
        num_heads: Heads of the bias. In [1, 65536]. Default: that of ``layers``.
        coordinates: Function of the distance: "signed_log" is x-transformers' ``log_distance``.
            - "linear" (default): ``d`` (CrossFormer, x-transformers).
            - "signed_log": ``sign(d) ln(|d| + 1)`` (timm's RelPosMlp of mode "cr", x-transformers'
              ``log_distance``).
            - "log2_normalized": ``sign(t) log2(|t| + 1) / 3`` with ``t = 8 d / (side - 1)``, where
              side is that of ``pretrained_window`` (Swin-V2).
    """
    encoding = MlpBias(
        layers=layers, num_heads=num_heads, coordinates=coordinates, activation="silu"
    )
    return encoding._with_names("DynamicPositionBias", {})
