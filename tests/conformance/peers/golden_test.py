# SPDX-License-Identifier: Apache-2.0
"""Worked examples of the literature and of the peers' code, by their numbers.

Those of sinusoids, T5's bias, ALiBi and FIRE stand in the tests of these encodings.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bits import Array, assert_same_bits
from every_way import EveryWay
from safetensors.numpy import save_file

import attnbias
from tests.support.server_process import running_server


def sinusoids(
    client: attnbias.Client, distances: list[list[int]], *, dim: int, columns: Any
) -> Array:
    """Returns the rows of a table at the distances."""
    ids = np.array(distances).ravel()
    rows = client.get(attnbias.Sinusoidal(dim, columns=columns), position_ids=ids)
    return rows.reshape(len(distances), -1, dim)


def vectors(client: attnbias.Client, encoding: attnbias.Encoding, *lengths: int) -> Array:
    queries, keys = lengths
    return client.get(
        encoding, query_length=queries, key_length=keys, alignment="end", form="dense"
    )


@pytest.mark.parametrize(
    ("num_buckets", "max_distance", "bidirectional", "starts"),
    [
        (32, 128, True, [*range(9), 12, 16, 23, 32, 46, 64, 91]),
        (32, 128, False, [*range(17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]),
        (32, 256, True, [*range(9), 13, 20, 30, 46, 70, 108, 166]),
        (
            64,
            256,
            True,
            [*range(17), 20, 23, 27, 32, 39, 46, 54, 64, 77, 91, 108, 128, 153, 182, 216],
        ),
    ],
)
def test_t5_bucket_starts(
    client: attnbias.Client,
    num_buckets: int,
    max_distance: int,
    bidirectional: bool,
    starts: list[int],
) -> None:
    """The direction takes half of the buckets, and the last starts before max_distance."""
    encoding = attnbias.T5(
        num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional
    )
    buckets = client.get(encoding, query_length=2000, key_length=2000, values="buckets").diagonals
    left, right = buckets[1999::-1], buckets[1999:]
    assert [0, *np.flatnonzero(np.diff(left)) + 1] == starts
    further = left[1:] + np.int32(num_buckets // 2) if bidirectional else np.zeros_like(left[1:])
    assert_same_bits(right[1:], further)


def test_shaw_clips_on_both_sides(client: attnbias.Client) -> None:
    fields: dict[str, Any] = {"alignment": "end", "values": "buckets", "form": "dense"}
    encoding = attnbias.Shaw(left=2, right=2)
    got = client.get(encoding, query_length=3, key_length=5, **fields)
    assert got.tolist() == [[0, 1, 2, 3, 4], [0, 0, 1, 2, 3], [0, 0, 0, 1, 2]]
    cached = client.get(encoding, query_length=1, key_length=5, **fields)
    assert cached.tolist() == [[0, 0, 0, 1, 2]]
    uneven = client.get(attnbias.Shaw(left=3, right=1), query_length=6, key_length=6, **fields)
    assert uneven[0].tolist() == [3, 4, 4, 4, 4, 4]
    assert uneven[5].tolist() == [0, 0, 0, 1, 2, 3]


def by_skewing(queries: Array, relative: Array) -> Array:
    """Music Transformer's way to Shaw's logits of a square: a product with the rows of distances
    -(L - 1) to L - 1, and every row of it shifted, by padding and folding."""
    length = len(queries)
    products = np.pad(queries @ relative.T, ((0, 0), (0, 1)))
    folded = np.pad(products.ravel(), (0, length - 1)).reshape(length + 1, 2 * length - 1)
    return folded[:length, length - 1 :]


@pytest.mark.parametrize("direction", ["left_to_right", "bidirectional"])
def test_shaw_logits_by_index_and_by_skewing(client: attnbias.Client, direction: Any) -> None:
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


def test_transformer_xl_rows(client: attnbias.Client) -> None:
    for clamp_len, distances in ((None, [4, 3, 2, 1, 0]), (2, [2, 2, 2, 1, 0])):
        encoding = attnbias.TransformerXL(dim=8, clamp_len=clamp_len)
        want = sinusoids(client, [distances], dim=8, columns="SINES_COSINES")
        assert_same_bits(vectors(client, encoding, 1, 5), want)


def test_transformer_xl_shift(client: attnbias.Client) -> None:
    got = vectors(client, attnbias.TransformerXL(dim=8), 3, 5)
    for query, distances in enumerate([[2, 1, 0], [3, 2, 1, 0], [4, 3, 2, 1, 0]]):
        (want,) = sinusoids(client, [distances], dim=8, columns="SINES_COSINES")
        assert_same_bits(got[query, : len(distances)], want)
        assert not got[query, len(distances) :].any()


def test_xlnet_distances(client: attnbias.Client) -> None:
    distances = [[2, 1, 0, -1, -2], [3, 2, 1, 0, -1], [4, 3, 2, 1, 0]]
    want = sinusoids(client, distances, dim=8, columns="SINES_COSINES")
    assert_same_bits(vectors(client, attnbias.XLNet(dim=8), 3, 5), want)


def test_conformer_distances(client: attnbias.Client) -> None:
    distances = [[0, -1, -2, -3], [1, 0, -1, -2], [2, 1, 0, -1], [3, 2, 1, 0]]
    want = sinusoids(client, distances, dim=6, columns="INTERLEAVED")
    assert_same_bits(vectors(client, attnbias.Conformer(dim=6), 4, 4), want)


@pytest.mark.parametrize(("align", "offset"), [("end", 2), ("start", 0)])
def test_symmetric_logits_ignore_direction(
    client: attnbias.Client, align: Any, offset: int
) -> None:
    """M[i, j] = q_i A_|i + offset - j|; aligned at the end, three rows of five begin with a
    palindrome."""
    queries = np.random.default_rng(4).standard_normal((1, 3, 6))
    sinusoidal = attnbias.Sinusoidal(dim=6, columns="SINES_COSINES")
    term = attnbias.SinusoidalDistances(sinusoidal=sinusoidal, symmetric=True)
    got = client.logits(
        term,
        queries,
        key_length=5,
        alignment=align,
        direction="bidirectional",
        output_data_type="f64",
    )[0]
    table = client.get(sinusoidal, positions=5, data_type="f64")
    away = np.abs(np.arange(3)[:, None] + offset - np.arange(5))
    assert np.abs(got - np.einsum("id,ijd->ij", queries[0], table[away])).max() <= 1e-12
    if align == "end":
        assert np.array_equal(got[0], got[0, ::-1])


def test_tupe_class_token(client: attnbias.Client) -> None:
    encoding = attnbias.Tupe(num_heads=1, reset_class_token=True)
    index = client.get(encoding, query_length=5, key_length=5, values="buckets", form="dense")
    assert index.tolist() == [
        [16, 16, 16, 16, 16],
        [32, 0, 17, 18, 19],
        [32, 1, 0, 17, 18],
        [32, 2, 1, 0, 17],
        [32, 3, 2, 1, 0],
    ]
    # Projections that give 6 i + j for every pair of the six positions.
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


def test_deberta_buckets(client: attnbias.Client) -> None:
    distances = [127, 128, 129, 130, 150, 200, 256, 300, 400, 510, 511]
    want = [127, 128, 129, 130, 143, 169, 192, 207, 233, 255, 255]
    encoding = attnbias.Deberta(bucket_size=256, max_position=512, term="BUCKET")
    to_the_left = client.get(encoding, query_positions=distances, key_positions=[0])
    to_the_right = client.get(encoding, query_positions=[0], key_positions=distances)
    assert to_the_left[:, 0].tolist() == want
    assert to_the_right[0].tolist() == [-bucket for bucket in want]


@pytest.mark.parametrize(("edge", "index"), [("MICROSOFT", 1), ("HF", 0)])
def test_deberta_beyond_its_table(client: attnbias.Client, edge: Any, index: int) -> None:
    encoding = attnbias.Deberta(bucket_size=256, max_position=512, edge=edge)
    lists = {"query_positions": [0], "key_positions": [600]}
    assert client.get(encoding, **lists, form="dense").item() == index


def test_alibi_variants_are_equal_after_softmax(client: attnbias.Client) -> None:
    scores = np.random.default_rng(6).standard_normal((64, 64))
    weights = []
    for variant in ("SYMMETRIC", "CAUSAL", "KEY_FROM_START", "KEY_FROM_END"):
        encoding = attnbias.ALiBi(num_heads=8, variant=variant)
        bias = client.get(
            encoding, query_length=64, key_length=64, data_type="f64", form="dense", causal=True
        )
        exponentials = np.exp(scores + bias - (scores + bias).max(-1, keepdims=True))
        weights.append(exponentials / exponentials.sum(-1, keepdims=True))
    assert all(np.abs(other - weights[0]).max() <= 1e-13 for other in weights[1:])


def test_kerple_and_sandwich_values(client: attnbias.Client) -> None:
    def at(encoding: attnbias.Encoding, distances: list[int]) -> Array:
        lists = {"query_positions": [0], "key_positions": distances}
        return client.get(encoding, **lists, data_type="f64")[0, 0]

    kerple = attnbias.Kerple(num_heads=1, kernel="LOG", p=[1.0], a=[0.5])
    assert at(kerple, [0, 1, 8]) == pytest.approx([0, -0.405465, -1.609438], abs=1e-6)
    sums = at(attnbias.Sandwich(num_heads=8), [0, 1, 10, 100])
    assert sums == pytest.approx([64, 62.0936838, 42.8200229, 30.5434547], abs=1e-7)


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


YARN: dict[str, Any] = {"rope_type": "YARN", "layout": "COMPACT"}
DYNAMIC: dict[str, Any] = {
    "head_dim": 128,
    "rope_type": "DYNAMIC",
    "factor": 2,
    "max_position_embeddings": 2048,
}


@pytest.mark.parametrize(
    ("fields", "frequencies", "attention_factor"),
    [
        (
            {
                "head_dim": 128,
                "rope_type": "LLAMA3",
                "rope_theta": 500000,
                "factor": 8,
                "low_freq_factor": 1,
                "high_freq_factor": 4,
                "original_max_position_embeddings": 8192,
            },
            {29: 2.166570764e-3, 34: 1.785078128e-4, 35: 9.556212354e-5, 63: 3.068925989e-7},
            1,
        ),
        (
            {
                **YARN,
                "head_dim": 64,
                "factor": 40,
                "original_max_position_embeddings": 4096,
                "mscale": 1,
                "mscale_all_dim": 1,
            },
            # Unchanged up to pair 10, divided from pair 23 on.
            {10: 1e4 ** (-10 / 32), 16: 0.0055, 23: 1e4 ** (-23 / 32) / 40, 31: 3.33380358e-6},
            1,
        ),
        (
            {
                **YARN,
                "head_dim": 128,
                "rope_theta": 1e6,
                "factor": 4,
                "original_max_position_embeddings": 32768,
            },
            {23: 1e6 ** (-23 / 64), 32: 6.029411765e-4, 40: 1e6 ** (-40 / 64) / 4},
            1.138629436,
        ),
        (
            {
                **YARN,
                "head_dim": 64,
                "rope_theta": 150000,
                "factor": 32,
                "original_max_position_embeddings": 4096,
                "truncate": False,
            },
            {
                # Between them a straight line from pair 8.092779116 to pair 17.3980245.
                8: 150000 ** (-8 / 32),
                12: 150000 ** (-12 / 32)
                * (1 - 31 / 32 * (12 - 8.092779116) / (17.3980245 - 8.092779116)),
                18: 150000 ** (-18 / 32) / 32,
            },
            1.34657359,
        ),
        (
            {
                "head_dim": 4,
                "rope_type": "LONGROPE",
                "sequence_length": 4096,
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "short_factor": [1, 2],
                "long_factor": [4, 8],
            },
            {0: 1, 1: 0.005},
            1.190238071,
        ),
        (
            {
                "head_dim": 4,
                "rope_type": "LONGROPE",
                "sequence_length": 4097,
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "short_factor": [1, 2],
                "long_factor": [4, 8],
            },
            {0: 0.25, 1: 0.00125},
            1.190238071,
        ),
    ],
    ids=["Llama 3.1", "DeepSeek-V3", "Qwen2.5", "gpt-oss", "longrope", "longrope, one longer"],
)
def test_rotary_parameters(
    client: attnbias.Client,
    fields: dict[str, Any],
    frequencies: dict[int, float],
    attention_factor: float,
) -> None:
    encoding = attnbias.Mrope(**fields)
    derived = client.describe(encoding, positions=1).derived
    assert derived["attention_factor"] == pytest.approx([attention_factor], rel=1e-9)
    served = {pair: derived["inverse_frequencies"][pair] for pair in frequencies}
    assert served == pytest.approx(frequencies, rel=2e-9, abs=0)
    # The table is made of them.
    table = client.get(encoding, positions=(1, 2), data_type="f64")
    for pair, frequency in served.items():
        assert table.sin[0, pair] == pytest.approx(attention_factor * math.sin(frequency), rel=1e-9)


@pytest.mark.parametrize(
    ("length", "base"),
    [(2048, 10000), (2049, 10009.92071), (4096, 30527.73675), (8192, 72195.86009)],
)
def test_dynamic_rotary_base(client: attnbias.Client, length: int, base: float) -> None:
    encoding = attnbias.Mrope(**DYNAMIC, sequence_length=length)
    derived = client.describe(encoding, positions=1).derived
    assert derived["rope_theta"] == pytest.approx([base], rel=1e-9)


def test_proportional_rotary_leaves_pairs_unrotated(client: attnbias.Client) -> None:
    """64 pairs rotate as the first of the whole head's 256 would, and 192 do not rotate."""
    encoding = attnbias.Rotary(
        head_dim=512,
        proportional=attnbias.Proportional(),
        partial_rotary_factor=0.25,
        rope_theta=1e6,
        layout="COMPACT",
    )
    whole = attnbias.Rotary(head_dim=512, rope_theta=1e6, layout="COMPACT")
    got, turning = (client.get(e, positions=(9000, 9010)) for e in (encoding, whole))
    for ours, theirs, rest in ((got.cos, turning.cos, 1), (got.sin, turning.sin, 0)):
        assert ours.shape == (10, 256)
        assert_same_bits(ours[:, :64], theirs[:, :64])
        assert np.all(ours[:, 64:] == rest)


