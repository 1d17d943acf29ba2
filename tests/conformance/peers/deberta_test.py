# SPDX-License-Identifier: Apache-2.0
"""DeBERTa's indices against transformers' own buckets and its own attention."""

from typing import Any

import numpy as np
import pytest
import torch
from bits import to_array
from transformers import DebertaV2Config
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DisentangledSelfAttention,
    build_relative_position,
    make_log_bucket_position,
)

import attnbias

CONFIGURATIONS = [(256, 512), (64, 512), (128, 256), (32, 2048), (128, 2048), (32, 128)]


def served(client: attnbias.Client, encoding: attnbias.Deberta, queries: int, keys: int) -> Any:
    got = client.get(encoding, query_length=queries, key_length=keys, alignment="start").view()
    assert got.dtype == np.int32
    return got


@pytest.mark.parametrize(("bucket_size", "max_position"), CONFIGURATIONS)
def test_buckets_match_transformers(
    client: attnbias.Client, bucket_size: int, max_position: int
) -> None:
    """Up to max_position both edges match transformers; beyond it, only HF does."""
    distances = torch.arange(-max_position + 1, max_position)
    want = to_array(make_log_bucket_position(distances, bucket_size, max_position))
    for edge in ("HF", "MICROSOFT"):
        encoding = attnbias.Deberta(
            bucket_size=bucket_size, max_position=max_position, term="BUCKET", edge=edge
        )
        got = client.get(encoding, query_length=max_position, key_length=max_position).diagonals
        assert np.array_equal(got[::-1], want)


@pytest.mark.parametrize("length", [1, 7, 512, 1100])
def test_indices_match_transformers(client: attnbias.Client, length: int) -> None:
    relative = build_relative_position(torch.empty(length, 1), torch.empty(length, 1), 256, 512)[0]
    for term, sign in (("CONTENT_TO_POSITION", 1), ("POSITION_TO_CONTENT", -1)):
        want = to_array(torch.clamp(sign * relative + 256, 0, 511))
        got = served(client, attnbias.Deberta(term=term, edge="HF"), length, length)
        assert np.array_equal(got, want)
        # The edges differ by one index, for keys (or queries) at least 512 to the right.
        clamped = served(client, attnbias.Deberta(term=term), length, length)
        different = clamped != got
        assert np.array_equal(different, sign * np.subtract.outer(*[np.arange(length)] * 2) <= -512)
        assert not got[different].any()
        assert (clamped[different] == 1).all()


def test_indices_without_buckets_match_transformers(client: attnbias.Client) -> None:
    relative = build_relative_position(torch.empty(90, 1), torch.empty(90, 1), -1, 64)[0]
    want = to_array(torch.clamp(relative + 64, 0, 127))
    got = served(client, attnbias.Deberta(bucket_size=0, max_position=64), 90, 90)
    assert np.array_equal(got, want)


def test_attention_from_served_indices_matches(client: attnbias.Client) -> None:
    """Computes, from the served indices, what transformers adds to the scores.

    Its p2c term gathers along rows that stand for keys, so a pair has the same index as in c2p.
    """
    torch.manual_seed(1)
    heads, head_dim, length = 2, 8, 40
    config = DebertaV2Config(
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        relative_attention=True,
        position_buckets=16,
        max_relative_positions=32,
        pos_att_type=["c2p", "p2c"],
        share_att_key=True,
    )
    attention = DisentangledSelfAttention(config).eval()
    query, key = torch.randn(2, heads, length, head_dim)
    embeddings = torch.randn(32, heads * head_dim)
    relative = build_relative_position(query, key, 16, 32)
    with torch.no_grad():
        want = attention.disentangled_attention_bias(
            query, key, relative, attention.pos_dropout(embeddings), 3
        )
        by_head = [
            projection(embeddings).view(32, heads, head_dim).transpose(0, 1)
            for projection in (attention.key_proj, attention.query_proj)
        ]
    encoding = attnbias.Deberta(bucket_size=16, max_position=32, edge="HF")
    index = torch.from_numpy(served(client, encoding, length, length).astype(np.int64))
    content = torch.einsum("hid,hijd->hij", query, by_head[0][:, index])
    position = torch.einsum("hjd,hijd->hij", key, by_head[1][:, index])
    got = (content + position) / (head_dim * 3) ** 0.5
    # Two sums of head_dim float32 products in different orders.
    magnitude = float(want.abs().max()) + 1
    assert float((got - want).abs().max()) <= 16 * head_dim * magnitude * 2.0**-24
