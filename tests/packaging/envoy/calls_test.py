# SPDX-License-Identifier: Apache-2.0
"""Calls through Envoy: their answers, the choice of a replica, and replicas that fail or leave."""

import re
import signal
import time
from typing import Any

import grpc
import numpy as np
import pytest

import attnbias
from tests.load.attack.attack import HEALTH
from tests.packaging.envoy.conftest import StartEdge
from tests.packaging.envoy.edge import Config, Edge, cluster_of
from tests.support.contract import DENSE, SERVICE, alibi, dense_alibi, message, sinusoid
from tests.support.server import PATIENCE, Stub, eventually, hold_memory, refused
from tests.support.traffic import Traffic

LARGE = alibi(16, 2048, **DENSE)  # 256 MiB: more than the buffers on the way to a client hold


def small(stub: Stub) -> bytes:
    return bytes(stub.tensor(alibi(4, 8, **DENSE)).data)


def logits(client: attnbias.Client) -> Any:
    term = attnbias.SinusoidalDistances(sinusoidal=attnbias.Sinusoidal(64, columns="sines_cosines"))
    rows = np.linspace(-1, 1, 2 * 300 * 64, dtype="f4").reshape(2, 300, 64)
    return client.logits(term, rows, key_length=300, direction="bidirectional")


def test_envoy_logs_no_configuration_warnings(edge: Edge) -> None:
    assert re.findall(r".*\]\[(?:warning|error|critical)\].*", edge.log()) == []


def test_answers_equal_direct_answers(edge: Edge) -> None:
    replica = edge.replicas.servers[0]
    streamed = sinusoid(70000, 64)  # 17 MiB
    with edge.stub() as stub, replica.connect() as direct:
        assert stub.payload(streamed) == direct.payload(streamed)
        for ask in (
            lambda one: one.header(streamed),
            lambda one: one.tensor(alibi(8, 64)),
            lambda one: one.tables(message("ListTablesRequest")()),
            lambda one: one.info(message("GetServerInfoRequest")()),
        ):
            assert ask(stub) == ask(direct)
        assert stub.check("readiness") == "SERVING"
    with edge.client() as client, attnbias.Client(replica.address) as direct_client:
        bias = attnbias.ALiBi(num_heads=8)
        fetched = client.get(bias, query_length=512, key_length=512, form="dense")
        np.testing.assert_array_equal(fetched, dense_alibi(8, 512, 512))
        np.testing.assert_array_equal(logits(client), logits(direct_client))


def test_errors_keep_their_details(edge: Edge) -> None:
    with edge.client() as client, pytest.raises(attnbias.InvalidArgumentError) as raised:
        client.get(attnbias.ALiBi(num_heads=0), query_length=4, key_length=4)
    assert [one.field for one in raised.value.field_violations] == ["spec.alibi.num_heads"]


def test_replicas_share_calls_of_one_connection(edge: Edge) -> None:
    before = edge.replicas.handled("DescribeTensor")
    with edge.stub() as stub:
        for _ in range(100):
            stub.header(alibi(4, 8))

    def shares() -> list[float]:
        after = edge.replicas.handled("DescribeTensor")
        return [late - early for early, late in zip(before, after, strict=True)]

    eventually(lambda: sum(shares()) == 100, "all are counted")
    assert shares() == [50, 50]


def test_each_client_has_its_own_connection_to_a_replica(start_edge: StartEdge) -> None:
    """One client's unread answers fill only its own connection's window."""
    edge = start_edge(count=1)
    [replica] = edge.replicas.servers
    others = replica.connections()  # the health check's
    with edge.stub() as one, edge.stub() as another:
        assert small(one) == small(another)
        assert replica.connections() == others + 2
    eventually(lambda: replica.connections() == others, "both are gone")


@pytest.mark.parametrize(
    "path",
    [
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/grpc.health.v1.Health/Watch",
        "/attnbias.v1.AttentionBiasServices/GetTensor",
    ],
)
def test_only_service_methods_are_reachable(edge: Edge, path: str) -> None:
    with edge.stub() as stub:
        error = refused(lambda: stub.channel.unary_unary(path)(b""))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def test_killed_replica_fails_no_client_call(start_edge: StartEdge) -> None:
    edge = start_edge()
    want = dense_alibi(8, 256, 256)

    def call() -> None:
        bias = attnbias.ALiBi(num_heads=8)
        np.testing.assert_array_equal(
            client.get(bias, query_length=256, key_length=256, form="dense"), want
        )

    with edge.client() as client, Traffic(call) as traffic:
        edge.replicas.servers[1].process.kill()
        traffic.wait_for(50)
    assert traffic.failures == []


def test_draining_replica_fails_no_call(start_edge: StartEdge) -> None:
    edge = start_edge("--shutdown-delay=5s")
    with edge.stub() as stub, Traffic(lambda: small(stub)) as traffic:
        assert edge.replicas.servers[1].stop() == 0
        traffic.wait_for(50)
    assert traffic.failures == []


