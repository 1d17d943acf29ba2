# SPDX-License-Identifier: Apache-2.0
"""Sinusoidal tables against the peers' own, to within the error of the peers' arithmetic."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from bits import Array, bits, to_array
from bounds import assert_near
from real import encoding_of, rounded_array, sinusoid
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.whisper.modeling_whisper import sinusoids
from transformers.models.xlm.modeling_xlm import (
    create_sinusoidal_embeddings as create_xlm_embeddings,
)
from x_transformers.x_transformers import ScaledSinusoidalEmbedding

import attnbias


def marian(length: int, dim: int) -> torch.Tensor:
    return MarianSinusoidalPositionalEmbedding(length, dim).create_weight()


def distilbert(length: int, dim: int) -> torch.Tensor:
    return create_sinusoidal_embeddings(length, dim, torch.empty(length, dim))


def xlm(length: int, dim: int) -> torch.Tensor:
    return create_xlm_embeddings(length, dim, torch.empty(length, dim))


@pytest.mark.parametrize(
    ("peer", "layout"),
    [(marian, "SINES_COSINES"), (distilbert, "INTERLEAVED"), (xlm, "INTERLEAVED")],
)
@pytest.mark.parametrize(("length", "dim"), [(512, 512), (1024, 64)])
def test_matches_float64_peers(
    client: attnbias.Client,
    peer: Callable[[int, int], torch.Tensor],
    layout: str,
    length: int,
    dim: int,
) -> None:
    """The tables are equal bit for bit, except where float64's error in the angle affects the
    rounding; the peer is wrong there.
    """
    want = to_array(peer(length, dim))
    got = client.get(encoding_of(layout, dim), positions=length)
    assert got.shape == want.shape
    different = [(int(p), int(c)) for p, c in np.argwhere(bits(got) != bits(want))]
    assert len(different) <= 4
    reals = [sinusoid(p, c, dim=dim, layout=layout) for p, c in different]
    assert [got[cell] for cell in different] == list(rounded_array(reals, "f32"))


def whisper(length: int, dim: int) -> Array:
    return to_array(sinusoids(length, dim))


def m2m_100(length: int, dim: int) -> Array:
    """Returns fairseq's table; odd dims are allowed."""
    return to_array(M2M100SinusoidalPositionalEmbedding.get_embedding(length, dim))


@pytest.mark.parametrize(
    ("peer", "dim"), [(whisper, 384), (m2m_100, 512), (m2m_100, 7), (m2m_100, 101)]
)
def test_is_close_to_float32_peers(
    client: attnbias.Client, peer: Callable[[int, int], Array], dim: int
) -> None:
    length = 1500
    want = peer(length, dim)
    got = client.get(attnbias.Tensor2Tensor(dim), positions=length)
    assert_near(got, want, np.arange(length))


def test_fairseq_padding_is_left_to_model(client: attnbias.Client) -> None:
    """Padding is at padding_idx, and tokens start after it. Clearing the padding rows is left to
    the model, which knows its tokens."""
    tokens = torch.tensor([[1, 1, 5, 6, 7]])
    want = to_array(M2M100SinusoidalPositionalEmbedding(10, 8, padding_idx=1)(tokens)[0])
    encoding = attnbias.Tensor2Tensor(8)
    got = client.get(encoding, position_ids=[1, 1, 2, 3, 4])
    assert not want[:2].any()
    assert_near(got[2:], want[2:], np.arange(2, 5))


def test_matches_x_transformers(client: attnbias.Client) -> None:
    """The scale is a learned number, initially dim^(-1/2)."""
    length, start, dim = 900, 77, 64
    peer = ScaledSinusoidalEmbedding(dim)
    scale = float(peer.scale)
    want = to_array(peer(torch.empty(1, length, dim), offset=start))
    encoding = attnbias.Sinusoidal(dim, columns="SINES_COSINES")
    got = client.get(encoding, positions=(start, start + length), scale=scale)
    # The scale is a power of two, so that undoing it does not round.
    assert scale == 0.125
    assert_near(got / scale, want / scale, np.arange(start, start + length))


@pytest.mark.parametrize("dim", [2, 3])
def test_one_timescale_matches_tensor2tensor(client: attnbias.Client, dim: int) -> None:
    """The peers divide by zero; tensor2tensor, where this code originates, does not."""
    with pytest.raises(ZeroDivisionError):
        m2m_100(10, dim)
    timescales = dim // 2
    increment = np.log(10000) / max(timescales - 1, 1)
    angles = np.outer(np.arange(10), np.exp(-increment * np.arange(timescales)))
    want = np.pad(np.concatenate([np.sin(angles), np.cos(angles)], axis=1), ((0, 0), (0, dim % 2)))
    got = client.get(attnbias.Tensor2Tensor(dim), positions=10)
    assert_near(got, want, np.arange(10))


def test_layer_signal_matches_tensor2tensor(client: attnbias.Client) -> None:
    """get_layer_timing_signal_sinusoid_1d has one position per layer: layer n adds row n to every
    token."""
    layers, dim = 6, 16
    increment = np.log(10000) / (dim // 2 - 1)
    angles = np.outer(np.arange(layers), np.exp(-increment * np.arange(dim // 2)))
    signal = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    got = client.get(attnbias.Tensor2Tensor(dim), positions=layers)
    assert_near(got, signal, np.arange(layers))
