# SPDX-License-Identifier: Apache-2.0
"""Models that have T5's bias under other names, bit for bit against their own code."""

import numpy as np
import pytest
import torch
from bits import assert_same_bits, to_array
from transformers import LongT5Config, MPNetConfig, MT5Config, UMT5Config
from transformers.models.longt5.modeling_longt5 import (
    LongT5LocalAttention,
    LongT5TransientGlobalAttention,
)
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
from transformers.models.mt5.modeling_mt5 import MT5Attention
from transformers.models.umt5.modeling_umt5 import UMT5Attention
from transformers.models.wavlm.modeling_wavlm import WavLMAttention

import attnbias


def randomised(embedding: torch.nn.Embedding) -> torch.Tensor:
    torch.manual_seed(7)
    torch.nn.init.normal_(embedding.weight, std=3)
    return embedding.weight


def test_mpnet(client: attnbias.Client) -> None:
    """Always bidirectional, and 128 whatever its configuration says."""
    config = MPNetConfig(
        hidden_size=24, num_attention_heads=6, num_hidden_layers=1, intermediate_size=8
    )
    encoder = MPNetEncoder(config)
    table = randomised(encoder.relative_attention_bias)
    encoding = attnbias.T5(num_heads=6, bidirectional=True, table=table)
    for length in (1, 50, 512):
        with torch.no_grad():
            want = to_array(encoder.compute_position_bias(torch.empty(1, length, 24))[0])
        assert_same_bits(client.get(encoding, queries=length, keys=length).view(), want)
    positions = [2, 3, 9, 400, 401]
    got = client.get(encoding, query_position_ids=positions, key_position_ids=positions)
    assert_same_bits(got, np.ascontiguousarray(want[:, positions][:, :, positions]))


@pytest.mark.parametrize("is_decoder", [False, True])
def test_umt5(client: attnbias.Client, is_decoder: bool) -> None:
    """A table for every layer: one encoding each."""
    config = UMT5Config(d_model=16, d_kv=4, num_heads=5, is_decoder=is_decoder)
    for _ in range(2):
        attention = UMT5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        encoding = attnbias.T5(
            num_heads=5,
            bidirectional=not is_decoder,
            table=randomised(attention.relative_attention_bias),
        )
        for new, past in ((300, 0), (1, 299), (3, 130)):
            with torch.no_grad():
                want = attention.compute_bias(new, past + new, past_seen_tokens=past)[0]
            got = client.get(encoding, queries=new, keys=past + new, align="end")
            assert_same_bits(got.view(), to_array(want))


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize("num_heads", [1, 7])
def test_mt5(client: attnbias.Client, num_heads: int, is_decoder: bool) -> None:
    config = MT5Config(d_model=16, d_kv=4, num_heads=num_heads, is_decoder=is_decoder)
    attention = MT5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    table = randomised(attention.relative_attention_bias)
    encoding = attnbias.T5(num_heads=num_heads, bidirectional=not is_decoder, table=table)
    for new, past in ((300, 0), (1, 299), (3, 130)):
        with torch.no_grad():
            want = attention.compute_bias(new, past + new, past_seen_tokens=past)[0]
        got = client.get(encoding, queries=new, keys=past + new, align="end")
        assert_same_bits(got.view(), to_array(want))


@pytest.mark.parametrize(("length", "block"), [(40, 4), (128, 16), (33, 4), (600, 2)])
def test_longt5_global(client: attnbias.Client, length: int, block: int) -> None:
    """Tokens stand where their block does; what is left over belongs to the last block."""
    config = LongT5Config(
        d_model=16,
        d_kv=4,
        num_heads=3,
        encoder_attention_type="transient-global",
        global_block_size=block,
    )
    attention = LongT5TransientGlobalAttention(config, has_relative_attention_bias=True)
    table = randomised(attention.global_relative_attention_bias)
    blocks = length // block
    with torch.no_grad():
        ones = torch.ones(1, length)
        # Its mask of blocks, of which none is hidden here: x - 1e10 would lose the bias.
        seen = torch.ones(1, blocks)
        want = to_array(attention.compute_side_bias(ones, seen)[0])
    encoding = attnbias.T5(num_heads=3, bidirectional=True, table=table)
    tokens = np.minimum(np.arange(length) // block, blocks - 1)
    got = client.get(
        encoding, query_position_ids=tokens, key_position_ids=np.arange(blocks), form="dense"
    )
    assert_same_bits(got, want)


@pytest.mark.parametrize("block", [1, 10, 128])
def test_longt5_local(client: attnbias.Client, block: int) -> None:
    """A block of queries between two blocks of keys."""
    config = LongT5Config(d_model=16, d_kv=4, num_heads=3)
    attention = LongT5LocalAttention(config, has_relative_attention_bias=True)
    table = randomised(attention.relative_attention_bias)
    with torch.no_grad():
        want = to_array(attention.compute_bias(block)[0, 0])
    encoding = attnbias.T5(num_heads=3, bidirectional=True, table=table)
    got = client.get(encoding, queries=block, keys=3 * block, query_offset=block)
    assert_same_bits(got.view(), want)


def test_wavlm(client: attnbias.Client) -> None:
    """320 buckets up to 800, of which the model then gates the bias."""
    attention = WavLMAttention(embed_dim=48, num_heads=12)
    table = randomised(attention.rel_attn_embed)
    encoding = attnbias.T5(
        num_heads=12, num_buckets=320, max_distance=800, bidirectional=True, table=table
    )
    for queries, keys in ((1, 1), (999, 999), (40, 1700)):
        with torch.no_grad():
            want = to_array(attention.compute_bias(queries, keys))
        got = client.get(encoding, queries=queries, keys=keys, align="start")
        assert_same_bits(got.view(), np.ascontiguousarray(want))
