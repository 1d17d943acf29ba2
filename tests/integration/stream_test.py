# SPDX-License-Identifier: Apache-2.0
"""Streams carry the correct bytes, in whole or in part, with a correct checksum."""

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import crc32c
import grpc
import pytest

from tests.support.contract import DENSE, alibi, dense_alibi, header_checksum, message, sinusoid
from tests.support.server import Stub, eventually, refused, settled


def check_replies(replies: list[Any], begin: int, total: int, most: int) -> bytes:
    """Returns the payload of a stream, after checking every rule of the contract."""
    assert replies[0].HasField("header")
    assert replies[0].header_crc32c == header_checksum(replies[0])
    assert replies[0].HasField("request_crc32c")
    for reply in replies[1:]:
        assert not any(map(reply.HasField, ("header", "header_crc32c", "request_crc32c")))
    at = begin
    for reply in replies:
        assert reply.offset == at
        assert 1 <= len(reply.data) <= most
        assert reply.crc32c == crc32c.crc32c(reply.data)
        at += len(reply.data)
    assert at == total
    return b"".join(reply.data for reply in replies)


@pytest.mark.parametrize("chunk", [4096, 5000, 2**20, 2**21])
def test_dense_stream_matches_alibi_formula(stub: Stub, chunk: int) -> None:
    spec = alibi(4, 300, 1500, **DENSE)
    replies = list(stub.stream(spec, max_chunk_bytes=chunk))
    want = dense_alibi(4, 300, 1500).tobytes()
    assert check_replies(replies, 0, len(want), chunk) == want
    assert all(len(reply.data) == chunk for reply in replies[:-1])


def test_default_chunk_is_one_mebibyte(stub: Stub) -> None:
    sizes = [len(r.data) for r in stub.stream(alibi(4, 512, **DENSE))]
    assert sizes == [2**20] * 4


def test_large_header_shrinks_first_chunk(stub: Stub) -> None:
    far = {"positions": [2**39 + 2 * i for i in range(2**18)]}  # 6 bytes each, also in the header
    spec = message("TensorSpec")(
        sinusoidal={"dim": 8, "axes": [{}, {}]}, table={"position_ids": [far, far]}
    )
    replies = list(stub.stream(spec, max_chunk_bytes=2**21))
    check_replies(replies, 0, 2**18 * 8 * 4, 2**21)
    assert 2**22 - 128 < replies[0].ByteSize() <= 2**22
    assert [len(reply.data) for reply in replies[1:-1]] == [2**21] * 3


def test_unary_response_equals_stream(stub: Stub) -> None:
    spec = alibi(8, 200, **DENSE)
    reply = stub.tensor(spec)
    assert reply.data == dense_alibi(8, 200, 200).tobytes() == stub.payload(spec)
    assert reply.crc32c == crc32c.crc32c(reply.data)
    assert reply.header_crc32c == header_checksum(reply)


def test_repeated_answer_is_identical(stub: Stub) -> None:
    first, again = (stub.tensor(alibi(3, 20)) for _ in range(2))
    assert again == first
    assert again.header_crc32c == header_checksum(again)


def test_answer_contains_request_checksum(stub: Stub) -> None:
    same = alibi(2, 16), alibi(2, 16, form="FORM_TOEPLITZ")
    for spec in (*same, *same):  # the second time from the plan memo
        request = message("DescribeTensorRequest")(spec=spec)
        replies = stub.describe(request), stub.tensor(spec), next(iter(stub.stream(spec)))
        want = crc32c.crc32c(request.SerializeToString())
        assert [reply.request_crc32c for reply in replies] == [want] * 3


def test_every_method_returns_the_same_header(stub: Stub) -> None:
    spec = alibi(2, 16)
    described = stub.describe(message("DescribeTensorRequest")(spec=spec))
    header = described.header
    assert described.header_crc32c == header_checksum(described)
    assert stub.tensor(spec).header == header
    assert next(iter(stub.stream(spec))).header == header
    (part,) = header.parts
    assert (part.name, list(part.shape)) == ("diagonals", [2, 31])
    assert part.first_relative_position == -15
    assert header.total_bytes == part.size_bytes == 2 * 31 * 4
    assert len(header.fingerprint) == len(header.encoding_fingerprint) == 64


def test_resolved_spec_names_the_same_bytes(stub: Stub) -> None:
    header = stub.header(alibi(2, 16, 32, mask={"causal": True}))
    again = stub.header(header.resolved_spec)
    assert again == header
    assert again.resolved_spec.output.form  # set explicitly, not left to a default


