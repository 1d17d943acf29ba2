# SPDX-License-Identifier: Apache-2.0
"""Too many connections, too little memory, clients that stop reading."""

import contextlib
import itertools
import pathlib
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.support import http2
from tests.support.contract import (
    DENSE,
    SERVICE,
    alibi,
    dense_alibi,
    message,
    sinusoid,
    with_large_table,
)
from tests.support.server import Details, eventually, hold_memory, refused, settled


def test_survives_running_out_of_descriptors(start_server: Any) -> None:
    server = start_server(prefix=("prlimit", "--nofile=64:64"))
    if not server.grpc_gets_fixes():
        pytest.skip("this gRPC has CVE-2023-4785: it no longer accepts connections")
    with contextlib.ExitStack() as flood:
        for _ in range(200):
            flood.enter_context(http2.open_socket(server.address))
        eventually(lambda: server.descriptors() == 64, "the descriptors run out")
    with server.connect() as stub:
        assert stub.payload(alibi(8, 9, **DENSE)) == dense_alibi(8, 9, 9).tobytes()
    assert server.stop() == 0


def test_stalled_reader_is_closed_and_memory_released(start_server: Any) -> None:
    server = start_server("--write-stall-timeout=200ms", "--memory-budget=64MiB")
    with server.connect() as stub:
        # Rows selected by a list are separate chunks of memory.
        ids = {"position_ids": [{"positions": [i * 7 % 30011 for i in range(200000)]}]}
        spec = sinusoid(1, 64)
        spec.table.Clear()
        spec.table.MergeFrom(type(spec.table)(**ids))
        call = stub.stream(spec)
        next(call)

        def aborted() -> float:
            return server.metrics()['attnbias_rejected_total{reason="stalled_client"}']

        eventually(lambda: aborted() == 1, "the stream closed")
        error = refused(lambda: call)
        assert error.code() == grpc.StatusCode.ABORTED

        settled(server)
        # Other clients are not affected.
        assert stub.payload(alibi(8, 64, **DENSE)) == dense_alibi(8, 64, 64).tobytes()


def test_unread_unary_answer_is_aborted(start_server: Any) -> None:
    """gRPC's own clients always read the answer, so this one speaks HTTP/2 itself."""
    server = start_server("--write-stall-timeout=200ms")
    request = message("GetTensorRequest")(spec=sinusoid(8192, 64)).SerializeToString()
    path = f"/{SERVICE}/GetTensor"
    with http2.open_socket(server.address) as client:
        client.settimeout(20)
        client.sendall(
            http2.PREFACE
            + http2.settings()
            + http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.call_headers(path))
            + http2.frame(http2.DATA, http2.END_STREAM, 1, http2.framed(request))
        )
        received = client.makefile("rb")
        kinds = []
        # Without a window update, 64 KiB arrive, followed by the end of the stream.
        while http2.RESET not in kinds:
            size, kind = struct.unpack(">IB", b"\0" + received.read(4))
            received.read(5 + size)
            kinds.append(kind)
        assert kinds.count(http2.DATA) > 0


@pytest.mark.parametrize("method", ["GetTensor", "StreamTensor"])
@pytest.mark.parametrize("client", ["an address", "its connections", "behind a proxy", "a socket"])
def test_stalled_memory_owner_is_evicted_for_others(
    start_server: Any, client: str, method: str, tmp_path: pathlib.Path
) -> None:
    """A client is identified by its address, across all its connections, or by its connection to a
    Unix socket.
    """
    many = client == "its connections"
    # If the connections counted as separate clients, each would hold less than the other client
    # requests, and would keep its memory until the timeout.
    count, timeout = (18, "72s") if many else (1, "12s")
    flags = (f"--write-stall-timeout={timeout}", "--memory-budget=16MiB")
    listen = f"unix:{tmp_path}/attnbias.sock" if client == "a socket" else "127.0.0.1:0"
    server = start_server(f"--listen={listen}", *flags)
    closed = 'attnbias_rejected_total{reason="stalled_client"}'
    proxied = client == "behind a proxy"
    headers = {"x_forwarded_for": "192.0.2.1, 192.0.2.2"} if proxied else {}
    source = "" if proxied else http2.loopback(0)
    hoarders = [http2.Connection(server.address, 0, source) for _ in range(count)]
    # 0.9 MiB each, all of it in the cache.
    for dim, hoarder in zip(range(200, 236, 2), itertools.cycle(hoarders), strict=False):
        request = message(f"{method}Request")(spec=sinusoid(1024, dim)).SerializeToString()
        hoarder.begin(f"/{SERVICE}/{method}", http2.framed(request), **headers)
        http2.pump(hoarders, lambda: False, 0.1)
    assert server.metrics()[closed] == 0, "nobody waits"
    with server.connect() as stub:
        other = sinusoid(1024, 400)
        error = refused(lambda: stub.tensor(other))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED

        def answered() -> bool:
            http2.pump(hoarders, lambda: False, 0.1)
            try:
                stub.tensor(other)
            except grpc.RpcError:
                return False
            return True

        eventually(answered, "room for another")
    assert server.metrics()[closed] > 0
    for hoarder in hoarders:
        hoarder.close()


