# SPDX-License-Identifier: Apache-2.0
"""ComputeLogits in the real binary: correct rows, and a clean end in every case."""

import queue
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import crc32c
import grpc
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.contract import header_checksum, message
from tests.support.server import Details, Stub, eventually, refused, settled

Array = npt.NDArray[np.float32]
HEADS, DIM = 2, 8
LEFT_TO_RIGHT = "DIRECTION_LEFT_TO_RIGHT"
BIDIRECTIONAL = "DIRECTION_BIDIRECTIONAL"


def table_of(numbers: Any) -> dict[str, Any]:
    array = np.asarray(numbers, "<f4")
    inline = {"data_type": "DATA_TYPE_F32", "shape": array.shape, "data": array.tobytes()}
    return {"inline_table": inline}


VECTORS = np.random.default_rng(1).standard_normal((8, DIM)).astype("f4")
SHAW = {"table": table_of(VECTORS), "left": 5, "right": 2}


def spec_of(queries: int, keys: int, **fields: Any) -> Any:
    """Returns a request with the spec for Shaw's logits, modified by `fields`."""
    given: dict[str, Any] = {
        "num_heads": HEADS,
        "head_dim": DIM,
        "query_length": queries,
        "key_length": keys,
        "alignment": "ALIGNMENT_END",
        "direction": LEFT_TO_RIGHT,
    }
    oneof = message("LogitsSpec").DESCRIPTOR.oneofs_by_name["term"]
    if not fields.keys() & {field.name for field in oneof.fields}:
        given["shaw_keys"] = SHAW
    given |= fields
    spec = message("LogitsSpec")(**{k: v for k, v in given.items() if v is not None})
    return message("ComputeLogitsRequest")(spec=spec)


def rows_of(first: int, rows: Array, **fields: Any) -> Any:
    data = rows.astype("<f4").tobytes()
    given = {
        "first_row": first,
        "num_rows": rows.shape[1],
        "crc32c": crc32c.crc32c(data),
        "data": data,
    }
    return message("ComputeLogitsRequest")(**(given | fields))


def queries_of(count: int) -> Array:
    return np.random.default_rng(2).standard_normal((HEADS, count, DIM)).astype("f4")


def gathered(queries: Array, keys: int) -> Array:
    """Evaluates the definition with the tensor [queries, keys, dim], which the server never
    materializes.
    """
    count = queries.shape[1]
    i = np.arange(count)[:, None] + keys - count
    j = np.arange(keys)[None, :]
    vectors = VECTORS[np.clip(j - i, -5, 2) + 5].astype("f8")
    logits = np.einsum("hid,ijd->hij", queries.astype("f8"), vectors)
    return np.where(j <= i, logits, -np.inf)


GRIDS = {
    "rel_pos_h": table_of(VECTORS[:5]),
    "rel_pos_w": table_of(VECTORS[5:]),
    "query_height": 3,
    "query_width": 2,
    "key_height": 3,
    "key_width": 2,
}


def gathered_in_a_grid(queries: Array) -> Array:
    """Evaluates the definition for GRIDS, with a vector for each pair."""
    row, column = np.divmod(np.arange(6), 2)
    vectors = VECTORS.astype("f8")
    of_rows = vectors[:5][row[:, None] - row + 2]
    of_columns = vectors[5:][column[:, None] - column + 1]
    logits: Array = np.einsum("hid,ijd->hij", queries.astype("f8"), of_rows + of_columns)
    return logits


def answers(call: Any, *shapes: tuple[int, ...]) -> list[Array]:
    """Returns the answer to each request, after checking every rule of the contract."""
    first = next(call)
    assert first.HasField("header")
    assert first.header_crc32c == header_checksum(first)
    assert first.data == b""
    arrays = []
    for shape in shapes:
        want = int(np.prod(shape)) * 4
        got = b""
        while len(got) < want:
            reply = next(call)
            assert not reply.HasField("header")
            assert reply.offset == len(got)
            assert 1 <= len(reply.data) <= (4 << 20) - (64 << 10)
            assert reply.crc32c == crc32c.crc32c(reply.data)
            got += reply.data
        arrays.append(np.frombuffer(got, "<f4").reshape(shape))
    return arrays


class Feed:
    """Requests that a test sends one by one."""

    def __init__(self, *requests: Any) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for request in requests:
            self.send(request)

    def send(self, request: Any) -> None:
        self._queue.put(request)

    def close(self) -> None:
        self._queue.put(None)

    def __iter__(self) -> Iterator[Any]:
        while (request := self._queue.get()) is not None:
            yield request


