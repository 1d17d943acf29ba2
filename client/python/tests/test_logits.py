# SPDX-License-Identifier: Apache-2.0
"""Positional logits: the real server against numpy's gathered tensors, and corruption in
transit."""

from __future__ import annotations

import re
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import crc32c
import grpc
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from conftest import MOUNTED

import attnbias
from attnbias.v1 import logits_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from either_client import Connect
    from fake_server import FakeServer

Array = npt.NDArray[Any]

HEADS, DIM, WIDTH = 3, 16, 24
DIRECTIONS = ["left_to_right", "right_to_left", "bidirectional"]
EXTENTS: list[tuple[int, int, dict[str, Any]]] = [
    (7, 7, {}),
    (3, 5, {"alignment": "end"}),
    (3, 5, {"alignment": "start"}),
    (5, 3, {"alignment": "end"}),
    (1, 9, {"alignment": "end"}),
    (1, 1, {}),
    (6, 8, {"query_offset": -4}),
    (200, 300, {"query_offset": 30}),
]


def random(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def offset_of(queries: int, keys: int, extent: dict[str, Any]) -> int:
    at_end = keys - queries if extent.get("alignment") == "end" else 0
    return int(extent.get("query_offset", at_end))


def relative(queries: int, keys: int, extent: dict[str, Any]) -> Array:
    """Returns key minus query, by absolute positions."""
    positions = np.arange(queries) + offset_of(queries, keys, extent)
    return np.arange(keys)[None, :] - positions[:, None]


def seen(distance: Array, direction: str) -> Array:
    """Returns which pairs are visible in a direction, by key minus query."""
    if direction == "left_to_right":
        return distance <= 0
    if direction == "right_to_left":
        return distance >= 0
    return np.ones_like(distance, bool)


def sinusoid(distance: Array, dim: int) -> Array:
    """Transformer-XL's columns: all sines, then all cosines."""
    frequency = 10000.0 ** (-np.arange(0, dim, 2) / dim)
    angle = distance[..., None] * frequency
    return np.concatenate([np.sin(angle), np.cos(angle)], -1)


def bound(terms: int, queries: Array, vectors: Array) -> Array:
    """Returns gamma_n for F32 times the sum of the products' magnitudes (docs/numerics.md)."""
    n = terms * 2.0**-24
    magnitude: Array = np.einsum("hid,hijd->hij", abs(queries), abs(vectors))
    return n / (1 - n) * magnitude


def check(got: Array, queries: Array, vectors: Array, visible: Array, terms: int) -> None:
    """Asserts that visible logits match the einsum within bounds and that the others are masked."""
    queries, vectors = queries.astype("f8"), vectors.astype("f8")
    want = np.einsum("hid,hijd->hij", queries, vectors)
    error = np.where(visible, abs(np.where(visible, got, 0) - want), 0)
    assert np.all(error <= bound(terms, queries, vectors))
    assert np.all(np.where(visible, -np.inf, got) == -np.inf)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("queries", "keys", "extent"), EXTENTS)
def test_shaw_keys_match_definition(
    real_client: attnbias.Client, queries: int, keys: int, extent: Any, direction: Any
) -> None:
    rows, table = random(HEADS, queries, DIM), random(6, DIM)
    term = attnbias.ShawKeys(table=table, left=4, right=1)
    got = real_client.logits(term, rows, key_length=keys, direction=direction, **extent)
    distance = relative(queries, keys, extent)
    vectors = np.broadcast_to(table[np.clip(distance, -4, 1) + 4], (HEADS, queries, keys, DIM))
    assert got.dtype == np.float32
    check(got, rows, vectors, seen(distance, direction), DIM)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("queries", "keys", "extent"), EXTENTS)
