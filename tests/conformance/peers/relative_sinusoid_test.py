# SPDX-License-Identifier: Apache-2.0
"""Sinusoids of relative positions against mpmath, bit for bit, and against the models' own code."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bits import Array, assert_same_bits, to_array
from bounds import assert_near
from formulas import relative_sinusoidal
from real import rounded_array
from transformers import Gemma3nAudioConfig, XLNetConfig, XLNetModel
from transformers.models.fastspeech2_conformer.modeling_fastspeech2_conformer import (
    FastSpeech2ConformerRelPositionalEncoding,
)
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nAudioRelativePositionEmbedding
from transformers.models.nemotron_asr_streaming.modeling_nemotron_asr_streaming import (
    NemotronAsrStreamingEncoderRelPositionalEncoding,
)
from transformers.models.parakeet.modeling_parakeet import ParakeetEncoderRelPositionalEncoding
from transformers.models.seamless_m4t.modeling_seamless_m4t import (
    SeamlessM4TConformerRelPositionalEmbedding,
)
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import (
    Wav2Vec2BertRelPositionalEmbedding,
)
from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import (
    Wav2Vec2ConformerRelPositionalEmbedding,
)
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

import attnbias

LENGTHS = [(1, 1), (3, 5), (64, 64), (17, 400), (400, 400)]


def distances(queries: int, keys: int) -> Array:
    """Returns i - j, with the last query aligned to the last key."""
    return np.arange(queries)[:, None] + keys - queries - np.arange(keys)


def ladder_to(longest: float, **fields: float) -> attnbias.Ladder:
    return attnbias.Ladder(timescales=attnbias.Timescales(max=longest, **fields))


ENCODINGS: list[dict[str, Any]] = [
    {"dim": 34},
    {"dim": 11, "columns": "SINES_COSINES"},
    {"dim": 10, "columns": "COSINES_SINES", "left": 7, "right": 3},
    {"dim": 10, "left": 12, "causal": True},
    {"dim": 6, "symmetric": True, "right": 1},
    {"dim": 7, "columns": "SINES_COSINES", "odd": "ZERO", "ladder": ladder_to(300.0)},
    {"dim": 8, "ladder": ladder_to(1e4, min=2.0), "sign": "KEY_MINUS_QUERY"},
    {"dim": 6, "ladder": attnbias.Ladder(frequencies=[1.5, 0, -0.25])},
]


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("fields", ENCODINGS, ids=str)
def test_values_are_correctly_rounded(
    client: attnbias.Client, fields: dict[str, Any], dtype: str
) -> None:
    queries, keys = 9, 23
    encoding = attnbias.RelativeSinusoidal(**fields)
    got = client.get(
        encoding, query_length=queries, key_length=keys, alignment="end", data_type=dtype
    ).view()
    number = relative_sinusoidal(encoding.to_spec().relative_sinusoidal, False)
    wanted = [
        number(0, i + keys - queries, j, column)
        for i in range(queries)
        for j in range(keys)
        for column in range(encoding.dim)
    ]
    assert_same_bits(got, rounded_array(wanted, dtype).reshape(queries, keys, encoding.dim))


def test_matches_gemma_3n(client: attnbias.Client) -> None:
    config = Gemma3nAudioConfig(hidden_size=32, conf_num_attention_heads=2)
    config.conf_attention_context_right = 5
    peer = Gemma3nAudioRelativePositionEmbedding(config)
    distance = np.arange(peer.max_backward, -peer.max_forward - 1, -1)
    want = peer._get_timing_signal_1d_pos(torch.tensor(distance), torch.float32)
    got = client.get(
        attnbias.RelativeSinusoidal(dim=32, columns="sines_cosines", ladder=ladder_to(1e4)),
        query_length=peer.max_backward + 1,
        key_length=peer.max_forward + 1,
        alignment="start",
    )
    assert_near(got.diagonals, to_array(want[0]), distance)


def xlnet_vectors(queries: int, keys: int, dim: int, **options: Any) -> Array:
    """Returns XLNet's encodings, mapped to their pairs by its own relative shift."""
    config = XLNetConfig(
        vocab_size=8, d_model=dim, n_layer=1, n_head=2, d_inner=4, bi_data=False, **options
    )
    encodings = XLNetModel(config).relative_positional_encoding(queries, keys)[:, 0]
    scores = encodings.expand(queries, *encodings.shape)[..., None]
    return to_array(XLNetRelativeAttention.rel_shift(scores, keys)[..., 0])