def test_blocks_of_rows_are_answered_in_any_order(stub: Stub) -> None:
    queries = queries_of(50)
    want = gathered(queries, 70)
    cuts = [(20, 50), (0, 1), (49, 50), (0, 20), (0, 1)]
    call = stub.logits([spec_of(50, 70), *(rows_of(a, queries[:, a:b]) for a, b in cuts)])
    got = answers(call, *((HEADS, b - a, 70) for a, b in cuts))
    for (a, b), rows in zip(cuts, got, strict=True):
        np.testing.assert_allclose(rows, want[:, a:b], atol=1e-5)
    assert list(call) == []


def test_grid_tokens_are_answered_in_any_order(stub: Stub) -> None:
    queries = queries_of(6)
    want = gathered_in_a_grid(queries)
    spec = spec_of(6, 6, decomposed_relative_positions=GRIDS, direction=BIDIRECTIONAL)
    cuts = [(4, 6), (0, 1), (1, 4)]
    call = stub.logits([spec, *(rows_of(a, queries[:, a:b]) for a, b in cuts)])
    got = answers(call, *((HEADS, b - a, 6) for a, b in cuts))
    for (a, b), rows in zip(cuts, got, strict=True):
        np.testing.assert_allclose(rows, want[:, a:b], atol=1e-5)


def test_large_answer_is_split_into_messages(stub: Stub) -> None:
    queries = queries_of(300)
    call = stub.logits([spec_of(300, 3000), rows_of(0, queries)])
    (got,) = answers(call, (HEADS, 300, 3000))
    np.testing.assert_allclose(got, gathered(queries, 3000), atol=1e-5)


def test_each_row_is_answered_before_the_next_is_sent(stub: Stub) -> None:
    queries = queries_of(5)
    feed = Feed(spec_of(5, 9))
    call = stub.logits(feed)
    assert next(call).header.width == 9
    for i in range(5):
        feed.send(rows_of(i, queries[:, i : i + 1]))
        reply = next(call)
        assert reply.first_row == i
        got = np.frombuffer(reply.data, "<f4").reshape(HEADS, 9)
        np.testing.assert_allclose(got, gathered(queries, 9)[:, i], atol=1e-5)
    feed.close()
    assert list(call) == []


def test_header_states_resolved_spec(stub: Stub) -> None:
    fields = {"data_type": "DATA_TYPE_F64", "output_data_type": "DATA_TYPE_BF16", "scale": 0.125}
    header = next(stub.logits([spec_of(3, 5, **fields)])).header
    assert (header.num_heads, header.width, header.query_offset) == (HEADS, 5, 2)
    data_type = message("TensorPart").DESCRIPTOR.fields_by_name["data_type"].enum_type
    names = data_type.values_by_number
    assert names[header.data_type].name == "DATA_TYPE_BF16"
    assert names[header.work_data_type].name == "DATA_TYPE_F64"
    assert header.roundings == DIM + 1


TOO_LONG = (4 << 20) // 4

BAD_SPECS = [
    ({"shaw_keys": None}, "spec.term"),
    ({"num_heads": 0}, "spec.num_heads"),
    ({"direction": None}, "spec.direction"),
    ({"alignment": None}, "spec.alignment"),
    ({"key_length": TOO_LONG}, "spec.key_length"),
    ({"fill_value": float("nan")}, "spec.fill_value"),
    ({"fill_lowest": False}, "spec.fill_lowest"),
    ({"query_bias": table_of(np.zeros((1, DIM)))}, "spec.query_bias"),
    ({"query_bias": {"sha256": "0" * 63}}, "spec.query_bias.sha256"),
    ({"shaw_keys": SHAW | {"left": 6}}, "spec.shaw_keys.table"),
    (
        {"shaw_keys": SHAW | {"table": SHAW["table"] | {"layout": "TABLE_LAYOUT_HEADS_BUCKETS"}}},
        "spec.shaw_keys.table.layout",
    ),
    (
        {"sinusoidal_distances": {"sinusoidal": {"dim": DIM}}},
        "spec.sinusoidal_distances.sinusoidal.columns",
    ),
    ({"decomposed_relative_positions": GRIDS}, "spec.query_length"),
    (
        {"decomposed_relative_positions": GRIDS | {"query_height": 257}},
        "spec.decomposed_relative_positions.query_height",
    ),
    (
        {
            "decomposed_relative_positions": GRIDS
            | {"rel_pos_w": GRIDS["rel_pos_w"] | {"layout": "TABLE_LAYOUT_HEADS_BUCKETS"}}
        },
        "spec.decomposed_relative_positions.rel_pos_w.layout",
    ),
]


