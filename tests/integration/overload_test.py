# SPDX-License-Identifier: Apache-2.0
"""Too many connections, too little memory, clients that stop reading."""

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from tests.integration.contract import alibi, sinusoid
from tests.integration.server import Details, Server, eventually, refused
from tests.integration.stream_test import DENSE, dense_alibi


def open_socket(server: Server) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)))


def test_running_out_of_descriptors_is_survived(start_server: Any) -> None:
    server = start_server(prefix=("prlimit", "--nofile=64:64"))
    with contextlib.ExitStack() as flood:
        for _ in range(200):
            flood.enter_context(open_socket(server))
        # The last one is set aside for the metrics port, which waits in accept().
        eventually(lambda: server.descriptors() == 63, "the descriptors run out")
    with server.connect() as stub:
        assert stub.payload(alibi(8, 9, **DENSE)) == dense_alibi(8, 9, 9).tobytes()
    assert server.stop() == 0


def test_connections_beyond_the_limit_are_closed(start_server: Any) -> None:
    server = start_server("--max-connections=4")
    with contextlib.ExitStack() as flood:
        for _ in range(3):
            flood.enter_context(open_socket(server))
        with server.connect() as stub:
            stub.check()
            assert server.metrics()["attnbias_connections"] == 4
            refused_one = flood.enter_context(open_socket(server))
            refused_one.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert refused_one.recv(1) == b""
            rejected = server.metrics()['attnbias_rejected_total{reason="connection_limit"}']
            assert rejected == 1
            stub.check()
    # The server has to notice first that the others are gone.
    eventually(lambda: server.metrics()["attnbias_connections"] == 0, "the connections gone")
    with server.connect() as stub:
        assert stub.check("liveness") == "SERVING"


def test_a_stalled_reader_is_closed_and_memory_returns(start_server: Any) -> None:
    server = start_server("--progress-timeout=200ms", "--memory-budget=64MiB")
    with server.connect() as stub:
        # Rows picked by a list are chunks of memory of their own.
        ids = {"position_ids": [{"positions": [i * 7 % 30011 for i in range(200000)]}]}
        spec = sinusoid(1, 64)
        spec.table.Clear()
        spec.table.MergeFrom(type(spec.table)(**ids))
        call = stub.stream(spec)
        next(call)

        def aborted() -> float:
            return server.metrics()['attnbias_rejected_total{reason="stalled_reader"}']

        eventually(lambda: aborted() == 1, "the stream closed")
        error = refused(lambda: call)
        assert error.code() == grpc.StatusCode.ABORTED

        def settled() -> bool:
            metrics = server.metrics()
            return metrics["attnbias_memory_used_bytes"] == metrics["attnbias_cache_bytes"]

        eventually(settled, "the stream's memory given back")
        # Others are not concerned.
        assert stub.payload(alibi(8, 64, **DENSE)) == dense_alibi(8, 64, 64).tobytes()


def test_a_slow_reader_that_makes_progress_is_left_alone(start_server: Any) -> None:
    server = start_server("--progress-timeout=1s")
    with server.connect() as stub:
        got = b""
        for reply in stub.stream(alibi(8, 1024, **DENSE), max_chunk_bytes=2**20):
            got += reply.data
        assert got == dense_alibi(8, 1024, 1024).tobytes()
        assert server.metrics()['attnbias_rejected_total{reason="stalled_reader"}'] == 0


def test_exhausted_budget_asks_to_try_again(start_server: Any) -> None:
    server = start_server("--memory-budget=1MiB")
    with server.connect() as stub:
        error = refused(lambda: stub.tensor(sinusoid(8192, 64)))  # 2 MiB
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert Details(error).reason == "OVERLOADED"
        assert Details(error).retry_seconds == 1
        assert dict(error.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
        assert server.metrics()['attnbias_rejected_total{reason="overload"}'] == 1
        assert stub.check("liveness") == "SERVING"
        assert stub.payload(alibi(8, 64, **DENSE)) == dense_alibi(8, 64, 64).tobytes()


def test_under_pressure_memory_stays_within_the_budget(start_server: Any) -> None:
    budget = 8 << 20
    server = start_server(f"--memory-budget={budget}")
    used = []

    def fetch(i: int) -> bool:
        with server.connect() as stub:
            try:
                for reply in stub.stream(sinusoid(2**15, 64 + i), max_chunk_bytes=2**20):
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

    def settled() -> bool:
        metrics = server.metrics()
        return metrics["attnbias_memory_used_bytes"] == metrics["attnbias_cache_bytes"]

    eventually(settled, "all memory that is not cached given back")
    with server.connect() as stub:
        eventually(lambda: stub.check("readiness") == "SERVING", "readiness")
        assert stub.payload(alibi(8, 64, **DENSE)) == dense_alibi(8, 64, 64).tobytes()