def test_shaw_values_match_definition(
    real_client: attnbias.Client, queries: int, keys: int, extent: Any, direction: Any
) -> None:
    weights, table = random(HEADS, queries, keys, dtype=np.float64), random(6, DIM)
    term = attnbias.ShawValues(table=table, left=4, right=1)
    got = real_client.logits(term, weights, direction=direction, output_data_type="f64", **extent)
    distance = relative(queries, keys, extent)
    vectors = table[np.clip(distance, -4, 1) + 4].astype("f8")
    kept = np.where(seen(distance, direction), weights, 0)
    want = np.einsum("hij,ijd->hid", kept, vectors)
    assert got.shape == (HEADS, queries, DIM)
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_shaw_follows_query_minus_key_sign(real_client: attnbias.Client) -> None:
    """BERT's relative_key: distance_embedding(i - j + max_position_embeddings - 1)."""
    longest = 9
    rows, table = random(HEADS, longest, DIM), random(2 * longest - 1, DIM)
    reach: Any = {"left": longest - 1, "right": longest - 1, "sign": "QUERY_MINUS_KEY"}
    positions = np.arange(longest)
    vectors = table[positions[:, None] - positions + longest - 1]
    keys = attnbias.ShawKeys(table=table, **reach)
    got = real_client.logits(keys, rows, key_length=longest, direction="bidirectional")
    everywhere = np.ones((longest, longest), bool)
    check(got, rows, np.broadcast_to(vectors, (HEADS, *vectors.shape)), everywhere, DIM)
    weights = random(HEADS, longest, longest, dtype=np.float64)
    values = attnbias.ShawValues(table=table, **reach)
    sums = real_client.logits(values, weights, direction="bidirectional", output_data_type="f64")
    want = np.einsum("hij,ijd->hid", weights, vectors.astype("f8"))
    np.testing.assert_allclose(sums, want, atol=1e-12)


@pytest.mark.parametrize(
    ("clamp", "symmetric"), [(None, False), (3, False), (3, True), (None, True)]
)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("whole", EXTENTS)
def test_matches_transformer_xl(
    real_client: attnbias.Client, whole: Any, direction: Any, clamp: int | None, symmetric: bool
) -> None:
    queries, keys, extent = whole
    rows, bias = random(HEADS, queries, DIM), random(HEADS, DIM, seed=1)
    projection = random(HEADS * DIM, WIDTH, seed=2)
    term = attnbias.SinusoidalDistances(
        sinusoidal=attnbias.Sinusoidal(WIDTH, columns="sines_cosines"),
        projection=projection,
        clamp_len=clamp,
        symmetric=symmetric,
    )
    got = real_client.logits(
        term, rows, key_length=keys, direction=direction, query_bias=bias, **extent
    )
    distance = -relative(queries, keys, extent)
    used = distance if clamp is None else np.clip(distance, -clamp, clamp)
    source = sinusoid(abs(used) if symmetric else used, WIDTH)
    per_head = projection.astype("f8").reshape(HEADS, DIM, WIDTH)
    vectors = np.einsum("hdm,ijm->hijd", per_head, source)
    biased = rows.astype("f8") + bias[:, None]
    want = np.einsum("hid,hijd->hij", biased, vectors)
    magnitude = np.einsum("hdm,ijm->hijd", abs(per_head), abs(source))
    visible = seen(-distance, direction)
    error = np.where(visible, abs(np.where(visible, got, 0) - want), 0)
    assert np.all(error <= bound(DIM + 3, biased, magnitude))
    assert np.all(np.where(visible, -np.inf, got) == -np.inf)


def rel_shift(x: Array) -> Array:
    """Transformer-XL's own shift: adds a zero column, reshapes, drops the first row."""
    rows, columns = x.shape[-2:]
    padded = np.pad(x, [(0, 0), (0, 0), (1, 0)])
    shifted: Array = padded.reshape(*x.shape[:-2], columns + 1, rows)[:, 1:]
    return shifted.reshape(x.shape)


@pytest.mark.parametrize(("queries", "keys"), [(3, 5), (6, 6), (1, 4), (64, 100)])
def test_transformer_xl_matches_reference_shift(
    real_client: attnbias.Client, queries: int, keys: int
) -> None:
    """The two agree where the shift is defined; its other elements are not served."""
    rows, bias = random(HEADS, queries, WIDTH), random(HEADS, WIDTH, seed=1)
    term = attnbias.SinusoidalDistances(
        sinusoidal=attnbias.Sinusoidal(WIDTH, columns="sines_cosines")
    )
    got = real_client.logits(
        term,
        rows,
        key_length=keys,
        direction="left_to_right",
        alignment="end",
        query_bias=bias,
        output_data_type="f64",
        fill_value=0.0,
    )
    distances = sinusoid(np.arange(keys - 1, -1, -1), WIDTH)
    want = rel_shift((rows.astype("f8") + bias[:, None]) @ distances.T)
    defined = np.tri(queries, keys, keys - queries, dtype=bool)
    np.testing.assert_allclose(got, np.where(defined, want, 0), atol=1e-12)


