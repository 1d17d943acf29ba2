# SPDX-License-Identifier: Apache-2.0
"""T5's buckets against transformers' own, and against integer arithmetic, over every small
configuration.

FLOAT32_LOG uses the correctly rounded float32 logarithm. torch uses the one in the vector library
with which it was built, and the one in its PyPI wheels for x86-64 rounds some arguments the wrong
way. Where unmodified transformers disagrees, it must therefore agree once torch.log is
replaced with a correctly rounded logarithm.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bucket_server import BucketServer, bucket_spec
from t5_rules import (
    LARGEST_DISTANCE,
    causal_configurations,
    exact_buckets,
    exact_starts,
    torch_buckets,
)

import attnbias
from attnbias.v1.encodings_pb2 import TensorSpec

DIFFERENCES = Path(__file__).with_name("t5_rule_differences.json")
SHIPPED = [(32, 128), (64, 256), (320, 800)]
RULES = ["EXACT", "FLOAT32_LOG"]


@pytest.fixture(scope="module")
def buckets(server: str) -> Iterator[BucketServer]:
    with BucketServer(server) as connected:
        yield connected


def differences(
    buckets: BucketServer, configurations: list[tuple[int, int]], *, bidirectional: bool
) -> list[list[int]]:
    """Covers all relative positions in a sweep; the distance of a key to the right is negative."""
    first = -LARGEST_DISTANCE if bidirectional else 0
    distances = np.arange(LARGEST_DISTANCE, first - 1, -1)

    def rule(configuration: tuple[int, int]) -> dict[str, Any]:
        names = ("num_buckets", "max_distance")
        return {"bidirectional": bidirectional} | dict(zip(names, configuration, strict=True))

    def specs_of(configuration: tuple[int, int]) -> list[TensorSpec]:
        fields = rule(configuration)
        encodings = (attnbias.T5(**fields, bucket_rule=r) for r in ("FLOAT32_LOG", "EXACT"))
        return [bucket_spec(each, LARGEST_DISTANCE, len(distances)) for each in encodings]

    return buckets.differences(
        configurations,
        specs_of,
        distances,
        lambda configuration, far: exact_buckets(-far, **rule(configuration)),
        lambda configuration, far: torch_buckets(-far, **rule(configuration)),
    )


@pytest.mark.parametrize("every", [31, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_causal_configurations_differ_only_as_committed(buckets: BucketServer, every: int) -> None:
    chosen = list(causal_configurations())[::every]
    assert len(chosen) == math.ceil(123_906 / every)
    found = differences(buckets, chosen, bidirectional=False)
    assert found == [row for row in committed_differences() if (row[0], row[1]) in chosen]


def test_bidirectional_configurations_match_their_rules(buckets: BucketServer) -> None:
    of_one_direction = list(causal_configurations())[::41]
    chosen = [(2 * num_buckets, distance) for num_buckets, distance in of_one_direction]
    differences(buckets, chosen, bidirectional=True)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), SHIPPED)
def test_shipped_configurations_match_torch_under_both_rules(
    client: attnbias.Client, num_buckets: int, max_distance: int, bidirectional: bool
) -> None:
    length = 4096
    rule = {
        "bidirectional": bidirectional,
        "num_buckets": num_buckets,
        "max_distance": max_distance,
    }
    want = torch_buckets(np.arange(1 - length, length), **rule)
    for bucket_rule in RULES:
        t5 = attnbias.T5(**rule, bucket_rule=bucket_rule)
        got = client.get(t5, query_length=length, key_length=length, values="buckets")
        assert np.array_equal(got.diagonals, want)


def test_committed_differences_exclude_shipped_configurations() -> None:
    configurations = {(entry[0], entry[1]) for entry in committed_differences()}
    assert len(configurations) == 104
    assert [24, 889, 621, 23, 22] in committed_differences()
    for num_buckets, max_distance in SHIPPED:
        assert (num_buckets, max_distance) not in configurations
        assert (num_buckets // 2, max_distance) not in configurations


def test_bucket_starts_match_the_literature() -> None:
    """Checks the oracle itself against numbers from the literature."""
    assert exact_starts(16, 128) == [*range(9), 12, 16, 23, 32, 46, 64, 91]
    assert exact_starts(32, 128) == [
        *range(17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113
    ]  # fmt: skip
    assert exact_starts(32, 256)[16:] == [
        16, 20, 23, 27, 32, 39, 46, 54, 64, 77, 91, 108, 128, 153, 182, 216
    ]  # fmt: skip
    of_wavlm = exact_starts(160, 800)
    assert of_wavlm[:92] == [*range(81), 83, 85, 88, 90, 93, 96, 98, 101, 104, 107, 110]
    assert of_wavlm[-2:] == [756, 778]


@pytest.mark.parametrize(
    ("num_buckets", "max_distance", "distance", "bucket"),
    [
        (16, 800, 80, 12),
        (20, 1000, 100, 15),
        (40, 2000, 200, 30),
        (100, 128, 80, 75),
        (128, 100, 80, 96),
        (40, 640, 40, 24),
    ],
)
def test_distance_on_bucket_border_is_in_the_upper_bucket(
    client: attnbias.Client, num_buckets: int, max_distance: int, distance: int, bucket: int
) -> None:
    for bidirectional, factor in [(False, 1), (True, 2)]:
        t5 = attnbias.T5(
            bidirectional=bidirectional, num_buckets=factor * num_buckets, max_distance=max_distance
        )
        got = client.get(
            t5,
            query_length=distance + 1,
            queries=(distance, distance + 1),
            key_length=distance + 1,
            values="buckets",
        )
        assert got.diagonals[0] == bucket


def test_ten_by_ten_matrix_has_known_buckets(client: attnbias.Client) -> None:
    t5 = attnbias.T5(bidirectional=True)
    got = client.get(t5, query_length=10, key_length=10, values="buckets", form="dense")
    assert got[0].tolist() == [0, 17, 18, 19, 20, 21, 22, 23, 24, 24]
    assert got[9].tolist() == [8, 8, 7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_indices_stay_within_table(client: attnbias.Client, bidirectional: bool) -> None:
    for num_buckets, max_distance in [*SHIPPED, (4, 5), (4096, 1 << 20)]:
        t5 = attnbias.T5(
            bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance
        )
        got = client.get(t5, query_length=5000, key_length=5000, values="buckets").diagonals
        assert got.min() == 0
        assert got.max() < num_buckets
        if bidirectional:  # a distance cannot be both positive and zero
            assert num_buckets // 2 not in got


def committed_differences() -> list[list[int]]:
    """Returns [num_buckets, max_distance, distance, FLOAT32_LOG's bucket, EXACT's bucket]."""
    entries: list[list[int]] = json.loads(DIFFERENCES.read_text())
    return entries