@pytest.mark.parametrize("clamp_len", [None, 1, 30])
@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_matches_xlnet(
    client: attnbias.Client, queries: int, keys: int, clamp_len: int | None
) -> None:
    extent = {"query_length": queries, "key_length": keys, "alignment": "end"}
    distance = distances(queries, keys)
    got = client.get(attnbias.XLNet(dim=16, clamp_len=clamp_len), **extent)
    want = xlnet_vectors(queries, keys, 16, attn_type="bi", clamp_len=clamp_len or -1)
    assert_near(got.view(), want, distance)

    encoding = attnbias.XLNet(dim=16, clamp_len=clamp_len, causal=True)
    uni = client.get(encoding, **extent).view()
    want = xlnet_vectors(queries, keys, 16, attn_type="uni", clamp_len=clamp_len or -1)
    seen = distance >= 0
    assert_near(uni[seen], want[seen], distance[seen])
    assert not uni[~seen].any()


def test_xlnet_bi_data_reverses_signs(client: attnbias.Client) -> None:
    """With bi_data, the second half of a batch has distances of the opposite sign."""
    config = XLNetConfig(
        vocab_size=8, d_model=16, n_layer=1, n_head=2, d_inner=4, bi_data=True, attn_type="bi"
    )
    encodings = to_array(XLNetModel(config).relative_positional_encoding(30, 40, bsz=2))
    signs: tuple[Any, ...] = ("query_minus_key", "key_minus_query")
    distance = 40 - np.arange(len(encodings))
    for half, sign in enumerate(signs):
        got = client.get(
            attnbias.XLNet(dim=16, sign=sign), query_length=30, key_length=41, alignment="end"
        )
        assert_near(got.diagonals[: len(encodings)], encodings[:, half], distance)


@pytest.mark.parametrize("length", [1, 4, 65, 400])
def test_matches_conformer(client: attnbias.Client, length: int) -> None:
    hidden = torch.zeros(1, length, 24)
    config: Any = SimpleNamespace(
        hidden_size=24, max_source_positions=500, max_position_embeddings=500
    )
    fast_speech_2 = FastSpeech2ConformerRelPositionalEncoding(
        config, {"positional_dropout_rate": 0.0}
    )
    peers = [
        fast_speech_2(hidden)[1],
        *(
            kind(config)(hidden)
            for kind in (
                NemotronAsrStreamingEncoderRelPositionalEncoding,
                ParakeetEncoderRelPositionalEncoding,
                SeamlessM4TConformerRelPositionalEmbedding,
                Wav2Vec2BertRelPositionalEmbedding,
                Wav2Vec2ConformerRelPositionalEmbedding,
            )
        ),
    ]
    got = client.get(attnbias.Conformer(dim=24), query_length=length, key_length=length)
    distance = np.arange(length - 1, -length, -1)
    for peer in peers:
        assert_near(got.diagonals, to_array(peer[0]), distance)


def transformer_xl_scores(query: Array, encodings: Array) -> Array:
    """Returns (q R)^T by the paper's shift: pad a column, fold, drop the first row, fold back."""
    scores = query @ encodings.T
    queries, keys = scores.shape
    padded = np.concatenate([np.zeros((queries, 1)), scores], axis=1)
    return padded.reshape(keys + 1, queries)[1:].reshape(queries, keys)


@pytest.mark.parametrize("clamp_len", [None, 1, 30])
@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_matches_transformer_xl_paper(
    client: attnbias.Client, queries: int, keys: int, clamp_len: int | None
) -> None:
    """Compares with the paper's formula in float64; current transformers lacks the model."""
    dim = 20
    positions = np.minimum(np.arange(keys - 1, -1, -1.0), clamp_len or np.inf)
    angles = np.outer(positions, 1 / 10000 ** (np.arange(0, dim, 2) / dim))
    encodings = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    got = client.get(
        attnbias.TransformerXL(dim=dim, clamp_len=clamp_len),
        query_length=queries,
        key_length=keys,
        alignment="end",
        data_type="f64",
    )
    query = np.random.default_rng(queries).standard_normal((queries, dim))
    scores = np.einsum("id,ijd->ij", query, got.view())
    seen = distances(queries, keys) >= 0
    bound = np.finfo(np.float64).eps * (keys + dim) * np.abs(query).sum(1)[:, None]
    wrong = np.abs(scores - transformer_xl_scores(query, encodings)) > bound
    assert not wrong[seen].any()
    assert not scores[~seen].any()


@pytest.mark.parametrize("align", ["start", "end"])
def test_symmetric_vectors_match_table_rows(client: attnbias.Client, align: Any) -> None:
    queries, keys = 12, 31
    table = client.get(attnbias.Sinusoidal(dim=8), positions=keys)
    encoding = attnbias.SymmetricSinusoidal(dim=8)
    got = client.get(encoding, query_length=queries, key_length=keys, alignment=align).view()
    offset = keys - queries if align == "end" else 0
    away = np.abs(np.arange(queries)[:, None] + offset - np.arange(keys))
    assert_same_bits(np.ascontiguousarray(got), table[away])
