# SPDX-License-Identifier: Apache-2.0
"""Models that use T5's bias under other names, compared bit for bit with their own code."""

from typing import Any

import numpy as np
import pytest
import torch
from bits import Array, assert_same_bits, to_array
from transformers import (
    CpmAntConfig,
    LayoutLMv2Config,
    LayoutLMv3Config,
    LongT5Config,
    MPNetConfig,
    MT5Config,
    Pix2StructTextConfig,
    Pop2PianoConfig,
    SwitchTransformersConfig,
    UMT5Config,
)
from transformers.models.cpmant.modeling_cpmant import CpmAntSegmentPositionEmbedding
from transformers.models.layoutlmv2.modeling_layoutlmv2 import LayoutLMv2Encoder
from transformers.models.layoutlmv3.modeling_layoutlmv3 import (
    LayoutLMv3Encoder,
    LayoutLMv3SelfAttention,
)
from transformers.models.longt5.modeling_longt5 import (
    LongT5LocalAttention,
    LongT5TransientGlobalAttention,
)
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
from transformers.models.mt5.modeling_mt5 import MT5Attention
from transformers.models.pix2struct.modeling_pix2struct import Pix2StructTextAttention
from transformers.models.pop2piano.modeling_pop2piano import Pop2PianoAttention
from transformers.models.pp_doclayout_v2.configuration_pp_doclayout_v2 import (
    PPDocLayoutV2ReadingOrderConfig,
)
from transformers.models.pp_doclayout_v2.modeling_pp_doclayout_v2 import (
    PPDocLayoutV2ReadingOrderEncoder,
)
from transformers.models.prophetnet.modeling_prophetnet import compute_relative_buckets
from transformers.models.switch_transformers.modeling_switch_transformers import (
    SwitchTransformersAttention,
)
from transformers.models.udop.modeling_udop import (
    RelativePositionBias1D,
    RelativePositionBiasHorizontal,
    RelativePositionBiasVertical,
)
from transformers.models.umt5.modeling_umt5 import UMT5Attention
from transformers.models.wavlm.modeling_wavlm import WavLMAttention

import attnbias


def randomised(embedding: torch.nn.Embedding) -> torch.Tensor:
    torch.manual_seed(7)
    torch.nn.init.normal_(embedding.weight, std=3)
    return embedding.weight


def test_matches_mpnet(client: attnbias.Client) -> None:
    """MPNet is always bidirectional, with a max_distance of 128 in any configuration."""
    config = MPNetConfig(
        hidden_size=24, num_attention_heads=6, num_hidden_layers=1, intermediate_size=8
    )
    encoder = MPNetEncoder(config)
    table = randomised(encoder.relative_attention_bias)
    encoding = attnbias.T5(num_heads=6, bidirectional=True, table=table)
    for length in (1, 50, 512):
        with torch.no_grad():
            want = to_array(encoder.compute_position_bias(torch.empty(1, length, 24))[0])
        assert_same_bits(client.get(encoding, query_length=length, key_length=length).view(), want)
    positions = [2, 3, 9, 400, 401]
    got = client.get(encoding, query_positions=positions, key_positions=positions)
    assert_same_bits(got, np.ascontiguousarray(want[:, positions][:, :, positions]))


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize(
    ("attention_class", "config_class", "num_heads"),
    [(UMT5Attention, UMT5Config, 5), (MT5Attention, MT5Config, 1), (MT5Attention, MT5Config, 7)],
)
def test_matches_umt5_and_mt5(
    client: attnbias.Client,
    attention_class: Any,
    config_class: Any,
    num_heads: int,
    is_decoder: bool,
) -> None:
    """UMT5 has a table per layer: one encoding each."""
    config = config_class(d_model=16, d_kv=4, num_heads=num_heads, is_decoder=is_decoder)
    attention = attention_class(config, has_relative_attention_bias=True, layer_idx=0)
    table = randomised(attention.relative_attention_bias)
    encoding = attnbias.T5(num_heads=num_heads, bidirectional=not is_decoder, table=table)
    for new, past in ((300, 0), (1, 299), (3, 130)):
        with torch.no_grad():
            want = attention.compute_bias(new, past + new, past_seen_tokens=past)[0]
        got = client.get(encoding, query_length=new, key_length=past + new, alignment="end")
        assert_same_bits(got.view(), to_array(want))