@pytest.mark.parametrize(("fields", "field"), BAD_SPECS, ids=[field for _, field in BAD_SPECS])
def test_invalid_spec_names_field(stub: Stub, fields: Any, field: str) -> None:
    error = refused(lambda: stub.logits([spec_of(3, 5, **fields)]))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert Details(error).fields == [field]


BAD_ROWS = [
    (spec_of(3, 5), "spec"),
    (rows_of(-1, queries_of(1)), "first_row"),
    (rows_of(2, queries_of(2)), "num_rows"),
    (rows_of(0, queries_of(2), num_rows=3), "data"),
    (rows_of(0, np.full((HEADS, 1, DIM), np.nan)), "data"),
    (rows_of(0, np.full((HEADS, 1, DIM), 3e38)), "data"),
]


@pytest.mark.parametrize(("request_", "field"), BAD_ROWS)
def test_invalid_rows_name_field(stub: Stub, request_: Any, field: str) -> None:
    error = refused(lambda: stub.logits([spec_of(3, 5), request_]))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert Details(error).fields == [field]


@pytest.mark.parametrize("requests", [[], [rows_of(0, queries_of(1))]], ids=["nothing", "rows"])
def test_first_message_must_be_the_spec(stub: Stub, requests: list[Any]) -> None:
    error = refused(lambda: stub.logits(requests))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert Details(error).fields == ["spec"]


@pytest.mark.parametrize(
    ("field", "value"), [("first_row", 1), ("num_rows", 3), ("crc32c", 0), ("data", b"1")]
)
def test_spec_message_rejects_other_fields(stub: Stub, field: str, value: Any) -> None:
    both = spec_of(3, 5)
    setattr(both, field, value)
    assert Details(refused(lambda: stub.logits([both]))).fields == [field]


def test_damaged_rows_are_data_loss(stub: Stub) -> None:
    error = refused(lambda: stub.logits([spec_of(3, 5), rows_of(0, queries_of(1), crc32c=1)]))
    assert error.code() == grpc.StatusCode.DATA_LOSS
    without = rows_of(0, queries_of(1))
    without.ClearField("crc32c")
    assert len(list(stub.logits([spec_of(3, 5), without]))) == 2


def test_unknown_fields_are_unimplemented(stub: Stub) -> None:
    unknown = spec_of(3, 5).SerializeToString() + b"\xf8\x07\x01"  # field 127
    error = refused(lambda: stub.logits([unknown]))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def endless(count: int = 200, keys: int = 2000) -> Iterator[Any]:
    """Yields more rows than any test reads."""
    yield spec_of(count, keys)
    queries = queries_of(count)
    while True:
        yield rows_of(0, queries)


def test_cancellation_at_any_point_leaks_nothing(start_server: Any) -> None:
    server = start_server("--memory-budget=64MiB")
    numbers = random.Random(3)
    with server.connect() as stub:
        for _ in range(60):
            call = stub.logits(endless())
            for _ in zip(range(numbers.choice([0, 0, 1, 2, 7])), call, strict=False):
                pass
            call.cancel()
        settled(server)
        queries = queries_of(5)
        (got,) = answers(stub.logits([spec_of(5, 9), rows_of(0, queries)]), (HEADS, 5, 9))
        np.testing.assert_allclose(got, gathered(queries, 9), atol=1e-5)
    assert server.stop() == 0


def test_deadline_ends_the_call(start_server: Any) -> None:
    server = start_server()
    with server.connect() as stub:
        error = refused(lambda: stub.logits(endless(), timeout=0.3))
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        settled(server)


def test_stalled_reader_is_closed_and_memory_released(start_server: Any) -> None:
    server = start_server("--write-stall-timeout=200ms", "--memory-budget=64MiB")
    with server.connect() as stub:
        call = stub.logits(endless(2000, 20000))
        next(call)
        rejected = 'attnbias_rejected_total{reason="stalled_client"}'
        eventually(lambda: server.metrics()[rejected] == 1, "the stream closed")
        error = refused(lambda: call)
        assert error.code() == grpc.StatusCode.ABORTED
        settled(server)


