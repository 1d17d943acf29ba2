# SPDX-License-Identifier: Apache-2.0
"""A learned scalar for every relative position: a gather that torch does itself."""

import numpy as np
import pytest
import torch
from bits import assert_same_bits, to_array

import attnbias


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("left", "right"), [(0, 0), (3, 7), (200, 100)])
def test_gather(client: attnbias.Client, left: int, right: int, symmetric: bool) -> None:
    torch.manual_seed(1)
    table = torch.randn(right + 1 if symmetric else left + right + 1, 4)
    relative = torch.arange(90)[None, :] - torch.arange(20, 60)[:, None]
    index = relative.abs().clamp(max=right) if symmetric else relative.clamp(-left, right) + left
    encoding = attnbias.LearnedRelative(
        num_heads=4,
        left=None if symmetric else left,
        right=right,
        symmetric=symmetric,
        table=table,
    )
    extent = {"query_length": 40, "key_length": 90, "query_offset": 20}
    want = to_array(torch.nn.functional.embedding(index, table).permute(2, 0, 1))
    assert_same_bits(client.get(encoding, **extent).view(), want)
    buckets = client.get(encoding, **extent, values="buckets")
    assert np.array_equal(buckets.view(), to_array(index))


def test_beyond_its_reach(client: attnbias.Client) -> None:
    encoding = attnbias.LearnedRelative(
        num_heads=1, left=3, right=3, table=np.ones((7, 1), np.float32), beyond="REFUSE"
    )
    assert client.get(encoding, query_length=4, key_length=4).view().all()
    with pytest.raises(attnbias.OutOfRangeError, match=r"want them in \[-3, 4\)"):
        client.get(encoding, query_length=5, key_length=5)