def test_bias_only_logits_equal_difference(real_client: attnbias.Client) -> None:
    """Transformer-XL's (d) is (b) + (d) without (b)."""
    rows, bias = random(HEADS, 9, DIM), random(HEADS, DIM, seed=1)
    term = attnbias.SinusoidalDistances(sinusoidal=attnbias.Sinusoidal(DIM, columns="interleaved"))
    options: Any = {
        "key_length": 11,
        "direction": "bidirectional",
        "alignment": "end",
        "output_data_type": "f64",
    }
    both = real_client.logits(term, rows, query_bias=bias, **options)
    b = real_client.logits(term, rows, **options)
    d = real_client.logits(term, None, query_length=9, query_bias=bias, **options)
    np.testing.assert_allclose(both, b + d, atol=1e-12)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_absolute_keys_match_definition(real_client: attnbias.Client, direction: Any) -> None:
    rows, table = random(HEADS, 6, DIM), random(12, WIDTH)
    projection = random(HEADS * DIM, WIDTH, seed=2)
    term = attnbias.AbsoluteKeys(positions=table, projection=projection)
    got = real_client.logits(
        term, rows, key_length=10, direction=direction, alignment="end", output_data_type="f64"
    )
    per_head = projection.astype("f8").reshape(HEADS, DIM, WIDTH)
    vectors = np.einsum("hdm,jm->hjd", per_head, table[:10])
    want = np.einsum("hid,hjd->hij", rows, vectors)
    visible = seen(relative(6, 10, {"alignment": "end"}), direction)
    np.testing.assert_allclose(got, np.where(visible, want, -np.inf), atol=1e-12)


@pytest.mark.parametrize("keys", [(3, 4), (6, 2)])
def test_decomposed_relative_positions_match_definition(
    real_client: attnbias.Client, keys: tuple[int, int]
) -> None:
    height, width = 3, 4
    places = [2 * max(pair) - 1 for pair in zip((height, width), keys, strict=True)]
    tables = random(places[0], DIM), random(places[1], DIM, seed=1)
    term = attnbias.DecomposedRelativePositions(
        rel_pos_h=tables[0],
        rel_pos_w=tables[1],
        query_height=height,
        query_width=width,
        key_height=keys[0],
        key_width=keys[1],
    )
    rows = random(HEADS, height * width, DIM)
    got = real_client.logits(
        term,
        rows,
        key_length=keys[0] * keys[1],
        direction="bidirectional",
        alignment="start",
        output_data_type="f64",
    )
    queries = rows.astype("f8").reshape(HEADS, height, width, DIM)
    of_rows = tables[0][places_in(height, keys[0])]
    of_columns = tables[1][places_in(width, keys[1])]
    want = (
        np.einsum("nhwd,hkd->nhwk", queries, of_rows)[..., None]
        + np.einsum("nhwd,wkd->nhwk", queries, of_columns)[..., None, :]
    )
    np.testing.assert_allclose(got, want.reshape(got.shape), atol=1e-12)


def places_in(queries: int, keys: int) -> npt.NDArray[np.int64]:
    """Returns the table row for each query index and key index, by the contract's formula."""
    q = np.arange(queries)[:, None] * np.float32(max(keys / queries, 1))
    k = np.arange(keys) * np.float32(max(queries / keys, 1))
    return (q - k + np.float32((keys - 1) * max(queries / keys, 1))).astype(np.int64)


def test_options_set_type_scale_and_fill(real_client: attnbias.Client) -> None:
    rows = random(HEADS, 6, DIM).astype(ml_dtypes.bfloat16)
    table = random(6, DIM)
    term = attnbias.ShawKeys(table=table, left=4, right=1)
    options: Any = {"key_length": 6, "direction": "left_to_right", "scale": 0.25}
    exact = real_client.logits(term, rows, output_data_type="f64", fill_value=0.0, **options)
    distance = relative(6, 6, {})
    vectors = table[np.clip(distance, -4, 1) + 4].astype("f8")
    want = 0.25 * np.einsum("hid,ijd->hij", rows.astype("f8"), vectors)
    np.testing.assert_allclose(exact, np.where(distance <= 0, want, 0), atol=1e-12)
    half = real_client.logits(term, rows, output_data_type="f16", fill_lowest=True, **options)
    assert half.dtype == np.float16
    assert half[0, 0, 5] == np.finfo(np.float16).min
    np.testing.assert_allclose(
        half[:, distance <= 0], exact[:, distance <= 0], rtol=2e-3, atol=2e-3
    )


