# SPDX-License-Identifier: Apache-2.0
"""keras-hub's layers, on torch, with random weights: bit for bit if their arithmetic is a single
operation, otherwise to within an error bound. Also covers cases in which their values differ."""

from typing import Any

import keras_hub
import numpy as np
import pytest
from bits import Array, assert_same_bits
from bounds import assert_near, assert_within_1_ulp
from keras import ops
from keras_hub.src.models.deberta_v3.disentangled_self_attention import DisentangledSelfAttention
from keras_hub.src.models.swin_transformer.swin_transformer_layers import WindowAttention
from keras_hub.src.models.t5.t5_multi_head_attention import T5MultiHeadAttention
from keras_hub.src.models.xlnet.xlnet_content_and_query_embedding import ContentAndQueryEmbedding

import attnbias

# Raised by keras' own conversion of tensors to arrays.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

Fields = dict[str, Any]


def array_of(tensor: Any) -> Array:
    return np.ascontiguousarray(ops.convert_to_numpy(tensor))


def random_of(shape: Any, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# (length, start, dim, base), including an odd dim.
TABLES = [(50, 0, 64, 10000), (300, 1200, 6, 10000), (9, 3, 37, 500), (1, 77, 1, 10000)]


@pytest.mark.parametrize(("length", "start", "dim", "base"), TABLES)
def test_sine_position_encoding_matches(
    client: attnbias.Client, length: int, start: int, dim: int, base: int
) -> None:
    layer = keras_hub.layers.SinePositionEncoding(max_wavelength=base)
    want = array_of(layer(np.zeros((1, length, dim), np.float32), start_index=start)[0])
    encoding = attnbias.Sinusoidal(dim, ladder=attnbias.Ladder(base=base))
    positions = np.arange(start, start + length)
    got = client.get(encoding, positions=(start, start + length))
    assert_near(got, want, positions)
    by_list = array_of(layer(np.zeros((1, length, dim), np.float32), positions=positions * 1.0)[0])
    assert_near(client.get(encoding, position_ids=positions), by_list, positions)


def test_position_embedding_matches(client: attnbias.Client) -> None:
    layer = keras_hub.layers.PositionEmbedding(sequence_length=90)
    layer.build((None, 90, 24))
    table = random_of((90, 24), 1)
    layer.position_embeddings.assign(table)
    encoding = attnbias.LearnedAbsolute(table=table)
    for start, length in ((0, 90), (13, 20), (89, 1)):
        want = array_of(layer(np.zeros((1, length, 24), np.float32), start_index=start)[0])
        assert_same_bits(client.get(encoding, positions=(start, start + length)), want)
    ids = [89, 0, 7, 7]
    want = array_of(layer(np.zeros((1, 4, 24), np.float32), positions=np.array(ids))[0])
    assert_same_bits(client.get(encoding, position_ids=ids), want)


def rotary_tables(layer: Any, positions: Array, dim: int) -> tuple[Array, Array]:
    """Returns the layer's cosines and sines, obtained by applying it to a first half of ones and a
    second half of zeros.
    """
    halves = np.zeros((1, len(positions), dim), np.float32)
    halves[..., : dim // 2] = 1
    turned = array_of(layer(halves, positions=positions)[0])
    return turned[:, : dim // 2], turned[:, dim // 2 :]


LINEAR: Fields = {"rope_type": "linear", "scaling_factor": 2.5}
YARN: Fields = {
    "rope_type": "yarn",
    "scaling_factor": 4.0,
    "original_max_position_embeddings": 2048,
}
# The layer's parameters and our equivalents; heads have 128 columns.
ROTARIES: dict[str, tuple[Fields, Fields]] = {
    "default": ({}, {}),
    "another base": ({"max_wavelength": 500000}, {"rope_theta": 500000}),
    "linear": (LINEAR, {"linear": attnbias.Linear(2.5)}),
    "yarn": (YARN, {"yarn": attnbias.Yarn(4, original_max_position_embeddings=2048)}),
    "yarn, not truncated": (
        YARN | {"truncate": False, "max_wavelength": 150000, "beta_fast": 16, "beta_slow": 2},
        {
            "rope_theta": 150000,
            "yarn": attnbias.Yarn(
                4, original_max_position_embeddings=2048, truncate=False, beta_fast=16, beta_slow=2
            ),
        },
    ),
    "dynamic": ({"rope_type": "dynamic", "scaling_factor": 2.0}, {}),
    "another denominator": (
        {"denominator_dim": 512, "max_wavelength": 1000000},
        {"head_dim": 512, "partial_rotary_factor": 0.25, "rope_theta": 1000000},
    ),
}
POSITIONS = np.array([*range(300), 4095, 32767, 131071])


@pytest.mark.parametrize("name", ROTARIES)
def test_rotary_with_keras_frequencies_matches(client: attnbias.Client, name: str) -> None:
    parameters, _ = ROTARIES[name]
    layer = keras_hub.layers.RotaryEmbedding(**parameters)
    want = rotary_tables(layer, POSITIONS, 128)
    scale = 1.0
    if parameters.get("rope_type") == "yarn":
        scale = float(np.float32(0.1) * np.log(np.float32(4)) + np.float32(1))
    encoding = attnbias.Rotary(
        head_dim=128,
        layout="COMPACT",
        inverse_frequencies=array_of(layer._get_inverse_freq(128)).tolist(),
        angle="FLOAT32",
    )
    got = client.get(encoding, position_ids=POSITIONS, scale=scale)
    assert_within_1_ulp(got, want)


@pytest.mark.parametrize("name", [name for name in ROTARIES if name != "dynamic"])
def test_rotary_frequencies_match(client: attnbias.Client, name: str) -> None:
    """Float32 powers and blends, as in transformers."""
    parameters, fields = ROTARIES[name]
    layer = keras_hub.layers.RotaryEmbedding(**parameters)
    if "denominator_dim" in parameters:
        fields = fields | {"proportional": attnbias.Proportional()}
    encoding = attnbias.Rotary(**{"head_dim": 128, **fields})
    ours = np.array(client.describe(encoding, positions=1).derived["inverse_frequencies"])
    ours = ours[ours > 0]
    theirs = array_of(layer._get_inverse_freq(128)).astype(np.float64)
    bound = (np.log(layer.max_wavelength) + 16) * 2.0**-23
    assert np.all(np.abs(ours - theirs) <= bound * ours)


def test_keras_dynamic_rotary_is_linear(client: attnbias.Client) -> None:
    """The layer divides every frequency by factor^(dim/(dim - 2)), whatever the length."""
    layer = keras_hub.layers.RotaryEmbedding(rope_type="dynamic", scaling_factor=2.0)
    theirs = array_of(layer._get_inverse_freq(128)).astype(np.float64)
    linear = attnbias.Rotary(head_dim=128, linear=attnbias.Linear(2 ** (128 / 126)))
    twice = attnbias.Dynamic(2, max_position_embeddings=2048, sequence_length=4096)
    dynamic = attnbias.Rotary(head_dim=128, dynamic=twice)
    same, other = (
        np.array(client.describe(e, positions=1).derived["inverse_frequencies"])
        for e in (linear, dynamic)
    )
    assert np.all(np.abs(same - theirs) <= 32 * 2.0**-23 * same)
    assert other[0] == 1
    assert theirs[0] < 0.5


def test_alibi_matches(client: attnbias.Client) -> None:
    """The layer's slopes are correctly rounded; its products are computed in float32."""
    for num_heads in (*range(1, 33), 71, 112, 128):
        layer = keras_hub.layers.AlibiBias()
        for length in (2, 17, 500):
            want = array_of(layer(np.zeros((1, num_heads, 1, length), np.float32))[0, :, 0])
            if length == 2:
                slopes = -want[:, 0]
                encoding = attnbias.ALiBi(num_heads=num_heads)
                ours = client.get(encoding, query_length=2, key_length=2).diagonals[:, 0]
                assert_same_bits(-ours, slopes)
            encoding = attnbias.ALiBi(
                num_heads=num_heads, slopes=slopes.tolist(), variant="KEY_FROM_END"
            )
            assert_same_bits(
                client.get(encoding, query_length=1, key_length=length, alignment="end").row, want
            )


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize("num_heads", [1, 6, 12])
def test_t5_matches(client: attnbias.Client, num_heads: int, is_decoder: bool) -> None:
    layer = T5MultiHeadAttention(
        is_decoder, 8, 4, num_heads, dropout=0, use_relative_attention_bias=True
    )
    table = random_of((32, num_heads), num_heads)
    layer.relative_attention_bias.assign(table)
    encoding = attnbias.T5(num_heads=num_heads, bidirectional=not is_decoder, table=table)
    for queries, keys, start in [(1, 1, 0), (300, 300, 0), (1, 201, 200), (7, 150, 90)]:
        want = array_of(layer.compute_bias(queries, keys, query_start_index=start)[0])
        got = client.get(encoding, query_length=queries, key_length=keys, query_offset=start)
        assert_same_bits(got.view(), want)


@pytest.mark.parametrize(
    ("bucket_size", "max_position"), [(256, 512), (64, 512), (128, 256), (32, 2048), (128, 2048)]
)
def test_deberta_bucket_may_differ_by_one(
    client: attnbias.Client, bucket_size: int, max_position: int
) -> None:
    """The layer rounds the quotient in a different order: its last bucket may be one too large."""
    layer = DisentangledSelfAttention(2, 8, max_position, bucket_size)
    distances = np.arange(1 - max_position, max_position, dtype=np.int32)
    want = array_of(layer._make_log_bucket_position(ops.convert_to_tensor(distances)))
    encoding = attnbias.Deberta(bucket_size=bucket_size, max_position=max_position, term="BUCKET")
    got = client.get(encoding, query_length=max_position, key_length=max_position).diagonals[::-1]
    different = distances[got != want].tolist()
    if (bucket_size, max_position) == (256, 512):
        assert not different
    else:
        assert different == [1 - max_position, max_position - 1]
        assert got[-1] == bucket_size - 1
        assert want[-1] == bucket_size


@pytest.mark.parametrize("clamp_len", [None, 30])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 5), (64, 64), (17, 400)])
def test_xlnet_matches(
    client: attnbias.Client, queries: int, keys: int, clamp_len: int | None
) -> None:
    """The layer's positions start at `keys`, whose row the relative shift drops."""
    layer = ContentAndQueryEmbedding(8, 16, 0)
    rows = layer.relative_positional_encoding(queries, keys, 1, clamp_len or -1)
    want = array_of(rows)[1:, 0]
    encoding = attnbias.XLNet(dim=16, clamp_len=clamp_len)
    got = client.get(encoding, query_length=queries, key_length=keys, alignment="end").diagonals
    assert_near(got, want, np.arange(keys - 1, -queries, -1))


@pytest.mark.parametrize("side", [1, 2, 7, 12])
@pytest.mark.parametrize("num_heads", [1, 4])
def test_swin_matches_in_square_windows(client: attnbias.Client, side: int, num_heads: int) -> None:
    layer = WindowAttention(8, num_heads, window_size=(side, side))
    layer.build((None, side * side, 8))
    table = random_of(((2 * side - 1) ** 2, num_heads), side)
    layer.relative_position_bias_table.assign(table)
    encoding = attnbias.Swin((side, side), num_heads=num_heads, table=table)
    assert_same_bits(client.get(encoding).dense(), array_of(layer._get_rel_pos_bias()))


def test_keras_swin_index_is_wrong_for_oblong_windows(client: attnbias.Client) -> None:
    """The layer swaps a window's sides, so indices fall below 0 and wrap around."""
    index = array_of(WindowAttention(8, 1, window_size=(2, 3)).relative_position_index)
    ours = client.get(attnbias.Swin((2, 3)), values="buckets").dense()
    assert index.min() == -4
    assert ours.min() == 0
    assert not np.array_equal(ours, index)
