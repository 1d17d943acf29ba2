# SPDX-License-Identifier: Apache-2.0
"""Worked examples from the literature that combine requests; tests/unit has those for a single
encoding.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bits import Array, assert_same_bits
from every_way import EveryWay
from safetensors.numpy import save_file

import attnbias
from tests.support.server_process import running_server


def by_skewing(queries: Array, relative: Array) -> Array:
    """Computes square Shaw logits by Music Transformer's method: multiplies by the rows for
    distances -(L - 1) to L - 1, then shifts the product's rows by padding and folding.
    """
    length = len(queries)
    products = np.pad(queries @ relative.T, ((0, 0), (0, 1)))
    folded = np.pad(products.ravel(), (0, length - 1)).reshape(length + 1, 2 * length - 1)
    return folded[:length, length - 1 :]


@pytest.mark.parametrize("direction", ["left_to_right", "bidirectional"])
def test_shaw_logits_by_index_and_by_skewing_are_equal(
    client: attnbias.Client, direction: Any
) -> None:
    random = np.random.default_rng(1)
    length, dim, reach = 40, 8, 6
    queries = random.standard_normal((1, length, dim))
    table = random.standard_normal((2 * reach + 1, dim))
    gathered = client.get(
        attnbias.Shaw(left=reach, right=reach, table=table),
        query_length=length,
        key_length=length,
        data_type="f64",
    ).dense()
    by_index = np.einsum("id,ijd->ij", queries[0], gathered)
    clipped = np.clip(np.arange(1 - length, length), -reach, reach) + reach
    assert np.abs(by_index - by_skewing(queries[0], table[clipped])).max() <= 1e-12
    term = attnbias.ShawKeys(table=table, left=reach, right=reach)
    got = client.logits(
        term, queries, key_length=length, direction=direction, output_data_type="f64"
    )[0]
    seen = np.tri(length, dtype=bool) | (direction == "bidirectional")
    assert np.abs(got - by_index)[seen].max() <= 1e-12
    assert np.all(np.isneginf(got[~seen]))


def test_tupe_class_token_matches_known_values(client: attnbias.Client) -> None:
    encoding = attnbias.Tupe(num_heads=1, reset_class_token=True)
    index = client.get(encoding, query_length=5, key_length=5, values="buckets", form="dense")
    assert index.tolist() == [
        [16, 16, 16, 16, 16],
        [32, 0, 17, 18, 19],
        [32, 1, 0, 17, 18],
        [32, 2, 1, 0, 17],
        [32, 3, 2, 1, 0],
    ]
    # Projections that yield 6 i + j for every pair of the six positions.
    products = attnbias.Tupe(
        num_heads=1,
        reset_class_token=True,
        position_table=np.stack([np.arange(6.0), np.ones(6)], axis=1),
        query_weight=np.array([[6.0, 0], [0, 1]]),
        query_bias=np.zeros(2),
        key_weight=np.array([[0, 1.0], [1, 0]]),
        key_bias=np.zeros(2),
        position_scale=1,
    )
    want = np.arange(36, dtype=np.float32).reshape(6, 6)[1:, 1:].copy()
    want[:, 0] = 7
    want[0, :] = 0
    assert_same_bits(client.get(products, query_length=5, key_length=5)[0], want)


def test_rotary_layouts_are_permutations(client: attnbias.Client) -> None:
    half, pairs = (
        client.get(
            attnbias.Rotary(head_dim=128, layout=layout), positions=(4711, 4811), data_type="f64"
        )
        for layout in ("HALF", "INTERLEAVED")
    )
    assert_same_bits(
        np.ascontiguousarray(half.cos.reshape(-1, 2, 64).swapaxes(1, 2)).reshape(-1, 128), pairs.cos
    )
    assert np.abs(half.cos**2 + half.sin**2 - 1).max() <= 2**-51
    # A product of two rows depends only on their distance.
    turned = half.cos @ half.cos.T + half.sin @ half.sin.T
    for distance in (1, 40):
        products = np.diagonal(turned, distance)
        assert np.ptp(products) <= 1e-11


def test_table_can_be_named_by_digest(tmp_path: Path) -> None:
    """OPT's rows start at 2, and no row follows the last."""
    table = np.random.default_rng(9).standard_normal((12, 5)).astype(np.float32)
    save_file({"weight": table}, tmp_path / "opt.safetensors")
    mounted = f"--table=opt={tmp_path}/opt.safetensors:weight"
    with running_server(mounted) as target, EveryWay(target) as client:
        (mounted,) = client.list_tables()
        sent = attnbias.LearnedAbsolute(table=table, offset=2)
        resolved = client.describe(sent, positions=10).resolved_spec
        assert resolved.learned_absolute.table.sha256 == mounted.sha256
        for name in ("opt", f"sha256:{mounted.sha256}"):
            encoding = attnbias.LearnedAbsolute(table=name, offset=2)
            assert_same_bits(client.get(encoding, positions=10), table[2:])
            assert_same_bits(client.get(encoding, position_ids=[9, 0]), table[[11, 2]])
            with pytest.raises(attnbias.OutOfRangeError):
                client.get(encoding, positions=11)
