# SPDX-License-Identifier: Apache-2.0
"""DeBERTa's buckets against transformers' own, and against integers, over small configurations.

As T5's: where torch's logarithm is not the correctly rounded one, FLOAT32_LOG is what transformers
computes with one that is.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from bits import to_array
from bucket_server import Buckets, BucketServer, bucket_spec
from t5_rules import rounded_log
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

import attnbias

DIFFERENCES = Path(__file__).with_name("deberta_rule_differences.json")
LARGEST_DISTANCE = 512
RULES = ("FLOAT32_LOG", "EXACT")


def configurations() -> Iterator[tuple[int, int]]:
    """Every bucket_size in [4, 128] with every max_position up to 512 that it can have."""
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
    """By float64 where it is far from a border of two buckets, by integers where it is near."""
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


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_configurations(server: str, every: int) -> None:
    distances = np.arange(LARGEST_DISTANCE, -1, -1)
    differences = []
    swept = same_as_plain_torch = 0
    chosen = list(configurations())[::every]
    asked = (
        (c, [bucket_spec(encoding_of(c, r), LARGEST_DISTANCE, len(distances)) for r in RULES])
        for c in chosen
    )
    with BucketServer(server) as buckets:
        for configuration, (float32_log, exact) in buckets.sweep(asked):
            assert np.array_equal(exact, exact_buckets(configuration, distances)), configuration
            if np.array_equal(float32_log, torch_buckets(configuration, distances)):
                same_as_plain_torch += 1
            else:
                with mock.patch.object(torch, "log", rounded_log):
                    want = torch_buckets(configuration, distances)
                assert np.array_equal(float32_log, want), configuration
            for i in np.flatnonzero(float32_log != exact):
                row = [*configuration, distances[i], float32_log[i], exact[i]]
                differences.append([int(number) for number in row])
            swept += 1
    assert swept == math.ceil(30_114 / every)
    assert same_as_plain_torch >= swept - 100
    assert differences == [row for row in committed_differences() if (row[0], row[1]) in chosen]


def test_what_is_shipped_is_plain_torch_under_either_rule(client: attnbias.Client) -> None:
    """DeBERTa-v2 and v3 have 256 / 512, as transformers has by default."""
    distances = np.arange(-4095, 4096)
    want = torch_buckets((256, 512), distances)
    for rule in RULES:
        got = client.get(encoding_of((256, 512), rule), query_length=4096, key_length=4096)
        assert np.array_equal(got.diagonals[::-1], want)


def test_committed_differences_are_the_figures_of_the_docs() -> None:
    entries = committed_differences()
    assert len({(entry[0], entry[1]) for entry in entries}) == 148
    assert len({(entry[0], entry[1]) for entry in entries if entry[2] < entry[1]}) == 21
    assert [18, 65, 24, 14, 13] in entries


def committed_differences() -> list[list[int]]:
    """[bucket_size, max_position, distance, FLOAT32_LOG's bucket, EXACT's bucket]."""
    entries: list[list[int]] = json.loads(DIFFERENCES.read_text())
    return entries
