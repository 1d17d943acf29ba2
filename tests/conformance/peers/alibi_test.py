# SPDX-License-Identifier: Apache-2.0
"""ALiBi against the exact values, and against its peers with their own slopes and forms."""

import json
from pathlib import Path

import ml_dtypes
import mpmath
import numpy as np
import pytest
import torch
from attached import chosen
from bits import assert_same_bits, bits, to_array
from real import NUMPY_TYPES, alibi_slopes, rounded, rounded_array
from transformers.models.bloom.modeling_bloom import _get_alibi_slopes, build_alibi_tensor
from transformers.models.falcon.modeling_falcon import build_alibi_tensor as build_falcon_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from x_transformers.x_transformers import AlibiPositionalBias

import attnbias

HEADS = range(1, 129)
LENGTHS = [1, 2, 17, 512, 2048]
DIFFERENCES = Path(__file__).with_name("alibi_differences.json")
TORCH_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def served_slopes(
    client: attnbias.Client, encodings: list[attnbias.ALiBi], dtype: str = "f32"
) -> list[np.ndarray]:
    """Returns the negated bias for the key just before the query."""
    requests = [
        attnbias.Request(e, query_length=2, key_length=2, data_type=dtype) for e in encodings
    ]
    return [-bias.diagonals[:, 0] for bias in client.get_many(requests)]


def test_default_slopes_match_x_transformers(client: attnbias.Client) -> None:
    encodings = [attnbias.ALiBi(num_heads=num_heads) for num_heads in HEADS]
    for num_heads, got in zip(HEADS, served_slopes(client, encodings), strict=True):
        want = torch.Tensor(AlibiPositionalBias._get_slopes(num_heads))
        assert_same_bits(got, to_array(want))


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("bias_max", chosen([8, 1, 16, 7.3], 8, 7.3))
def test_slopes_are_correctly_rounded(client: attnbias.Client, bias_max: float, dtype: str) -> None:
    encodings = [attnbias.ALiBi(num_heads=n, alibi_bias_max=bias_max) for n in HEADS]
    for num_heads, got in zip(HEADS, served_slopes(client, encodings, dtype), strict=True):
        assert_same_bits(got, rounded_array(alibi_slopes(num_heads, bias_max), dtype))


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("num_heads", [8, 12, 71, 112])
def test_products_are_rounded_once(client: attnbias.Client, num_heads: int, dtype: str) -> None:
    length = 512
    got = client.get(
        attnbias.ALiBi(num_heads=num_heads), query_length=length, key_length=length, data_type=dtype
    ).diagonals
    slopes = alibi_slopes(num_heads)
    with mpmath.workprec(256):
        want = [rounded_array([-s * n for n in range(length)], dtype) for s in slopes]
    assert_same_bits(got[:, length - 1 :: -1], np.stack(want))


def test_products_of_rounded_slopes_differ(client: attnbias.Client) -> None:
    """With 12 heads, 424 of 6144 elements differ; explicit slopes reproduce them."""
    rounded_slopes = [rounded(slope, "f32") for slope in alibi_slopes(12)]
    default, given = (
        client.get(
            attnbias.ALiBi(num_heads=12, slopes=slopes), query_length=512, key_length=512
        ).diagonals
        for slopes in (None, rounded_slopes)
    )
    assert np.count_nonzero(default[:, :512] != given[:, :512]) == 424
    distances = np.arange(511, -1, -1, dtype=np.float32)
    assert np.array_equal(given[:, :512], -np.float32(rounded_slopes)[:, None] * distances)


def test_matches_bloom(client: attnbias.Client) -> None:
    for length in LENGTHS:
        wanted, requests = [], []
        for num_heads in HEADS:
            alibi = build_alibi_tensor(torch.ones(1, length), num_heads, torch.float32)
            wanted.append(to_array(alibi.reshape(num_heads, length)))
            slopes = _get_alibi_slopes(num_heads, torch.device("cpu")).tolist()
            encoding = attnbias.ALiBi(num_heads=num_heads, slopes=slopes, variant="KEY_FROM_START")
            requests.append(attnbias.Request(encoding, query_length=length, key_length=length))
        for bias, want in zip(client.get_many(requests), wanted, strict=True):
            assert_same_bits(bias.row, want)


