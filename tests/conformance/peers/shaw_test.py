# SPDX-License-Identifier: Apache-2.0
"""Relative position representations, compared bit for bit with the modules that models use."""

from typing import Any

import numpy as np
import pytest
import torch
from bits import Array, assert_same_bits, to_array
from transformers import SeamlessM4Tv2Config, Wav2Vec2BertConfig
from transformers.models.seamless_m4t_v2.modeling_seamless_m4t_v2 import (
    SeamlessM4Tv2ConformerSelfAttention,
)
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

import attnbias


def wav2vec2_bert(left: int, right: int) -> torch.nn.Module:
    config = Wav2Vec2BertConfig(
        hidden_size=24,
        num_attention_heads=3,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=left,
        right_max_position_embeddings=right,
    )
    config._attn_implementation = "eager"
    return Wav2Vec2BertSelfAttention(config)


def seamless_m4t_v2(left: int, right: int) -> torch.nn.Module:
    config = SeamlessM4Tv2Config(
        hidden_size=24,
        speech_encoder_attention_heads=3,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=left,
        right_max_position_embeddings=right,
    )
    return SeamlessM4Tv2ConformerSelfAttention(config)


def vectors_of(attention: torch.nn.Module, length: int) -> Array:
    """Returns the vectors that the module looks up in its embedding while it attends."""
    seen: list[torch.Tensor] = []
    embedding = attention.distance_embedding
    hook = embedding.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    with torch.no_grad():
        attention(torch.zeros(1, length, 24))
    hook.remove()
    return to_array(seen[0])


@pytest.mark.parametrize("peer", [wav2vec2_bert, seamless_m4t_v2])
@pytest.mark.parametrize(("left", "right"), [(64, 8), (3, 1), (0, 5), (2, 0), (200, 200)])
def test_relative_key_vectors_match_modules(
    client: attnbias.Client, peer: Any, left: int, right: int
) -> None:
    torch.manual_seed(left)
    attention = peer(left, right)
    encoding = attnbias.Shaw(left=left, right=right, table=attention.distance_embedding.weight)
    for length in (1, 6, 90):
        want = vectors_of(attention, length)
        got = client.get(encoding, query_length=length, key_length=length)
        assert_same_bits(got.view(), want)
        assert_same_bits(to_array(got.to_torch()), want)
        assert_same_bits(
            client.get(encoding, query_length=length, key_length=length, form="dense"), want
        )
        part = client.get(
            encoding, query_length=length, queries=(length - 1, length), key_length=length
        )
        assert_same_bits(part.dense(), want[-1:])
        narrow = client.get(encoding, query_length=length, key_length=length, data_type="bf16")
        assert_same_bits(narrow.dense(), to_array(torch.from_numpy(want.copy()).bfloat16()))


def test_bert_counts_query_minus_key(client: attnbias.Client) -> None:
    """BERT's relative_key: embedding(i - j + max_position_embeddings - 1), without clipping."""
    longest, dim = 12, 5
    table = np.random.default_rng(1).standard_normal((2 * longest - 1, dim), np.float32)
    encoding = attnbias.Shaw(
        left=longest - 1, right=longest - 1, table=table, sign="QUERY_MINUS_KEY", beyond="REFUSE"
    )
    positions = np.arange(longest)
    want = table[positions[:, None] - positions + longest - 1]
    assert_same_bits(client.get(encoding, query_length=longest, key_length=longest).dense(), want)
    with pytest.raises(attnbias.OutOfRangeError, match=r"want positions in \[-11, 12\)"):
        client.get(encoding, query_length=longest + 1, key_length=longest + 1)


def test_per_head_vectors_match_definition(client: attnbias.Client) -> None:
    heads, left, right, dim = 3, 4, 2, 6
    table = np.random.default_rng(2).standard_normal((heads, left + right + 1, dim))
    encoding = attnbias.Shaw(left=left, right=right, table=table)
    relative = np.arange(11) - np.arange(3, 10)[:, None]
    want = table[:, np.clip(relative, -left, right) + left]
    extent = {"query_length": 7, "key_length": 11, "query_offset": 3, "data_type": "f64"}
    got = client.get(encoding, **extent)
    assert got.shape == want.shape == (heads, 7, 11, dim)
    assert_same_bits(got.dense(), want)
    assert_same_bits(client.get(encoding, **extent, heads=(1, 3), form="dense"), want[1:])
    lists = client.get(
        encoding, query_positions=[9, 0, 4], key_positions=[10, 10, 2], data_type="f64"
    )
    relative = np.array([10, 10, 2]) - np.array([9, 0, 4])[:, None]
    assert_same_bits(lists, table[:, np.clip(relative, -left, right) + left])


def test_indices_select_the_vectors(client: attnbias.Client) -> None:
    """Training gathers with the indices, without a table."""
    table = np.random.default_rng(3).standard_normal((12, 4), np.float32)
    extent: Any = {"query_length": 20, "key_length": 33, "alignment": "end"}
    indices = client.get(attnbias.Shaw(left=8, right=3), **extent, values="buckets")
    assert indices.shape == (20, 33)
    vectors = client.get(attnbias.Shaw(left=8, right=3, table=table), **extent)
    assert_same_bits(table[indices.view()], vectors.dense())