def test_many_blocks_fill_out_array(real_client: attnbias.Client) -> None:
    queries = 5000
    rows, table = random(8, queries, 64), random(33, 64)
    term = attnbias.ShawKeys(table=table, left=16, right=16)
    out = np.full((8, queries, 100), np.nan, np.float32)
    got = real_client.logits(
        term, rows, key_length=100, direction="bidirectional", alignment="start", out=out
    )
    assert got is out
    distance = relative(queries, 100, {})
    for i in (0, 1, 511, 512, 1023, 1024, 4999):
        want = rows[:, i] @ table[np.clip(distance[i], -16, 16) + 16].T
        np.testing.assert_allclose(got[:, i], want, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": random(2, 3)}, "rows: got shape"),
        ({"rows": np.ones((1, 2, DIM), np.int32)}, "rows: got an array of int32"),
        ({"rows": None}, "rows: got None"),
        ({"direction": "sideways"}, "direction: got 'sideways'"),
        ({"alignment": "end", "query_offset": 1}, "query_offset: given together with alignment"),
        ({"fill_value": "highest"}, "fill_value: got 'highest'"),
        ({"output_data_type": "i8"}, "output_data_type: got 'i8'"),
        ({"query_length": 4}, "query_length: given with rows"),
        ({"out": np.empty((1, 2, 3), np.float32)}, "out: got float32"),
    ],
)
def test_invalid_arguments_are_rejected(
    client: attnbias.Client, arguments: Any, message: str
) -> None:
    term = attnbias.ShawKeys(table=random(3, DIM), left=1, right=1)
    given: Any = {"rows": random(HEADS, 4, DIM), "key_length": 4, "direction": "bidirectional"}
    with pytest.raises((TypeError, ValueError), match=message):
        client.logits(term, **(given | arguments))