@pytest.mark.parametrize(
    "spec",
    [alibi(4, 300, 700, **DENSE), alibi(4, 5000), sinusoid(3000, 129, data_type="DATA_TYPE_BF16")],
    ids=["dense", "diagonals", "table"],
)
def test_any_byte_range_equals_slice_of_whole(stub: Stub, spec: Any) -> None:
    whole = stub.payload(spec)
    fingerprint = stub.header(spec).fingerprint
    numbers = random.Random(20260101)
    for _ in range(40):
        begin = numbers.randrange(len(whole))
        limit = numbers.choice([0, 1, numbers.randrange(1, 2 * len(whole))])
        end = len(whole) if limit == 0 else min(len(whole), begin + limit)
        replies = list(
            stub.stream(
                spec,
                read_offset=begin,
                read_limit=limit,
                expected_fingerprint=fingerprint,
                max_chunk_bytes=numbers.randrange(4096, 2**17),
            )
        )
        assert check_replies(replies, begin, end, 2**17) == whole[begin:end]


def test_stream_resumed_at_any_point_is_complete(stub: Stub) -> None:
    spec = alibi(4, 600, 700, **DENSE)
    whole = dense_alibi(4, 600, 700).tobytes()
    numbers = random.Random(7)
    got = b""
    fingerprint = ""
    while len(got) < len(whole):
        call = stub.stream(
            spec,
            read_offset=len(got),
            expected_fingerprint=fingerprint,
            max_chunk_bytes=4096 + len(got) % 60000,
        )
        first = next(call)
        fingerprint = first.header.fingerprint
        for reply in [first, *itertools.islice(call, numbers.randrange(19))]:
            assert reply.offset == len(got)
            got += reply.data
        call.cancel()
    assert got == whole


def test_streaming_two_gibibytes_keeps_memory_bounded(start_server: Any) -> None:
    server = start_server()
    stub = server.connect()
    stub.payload(alibi(32, 64, **DENSE))  # excludes the cost of a process's first call
    before = server.resident_bytes()
    total = most = 0
    for reply in stub.stream(alibi(32, 4096, **DENSE)):
        total += len(reply.data)
        if total % (64 << 20) == 0:
            most = max(most, server.resident_bytes())
    assert total == 2 << 30
    assert most - before < 32 << 20


def test_64_clients_share_one_computation(start_server: Any) -> None:
    server = start_server()
    spec = sinusoid(20000, 256)
    barrier = threading.Barrier(64)

    def fetch(_: int) -> int:
        with server.connect() as stub:
            stub.check()  # connected
            barrier.wait()
            return hash(stub.payload(spec))

    with ThreadPoolExecutor(64) as clients:
        assert len(set(clients.map(fetch, range(64)))) == 1
    metrics = server.metrics()
    assert metrics["attnbias_computations_total"] == 1
    asked = (metrics[f"attnbias_cache_{kind}_total"] for kind in ("hits", "misses", "joins"))
    assert sum(asked) >= 64


def test_cancellation_at_random_points_leaks_nothing(start_server: Any) -> None:
    server = start_server("--memory-budget=256MiB")
    numbers = random.Random(3)
    with server.connect() as stub:
        for i in range(300):
            # Each request has its own table, so that computations are canceled as well.
            call = stub.stream(
                sinusoid(20000 + i, 64, data_type="DATA_TYPE_F64"), max_chunk_bytes=4096
            )
            for _ in zip(range(numbers.choice([0, 0, 1, 2, 5, 50])), call, strict=False):
                pass
            call.cancel()
        assert stub.payload(alibi(8, 64, **DENSE)) == dense_alibi(8, 64, 64).tobytes()

    settled(server)
    assert server.stop() == 0


def test_cancelled_unary_calls_leak_nothing(start_server: Any) -> None:
    server = start_server()
    with server.connect() as stub:
        for i in range(300):
            request = message("GetTensorRequest")(spec=sinusoid(900 + i, 1024))
            call = stub.get.future(request)
            if i % 3:
                threading.Event().wait(i % 7 / 2000)
            call.cancel()
        eventually(
            lambda: (
                server.metrics()["attnbias_memory_used_bytes"]
                == server.metrics()["attnbias_cache_bytes"]
            ),
            "all uncached memory released",
        )
        assert stub.check() == "SERVING"
    assert server.stop() == 0


def test_deadline_stops_computation(start_server: Any) -> None:
    server = start_server("--memory-budget=16GiB", "--threads=1")
    with server.connect() as stub:
        stub.check()
        spec = sinusoid(2**20, 256)  # 1 GiB
        error = refused(lambda: stub.stream(spec, timeout=0.001))
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    eventually(
        lambda: server.metrics()["attnbias_memory_used_bytes"] == 0, "the table's memory released"
    )
    assert server.metrics()["attnbias_computations_total"] == 0