def falcon(num_heads: int, length: int) -> torch.Tensor:
    """Computes in BF16 regardless of the model's type."""
    mask = torch.ones(1, length, dtype=torch.long)
    alibi = build_falcon_tensor(mask, num_heads, torch.bfloat16)
    return alibi.reshape(num_heads, length)


def bloom(num_heads: int, length: int, dtype: str) -> torch.Tensor:
    alibi = build_alibi_tensor(torch.ones(1, length), num_heads, TORCH_TYPES[dtype])
    return alibi.reshape(num_heads, length)


def rows_of(
    client: attnbias.Client, slopes: list[list[float]], length: int, dtype: str
) -> list[np.ndarray]:
    requests = [
        attnbias.Request(
            attnbias.ALiBi(num_heads=len(given), slopes=given, variant="KEY_FROM_START"),
            query_length=length,
            key_length=length,
            data_type=dtype,
        )
        for given in slopes
    ]
    return [bias.row for bias in client.get_many(requests)]


def falcon_slopes() -> list[list[float]]:
    """Returns the slopes, which equal the second key's biases."""
    return [falcon(n, 2)[:, 1].tolist() for n in HEADS]


def bloom_slopes() -> list[list[float]]:
    return [_get_alibi_slopes(n, torch.device("cpu")).tolist() for n in HEADS]


def test_matches_falcon_up_to_exact_bf16_positions(client: attnbias.Client) -> None:
    for num_heads, got in zip(HEADS, rows_of(client, falcon_slopes(), 257, "bf16"), strict=True):
        assert_same_bits(got, to_array(falcon(num_heads, 257)))


def test_double_rounding_explains_peer_differences(client: attnbias.Client) -> None:
    """Falcon also rounds positions, and BLOOM rounds to float32 first. Nothing else differs."""
    length = 2048
    differences: dict[str, list[int]] = {"falcon bf16": [], "bloom bf16": [], "bloom f16": []}
    positions = np.arange(length)
    for num_heads, given, got in zip(
        HEADS, falcon_slopes(), rows_of(client, falcon_slopes(), length, "bf16"), strict=True
    ):
        want = to_array(falcon(num_heads, length))
        rounded_positions = positions.astype(ml_dtypes.bfloat16).astype(np.float64)
        assert_same_bits((np.outer(given, rounded_positions)).astype(ml_dtypes.bfloat16), want)
        differences["falcon bf16"].append(np.count_nonzero(bits(got) != bits(want)))
    for dtype in TORCH_TYPES:
        for num_heads, given, got in zip(
            HEADS, bloom_slopes(), rows_of(client, bloom_slopes(), length, dtype), strict=True
        ):
            want = to_array(bloom(num_heads, length, dtype))
            products = np.outer(given, positions).astype(np.float32)
            assert_same_bits(products.astype(NUMPY_TYPES[dtype]), want)
            differences[f"bloom {dtype}"].append(np.count_nonzero(bits(got) != bits(want)))
    assert differences == json.loads(DIFFERENCES.read_text())


def test_matches_mpt(client: attnbias.Client) -> None:
    for length in LENGTHS:
        wanted, requests = [], []
        for num_heads in HEADS:
            wanted.append(to_array(build_mpt_alibi_tensor(num_heads, length)[:, 0]))
            slopes = (-build_mpt_alibi_tensor(num_heads, 2)[:, 0, 0]).tolist()
            encoding = attnbias.ALiBi(num_heads=num_heads, slopes=slopes, variant="KEY_FROM_END")
            requests.append(attnbias.Request(encoding, query_length=length, key_length=length))
        for bias, want in zip(client.get_many(requests), wanted, strict=True):
            assert_same_bits(bias.row, want)