@pytest.mark.parametrize(("length", "block"), [(40, 4), (128, 16), (33, 4), (600, 2)])
def test_matches_longt5_global(client: attnbias.Client, length: int, block: int) -> None:
    """Tokens have the position of their block; leftover tokens belong to the last block."""
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
        # The block mask hides nothing here, since x - 1e10 would lose the bias.
        seen = torch.ones(1, blocks)
        want = to_array(attention.compute_side_bias(ones, seen)[0])
    encoding = attnbias.T5(num_heads=3, bidirectional=True, table=table)
    tokens = np.minimum(np.arange(length) // block, blocks - 1)
    got = client.get(
        encoding, query_positions=tokens, key_positions=np.arange(blocks), form="dense"
    )
    assert_same_bits(got, want)


@pytest.mark.parametrize("block", [1, 10, 128])
def test_matches_longt5_local(client: attnbias.Client, block: int) -> None:
    """A block of queries lies between two blocks of keys."""
    config = LongT5Config(d_model=16, d_kv=4, num_heads=3)
    attention = LongT5LocalAttention(config, has_relative_attention_bias=True)
    table = randomised(attention.relative_attention_bias)
    with torch.no_grad():
        want = to_array(attention.compute_bias(block)[0, 0])
    encoding = attnbias.T5(num_heads=3, bidirectional=True, table=table)
    got = client.get(encoding, query_length=block, key_length=3 * block, query_offset=block)
    assert_same_bits(got.view(), want)


def test_matches_wavlm(client: attnbias.Client) -> None:
    """320 buckets up to distance 800; the model then gates the bias."""
    attention = WavLMAttention(embed_dim=48, num_heads=12)
    table = randomised(attention.rel_attn_embed)
    encoding = attnbias.T5(
        num_heads=12, num_buckets=320, max_distance=800, bidirectional=True, table=table
    )
    for queries, keys in ((1, 1), (999, 999), (40, 1700)):
        with torch.no_grad():
            want = to_array(attention.compute_bias(queries, keys))
        got = client.get(encoding, query_length=queries, key_length=keys, alignment="start")
        assert_same_bits(got.view(), np.ascontiguousarray(want))


def by_positions(
    client: attnbias.Client, linear: torch.nn.Linear, ids: list[int], **buckets: int
) -> Array:
    """Returns the bias for pairs of positions; a Linear's weight is [heads, buckets]."""
    encoding = attnbias.T5(
        num_heads=linear.out_features,
        bidirectional=True,
        table=linear.weight.detach(),
        table_layout="heads_buckets",
        **buckets,
    )
    got = client.get(encoding, query_positions=ids, key_positions=ids)
    return np.ascontiguousarray(got)


@pytest.mark.parametrize(
    ("config_class", "encoder_class", "method"),
    [
        (LayoutLMv2Config, LayoutLMv2Encoder, "_calculate_{}d_position_embeddings"),
        (LayoutLMv3Config, LayoutLMv3Encoder, "_cal_{}d_pos_emb"),
    ],
)
def test_matches_layoutlm(
    client: attnbias.Client, config_class: Any, encoder_class: Any, method: str
) -> None:
    """Covers the sequence, and the left and lower edges of boxes up to 1000."""
    config = config_class(
        hidden_size=24, num_attention_heads=6, num_hidden_layers=1, intermediate_size=8
    )
    encoder = encoder_class(config)
    random = np.random.default_rng(1)
    boxes = torch.tensor(random.integers(0, 1001, (1, 40, 4)))
    ids = torch.tensor(random.integers(2, 514, (1, 40)))
    with torch.no_grad():
        sequence = to_array(getattr(encoder, method.format(1))(ids)[0])
        plane = to_array(getattr(encoder, method.format(2))(boxes)[0])
    got = by_positions(client, encoder.rel_pos_bias, ids[0].tolist())
    assert_same_bits(got, sequence)
    sizes = {"num_buckets": 64, "max_distance": 256}
    left, lower = (
        by_positions(client, linear, boxes[0, :, edge].tolist(), **sizes)
        for linear, edge in ((encoder.rel_pos_x_bias, 0), (encoder.rel_pos_y_bias, 3))
    )
    assert_same_bits(left + lower, plane)


@pytest.mark.parametrize("spatial", [False, True])
def test_layoutlmv3_divides_bias_by_square_root_of_head_size(spatial: bool) -> None:
    """With zero queries, only its bias reaches the scores."""
    config = LayoutLMv3Config(
        hidden_size=24, num_attention_heads=6, has_spatial_attention_bias=spatial
    )
    attention = LayoutLMv3SelfAttention(config).eval()
    for projection in (attention.query, attention.key):
        torch.nn.init.zeros_(projection.weight)
        torch.nn.init.zeros_(projection.bias)
    biases = torch.randn(2, 1, 6, 5, 5)
    with torch.no_grad():
        _, weights, *_ = attention(
            torch.randn(1, 5, 24), torch.zeros(1), rel_pos=biases[0], rel_2d_pos=biases[1]
        )
        want = (biases.sum(0) if spatial else biases[0]) / 2  # d_head is 4
    assert torch.allclose(weights, want.softmax(-1), atol=1e-6)


def test_matches_pp_doclayout_v2(client: attnbias.Client) -> None:
    config = PPDocLayoutV2ReadingOrderConfig(
        hidden_size=24,
        num_attention_heads=6,
        num_hidden_layers=1,
        intermediate_size=8,
        has_relative_attention_bias=True,
    )
    encoder = PPDocLayoutV2ReadingOrderEncoder(config)
    ids = torch.arange(300)[None]
    with torch.no_grad():
        want = to_array(encoder._cal_1d_pos_emb(ids)[0])
    assert_same_bits(by_positions(client, encoder.rel_pos_bias, ids[0].tolist()), want)


@pytest.mark.parametrize("axis", ["sequence", "horizontal", "vertical"])
def test_matches_udop(client: attnbias.Client, axis: str) -> None:
    """Centers are between 0 and 1, in float32; the difference times 100 is truncated."""
    classes: dict[str, Any] = {
        "sequence": RelativePositionBias1D,
        "horizontal": RelativePositionBiasHorizontal,
        "vertical": RelativePositionBiasVertical,
    }
    bias = classes[axis](num_heads=6).eval()
    table = randomised(bias.relative_attention_bias)
    boxes = torch.rand(1, 60, 4, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        want = to_array(bias(torch.ones(1, 60), boxes)[0])
    if axis == "sequence":
        encoding = attnbias.T5(num_heads=6, bidirectional=True, table=table)
        assert_same_bits(client.get(encoding, query_length=60, key_length=60).view(), want)
        return
    encoding = attnbias.T5(num_heads=6, bidirectional=True, max_distance=100, table=table)
    got = client.get(encoding, query_length=101, key_length=101)
    first = 0 if axis == "horizontal" else 1
    centres = boxes[0, :, [first, first + 2]].mean(dim=-1)
    differences = to_array((100 * (centres[None] - centres[:, None])).long())
    pairs = got.diagonals[:, differences - got.first_relative_position]
    assert_same_bits(np.ascontiguousarray(pairs), want)


def compute_bias(attention: Any, queries: int, keys: int) -> Array:
    with torch.no_grad():
        return to_array(attention.compute_bias(queries, keys)[0])


def test_t5_derived_models_match(client: attnbias.Client) -> None:
    sizes = {"d_model": 16, "d_kv": 4, "num_heads": 4}
    attentions = [
        (kind(config(**sizes, is_decoder=is_decoder), True, layer_idx=0), is_decoder)
        for kind, config in (
            (SwitchTransformersAttention, SwitchTransformersConfig),
            (Pop2PianoAttention, Pop2PianoConfig),
        )
        for is_decoder in (False, True)
    ]
    pix2struct: Any = Pix2StructTextConfig(hidden_size=16, d_kv=4, num_heads=4)
    attentions.append((Pix2StructTextAttention(pix2struct, True, layer_idx=0), True))
    for attention, is_decoder in attentions:
        table = randomised(attention.relative_attention_bias)
        encoding = attnbias.T5(num_heads=4, bidirectional=not is_decoder, table=table)
        got = client.get(encoding, query_length=300, key_length=300)
        assert_same_bits(got.view(), compute_bias(attention, 300, 300))


def test_matches_prophetnet(client: attnbias.Client) -> None:
    relative = torch.arange(300)[None] - torch.arange(300)[:, None]
    want = to_array(compute_relative_buckets(32, 128, relative))
    encoding = attnbias.T5(bidirectional=False)
    got = client.get(encoding, query_length=300, key_length=300, values="buckets")
    assert np.array_equal(got.view(), want)


def test_matches_cpm_ant(client: attnbias.Client) -> None:
    config = CpmAntConfig(num_attention_heads=6)
    module = CpmAntSegmentPositionEmbedding(config)
    torch.nn.init.normal_(module.relative_attention_bias)
    length, buckets = 3000, config.position_bias_num_buckets
    assert (buckets, config.position_bias_max_distance) == (512, 2048)
    positions = torch.arange(length)[None]
    segments = (torch.arange(length) * 3 // length)[None]
    with torch.no_grad():
        want = to_array(module(positions, positions, segments, segments)[0])
    table = module.relative_attention_bias.detach()
    encoding = attnbias.T5(
        num_heads=6,
        num_buckets=buckets,
        max_distance=2048,
        bidirectional=True,
        bucket_rule="float32_log",
        table=table[:buckets].contiguous(),
    )
    got = client.get(encoding, query_length=length, key_length=length)
    one = to_array(segments[0])
    rows = buckets + one[:, None] * config.segment_types + one
    within = one[:, None] == one
    pairs = np.where(within, got.view(), to_array(table).T[:, rows])
    assert_same_bits(np.ascontiguousarray(pairs), want)