def test_permanently_silent_replica_is_removed(start_edge: StartEdge) -> None:
    edge = start_edge()
    with edge.stub() as stub:
        ask = stub.channel.unary_unary(HEALTH)
        with Traffic(lambda: ask(b"", timeout=PATIENCE)) as traffic:
            edge.replicas.servers[1].process.send_signal(signal.SIGSTOP)
            eventually(lambda: edge.healthy() == 1, "it is left out")
            traffic.wait_for(100)
    assert traffic.failures == []


def test_new_replica_gets_its_share(start_edge: StartEdge) -> None:
    edge = start_edge(count=1)
    with edge.stub() as stub, Traffic(lambda: small(stub)) as traffic:
        edge.replicas.start()
        eventually(lambda: edge.replicas.handled("GetTensor")[1] > 0, "it is found")
        before = edge.replicas.handled("GetTensor")
        traffic.wait_for(100)
        after = edge.replicas.handled("GetTensor")
    assert traffic.failures == []
    shares = [late - early for early, late in zip(before, after, strict=True)]
    assert min(shares) >= 0.4 * sum(shares)


def test_overloaded_replica_is_retried_after_its_delay(start_edge: StartEdge) -> None:
    edge = start_edge("--memory-budget=9MiB")
    full, free = edge.replicas.servers
    with full.connect() as direct, edge.stub() as stub:
        holder = hold_memory(full, direct)
        large = sinusoid(16000, 64)  # 3.9 MiB
        began = time.monotonic()
        for _ in range(4):
            assert len(stub.tensor(large).data) == 16000 * 64 * 4
        seconds = time.monotonic() - began
        holder.cancel()
    overload = 'attnbias_rejected_total{reason="overload"}'
    refusals = full.metrics()[overload]
    assert refusals > 0
    assert free.metrics()[overload] == 0
    assert edge.stats()["cluster.attnbias.upstream_rq_retry_success"] == refusals
    # The delay that the server requested; by default Envoy waits for 25 ms.
    assert edge.stats()["cluster.attnbias.upstream_rq_retry_backoff_ratelimited"] == refusals
    assert seconds >= refusals


def test_started_answer_is_not_retried(start_edge: StartEdge) -> None:
    edge = start_edge()
    with edge.stub() as stub:
        stream = stub.stream(LARGE)
        for _ in range(2):  # the second chunk begins once the first is counted
            next(stream)
        [used] = [
            server
            for server in edge.replicas.servers
            if server.metrics()["attnbias_stream_bytes_total"] > 0
        ]
        used.process.kill()
        error = refused(lambda: stream)
    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)
    assert edge.stats()["cluster.attnbias.upstream_rq_retry"] == 0


def without_health_checks(config: Config) -> None:
    """Removes the health checks, which would detect the failure before calls do."""
    del cluster_of(config, "attnbias")["health_checks"]


def test_replica_that_drops_connections_is_ejected(start_edge: StartEdge) -> None:
    edge = start_edge(change=without_health_checks)
    edge.replicas.servers[1].process.kill()
    with edge.stub() as stub, Traffic(lambda: small(stub)) as traffic:
        ejected = "cluster.attnbias.outlier_detection.ejections_active"
        eventually(lambda: edge.stats()[ejected] == 1, "it is left out")
        traffic.wait_for(20)
    assert traffic.failures == []


def test_call_errors_eject_no_replica(start_edge: StartEdge) -> None:
    """Otherwise one client could eject replicas for all others."""
    edge = start_edge()
    with edge.stub() as stub:
        nothing = stub.channel.unary_unary(f"/{SERVICE}/Nothing")
        for _ in range(20):
            assert refused(lambda: nothing(b"")).code() == grpc.StatusCode.UNIMPLEMENTED
    assert edge.stats()["cluster.attnbias.outlier_detection.ejections_enforced_total"] == 0


def test_unread_calls_do_not_block_others(start_edge: StartEdge) -> None:
    """All calls come from one client, which has one connection to each replica."""
    edge = start_edge()
    with edge.stub() as stub:
        unread = [stub.stream(LARGE) for _ in range(20)]
        for stream in unread:
            next(stream)
        eventually(lambda: not receives(edge), "all that lies between is full")
        ask = stub.channel.unary_unary(HEALTH)
        for _ in range(4):
            ask(b"", timeout=20)
        for stream in unread:
            stream.cancel()


def receives(edge: Edge) -> bool:
    received = "cluster.attnbias.upstream_cx_rx_bytes_total"
    before = edge.stats()[received]
    time.sleep(0.5)
    return edge.stats()[received] > before + 10_000  # health checks also add a few bytes


def test_methods_are_counted_and_calls_are_logged(edge: Edge) -> None:
    with edge.stub() as stub:
        stub.header(alibi(4, 8))
        refused(lambda: stub.header(alibi(0, 8)))
    stats = edge.stats()
    method = f"cluster.attnbias.grpc.{SERVICE}.DescribeTensor"
    assert stats[f"{method}.0"] >= 1
    assert stats[f"{method}.3"] >= 1

    def logged() -> bool:
        return any(
            line["method"] == f"/{SERVICE}/DescribeTensor"
            and line["code"] == "InvalidArgument"
            and line["peer"].startswith("127.0.0.1:")
            and line["replica"] in [server.address for server in edge.replicas.servers]
            for line in edge.access_log()
        )

    eventually(logged, "the refused call in the log")
