# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as transformers saves them: what the server finds in one is what the model computes.

Tensors' names are a matter between a version of transformers and core/table/checkpoint.cc: this
test fails when they part. Models are tiny, their biases random.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from bits import assert_same_bits, to_array
from every_way import EveryWay

import attnbias
from tests.tools.server_process import running_server

LENGTH = 300
BIASED = {
    "vocab_size": 16,
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 8,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "relative_attention_max_distance": 64,
}
PLAIN = {
    "vocab_size": 16,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 10,
}
WINDOWED = {
    "image_size": 16,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [1, 1],
    "num_heads": [2, 2],
    "window_size": 2,
}
PATCHED = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "image_size": 8,
    "patch_size": 4,
}
ENCODER_DECODER = {
    "vocab_size": 16,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
}
SWIN_PLACES = {"encoder.layers.0.blocks.0", "encoder.layers.1.blocks.0"}


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[attnbias.Client]:
    """A client of a server that has the checkpoint in `folder` mounted as "m"."""
    command = [os.environ["ATTNBIAS_SERVER_BINARY"], f"--checkpoint=m={folder}"]
    with running_server(command) as target, EveryWay(target) as client:
        yield client


def self_attention(block: Any) -> Any:
    layer = block.layer[0]
    for name in ("SelfAttention", "LocalSelfAttention", "TransientGlobalSelfAttention"):
        if hasattr(layer, name):
            return getattr(layer, name)
    raise AssertionError(layer)


def t5_biases(model: Any) -> dict[str, Any]:
    return {
        side: self_attention(getattr(model, side).block[0]).compute_bias(LENGTH, LENGTH)[0]
        for side in ("encoder", "decoder")
    }


def umt5_biases(model: Any) -> dict[str, Any]:
    return {
        f"{side}.layers.{i}": self_attention(block).compute_bias(LENGTH, LENGTH)[0]
        for side in ("encoder", "decoder")
        for i, block in enumerate(getattr(model, side).block)
    }


def mpnet_bias(model: Any) -> dict[str, Any]:
    return {"encoder": model.encoder.compute_position_bias(torch.zeros(1, LENGTH, 8))[0]}


@pytest.mark.parametrize(
    ("config", "biases"),
    [
        (hf.T5Config(**BIASED), t5_biases),
        (hf.MT5Config(**BIASED), t5_biases),
        (hf.UMT5Config(**BIASED), umt5_biases),
        (hf.MPNetConfig(**PLAIN), mpnet_bias),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
@pytest.mark.parametrize("shards", ["1GB", "1KB"], ids=["whole", "sharded"])
def test_specs_give_what_the_model_computes(
    tmp_path: Path, config: Any, biases: Callable[[Any], dict[str, Any]], shards: str
) -> None:
    torch.manual_seed(7)
    model = hf.AutoModel.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if "relative_attention_bias" in name:
            torch.nn.init.normal_(parameter, std=3)
    model.save_pretrained(tmp_path, max_shard_size=shards)
    with torch.no_grad():
        want = {place: to_array(bias) for place, bias in biases(model).items()}
    with serving(tmp_path) as client:
        tables = {table.name: table for table in client.list_tables()}
        assert {f"m/{place}" for place in want} == {n for n, t in tables.items() if t.encoding}
        for place, bias in want.items():
            got = client.get(tables[f"m/{place}"].encoding, queries=LENGTH, keys=LENGTH)
            assert_same_bits(got.view(), bias)


@pytest.mark.parametrize(
    ("config", "places"),
    [
        (hf.LongT5Config(**BIASED), {"encoder", "decoder"}),
        (
            hf.LongT5Config(**BIASED, encoder_attention_type="transient-global"),
            {"encoder", "encoder.global", "decoder"},
        ),
        (hf.BertConfig(**PLAIN), {"positions"}),
        (hf.RobertaConfig(**PLAIN), {"positions"}),
        (hf.GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2), {"positions"}),
        (
            hf.OPTConfig(
                vocab_size=16,
                hidden_size=8,
                num_hidden_layers=1,
                ffn_dim=8,
                num_attention_heads=2,
                word_embed_proj_dim=8,
            ),
            {"positions"},
        ),
        (
            hf.BartConfig(**ENCODER_DECODER),
            {"encoder.positions", "decoder.positions"},
        ),
        (hf.SwinConfig(**WINDOWED, use_absolute_embeddings=True), {*SWIN_PLACES, "positions"}),
        (
            hf.Swinv2Config(**WINDOWED),
            {
                f"{place}.mlp.{part}"
                for place in SWIN_PLACES
                for part in ("0.weight", "0.bias", "2.weight")
            },
        ),
        (
            hf.BeitConfig(
                **PATCHED, use_relative_position_bias=True, use_absolute_position_embeddings=True
            ),
            {"encoder.layers.0", "encoder.layers.1", "positions"},
        ),
        (hf.BeitConfig(**PATCHED, use_shared_relative_position_bias=True), {"encoder"}),
        (
            hf.DebertaV2Config(**PLAIN, relative_attention=True, position_buckets=4),
            {"encoder", "positions"},
        ),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_every_position_table_is_found(tmp_path: Path, config: Any, places: set[str]) -> None:
    hf.AutoModel.from_config(config).save_pretrained(tmp_path)
    with serving(tmp_path) as client:
        tables = client.list_tables()
    assert {table.name for table in tables} == {f"m/{place}" for place in places}
