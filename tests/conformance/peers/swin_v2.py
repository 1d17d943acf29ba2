# SPDX-License-Identifier: Apache-2.0
"""Swin-V2's bias: transformers in float32, the formula in float64, and their maximum difference."""

import numpy as np
import torch
from bits import Array, to_array
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

import attnbias

# Terms in a hidden unit, terms in an output, and roundings of the coordinates and the sigmoid.
ROUNDINGS = 3 + 513 + 64


def coordinates(module: Swinv2SelfAttention, sides: tuple[int, int]) -> Array:
    """Returns the paper's coordinates, for query - key, in float64."""
    axes = []
    for length, side in zip(module.window_size, sides, strict=True):
        distance = np.arange(1 - length, length) * 8 / max(side - 1, 1)
        axes.append(np.sign(distance) * np.log2(np.abs(distance) + 1) / 3)
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def in_float64(module: Swinv2SelfAttention, sides: tuple[int, int]) -> tuple[Array, Array]:
    """Returns the bias for every displacement, and its change per relative rounding of a term.

    The error of a dot product of n terms is less than n + 1 units of the sum of its terms'
    magnitudes; a sigmoid's slope is at most 1/4.
    """
    hidden, _, output = module.continuous_position_bias_mlp
    weight, bias, out = (
        to_array(p).astype("f8") for p in (hidden.weight, hidden.bias, output.weight)
    )
    x = coordinates(module, sides)
    value = np.maximum(x @ weight.T + bias, 0) @ out.T
    magnitude = (np.abs(x) @ np.abs(weight.T) + np.abs(bias)) @ np.abs(out.T)
    return 16 / (1 + np.exp(-value)), 16 / 4 * magnitude


def in_transformers(module: Swinv2SelfAttention) -> Array:
    """Returns [heads, tokens, tokens], as in the module's forward."""
    tokens = module.window_size[0] * module.window_size[1]
    with torch.no_grad():
        rows = module.continuous_position_bias_mlp(module.relative_coords_table)
        table = rows.view(-1, module.num_attention_heads)
        pairs = table[module.relative_position_index.view(-1)].view(tokens, tokens, -1)
        return to_array(16 * torch.sigmoid(pairs.permute(2, 0, 1)))


def assert_near_transformers(
    ours: attnbias.BlockToeplitz, module: Swinv2SelfAttention, sides: tuple[int, int]
) -> None:
    _, moves = in_float64(module, sides)
    bounds = attnbias.BlockToeplitz(
        np.ascontiguousarray((moves + 16).transpose(2, 0, 1)[:, ::-1, ::-1])
    ).dense()
    error = np.abs(ours.dense().astype("f8") - in_transformers(module))
    assert (error <= ROUNDINGS * 2.0**-24 * bounds).all()
