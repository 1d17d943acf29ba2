# SPDX-License-Identifier: Apache-2.0
"""Swin-V2 against transformers' own module, with random weights."""

from typing import Any

import numpy as np
import pytest
import torch
from bits import to_array
from swin_v2 import ROUNDINGS, assert_near_transformers, in_float64
from transformers import Swinv2Config
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

import attnbias


def swin_v2_module(
    num_heads: int, window: tuple[int, int], pretrained: tuple[int, int]
) -> Swinv2SelfAttention:
    torch.manual_seed(num_heads)
    module = Swinv2SelfAttention(Swinv2Config(), num_heads, num_heads, window, pretrained)
    for parameter in module.continuous_position_bias_mlp.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def swin_v2_of(module: Swinv2SelfAttention, **fields: Any) -> attnbias.MlpBias:
    hidden, _, output = module.continuous_position_bias_mlp
    return attnbias.SwinV2(
        [attnbias.MlpLayer(hidden.weight, bias=hidden.bias), attnbias.MlpLayer(output.weight)],
        window=module.window_size,
        num_heads=module.num_attention_heads,
        **fields,
    )


@pytest.mark.parametrize(
    ("window", "pretrained"),
    [((8, 8), (0, 0)), ((16, 16), (8, 8)), ((3, 5), (12, 6)), ((1, 1), (0, 0)), ((7, 7), (0, 0))],
)
@pytest.mark.parametrize("num_heads", [1, 4, 32])
def test_matches_swin_v2(
    client: attnbias.Client, num_heads: int, window: tuple[int, int], pretrained: tuple[int, int]
) -> None:
    module = swin_v2_module(num_heads, window, pretrained)
    encoding = swin_v2_of(module, pretrained_window=pretrained if pretrained[0] else None)
    sides = pretrained if pretrained[0] else window
    exact, moves = in_float64(module, sides)
    mirrored = client.get(encoding, data_type="f64").block[:, ::-1, ::-1]
    error = np.abs(mirrored.transpose(1, 2, 0) - exact)
    assert (error <= ROUNDINGS * 2.0**-53 * (moves + 16)).all()
    assert_near_transformers(client.get(encoding), module, sides)


def test_pretrained_side_of_one_is_rejected(client: attnbias.Client) -> None:
    """transformers' coordinates are infinite or NaN there; the server rejects it."""
    module = swin_v2_module(2, (4, 4), (1, 1))
    assert not np.isfinite(to_array(module.relative_coords_table)).any()
    encoding = swin_v2_of(module, pretrained_window=(1, 1))
    with pytest.raises(
        attnbias.InvalidArgumentError,
        match=r"SwinV2\.pretrained_window\[0\]: got 1, want at least 2",
    ):
        client.get(encoding)
