# SPDX-License-Identifier: Apache-2.0
"""Biases from small networks: x-transformers' own layers, and FIRE as written in its paper.

Both are compared with the peer's network in float64, to within 2^-25 of its float32 error: float64
is 2^29 times as fine, and the remaining error comes from the order of sums. The served f32 is that
result, rounded once.
"""

from typing import Any

import numpy as np
import pytest
import torch
from bits import assert_same_bits, to_array
from torch import nn
from x_transformers.x_transformers import DynamicPositionBias
from x_transformers.x_transformers import LayerNorm as BiaslessLayerNorm

import attnbias

Array = np.ndarray[Any, np.dtype[Any]]


def assert_between(got: Array, double: Array, single: Array) -> None:
    assert got.dtype == np.float64
    lost = np.abs(single - double).max()
    assert lost > 0
    assert np.abs(got - double).max() <= 2.0**-25 * lost


def layers_of(peer: DynamicPositionBias) -> list[attnbias.MlpLayer]:
    layers = []
    for block in peer.mlp:
        parts = list(block) if isinstance(block, nn.Sequential) else [block]
        linear = parts[0]
        norm_weight = norm_bias = None
        for part in parts[1:]:
            if isinstance(part, BiaslessLayerNorm):
                norm_weight, norm_bias = part.gamma, torch.zeros_like(part.gamma)
            elif isinstance(part, nn.LayerNorm):
                norm_weight, norm_bias = part.weight, part.bias
        layers.append(
            attnbias.MlpLayer(
                weight=linear.weight, bias=linear.bias, norm_weight=norm_weight, norm_bias=norm_bias
            )
        )
    return layers


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("log_distance", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_matches_dynamic_position_bias(
    client: attnbias.Client, depth: int, log_distance: bool, norm: bool
) -> None:
    torch.manual_seed(depth)
    queries, keys, heads = 60, 200, 6
    peer = DynamicPositionBias(48, heads=heads, depth=depth, log_distance=log_distance, norm=norm)
    encoding = attnbias.DynamicPositionBias(
        layers_of(peer), num_heads=heads, coordinates="signed_log" if log_distance else "linear"
    )
    with torch.no_grad():
        single = to_array(peer(queries, keys))
        distances = torch.arange(1 - keys, keys, dtype=torch.float64)
        double = (distances.sign() * (distances.abs() + 1).log() if log_distance else distances)[
            :, None
        ]
        for layer in peer.double().mlp:
            double = layer(double)
    relative = np.subtract.outer(np.arange(keys - queries, keys), np.arange(keys))
    want = to_array(double.T)[:, relative + keys - 1]

    extent = {"query_length": queries, "key_length": keys, "alignment": "end"}
    got = client.get(encoding, **extent, data_type="f64").dense()
    assert_between(got, want, single)
    assert_same_bits(client.get(encoding, **extent).dense(), got.astype(np.float32))


class CrossFormerPaper(nn.Module):
    """Wang et al. 2021, figure 3: three blocks of LayerNorm, ReLU and a linear layer."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(2, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, outputs))
            for outputs in (width, width, heads)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x

    def layers(self) -> list[attnbias.MlpLayer]:
        linears = [self.first, *(block[2] for block in self.blocks)]
        norms = [*(block[0] for block in self.blocks), None]
        return [
            attnbias.MlpLayer(
                linear.weight,
                bias=linear.bias,
                norm_weight=norm and norm.weight,
                norm_bias=norm and norm.bias,
            )
            for linear, norm in zip(linears, norms, strict=True)
        ]


@pytest.mark.parametrize("window", [(7, 7), (3, 5)])
def test_matches_crossformer_in_two_dimensions(
    client: attnbias.Client, window: tuple[int, int]
) -> None:
    torch.manual_seed(window[0])
    paper = CrossFormerPaper(heads=4, width=24)
    for parameter in paper.parameters():
        nn.init.normal_(parameter, std=0.5)
    sides = (torch.arange(1 - side, side, dtype=torch.float32) for side in window)
    # Flips the block, which is indexed by key - query, to query - key.
    differences = torch.stack(torch.meshgrid(*sides, indexing="ij"), dim=-1).flip(0, 1)
    with torch.no_grad():
        single = to_array(paper(differences).movedim(-1, 0))
        double = to_array(paper.double()(differences.double()).movedim(-1, 0))
    encoding = attnbias.MlpBias(paper.float().layers(), activation="relu", window=window)
    got = client.get(encoding, data_type="f64").block
    assert_between(got, double, single)
    assert_same_bits(client.get(encoding).block, got.astype(np.float32))


class FirePaper(nn.Module):
    """Li et al. 2023, appendix: f_theta(psi(i - j) / psi(max(i, L))), psi(x) = ln(c x + 1)."""

    def __init__(self, heads: int, width: int, c: float, threshold: float) -> None:
        super().__init__()
        self.hidden = nn.Linear(1, width)
        self.output = nn.Linear(width, heads)
        self.c = c
        self.threshold = threshold

    def forward(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        distance = (queries[:, None] - keys[None, :]).abs()
        normaliser = torch.clamp(queries, min=self.threshold)[:, None]
        x = torch.log(self.c * distance + 1) / (torch.log(self.c * normaliser + 1) + 1e-6)
        return self.output(self.hidden(x[..., None]).relu()).permute(2, 0, 1)


@pytest.mark.parametrize(("queries", "keys", "offset"), [(90, 150, 0), (5, 1000, 995), (3, 3, 0)])
def test_fire_matches_paper(client: attnbias.Client, queries: int, keys: int, offset: int) -> None:
    torch.manual_seed(queries)
    paper = FirePaper(heads=4, width=32, c=0.1, threshold=40)
    encoding = attnbias.Fire(
        num_heads=4,
        threshold=40,
        hidden_weight=paper.hidden.weight,
        hidden_bias=paper.hidden.bias,
        output_weight=paper.output.weight,
        output_bias=paper.output.bias,
    )
    positions = torch.arange(offset, offset + queries), torch.arange(keys)
    with torch.no_grad():
        single = to_array(paper(*(p.float() for p in positions)))
        want = to_array(paper.double()(*(p.double() for p in positions)))
    extent = {"query_length": queries, "key_length": keys, "query_offset": offset}
    got = client.get(encoding, **extent, data_type="f64")
    assert_between(got, want, single)
    assert_same_bits(client.get(encoding, **extent), got.astype(np.float32))
    assert_same_bits(client.get(encoding, **extent, data_type="f16"), got.astype(np.float16))


def test_fire_matches_known_values(client: attnbias.Client) -> None:
    """The network returns its input; the positions are those of the golden cases."""
    one = np.ones((1, 1), np.float32)
    encoding = attnbias.Fire(num_heads=1, hidden_weight=one, output_weight=one)
    for query, key, want in ((100, 90, 0.17525475), (1023, 1013, 0.14946124)):
        got = client.get(encoding, query_positions=[query], key_positions=[key], data_type="f64")
        assert abs(got.item() - want) < 1e-8