def test_equal_axes_match_one_axis(client: attnbias.Client) -> None:
    ids = [0, 3, 70000, 5]
    one = client.get(attnbias.Rotary(head_dim=128), position_ids=ids)
    for interleaved, section in ((False, [16, 24, 24]), (True, [24, 20, 20])):
        encoding = attnbias.Mrope(128, section, mrope_interleaved=interleaved)
        three = client.get(encoding, position_ids=[ids, ids, ids])
        assert_same_bits(three.cos, one.cos)
        assert_same_bits(three.sin, one.sin)


def test_xpos_decay(client: attnbias.Client) -> None:
    encoding = attnbias.Xpos(64, center=4, layout="COMPACT")
    scale = client.get(encoding, positions=8, data_type="f64").scale
    assert scale[0, 0] == pytest.approx(1.009835262, abs=1e-9)
    assert scale[7, 31] == pytest.approx(0.9998677373, abs=1e-10)
    assert np.all(scale[4] == 1)
    # At scale_base positions from the centre there is the base of a pair itself.
    bases = client.get(encoding, positions=(516, 517), data_type="f64").scale[0]
    want = [0.2857142857, 0.3080357143, 0.9776785714]
    assert bases[[0, 1, 31]] == pytest.approx(want, abs=1e-10)


def test_window_indices(client: attnbias.Client) -> None:
    def index(encoding: attnbias.Encoding) -> Array:
        return client.get(encoding, values="buckets").dense()

    square = index(attnbias.Swin((2, 2)))
    assert square.tolist() == [[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]]
    wide = index(attnbias.Swin((2, 3)))
    assert wide[0].tolist() == [7, 6, 5, 2, 1, 0]
    seven = index(attnbias.Swin((7, 7)))
    at = ([0, 0, 48, 0, 0], [0, 48, 0, 1, 7])
    assert seven[at].tolist() == [84, 0, 168, 83, 71]
    with_class = index(attnbias.Beit((2, 2)))
    assert with_class.tolist() == [
        [11, 9, 9, 9, 9],
        [10, 4, 3, 1, 0],
        [10, 5, 4, 2, 1],
        [10, 7, 6, 4, 3],
        [10, 8, 7, 5, 4],
    ]