def test_matches_x_transformers(client: attnbias.Client) -> None:
    for queries, keys in [(1, 1), (1, 2), (64, 64), (5, 300), (300, 300)]:
        wanted, requests = [], []
        for num_heads in (1, 2, 3, 8, 12, 71, 112, 128):
            peer = AlibiPositionalBias(heads=num_heads)
            wanted.append(to_array(peer(queries, keys)))
            encoding = attnbias.ALiBi(num_heads=num_heads, slopes=peer.slopes.flatten().tolist())
            requests.append(
                attnbias.Request(encoding, query_length=queries, key_length=keys, alignment="end")
            )
        for bias, want in zip(client.get_many(requests), wanted, strict=True):
            assert_same_bits(bias.view(), want)


def test_slopes_for_twelve_heads_match_known_values(client: attnbias.Client) -> None:
    (got,) = served_slopes(client, [attnbias.ALiBi(num_heads=12)], "f64")
    assert got[:8].tolist() == [2.0**-i for i in range(1, 9)]
    np.testing.assert_allclose(
        got[8:], [0.707106781, 0.353553391, 0.176776695, 0.0883883476], rtol=1e-8
    )


def test_variants_agree_up_to_softmax(client: attnbias.Client) -> None:
    length = 64
    symmetric, causal, from_start, from_end = (
        client.get(
            attnbias.ALiBi(num_heads=8, variant=variant),
            query_length=length,
            key_length=length,
            form="dense",
        )
        for variant in ("SYMMETRIC", "CAUSAL", "KEY_FROM_START", "KEY_FROM_END")
    )
    seen = np.tri(length, dtype=bool)
    assert np.array_equal(symmetric[:, seen], causal[:, seen])
    assert not causal[:, ~seen].any()
    assert np.array_equal(symmetric[:, -1], from_end[:, -1])
    shift = from_start - from_end
    assert np.array_equal(shift, np.broadcast_to(shift[..., :1], shift.shape))


@pytest.mark.parametrize(("variant", "distinct"), [("KEY_FROM_END", 256), ("KEY_FROM_START", 17)])
def test_anchor_determines_distinct_bf16_values(
    client: attnbias.Client, variant: str, distinct: int
) -> None:
    encoding = attnbias.ALiBi(num_heads=8, variant=variant)
    got = client.get(encoding, query_length=4096, key_length=4096, data_type="bf16").row
    for head in got:
        assert len(np.unique(head[-256:].astype(np.float32))) == distinct


def test_one_sided_heads_combine_two_answers(client: attnbias.Client) -> None:
    """With explicit slopes, half of the heads see only keys to the left, half only keys to the
    right.
    """
    length = 50
    encoding = attnbias.ALiBi(num_heads=4)
    left = client.get(encoding, query_length=length, key_length=length, causal=True, form="dense")
    right = client.get(
        encoding, query_length=length, key_length=length, window_left=0, form="dense"
    )
    distance = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    slopes = np.float32([0.25, 0.0625, 0.015625, 0.00390625])[:, None, None]
    seen = np.tri(length, dtype=bool)
    assert np.array_equal(left, np.where(seen, -slopes * distance, -np.inf))
    assert np.array_equal(right, np.where(seen.T, -slopes * distance, -np.inf))


def test_bias_with_slopes_per_direction_is_sum_of_two_answers(client: attnbias.Client) -> None:
    length = 50
    left, right = (
        client.get(
            attnbias.ALiBi(num_heads=3, slopes=slopes, variant="causal"),
            query_length=length,
            key_length=length,
            form="dense",
        )
        for slopes in ([0.5, 0.25, 0.125], [0.0625, 1.0, 0.75])
    )
    distance = np.subtract.outer(np.arange(length), np.arange(length))
    to_left = np.float32([0.5, 0.25, 0.125])[:, None, None] * distance
    to_right = np.float32([0.0625, 1.0, 0.75])[:, None, None] * distance
    want = np.where(distance > 0, -to_left, to_right)
    assert np.array_equal(left + right.transpose(0, 2, 1), want)