@pytest.mark.parametrize("method", ["GetTensor", "StreamTensor"])
def test_unread_answer_after_deadline_is_not_counted_ok(start_server: Any, method: str) -> None:
    server = start_server()
    client = http2.Connection(server.address, window=0)
    request = message(f"{method}Request")(spec=sinusoid(1024, 64)).SerializeToString()
    client.begin(f"/{SERVICE}/{method}", http2.framed(request), grpc_timeout="300m")

    def ends() -> set[str]:
        http2.pump([client], lambda: False, 0.1)
        return {
            name.split('grpc_code="')[1].split('"')[0]
            for name, count in server.metrics().items()
            if name.startswith("grpc_server_handled_total") and method in name and count
        }

    eventually(ends, "the call ended")
    assert ends() == {"DeadlineExceeded"}
    client.close()


def test_slow_reader_making_progress_is_kept(start_server: Any) -> None:
    server = start_server("--write-stall-timeout=4s")
    with server.connect() as stub:
        got = b""
        for reply in stub.stream(alibi(8, 1024, **DENSE), max_chunk_bytes=2**20):
            got += reply.data
            time.sleep(0.2)  # 32 times; in total, longer than the timeout
        assert got == dense_alibi(8, 1024, 1024).tobytes()
        assert server.metrics()['attnbias_rejected_total{reason="stalled_client"}'] == 0


def test_exhausted_budget_is_retryable_and_keeps_readiness(start_server: Any) -> None:
    server = start_server("--memory-budget=9MiB")
    with server.connect() as stub:
        holder = hold_memory(server, stub)
        large = sinusoid(16000, 64)  # 3.9 MiB
        error = refused(lambda: stub.tensor(large))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert Details(error).reason == "OVERLOADED"
        assert Details(error).retry_seconds == 1
        assert dict(error.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
        assert server.metrics()['attnbias_rejected_total{reason="overload"}'] == 1
        for name in ("", "readiness", "liveness"):
            assert stub.check(name) == "SERVING"
        assert stub.payload(alibi(8, 64, **DENSE)) == dense_alibi(8, 64, 64).tobytes()
        holder.cancel()
        settled(server)
        assert len(stub.tensor(large).data) == 16000 * 64 * 4


def test_request_larger_than_budget_is_invalid_not_retryable(start_server: Any) -> None:
    server = start_server("--memory-budget=1MiB")
    with server.connect() as stub:
        error = refused(lambda: stub.tensor(sinusoid(8192, 64)))  # 2 MiB
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "the whole memory budget" in error.details()
        assert Details(error).retry_seconds is None
        assert stub.check("liveness") == "SERVING"
        settled(server)  # a call ends for its client before the server releases its memory
        assert stub.payload(alibi(8, 64, **DENSE)) == dense_alibi(8, 64, 64).tobytes()


def test_large_request_counts_against_budget(start_server: Any) -> None:
    t5 = with_large_table()
    small = start_server("--memory-budget=8MiB")
    with small.connect() as stub:
        for call in (stub.header, stub.tensor, stub.payload):
            error = refused(lambda call=call: call(t5))
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "the whole memory budget" in error.details()
    large = start_server("--memory-budget=64MiB")
    with large.connect() as stub:
        assert stub.payload(t5) == bytes(4 * 128 * 7)

        settled(large)


def test_memory_stays_within_budget_under_pressure(start_server: Any) -> None:
    budget = 64 << 20
    server = start_server(f"--memory-budget={budget}")
    used = []

    def fetch(i: int) -> bool:
        with server.connect() as stub:
            try:
                for reply in stub.stream(sinusoid(2**16, 64 + i), max_chunk_bytes=2**20):
                    if reply.offset == 0:
                        used.append(server.metrics()["attnbias_memory_used_bytes"])
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED  # noqa: PT017
                return False
            return True

    with ThreadPoolExecutor(32) as clients:
        outcomes = list(clients.map(fetch, range(32)))
    assert True in outcomes
    assert max(used) <= budget

    settled(server)
    with server.connect() as stub:
        eventually(lambda: stub.check("readiness") == "SERVING", "readiness")
        assert stub.payload(alibi(8, 64, **DENSE)) == dense_alibi(8, 64, 64).tobytes()
