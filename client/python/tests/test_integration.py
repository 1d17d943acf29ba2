# SPDX-License-Identifier: Apache-2.0
"""The real server through the client: structures, masks, windows, files and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from conftest import MOUNTED
from cutting_proxy import CuttingProxy

import attnbias
from attnbias._spec.fields import digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from either_client import Connect

ALIBI = attnbias.ALiBi(num_heads=8)
SQUARE: dict[str, Any] = {"query_length": 4, "key_length": 4}
DTYPES = {"f64": "f8", "f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16}


def alibi(heads: int, queries: range, keys: range) -> npt.NDArray[np.float32]:
    """Returns -slope |i - j| with power-of-two slopes, so that every value is exact."""
    slopes = np.ldexp(np.float32(1), [-8 * h // heads for h in range(1, heads + 1)])
    distance = np.abs(np.subtract.outer(np.array(queries), np.array(keys)))
    biases: npt.NDArray[np.float32] = -slopes[:, None, None] * distance.astype(np.float32)
    return biases


@pytest.fixture(scope="module")
def weight() -> npt.NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((32, 8)).astype(np.float32)


@pytest.fixture
def t5(weight: npt.NDArray[np.float32]) -> attnbias.T5:
    return attnbias.T5(num_heads=8, bidirectional=True, table=weight)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [None, 3, 41])
def test_vectors_are_the_gathered_table(
    real_client: attnbias.Client, heads: int | None, dtype: str
) -> None:
    """With 41 heads and 41 diagonals, the shape does not tell the axes apart."""
    shape = (8, 6) if heads is None else (heads, 8, 6)
    table = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    encoding = attnbias.Shaw(left=5, right=2, table=table)
    got = real_client.get(
        encoding, query_length=12, key_length=30, alignment="end", data_type=dtype
    )
    relative = np.arange(30) - (np.arange(12)[:, None] + 18)
    want = table.astype(DTYPES[dtype])[..., np.clip(relative, -5, 2) + 5, :]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.view(), want, strict=True)
    part = got.window(queries=(3, 5), keys=(7, 30))
    np.testing.assert_array_equal(part.view(), want[..., 3:5, 7:30, :], strict=True)
    indices = real_client.get(
        encoding, query_length=12, key_length=30, alignment="end", values="buckets"
    )
    assert not indices.vectors
    np.testing.assert_array_equal(indices.view(), np.clip(relative, -5, 2) + 5)


def test_t5_table_layouts_have_one_fingerprint(
    real_client: attnbias.Client, t5: attnbias.T5, weight: Any
) -> None:
    turned = attnbias.T5(
        num_heads=8, bidirectional=True, table=weight.T, table_layout="heads_buckets"
    )
    info = [
        real_client.describe(encoding, query_length=9, key_length=9) for encoding in (t5, turned)
    ]
    assert info[0].fingerprint == info[1].fingerprint


def test_grid_with_class_token_matches_dense(real_client: attnbias.Client, tmp_path: Path) -> None:
    table = np.random.default_rng(1).normal(size=(5 * 7 + 3, 2)).astype("f4")
    beit = attnbias.Beit((3, 4), num_heads=2, table=table)
    got = real_client.get(beit)
    assert isinstance(got, attnbias.BlockToeplitz)
    np.testing.assert_array_equal(got.block.reshape(2, 35), table[34::-1].T, strict=True)
    np.testing.assert_array_equal(got.border, table[35:].T, strict=True)
    dense = real_client.get(beit, form="dense")
    np.testing.assert_array_equal(got.dense(), dense, strict=True)
    part = real_client.get(beit, queries=(2, 9), keys=1, heads=(1, 2))
    np.testing.assert_array_equal(part, dense[1:, 2:9, :1], strict=True)
    real_client.save(tmp_path / "bias.safetensors", beit)
    again = attnbias.load(tmp_path / "bias.safetensors")
    assert isinstance(again, attnbias.BlockToeplitz)
    np.testing.assert_array_equal(again.dense(), dense, strict=True)
    assert again.fingerprint == got.fingerprint
    np.testing.assert_array_equal(again.window(queries=(2, 9), keys=1), dense[:, 2:9, :1])


@pytest.mark.parametrize("offset", [-3, 0, 4])
def test_toeplitz_with_class_token_matches_dense(
    real_client: attnbias.Client, offset: int, tmp_path: Path
) -> None:
    table = np.random.default_rng(1).normal(size=(33, 2)).astype("f4")
    tupe = attnbias.Tupe(num_heads=2, relative_table=table, reset_class_token=True)
    places: list[dict[str, Any]] = [{}, {"keys": 5}, {"keys": (3, 12)}]
    places = [{"key_length": 12, **place} for place in places]
    for place in [*places, {"key_positions": range(-2, 7)}]:
        extent: Any = {"query_length": 9, "query_offset": offset, **place}
        got = real_client.get(tupe, **extent)
        assert isinstance(got, attnbias.BorderedToeplitz)
        dense = real_client.get(tupe, **extent, form="dense")
        np.testing.assert_array_equal(got.dense(), dense, strict=True)
        real_client.save(tmp_path / "bias.safetensors", tupe, **extent)
        again = attnbias.load(tmp_path / "bias.safetensors")
        assert isinstance(again, attnbias.BorderedToeplitz)
        np.testing.assert_array_equal(again.dense(), dense, strict=True)
        assert again.resolved_spec == got.resolved_spec


def numbers(*shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(1).normal(size=shape).astype("f4")


FOUR_HEADS: dict[type[attnbias.Encoding], dict[str, Any]] = {
    attnbias.T5: {"bidirectional": True, "table": numbers(32, 4)},
    attnbias.ALiBi: {"slopes": [0.5, 0.25, 0.1, 0.2]},
    attnbias.LearnedRelative: {"left": 3, "right": 3, "scalars": numbers(7, 4)},
    attnbias.Kerple: {"kernel": "log", "p": [1.0, 2.0, 3.0, 4.0], "a": [0.1]},
    attnbias.Fire: {"hidden_weight": numbers(5, 1), "output_weight": numbers(4, 5)},
    attnbias.MlpBias: {
        "layers": [attnbias.MlpLayer(weight=numbers(*shape)) for shape in ((6, 1), (4, 6))],
        "activation": "silu",
    },
    attnbias.GridRelative: {"window": (2, 2), "table": numbers(9, 4)},
    attnbias.Tupe: {"relative_table": numbers(32, 4)},
}


@pytest.mark.parametrize("kind", FOUR_HEADS, ids=lambda kind: kind.__name__)
def test_num_heads_is_derived_from_table(real_client: attnbias.Client, kind: Any) -> None:
    fields = FOUR_HEADS[kind]
    encoding = kind(**fields)
    lengths = {"query_length": 5, "key_length": 5}
    asked: dict[str, Any] = {} if encoding.extent == "grid" else lengths
    derived = real_client.describe(encoding, **asked)
    assert derived.parts[0].shape[0] == 4
    assert derived == real_client.describe(kind(num_heads=4, **fields), **asked)
    with pytest.raises(attnbias.InvalidArgumentError, match=r"got .*4.*, want .*3"):
        real_client.describe(kind(num_heads=3, **fields), **asked)


@pytest.mark.parametrize("form", ["toeplitz", "dense"])
@pytest.mark.parametrize(
    ("fill", "masked"),
    [({}, -np.inf), ({"fill_value": 0.0}, 0.0), ({"fill_lowest": True}, np.finfo(np.float32).min)],
)
def test_masked_pairs_have_the_fill_value(
    real_client: attnbias.Client, form: Any, fill: Any, masked: float
) -> None:
    got = real_client.get(
        attnbias.ALiBi(num_heads=8),
        query_length=40,
        key_length=40,
        form=form,
        causal=True,
        window_left=7,
        **fill,
    )
    i, j = np.ogrid[:40, :40]
    want = np.where((j > i) | (j < i - 7), np.float32(masked), alibi(8, range(40), range(40)))
    np.testing.assert_array_equal(got if form == "dense" else got.view(), want, strict=True)
    if form == "toeplitz":
        assert got.mask == attnbias.Mask(causal=True, window_left=7)


def test_mask_that_hides_nothing_is_kept(real_client: attnbias.Client, tmp_path: Path) -> None:
    path = tmp_path / "step.safetensors"
    step: dict[str, Any] = {
        "query_length": 40,
        "queries": (39, 40),
        "key_length": 40,
        "causal": True,
    }
    assert real_client.get(attnbias.ALiBi(num_heads=8), **step).mask == attnbias.Mask(causal=True)
    assert real_client.get(attnbias.ALiBi(num_heads=8), query_length=8, key_length=8).mask is None
    real_client.save(path, attnbias.ALiBi(num_heads=8), **step)
    again = attnbias.load(path)
    assert isinstance(again, attnbias.Toeplitz)
    assert again.mask == attnbias.Mask(causal=True)


def test_client_window_equals_server_window(real_client: attnbias.Client, t5: attnbias.T5) -> None:
    whole = real_client.get(t5, query_length=300, key_length=300)
    there = real_client.get(
        t5, query_length=300, queries=(100, 300), key_length=300, keys=(20, 300), heads=(2, 5)
    )
    here = whole.window(queries=(100, 300), keys=(20, 300), heads=(2, 5))
    np.testing.assert_array_equal(here.diagonals, there.diagonals, strict=True)
    assert here.first_relative_position == there.first_relative_position


def test_large_dense_stream_is_the_expanded_toeplitz(
    real_client: attnbias.Client, t5: attnbias.T5
) -> None:
    dense = real_client.get(t5, query_length=1500, key_length=2000, alignment="end", form="dense")
    compact = real_client.get(t5, query_length=1500, key_length=2000, alignment="end")
    assert dense.nbytes == 96_000_000
    np.testing.assert_array_equal(dense, compact.view(), strict=True)


def test_dropped_connections_are_resumed(
    real_target: str, t5: attnbias.T5, connect: Connect
) -> None:
    with (
        CuttingProxy(real_target, cut_after=[1_000_000, 5_000_000]) as proxy,
        connect(proxy.target, timeout=120) as client,
    ):
        got = client.get(t5, query_length=700, key_length=700, form="dense")
        want = client.get(t5, query_length=700, key_length=700)
    assert proxy.connections >= 3
    np.testing.assert_array_equal(got, want.view(), strict=True)


def test_describe_matches_get(real_client: attnbias.Client, t5: attnbias.T5) -> None:
    info = real_client.describe(t5, query_length=50, key_length=60, alignment="end")
    got = real_client.get(t5, query_length=50, key_length=60, alignment="end")
    assert info.fingerprint == got.fingerprint
    assert info.nbytes == got.nbytes
    assert [(part.name, part.form) for part in info.parts] == [("diagonals", "toeplitz")]
    assert info.resolved_spec.t5.table.WhichOneof("source") == "sha256"


def test_mounted_tables_are_listed_and_used_by_name(real_client: attnbias.Client) -> None:
    (table,) = real_client.list_tables()
    assert (table.name, table.shape, table.dtype) == ("bias:w", (32, 2), np.dtype("<f4"))
    assert table.source == "bias.safetensors:w"
    assert table.encoding is None
    fingerprints = {
        real_client.describe(
            attnbias.T5(num_heads=2, bidirectional=True, table=form), query_length=8, key_length=8
        ).fingerprint
        for form in (table.name, f"sha256:{table.sha256}", table, MOUNTED)
    }
    assert len(fingerprints) == 1


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", ">f4", ml_dtypes.bfloat16])
def test_digest_matches_server_digest(real_client: attnbias.Client, dtype: npt.DTypeLike) -> None:
    table = np.arange(-7, 14).reshape(3, 7).astype(dtype)
    info = real_client.describe(attnbias.LearnedAbsolute(table=table), positions=3)
    assert digest_of(table) == info.resolved_spec.learned_absolute.table.sha256
    assert digest_of(table.T) != digest_of(table)


@pytest.mark.parametrize(
    ("encoding", "options", "says"),
    [
        (ALIBI, {}, "spec.pair.query_length: not set, want an integer"),
        (
            ALIBI,
            {"query_length": 4, "key_length": 5},
            "spec.pair.alignment: not set, want START, END or a query_offset if query_length",
        ),
        (
            ALIBI,
            {**SQUARE, "query_positions": [0, 3]},
            "spec.pair.query_length: got 4, want none: query_positions is set",
        ),
        (ALIBI, {**SQUARE, "data_type": "i32"}, "spec.output.data_type: got I32, want F64"),
        (
            attnbias.Sinusoidal(dim=4),
            {"positions": 4, "position_ids": [1]},
            "spec.table: got several of positions, position_ids and grid, want one of them",
        ),
        (
            attnbias.T5(num_heads=2, bidirectional=True, table="nobody's"),
            SQUARE,
            "spec.t5.table.name: got 'nobody's', want the name of a mounted table; ListTables ",
        ),
    ],
)
def test_errors_repeat_server_message(
    real_client: attnbias.Client, encoding: Any, options: Any, says: str
) -> None:
    with pytest.raises(attnbias.Error) as caught:
        real_client.describe(encoding, **options)
    assert caught.value.message.startswith(says)
    (violation,) = caught.value.field_violations
    assert caught.value.message == f"{violation.field}: {violation.description}"


def test_oversized_table_error_suggests_mounting(real_client: attnbias.Client) -> None:
    wide = attnbias.MlpLayer(weight=np.ones((512, 1024), "f4"), bias=np.ones(512, "f4"))
    with pytest.raises(
        attnbias.ResourceExhaustedError, match=r"^RESOURCE_EXHAUSTED: .* is too large; .*--t"
    ):
        real_client.get(attnbias.DynamicPositionBias([wide] * 6, num_heads=2), **SQUARE)


def test_real_server_reports_info_and_health(real_client: attnbias.Client) -> None:
    info = real_client.info()
    assert {"sinusoidal", "t5", "alibi"} <= set(info.encodings)
    assert {"f64", "f32", "f16", "bf16"} <= set(info.dtypes)
    assert real_client.health()
    assert real_client.health("readiness")
    with pytest.raises(attnbias.NotFoundError):
        real_client.health("no.such.Service")
