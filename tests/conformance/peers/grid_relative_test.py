# SPDX-License-Identifier: Apache-2.0
"""GridRelative against transformers' own modules, with random weights, and against NumPy."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bits import Array, assert_same_bits, to_array
from conftest import CommandLine
from safetensors.numpy import load_file, save_file
from transformers import BeitConfig
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.levit.modeling_levit import LevitAttention, LevitAttentionSubsample
from transformers.models.swin.modeling_swin import SwinRelativePositionBias

import attnbias

WINDOWS = [(1, 1), (2, 2), (2, 3), (7, 7), (12, 12), (4, 9)]


def swin_module(num_heads: int, window: tuple[int, int]) -> SwinRelativePositionBias:
    torch.manual_seed(num_heads)
    module = SwinRelativePositionBias(num_heads, window)
    torch.nn.init.normal_(module.relative_position_bias_table, std=3)
    return module


def swin_of(module: SwinRelativePositionBias) -> attnbias.GridRelative:
    return attnbias.Swin(module.window_size, table=module.relative_position_bias_table)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("num_heads", [1, 3, 32])
def test_swin_bias_matches_in_every_form(
    client: attnbias.Client, window: tuple[int, int], num_heads: int
) -> None:
    module = swin_module(num_heads, window)
    with torch.no_grad():
        want = to_array(module()[0])
    bias = client.get(swin_of(module))
    assert isinstance(bias, attnbias.BlockToeplitz)
    assert_same_bits(bias.dense(), want)
    assert_same_bits(bias.view().reshape(want.shape), want)
    assert_same_bits(to_array(bias.to_torch()), want)
    assert_same_bits(client.get(swin_of(module), form="dense"), want)
    part = client.get(swin_of(module), queries=1, heads=(num_heads - 1, num_heads))
    if want.shape[1] > 1:
        assert_same_bits(part, want[-1:, :1])


@pytest.mark.parametrize("window", WINDOWS)
def test_index_matches_swin(client: attnbias.Client, window: tuple[int, int]) -> None:
    encoding = attnbias.Swin(window)
    index = client.get(encoding, values="buckets", form="dense")
    want = swin_module(1, window).relative_position_index.numpy().astype(np.int32)
    assert_same_bits(index, want.reshape(index.shape))
    assert_same_bits(client.get(encoding, values="buckets").dense(), index)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_swin_matches_in_other_data_types(client: attnbias.Client, dtype: torch.dtype) -> None:
    module = swin_module(4, (3, 5)).to(dtype)
    with torch.no_grad():
        want = to_array(module()[0])
    name = {torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    assert_same_bits(client.get(swin_of(module), data_type=name).dense(), want)


def beit_module(num_heads: int, window: tuple[int, int]) -> BeitRelativePositionBias:
    torch.manual_seed(num_heads)
    config = BeitConfig(
        image_size=(16 * window[0], 16 * window[1]),
        patch_size=16,
        hidden_size=num_heads,
        num_attention_heads=num_heads,
    )
    module = BeitRelativePositionBias(config)
    torch.nn.init.normal_(module.relative_position_bias_table, std=3)
    return module


def beit_bias(module: BeitRelativePositionBias, window: tuple[int, int]) -> Array:
    """Returns the table rows that the module's own index selects.

    Its forward would resize the table to the size it already has. For a non-square window this
    transposes the table, since it is first reshaped to [width, height].
    """
    index = module.generate_relative_position_index(window)
    with torch.no_grad():
        return to_array(module.relative_position_bias_table[index].permute(2, 0, 1))


def beit_of(module: BeitRelativePositionBias) -> attnbias.GridRelative:
    return attnbias.Beit(module.window_size, table=module.relative_position_bias_table)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("num_heads", [1, 12])
def test_beit_bias_matches_in_every_form(
    client: attnbias.Client, window: tuple[int, int], num_heads: int
) -> None:
    module = beit_module(num_heads, window)
    want = beit_bias(module, window)
    if window[0] == window[1]:
        with torch.no_grad():
            assert_same_bits(to_array(module(window)[0]), want)
    bias = client.get(beit_of(module))
    assert isinstance(bias, attnbias.BlockToeplitz)
    assert_same_bits(bias.dense(), want)
    assert_same_bits(to_array(bias.to_torch()), want)
    assert_same_bits(client.get(beit_of(module), form="dense"), want)
    assert_same_bits(client.get(beit_of(module), queries=1, form="dense"), want[:, :1])
    index = client.get(beit_of(module), values="buckets").dense()
    own = module.generate_relative_position_index(window)
    assert_same_bits(index, own.numpy().astype(np.int32))


def test_beit_from_command_line_matches_client(
    client: attnbias.Client, attnbias_cli: CommandLine, tmp_path: Path
) -> None:
    module = beit_module(3, (4, 4))
    bias = client.get(beit_of(module))
    weights = tmp_path / "beit.safetensors"
    save_file({"table": to_array(module.relative_position_bias_table)}, weights)
    fields = ["window=4,4", f"table=@{weights}"]
    both, border = tmp_path / "bias.safetensors", tmp_path / "border.npy"
    attnbias_cli("get", "beit", *fields, "--out", both)
    attnbias_cli("get", "beit", *fields, "--out", border, "--part", "border")
    saved = load_file(both)
    assert_same_bits(saved["block"], bias.block)
    assert_same_bits(saved["border"], bias.border)
    assert_same_bits(np.load(border), bias.border)
    first = tmp_path / "first.npy"
    attnbias_cli("get", "beit", *fields, "--queries", 1, "--heads", "1:3", "--out", first)
    assert_same_bits(np.load(first), bias.dense()[1:, :1])


@pytest.mark.parametrize("side", [1, 2, 5, 14])
def test_matches_levit(client: attnbias.Client, side: int) -> None:
    module = LevitAttention(4, 2, 3, 2, side)
    torch.nn.init.normal_(module.attention_biases)
    want = to_array(module.get_attention_biases(torch.device("cpu")))
    table = module.attention_biases
    encoding = attnbias.LeViT((side, side), table=table, table_layout="heads_buckets")
    assert_same_bits(client.get(encoding).dense(), want)
    index = client.get(attnbias.LeViT((side, side)), values="buckets").dense()
    assert_same_bits(index, to_array(module.attention_bias_idxs).astype(np.int32))


@pytest.mark.parametrize(("side", "stride"), [(1, 2), (4, 2), (7, 2), (5, 3)])
def test_matches_levit_subsample(client: attnbias.Client, side: int, stride: int) -> None:
    module = LevitAttentionSubsample(4, 4, 2, 3, 2, stride, side, (side - 1) // stride + 1)
    torch.nn.init.normal_(module.attention_biases)
    want = to_array(module.get_attention_biases(torch.device("cpu")))
    encoding = attnbias.LeViT(
        (side, side), table=module.attention_biases, table_layout="heads_buckets"
    )
    assert_same_bits(client.get(encoding, query_stride=[stride, stride]).dense(), want)


SIGNS: Any = [{}, {"sign": "query_minus_key"}, {"sign": "key_minus_query"}, {"symmetric": True}]


def of_pairs(window: tuple[int, ...], table: Array, fields: Any, stride: list[int]) -> Array:
    """Returns the bias of each head and pair, from a table whose first axes are displacements."""
    tokens = list(product(*map(range, window)))
    queries = list(product(*map(range, [0] * len(window), window, stride)))
    bias = np.empty((table.shape[-1], len(queries), len(tokens)), table.dtype)
    for (i, query), (j, key) in product(enumerate(queries), enumerate(tokens)):
        places = np.subtract(query, key)
        if fields.get("symmetric"):
            places = np.abs(places)
        elif fields.get("sign") == "key_minus_query":
            places = np.subtract(window, 1) - places
        else:
            places = np.subtract(window, 1) + places
        bias[:, i, j] = table[(*places,)]
    return bias


@pytest.mark.parametrize("window", [*WINDOWS, (5,), (1, 2, 3), (3, 2, 4)])
@pytest.mark.parametrize("fields", SIGNS)
@pytest.mark.parametrize("class_token", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_sign_class_token_and_stride_match_definition(
    client: attnbias.Client, window: tuple[int, ...], fields: Any, class_token: bool, stride: int
) -> None:
    strides = [1, stride, stride][-len(window) :]
    sides = window if fields.get("symmetric") else [2 * side - 1 for side in window]
    rows = np.random.default_rng(5).normal(size=(math.prod(sides) + 3, 2)).astype("f4")
    inside = of_pairs(window, rows[:-3].reshape(*sides, 2), fields, strides)
    want = inside
    if class_token:
        want = np.pad(inside, ((0, 0), (1, 0), (1, 0)))
        want[:, 0, 1:], want[:, 1:, 0] = rows[-3][:, None], rows[-2][:, None]
        want[:, 0, 0] = rows[-1]
    table = rows if class_token else rows[:-3]
    encoding = attnbias.GridRelative(window, table=table, class_token=class_token, **fields)
    assert_same_bits(client.get(encoding, query_stride=strides).dense(), want)
    assert_same_bits(client.get(encoding, query_stride=strides, form="dense"), want)
    part = client.get(encoding, query_stride=strides, queries=(want.shape[1] // 2, want.shape[1]))
    assert_same_bits(np.asarray(part), want[:, want.shape[1] // 2 :])


def test_errors_name_the_argument(client: attnbias.Client) -> None:
    table = np.zeros((9, 2), np.float32)
    for encoding, words in (
        (
            attnbias.LeViT((2, 2, 2, 2), num_heads=2),
            r"LeViT\.window: got 4 numbers, want at most 3",
        ),
        (
            attnbias.Swin((2, 0), num_heads=2),
            r"Swin\.window\[1\]: got 0, want an integer in \[1, 256\]",
        ),
        (attnbias.LeViT((2, 2), table=table), r"LeViT\.table: got 9 rows, want 4 = 2 x 2 "),
        (
            attnbias.GridRelative((2, 2), table=table, symmetric=True, sign="key_minus_query"),
            r"grid_relative\.sign: got KEY_MINUS_QUERY, want none: symmetric is set",
        ),
    ):
        with pytest.raises(attnbias.InvalidArgumentError, match=words):
            client.get(encoding)
