# SPDX-License-Identifier: Apache-2.0
# Generated from proto/ by ./dev generate. Do not edit.
"""Encodings of models: constants and names for more general encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbias._encodings import RelativeSinusoidal

if TYPE_CHECKING:
    from attnbias._choices import RelativeSign, SinusoidalLayout

__all__ = ["Conformer", "SymmetricSinusoidal", "TransformerXL", "XLNet"]


def TransformerXL(  # noqa: N802
    dim: int,
    *,
    base: float | None = None,
    sign: RelativeSign | None = None,
    symmetric: bool = False,
    clamp_len: int | None = None,
) -> RelativeSinusoidal:
    """Transformer-XL's R (Dai et al. 2019): sinusoids of the distance i - j.

    Sines stand before cosines.

    A RelativeSinusoidal with ``layout="concatenated"`` and ``causal=True``.

    Args:
        dim: Columns of a vector: the model's d_model. In [1, 65536].
        base: Base of the progression, as in Sinusoidal. In [1, 1e18]. Default: 10000.
        sign: Distance that the sinusoid is of. Not with ``symmetric``.
            - "key_minus_query": j - i, from -left on (Shaw's paper, tensor2tensor, wav2vec2-BERT).
            - "query_minus_key" (default): i - j, from -right on (transformers' relative_key of
              BERT, Transformer-XL).
        symmetric: Drops the sign of i - j (Huang et al. 2020).
        clamp_len: Larger distances become this one. Unset: no clamping. In [1, 2^40].
    """
    encoding = RelativeSinusoidal(
        dim=dim,
        base=base,
        sign=sign,
        symmetric=symmetric,
        left=clamp_len,
        layout="concatenated",
        causal=True,
    )
    return encoding.named("TransformerXL", {"left": "clamp_len"})


def XLNet(  # noqa: N802
    dim: int,
    *,
    base: float | None = None,
    sign: RelativeSign | None = None,
    symmetric: bool = False,
    clamp_len: int | None = None,
    causal: bool = False,
) -> RelativeSinusoidal:
    """XLNet's relative positions (Yang et al. 2019): sinusoids of the distance i - j.

    Sines stand before cosines. The model's ``attn_type`` "uni" is ``causal``; the half of a batch
    that its ``bi_data`` turns around has the ``sign`` "key_minus_query".

    A RelativeSinusoidal with ``layout="concatenated"``.

    Args:
        dim: Columns of a vector: the model's d_model. In [1, 65536].
        base: Base of the progression, as in Sinusoidal. In [1, 1e18]. Default: 10000.
        sign: Distance that the sinusoid is of. Not with ``symmetric``.
            - "key_minus_query": j - i, from -left on (Shaw's paper, tensor2tensor, wav2vec2-BERT).
            - "query_minus_key" (default): i - j, from -right on (transformers' relative_key of
              BERT, Transformer-XL).
        symmetric: Drops the sign of i - j (Huang et al. 2020).
        clamp_len: Distances are clamped to [-clamp_len, clamp_len]. Unset: no clamping. In [1,
            2^40].
        causal: Sets the vectors of keys to the right of the query, which a decoder masks, to zero.
    """
    encoding = RelativeSinusoidal(
        dim=dim,
        base=base,
        sign=sign,
        symmetric=symmetric,
        left=clamp_len,
        right=None if causal else clamp_len,
        causal=causal,
        layout="concatenated",
    )
    return encoding.named("XLNet", {"left": "clamp_len", "right": "clamp_len"})


def Conformer(  # noqa: N802
    dim: int,
    *,
    base: float | None = None,
    sign: RelativeSign | None = None,
    symmetric: bool = False,
    left: int | None = None,
    right: int | None = None,
    causal: bool = False,
) -> RelativeSinusoidal:
    """Relative positions of Conformer (Gulati et al. 2020): sinusoids of the distance i - j.

    Sines and cosines are interleaved, as in ESPnet, fairseq, wav2vec2-Conformer and Parakeet.

    A RelativeSinusoidal with ``layout="interleaved"``.

    Args:
        dim: Columns of a vector: the model's d_model. In [1, 65536].
        base: Base of the progression, as in Sinusoidal. In [1, 1e18]. Default: 10000.
        sign: Distance that the sinusoid is of. Not with ``symmetric``.
            - "key_minus_query": j - i, from -left on (Shaw's paper, tensor2tensor, wav2vec2-BERT).
            - "query_minus_key" (default): i - j, from -right on (transformers' relative_key of
              BERT, Transformer-XL).
        symmetric: Drops the sign of i - j (Huang et al. 2020).
        left: Farthest relative position j - i to the left with a vector of its own; keys beyond it
            share that vector. Unset: none. In [1, 2^40].
        right: Farthest relative position to the right with a vector of its own. In [1, 2^40]. Not
            with ``causal``.
        causal: Sets the vectors of keys to the right of the query, which a decoder masks, to zero.
    """
    encoding = RelativeSinusoidal(
        dim=dim,
        base=base,
        sign=sign,
        symmetric=symmetric,
        left=left,
        right=right,
        causal=causal,
        layout="interleaved",
    )
    return encoding.named("Conformer", {})


def SymmetricSinusoidal(  # noqa: N802
    dim: int,
    *,
    base: float | None = None,
    layout: SinusoidalLayout | None = None,
    min_timescale: float | None = None,
    max_timescale: float | None = None,
    left: int | None = None,
    right: int | None = None,
    causal: bool = False,
) -> RelativeSinusoidal:
    """Sinusoids of |i - j| (Huang et al. 2020): relative, without direction.

    A RelativeSinusoidal with ``symmetric=True``.

    Args:
        dim: Columns of a vector: the model's d_model. In [1, 65536].
        base: Base of the progression, as in Sinusoidal. In [1, 1e18]. Default: 10000. Only with
            ``layout`` "interleaved", "concatenated".
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
        min_timescale: Factor in front of the progression of inverse timescales, as in Sinusoidal.
            In [1, 1e6]. Default: 1. Only with ``layout`` "tensor2tensor".
        max_timescale: Longest timescale, not less than ``min_timescale``. In [1, 1e18]. Default:
            10000. Only with ``layout`` "tensor2tensor".
        left: Farthest relative position j - i to the left with a vector of its own; keys beyond it
            share that vector. Unset: none. In [1, 2^40].
        right: Farthest relative position to the right with a vector of its own. In [1, 2^40]. Not
            with ``causal``.
        causal: Sets the vectors of keys to the right of the query, which a decoder masks, to zero.
    """
    encoding = RelativeSinusoidal(
        dim=dim,
        base=base,
        layout=layout,
        min_timescale=min_timescale,
        max_timescale=max_timescale,
        left=left,
        right=right,
        causal=causal,
        symmetric=True,
    )
    return encoding.named("SymmetricSinusoidal", {})
