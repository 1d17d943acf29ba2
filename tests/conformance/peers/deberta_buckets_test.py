# SPDX-License-Identifier: Apache-2.0
"""DeBERTa's buckets against transformers' own, and against integer arithmetic, over small
configurations.

As for T5, if torch's logarithm is not correctly rounded, FLOAT32_LOG is compared with transformers
using a correctly rounded one.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from bits import to_array
from bucket_server import Buckets, BucketServer, bucket_spec
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

import attnbias
from attnbias.v1.encodings_pb2 import TensorSpec

DIFFERENCES = Path(__file__).with_name("deberta_rule_differences.json")
LARGEST_DISTANCE = 512
RULES = ("FLOAT32_LOG", "EXACT")


def configurations() -> Iterator[tuple[int, int]]:
    """Yields every bucket_size in [4, 128] with every max_position up to 512 that it can have."""
    for bucket_size in range(4, 129, 2):
        for max_position in range(bucket_size // 2 + 2, LARGEST_DISTANCE + 1):
            yield bucket_size, max_position


def encoding_of(configuration: tuple[int, int], bucket_rule: str) -> attnbias.Deberta:
    bucket_size, max_position = configuration
    return attnbias.Deberta(
        bucket_size=bucket_size,
        max_position=max_position,
        term="BUCKET",
        edge="HF",
        bucket_rule=bucket_rule,
    )


def torch_buckets(configuration: tuple[int, int], distances: Buckets) -> Buckets:
    buckets = make_log_bucket_position(torch.from_numpy(distances), *configuration)
    return to_array(buckets.to(torch.int32))


def exact_buckets(configuration: tuple[int, int], distances: Buckets) -> Buckets:
    """Computes in float64 far from any border between buckets, and in integers near one."""
    middle, farthest = configuration[0] // 2, configuration[1] - 1
    ratio = np.log(np.maximum(distances, middle) / middle) / np.log(farthest / middle)
    steps = ratio * (middle - 1)
    beyond = np.ceil(steps)
    for i in np.flatnonzero((distances > middle) & (np.abs(steps - np.rint(steps)) < 1e-7)):
        k = int(np.rint(steps[i]))
        # (a / m)^(m - 1) > (M / m)^k
        left = int(distances[i]) ** (middle - 1) * middle ** max(k - middle + 1, 0)
        right = farthest**k * middle ** max(middle - 1 - k, 0)
        beyond[i] = k + 1 if left > right else k
    return np.where(distances <= middle, distances, middle + beyond).astype(np.int32)


def specs_of(configuration: tuple[int, int]) -> list[TensorSpec]:
    encodings = (encoding_of(configuration, rule) for rule in RULES)
    return [bucket_spec(each, LARGEST_DISTANCE, LARGEST_DISTANCE + 1) for each in encodings]


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_differences_match_committed_ones(server: str, every: int) -> None:
    distances = np.arange(LARGEST_DISTANCE, -1, -1)
    chosen = list(configurations())[::every]
    assert len(chosen) == math.ceil(30_114 / every)
    with BucketServer(server) as buckets:
        found = buckets.differences(chosen, specs_of, distances, exact_buckets, torch_buckets)
    assert found == [row for row in committed_differences() if (row[0], row[1]) in chosen]


def test_shipped_configurations_match_torch_under_both_rules(client: attnbias.Client) -> None:
    """DeBERTa-v2 and v3 use 256 / 512, transformers' default."""
    distances = np.arange(-4095, 4096)
    want = torch_buckets((256, 512), distances)
    for rule in RULES:
        got = client.get(encoding_of((256, 512), rule), query_length=4096, key_length=4096)
        assert np.array_equal(got.diagonals[::-1], want)


def test_committed_differences_match_docs() -> None:
    entries = committed_differences()
    assert len({(entry[0], entry[1]) for entry in entries}) == 148
    assert len({(entry[0], entry[1]) for entry in entries if entry[2] < entry[1]}) == 21
    assert [18, 65, 24, 14, 13] in entries


def committed_differences() -> list[list[int]]:
    """Returns [bucket_size, max_position, distance, FLOAT32_LOG's bucket, EXACT's bucket]."""
    entries: list[list[int]] = json.loads(DIFFERENCES.read_text())
    return entries
