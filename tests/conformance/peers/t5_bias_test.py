# SPDX-License-Identifier: Apache-2.0
"""T5's bias, compared bit for bit with the modules that models use, with random weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bits import assert_same_bits, to_array
from safetensors.numpy import load_file, save_file
from transformers import DynamicCache, T5Config
from transformers.models.t5.modeling_t5 import T5Attention
from x_transformers.x_transformers import RelativePositionBias

import attnbias

LENGTHS = [(1, 1), (7, 7), (65, 65), (300, 300), (1024, 1024), (33, 257), (257, 33), (1, 130)]


def t5_attention(
    num_heads: int, *, is_decoder: bool, num_buckets: int = 32, max_distance: int = 128
) -> T5Attention:
    torch.manual_seed(num_heads)
    config = T5Config(
        d_model=16,
        d_kv=4,
        num_heads=num_heads,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=is_decoder,
    )
    attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    torch.nn.init.normal_(attention.relative_attention_bias.weight, std=3)
    return attention


def encoding_of(attention: T5Attention, **fields: Any) -> attnbias.T5:
    return attnbias.T5(
        num_heads=attention.n_heads,
        num_buckets=attention.relative_attention_num_buckets,
        max_distance=attention.relative_attention_max_distance,
        bidirectional=not attention.is_decoder,
        table=attention.relative_attention_bias.weight,
        **fields,
    )


def computed_bias(attention: T5Attention, *lengths: int, past: int = 0) -> np.ndarray:
    with torch.no_grad():
        return to_array(attention.compute_bias(*lengths, past_seen_tokens=past)[0])


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize("num_heads", [1, 6, 12, 32])
def test_bias_matches_in_every_form(
    client: attnbias.Client, num_heads: int, is_decoder: bool
) -> None:
    attention = t5_attention(num_heads, is_decoder=is_decoder)
    encoding = encoding_of(attention)
    for queries, keys in LENGTHS:
        want = computed_bias(attention, queries, keys)
        extent = {"query_length": queries, "key_length": keys, "alignment": "start"}
        bias = client.get(encoding, **extent)
        assert_same_bits(bias.view(), want)
        assert_same_bits(bias.dense(), want)
        assert_same_bits(to_array(bias.to_torch()), want)
        assert_same_bits(client.get(encoding, **extent, form="dense"), want)


@pytest.mark.parametrize("bucket_rule", ["EXACT", "FLOAT32_LOG"])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(64, 256), (320, 800), (9, 20)])
def test_other_bucket_counts_match(
    client: attnbias.Client, num_buckets: int, max_distance: int, bucket_rule: str
) -> None:
    for is_decoder in (False, True):
        if num_buckets % 2 and not is_decoder:
            continue
        attention = t5_attention(
            3, is_decoder=is_decoder, num_buckets=num_buckets, max_distance=max_distance
        )
        encoding = encoding_of(attention, bucket_rule=bucket_rule)
        got = client.get(encoding, query_length=1500, key_length=1500)
        assert_same_bits(got.view(), computed_bias(attention, 1500, 1500))


def test_float32_log_rule_matches_torch_only(client: attnbias.Client) -> None:
    """For 24/889 the rules differ: a model with these parameters has torch's bias, not the exact
    one."""
    attention = t5_attention(2, is_decoder=True, num_buckets=24, max_distance=889)
    want = computed_bias(attention, 1000, 1000)
    torch_s = client.get(
        encoding_of(attention, bucket_rule="FLOAT32_LOG"), query_length=1000, key_length=1000
    )
    assert_same_bits(torch_s.view(), want)
    exact = client.get(encoding_of(attention), query_length=1000, key_length=1000).view()
    assert set(np.subtract(*np.nonzero(exact[0] != want[0]))) == {621}


@pytest.mark.parametrize("is_decoder", [False, True])
def test_cached_decode_rows_match(client: attnbias.Client, is_decoder: bool) -> None:
    attention = t5_attention(8, is_decoder=is_decoder)
    encoding = encoding_of(attention)
    for past in (0, 1, 5, 127, 128, 200, 2000):
        for new in (1, 3):
            keys = past + new
            want = computed_bias(attention, new, keys, past=past)
            by_window = client.get(
                encoding, query_length=keys, queries=(past, keys), key_length=keys
            )
            by_end = client.get(encoding, query_length=new, key_length=keys, alignment="end")
            by_offset = client.get(encoding, query_length=new, key_length=keys, query_offset=past)
            for bias in (by_window, by_end, by_offset):
                assert_same_bits(bias.view(), want)


def test_cached_generation_matches_attention_layer(client: attnbias.Client) -> None:
    """Compares a single tensor with the values that the attention layer adds, token by token."""
    attention = t5_attention(4, is_decoder=True)
    whole = client.get(encoding_of(attention), query_length=150, key_length=150)
    cache = DynamicCache()
    with torch.no_grad():
        for first, last in [(0, 1), (1, 2), (2, 10), (10, 11), (11, 149), (149, 150)]:
            hidden = torch.randn(1, last - first, 16)
            _, position_bias, _ = attention(hidden, past_key_values=cache)
            row = whole.window(queries=(first, last), keys=last)
            assert_same_bits(row.view(), to_array(position_bias[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_model_matches(client: attnbias.Client, dtype: torch.dtype) -> None:
    attention = t5_attention(12, is_decoder=False).to(dtype)
    encoding = encoding_of(attention)
    name = "f16" if dtype == torch.float16 else "bf16"
    got = client.get(encoding, query_length=200, key_length=200, data_type=name)
    assert_same_bits(got.view(), computed_bias(attention, 200, 200))


def test_transposed_table_matches(client: attnbias.Client) -> None:
    attention = t5_attention(12, is_decoder=True)
    table = attention.relative_attention_bias.weight.detach().T.contiguous()
    encoding = attnbias.T5(
        num_heads=12, bidirectional=False, table=table, table_layout="HEADS_BUCKETS"
    )
    got = client.get(encoding, query_length=200, key_length=200)
    assert_same_bits(got.view(), computed_bias(attention, 200, 200))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d_head", [64, 80])
@pytest.mark.parametrize(("queries", "keys"), [(64, 64), (3, 200), (1, 17)])
def test_matches_x_transformers(
    client: attnbias.Client, causal: bool, queries: int, keys: int, d_head: int
) -> None:
    """The bias is aligned at the end; torch first rounds its scale, sqrt(d_head), to float32."""
    torch.manual_seed(1)
    peer = RelativePositionBias(scale=d_head**0.5, causal=causal, heads=8)
    with torch.no_grad():
        want = to_array(peer(queries, keys))
    encoding = attnbias.T5(
        num_heads=8, bidirectional=not causal, table=peer.relative_attention_bias.weight
    )
    scale = float(np.float32(d_head**0.5))
    got = client.get(encoding, query_length=queries, key_length=keys, alignment="end", scale=scale)
    assert_same_bits(got.view(), want)


@pytest.mark.parametrize("is_decoder", [False, True])
def test_bias_from_command_line_matches(
    attnbias_cli: Any, tmp_path: Path, is_decoder: bool
) -> None:
    attention = t5_attention(6, is_decoder=is_decoder)
    want = computed_bias(attention, 50, 70)
    table = tmp_path / "table.safetensors"
    save_file({"weight": to_array(attention.relative_attention_bias.weight)}, table)
    fields = [
        "num_heads=6",
        "num_buckets=32",
        "max_distance=128",
        f"bidirectional={str(not is_decoder).lower()}",
        f"table=@{table}:weight",
    ]
    extent = ["--query-length", 50, "--key-length", 70, "--alignment", "start"]
    out = tmp_path / "bias.npy"
    attnbias_cli("get", "t5", *fields, *extent, "--form", "dense", "--out", out)
    assert_same_bits(np.load(out), want)

    attnbias_cli("get", "t5", *fields, *extent, "--out", tmp_path / "bias.safetensors")
    diagonals = load_file(tmp_path / "bias.safetensors")["diagonals"]
    bias = attnbias.Toeplitz(diagonals, query_length=50, key_length=70, first_relative_position=-49)
    assert_same_bits(bias.view(), want)


# Tables W[b, h] = b + h/4, whose sums are exact.
EXACT_TABLE = (np.arange(32)[:, None] + np.arange(4) / 4).astype(np.float32)


def test_encoder_bias_has_known_values(client: attnbias.Client) -> None:
    encoding = attnbias.T5(num_heads=4, bidirectional=True, table=EXACT_TABLE)
    got = client.get(encoding, query_length=3, key_length=5, alignment="start").view()[1]
    assert got.tolist() == [
        [0.25, 17.25, 18.25, 19.25, 20.25],
        [1.25, 0.25, 17.25, 18.25, 19.25],
        [2.25, 1.25, 0.25, 17.25, 18.25],
    ]
    sums = client.get(encoding, query_length=512, key_length=512, form="dense").sum(
        (1, 2), np.float64
    )
    assert sums.tolist() == [5721546, 5787082, 5852618, 5918154]


def test_decoder_bias_has_known_values(client: attnbias.Client) -> None:
    encoding = attnbias.T5(num_heads=4, bidirectional=False, table=EXACT_TABLE)
    got = client.get(encoding, query_length=2, key_length=6, alignment="end").view()[0]
    assert got.tolist() == [[4, 3, 2, 1, 0, 0], [5, 4, 3, 2, 1, 0]]
    row = client.get(encoding, query_length=1, key_length=201, query_offset=200).view()[0, 0]
    chosen = row[[0, 72, 73, 87, 88, 101, 184, 185, 199, 200]]
    assert chosen.tolist() == [31, 31, 31, 31, 30, 30, 16, 15, 1, 0]
    sums = client.get(encoding, query_length=1024, key_length=1024, form="dense").sum(
        (1, 2), np.float64
    )
    assert sums.tolist() == [15341065, 15603209, 15865353, 16127497]
