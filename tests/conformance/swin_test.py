# SPDX-License-Identifier: Apache-2.0
"""Swin, Swin-V2 and BEiT against transformers' own modules, with random weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bits import Array, assert_same_bits, to_array
from conftest import CommandLine
from safetensors.numpy import load_file, save_file
from swin_v2 import ROUNDINGS, assert_near_transformers, in_float64
from transformers import BeitConfig, Swinv2Config
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

import attnbias

WINDOWS = [(1, 1), (2, 2), (2, 3), (7, 7), (12, 12), (4, 9)]


def swin_module(num_heads: int, window: tuple[int, int]) -> SwinRelativePositionBias:
    torch.manual_seed(num_heads)
    module = SwinRelativePositionBias(num_heads, window)
    torch.nn.init.normal_(module.relative_position_bias_table, std=3)
    return module


def swin_of(module: SwinRelativePositionBias) -> attnbias.Swin:
    height, width = module.window_size
    table = module.relative_position_bias_table
    return attnbias.Swin(
        window_height=height, window_width=width, num_heads=table.shape[1], table=table
    )


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("num_heads", [1, 3, 32])
def test_every_form_of_swin(
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
def test_swin_index(client: attnbias.Client, window: tuple[int, int]) -> None:
    height, width = window
    encoding = attnbias.Swin(window_height=height, window_width=width)
    index = client.get(encoding, values="buckets", form="dense")
    want = swin_module(1, window).relative_position_index.numpy().astype(np.int32)
    assert_same_bits(index, want.reshape(index.shape))
    assert_same_bits(client.get(encoding, values="buckets").dense(), index)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_swin_in_its_own_type(client: attnbias.Client, dtype: torch.dtype) -> None:
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
    """The rows of the module's own index.

    Its forward would resize the table to the size that it has. For a window that is not
    square this transposes the table, since it is made [width, height] first.
    """
    index = module.generate_relative_position_index(window)
    with torch.no_grad():
        return to_array(module.relative_position_bias_table[index].permute(2, 0, 1))


def beit_of(module: BeitRelativePositionBias) -> attnbias.Beit:
    height, width = module.window_size
    table = module.relative_position_bias_table
    return attnbias.Beit(
        window_height=height, window_width=width, num_heads=table.shape[1], table=table
    )


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("num_heads", [1, 12])
def test_every_form_of_beit(
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


def test_command_line(client: attnbias.Client, attnbias_cli: CommandLine, tmp_path: Path) -> None:
    module = beit_module(3, (4, 4))
    bias = client.get(beit_of(module))
    weights = tmp_path / "beit.safetensors"
    save_file({"table": to_array(module.relative_position_bias_table)}, weights)
    fields = ["window_height=4", "window_width=4", "num_heads=3", f"table=@{weights}"]
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


def swin_v2_module(
    num_heads: int, window: tuple[int, int], pretrained: tuple[int, int]
) -> Swinv2SelfAttention:
    torch.manual_seed(num_heads)
    module = Swinv2SelfAttention(Swinv2Config(), num_heads, num_heads, window, pretrained)
    for parameter in module.continuous_position_bias_mlp.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def swin_v2_of(module: Swinv2SelfAttention, **fields: Any) -> attnbias.SwinV2:
    hidden, _, output = module.continuous_position_bias_mlp
    height, width = module.window_size
    return attnbias.SwinV2(
        window_height=height,
        window_width=width,
        num_heads=module.num_attention_heads,
        hidden_weight=hidden.weight,
        hidden_bias=hidden.bias,
        output_weight=output.weight,
        **fields,
    )


@pytest.mark.parametrize(
    ("window", "pretrained"),
    [((8, 8), (0, 0)), ((16, 16), (8, 8)), ((3, 5), (12, 6)), ((1, 1), (0, 0)), ((7, 7), (0, 0))],
)
@pytest.mark.parametrize("num_heads", [1, 4, 32])
def test_swin_v2(
    client: attnbias.Client,
    num_heads: int,
    window: tuple[int, int],
    pretrained: tuple[int, int],
) -> None:
    module = swin_v2_module(num_heads, window, pretrained)
    fields = {}
    if pretrained[0]:
        fields = {
            "pretrained_window_height": pretrained[0],
            "pretrained_window_width": pretrained[1],
        }
    encoding = swin_v2_of(module, **fields)
    sides = pretrained if pretrained[0] else window
    exact, moves = in_float64(module, sides)
    mirrored = client.get(encoding, data_type="f64").block[:, ::-1, ::-1]
    error = np.abs(mirrored.transpose(1, 2, 0) - exact)
    assert (error <= ROUNDINGS * 2.0**-53 * (moves + 16)).all()
    assert_near_transformers(client.get(encoding), module, sides)


def test_a_pretrained_side_of_one_has_no_coordinates(client: attnbias.Client) -> None:
    """transformers' are infinite or NaN there; the server refuses it."""
    module = swin_v2_module(2, (4, 4), (1, 1))
    assert not np.isfinite(to_array(module.relative_coords_table)).any()
    encoding = swin_v2_of(module, pretrained_window_height=1, pretrained_window_width=1)
    with pytest.raises(attnbias.InvalidArgumentError, match="pretrained_window_height"):
        client.get(encoding)