def test_silent_client_is_closed_and_memory_released(start_server: Any) -> None:
    server = start_server("--idle-timeout=500ms")
    with server.connect() as stub:
        feed = Feed(spec_of(3, 5))
        call = stub.logits(feed)
        assert next(call).HasField("header")
        error = refused(lambda: call)
        assert error.code() == grpc.StatusCode.ABORTED
        assert "stopped sending" in error.details()
        feed.close()
        settled(server)


def test_slow_sender_within_idle_timeout_is_kept(start_server: Any) -> None:
    server = start_server("--idle-timeout=2s")
    with server.connect() as stub:
        feed = Feed(spec_of(3, 5))
        call = stub.logits(feed)
        assert next(call).HasField("header")
        for _ in range(5):
            time.sleep(0.5)
            feed.send(rows_of(0, queries_of(3)))
            assert next(call).data
        feed.close()
        assert list(call) == []


def test_unread_answers_apply_backpressure(start_server: Any) -> None:
    """The stream holds one computation, one read request, one message, and socket buffers."""
    server = start_server()
    sent = 0

    def counted() -> Iterator[Any]:
        nonlocal sent
        for request in endless(1000, 20000):
            sent += 1
            yield request

    with server.connect() as stub:
        call = stub.logits(counted())
        next(call)
        before = server.resident_bytes()
        eventually(lambda: sent > 3, "some rows sent")
        queries = queries_of(5)
        for _ in range(20):
            answers(stub.logits([spec_of(5, 9), rows_of(0, queries)]), (HEADS, 5, 9))
        assert sent < 2000  # 64 KB requests
        assert server.resident_bytes() - before < 64 << 20
        call.cancel()


def test_vectors_beyond_budget_are_invalid(start_server: Any) -> None:
    server = start_server("--memory-budget=8MiB")
    distances = {"sinusoidal": {"dim": DIM, "columns": "COLUMNS_SINES_COSINES"}}
    with server.connect() as stub:
        long = {"sinusoidal_distances": distances, "shaw_keys": None}
        error = refused(lambda: stub.logits([spec_of(100000, 100000, **long)]))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert Details(error).fields == ["spec.query_length"]
        clamped = long | {"sinusoidal_distances": distances | {"clamp_len": 1000}}
        assert len(list(stub.logits([spec_of(100000, 100000, **clamped)]))) == 1


def test_drain_completes_started_rows(start_server: Any) -> None:
    server = start_server("--drain-grace=1h")
    shape = (HEADS, 400, 20000)  # 64 MB, more than sockets can buffer
    with server.connect() as stub:
        queries = queries_of(400)
        feed = Feed(spec_of(400, 20000), rows_of(0, queries))
        call = stub.logits(feed)
        assert next(call).HasField("header")
        data = [next(call).data]
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.metrics()["attnbias_draining"] == 1, "draining")
        while sum(map(len, data)) < 4 * np.prod(shape):
            data.append(next(call).data)
        last = np.frombuffer(b"".join(data), "<f4").reshape(shape)[:, -1:]
        np.testing.assert_allclose(last, gathered(queries[:, -1:], 20000), atol=1e-5)
        feed.send(rows_of(0, queries))
        error = refused(lambda: call)
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        feed.close()
    assert server.process.wait(60) == 0


def test_drain_does_not_wait_for_idle_clients(start_server: Any) -> None:
    server = start_server("--drain-grace=1h")
    with server.connect() as stub:
        feed = Feed(spec_of(3, 5))
        call = stub.logits(feed)
        assert next(call).HasField("header")
        server.terminate()
        error = refused(lambda: call)
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        feed.close()
    assert server.process.wait(60) == 0


def test_calls_are_counted_as_bidi_streams(start_server: Any) -> None:
    server = start_server()
    with server.connect() as stub:
        list(stub.logits([spec_of(3, 5), rows_of(0, queries_of(3))]))
        labels = 'grpc_method="ComputeLogits"'
        name = "grpc_server_handled_total"

        def handled() -> bool:
            return any(
                value == 1 and labels in sample and 'grpc_type="bidi_stream"' in sample
                for sample, value in server.metrics().items()
                if sample.startswith(name) and '"OK"' in sample
            )

        eventually(handled, "the call counted")