@pytest.mark.parametrize(
    ("side", "pretrained", "distance", "coordinate"),
    [(8, None, 1, 0.366511891), (8, None, 7, 1.056641667), (16, 8, 15, 1.393776588)],
)
def test_swin_v2_coordinates(
    client: attnbias.Client, side: int, pretrained: int | None, distance: int, coordinate: float
) -> None:
    """The network returns the coordinate of rows, and the test inverts its sigmoid."""
    weights = np.array([[1.0, 0]]), np.ones((1, 1))
    encoding = attnbias.SwinV2(
        list(map(attnbias.MlpLayer, weights)),
        window=(side, side),
        pretrained_window=pretrained and (pretrained, pretrained),
    )
    # The block counts key - query, coordinates count query - key.
    bias = client.get(encoding, data_type="f64").block[0, side - 1 - distance, side - 1]
    assert math.log(bias / (16 - bias)) == pytest.approx(coordinate, abs=1e-9)


def test_swin_v2_window_of_one(client: attnbias.Client) -> None:
    weights = np.ones((1, 2)), np.ones((1, 1))
    encoding = attnbias.SwinV2(list(map(attnbias.MlpLayer, weights)), window=(1, 1))
    assert client.get(encoding).dense().item() == 8


def test_table_by_digest(tmp_path: Path) -> None:
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