@pytest.mark.parametrize(
    ("term", "says"),
    [
        (
            attnbias.Shaw(left=1, right=1, table=random(3, DIM)),
            "term: got an object of type LearnedRelative; want attnbias.ShawKeys",
        ),
        (attnbias.ShawKeys, "term: got the class ShawKeys, not an instance"),
        ("shaw_keys", "term: got 'shaw_keys'"),
        (
            attnbias.SinusoidalDistances(sinusoidal=attnbias.TransformerXL(dim=DIM)),  # type: ignore[arg-type]
            "sinusoidal_distances.sinusoidal: got an object of type RelativeSinusoidal",
        ),
    ],
)
def test_invalid_term_is_a_type_error(client: attnbias.Client, term: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        client.logits(term, random(HEADS, 4, DIM), key_length=4, direction="bidirectional")


def test_unknown_keyword_is_rejected(client: attnbias.Client) -> None:
    term = attnbias.ShawKeys(table=random(3, DIM), left=1, right=1)
    given: Any = {"key_length": 4, "direction": "bidirectional", "causal": True}
    says = r"^Client\.logits\(\) got an unexpected keyword argument 'causal'"
    with pytest.raises(TypeError, match=says):
        client.logits(term, random(HEADS, 4, DIM), **given)


def test_mounted_table_is_accepted(real_client: attnbias.Client) -> None:
    (info,) = real_client.list_tables()
    weights = random(HEADS, 4, 4)
    ask = partial(real_client.logits, rows=weights, direction="bidirectional")
    got = ask(attnbias.ShawValues(table=info, left=15, right=16))
    np.testing.assert_array_equal(got, ask(attnbias.ShawValues(table=MOUNTED, left=15, right=16)))


def test_error_names_field(real_client: attnbias.Client) -> None:
    term = attnbias.ShawKeys(table=random(3, DIM), left=1, right=2)
    with pytest.raises(attnbias.InvalidArgumentError) as caught:
        real_client.logits(term, random(HEADS, 4, DIM), key_length=4, direction="bidirectional")
    (violation,) = caught.value.field_violations
    assert violation.field == "spec.shaw_keys.table"
    assert caught.value.message == f"{violation.field}: {violation.description}"


class Scripted:
    """Answers ComputeLogits on the fake server, with the damage that a test requests."""

    def __init__(self, answer: Array, damage: str = "") -> None:
        self.may_break = threading.Event()
        self.answer = answer
        self.damage = damage
        self.first_rows: list[int] = []
        self.calls = 0

    def serve(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        self.calls += 1
        next(requests)
        answer = logits_pb2.ComputeLogitsResponse(header=logits_pb2.LogitsHeader())
        if self.damage == "request":
            answer.request_crc32c = 7
        yield answer
        for request in requests:
            self.first_rows.append(request.first_row)
            end = request.first_row + request.num_rows
            data = self.answer[:, request.first_row : end].tobytes()
            if self.damage == "break" and self.calls == 1 and request.first_row > 0:
                self.may_break.wait(20)
                context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
            if self.damage == "short":
                return
            offset = 4 if self.damage == "offset" else 0
            checksum = crc32c.crc32c(data) ^ (self.damage == "checksum")
            yield logits_pb2.ComputeLogitsResponse(offset=offset, crc32c=checksum, data=data)


class Counting:
    """Rows that count their conversions to an array; on a GPU, each would copy the rows."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.conversions = 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self.conversions += 1
        return self.array


def test_rows_are_converted_once(server: FakeServer, client: attnbias.Client) -> None:
    scripted = Scripted(random(HEADS, 4, 4))
    server.logits = scripted.serve
    term = attnbias.ShawKeys(table=random(3, DIM), left=1, right=1)
    rows = Counting(random(HEADS, 4, DIM))
    got = client.logits(term, rows, key_length=4, direction="bidirectional")
    np.testing.assert_array_equal(got, scripted.answer)
    assert rows.conversions == 1


@pytest.mark.parametrize("damage", ["checksum", "offset", "request", "short"])
def test_damaged_response_is_data_loss(
    server: FakeServer, client: attnbias.Client, damage: str
) -> None:
    server.logits = Scripted(random(HEADS, 4, 4), damage).serve
    term = attnbias.ShawKeys(table=random(3, DIM), left=1, right=1)
    with pytest.raises(attnbias.DataLossError):
        client.logits(term, random(HEADS, 4, DIM), key_length=4, direction="bidirectional")


def test_broken_call_is_resumed(
    server: FakeServer, client: attnbias.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = 3 * (2 << 20) // (HEADS * DIM * 4)
    scripted = Scripted(random(HEADS, queries, 4), "break")
    server.logits = scripted.serve
    progressed = "attnbias._transport.retry.Retry.progressed"
    monkeypatch.setattr(progressed, lambda _: scripted.may_break.set())
    term = attnbias.ShawKeys(table=random(3, DIM), left=1, right=1)
    rows = random(HEADS, queries, DIM)
    got = client.logits(term, rows, key_length=4, direction="bidirectional", alignment="start")
    np.testing.assert_array_equal(got, scripted.answer)
    assert scripted.calls == 2
    assert scripted.first_rows.count(0) == 1


def test_repeated_calls_are_bit_identical(real_client: attnbias.Client) -> None:
    """Several threads compute tiles concurrently, which not every BLAS supports."""
    rows, projection = random(HEADS, 200, DIM), random(HEADS * DIM, WIDTH, seed=2)
    term = attnbias.SinusoidalDistances(
        sinusoidal=attnbias.Sinusoidal(WIDTH, columns="sines_cosines"), projection=projection
    )
    ask = partial(real_client.logits, term, rows, key_length=300, query_offset=30)
    first = ask(direction="bidirectional")
    for _ in range(1000):
        assert np.array_equal(ask(direction="bidirectional"), first)


@pytest.mark.parametrize(
    ("fields", "options", "name"),
    [
        ({"query_height": 2.0}, {}, "decomposed_relative_positions.query_height: got 2.0"),
        ({"key_width": "2"}, {}, "decomposed_relative_positions.key_width: got '2'"),
        ({"query_width": 2**31}, {}, "decomposed_relative_positions.query_width: got 2147483648"),
        ({}, {"key_length": 4.0}, "key_length: got 4.0"),
        ({}, {"query_offset": "1"}, "query_offset: got '1'"),
        ({}, {"scale": "1"}, "scale: got '1'"),
        ({}, {"fill_value": []}, "fill_value: got []"),
    ],
)
def test_error_names_argument_of_wrong_type(
    fields: dict[str, Any], options: dict[str, Any], name: str, connect: Connect
) -> None:
    sides = {"query_height": 2, "query_width": 2, "key_height": 2, "key_width": 2} | fields
    term = attnbias.DecomposedRelativePositions(
        rel_pos_h=random(3, DIM), rel_pos_w=random(3, DIM), **sides
    )
    with (
        connect("127.0.0.1:1") as client,
        pytest.raises((TypeError, ValueError), match=re.escape(name)),
    ):
        client.logits(
            term, random(1, 4, DIM), **({"key_length": 4} | options), direction="bidirectional"
        )
