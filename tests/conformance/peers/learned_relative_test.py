# SPDX-License-Identifier: Apache-2.0
"""Learned scalars and vectors for relative positions: a gather that torch can do itself."""

from typing import Any

import numpy as np
import pytest
import torch
from bits import assert_same_bits, to_array

import attnbias


@pytest.mark.parametrize("kind", ["scalars", "vectors"])
@pytest.mark.parametrize("counted", ["KEY_MINUS_QUERY", "QUERY_MINUS_KEY", "symmetric"])
@pytest.mark.parametrize(("left", "right"), [(0, 0), (3, 7), (200, 100)])
def test_gathers_rows_of_the_table(
    client: attnbias.Client, left: int, right: int, counted: Any, kind: str
) -> None:
    torch.manual_seed(1)
    symmetric = counted == "symmetric"
    table = torch.randn(right + 1 if symmetric else left + right + 1, 4)
    relative = torch.arange(90)[None, :] - torch.arange(20, 60)[:, None]
    clipped = relative.clamp(-left, right)
    rows = {"KEY_MINUS_QUERY": clipped + left, "QUERY_MINUS_KEY": right - clipped}
    index = relative.abs().clamp(max=right) if symmetric else rows[counted]
    reach: Any = {"symmetric": True} if symmetric else {"left": left, "sign": counted}
    heads = {"num_heads": 4} if kind == "scalars" else {}
    encoding = attnbias.LearnedRelative(right, **reach, **heads, **{kind: table})
    extent = {"query_length": 40, "key_length": 90, "query_offset": 20}
    want = torch.nn.functional.embedding(index, table)
    want = want.permute(2, 0, 1) if kind == "scalars" else want
    assert_same_bits(client.get(encoding, **extent).view(), to_array(want))
    for each in (encoding, attnbias.LearnedRelative(right, **reach)):
        buckets = client.get(each, **extent, values="buckets")
        assert np.array_equal(buckets.view(), to_array(index))


def test_distance_beyond_reach_is_rejected(client: attnbias.Client) -> None:
    encoding = attnbias.LearnedRelative(
        num_heads=1, left=3, right=3, scalars=np.ones((7, 1), np.float32), beyond="REFUSE"
    )
    assert client.get(encoding, query_length=4, key_length=4).view().all()
    with pytest.raises(attnbias.OutOfRangeError, match=r"want positions in \[-3, 4\)"):
        client.get(encoding, query_length=5, key_length=5)
