# SPDX-License-Identifier: Apache-2.0
"""Decomposed relative positions against SAM's and ViTDet's own code, which computes in float32."""

from typing import Any

import numpy as np
import pytest
import torch
from bits import Array, to_array
from transformers import SamVisionConfig
from transformers.models.sam.modeling_sam import SamVisionAttention
from transformers.models.vitdet.modeling_vitdet import add_decomposed_relative_positions

import attnbias

HEADS, DIM = 2, 8
UNIT = 2.0**-24
Grid = tuple[int, int]


def sam(side: int) -> Any:
    """Returns SAM's attention over a square grid, with random weights."""
    torch.manual_seed(side)
    config = SamVisionConfig(
        hidden_size=HEADS * DIM, num_attention_heads=HEADS, image_size=4 * side, patch_size=4
    )
    attention = SamVisionAttention(config, window_size=0)
    for table in (attention.rel_pos_h, attention.rel_pos_w):
        torch.nn.init.normal_(table)
    return attention.eval()


def by_sam(
    queries: torch.Tensor, tables: list[torch.Tensor], of_queries: Grid, of_keys: Grid
) -> Array:
    logits = sam(1).get_decomposed_rel_pos(queries, *tables, of_queries, of_keys)
    return to_array(logits.flatten(3).flatten(1, 2))


def by_vitdet(
    queries: torch.Tensor, tables: list[torch.Tensor], of_queries: Grid, of_keys: Grid
) -> Array:
    zeros = queries.new_zeros(HEADS, queries.shape[1], of_keys[0] * of_keys[1])
    return to_array(add_decomposed_relative_positions(zeros, queries, *tables, of_queries, of_keys))


def ours(
    client: attnbias.Client,
    queries: torch.Tensor,
    tables: list[torch.Tensor],
    of_queries: Grid,
    of_keys: Grid,
) -> Array:
    term = attnbias.DecomposedRelativePositions(
        rel_pos_h=tables[0],
        rel_pos_w=tables[1],
        query_height=of_queries[0],
        query_width=of_queries[1],
        key_height=of_keys[0],
        key_width=of_keys[1],
    )
    keys = of_keys[0] * of_keys[1]
    got: Array = client.logits(
        term, queries, key_length=keys, direction="bidirectional", alignment="start"
    )
    return got


def bound(
    queries: torch.Tensor, tables: list[torch.Tensor], of_queries: Grid, of_keys: Grid
) -> Array:
    """Returns the maximum difference between two float32 sums.

    Each sum has DIM products and one addition. Ours also rounds the rows of a stretched table
    twice. Theirs rounds the position between two rows (which may be as large as the number of rows)
    three times, and has three further roundings.
    """
    magnitude = by_sam(queries.abs(), [table.abs() for table in tables], of_queries, of_keys)
    sums = (2 * (DIM + 1) + 2 + 1) * UNIT * magnitude.astype("f8")
    rows = sum(6 * (len(table) + 1) * float(table.abs().max()) for table in tables)
    longest: Array = to_array(queries.double().abs().sum(-1, keepdim=True))
    return sums + rows * UNIT * longest


def assert_same(
    client: attnbias.Client, peer: Any, rows: Grid, of_queries: Grid, of_keys: Grid
) -> None:
    torch.manual_seed(rows[0])
    queries = torch.randn(HEADS, of_queries[0] * of_queries[1], DIM)
    tables = [torch.randn(count, DIM) for count in rows]
    asked = (queries, tables, of_queries, of_keys)
    difference = np.abs(ours(client, *asked).astype("f8") - peer(*asked))
    assert np.all(difference <= bound(*asked)), np.max(difference / bound(*asked))


@pytest.mark.parametrize("peer", [by_sam, by_vitdet])
@pytest.mark.parametrize(
    ("rows", "of_queries", "of_keys"),
    [
        ((27, 27), (14, 14), (14, 14)),  # a SAM window
        ((127, 127), (16, 64), (16, 64)),  # the tables of its global blocks, for another image size
        ((27, 27), (9, 21), (9, 21)),
        ((1, 2), (5, 3), (5, 3)),
        ((31, 31), (16, 16), (8, 4)),  # MViTv2's pooled keys
        ((31, 31), (8, 4), (16, 16)),
        ((55, 40), (29, 15), (12, 11)),
        ((1, 1), (1, 1), (1, 1)),
    ],
)
def test_grids_match_peers(
    client: attnbias.Client, peer: Any, rows: Grid, of_queries: Grid, of_keys: Grid
) -> None:
    assert_same(client, peer, rows, of_queries, of_keys)


@pytest.mark.parametrize("queries", range(1, 17))
def test_every_pair_of_sides_matches_sam(client: attnbias.Client, queries: int) -> None:
    """Covers sides, such as 8 and 6, for which float32 selects different rows than exact
    arithmetic."""
    for keys in range(1, 17):
        rows = (2 * max(queries, keys) - 1, 1)
        assert_same(client, by_sam, rows, (queries, 1), (keys, 1))


def test_attention_with_served_bias_matches(client: attnbias.Client) -> None:
    """The module's attention is a softmax over query-key products plus the served bias."""
    side = 6
    attention = sam(side)
    states = torch.randn(1, side, side, HEADS * DIM)
    with torch.no_grad():
        _, want = attention(states)
        projected = attention.qkv(states).reshape(side * side, 3, HEADS, DIM)
    queries, keys, _ = projected.permute(1, 2, 0, 3)
    tables = [attention.rel_pos_h.detach(), attention.rel_pos_w.detach()]
    added = torch.from_numpy(ours(client, queries, tables, (side, side), (side, side)))
    got = torch.softmax(queries * attention.scale @ keys.transpose(-2, -1) + added, -1)
    np.testing.assert_allclose(to_array(got), to_array(want), rtol=1e-5, atol=1e-7)
