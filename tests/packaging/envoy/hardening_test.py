# SPDX-License-Identifier: Apache-2.0
"""Envoy stops abuse by hostile clients while another client's calls continue."""

import contextlib
import pathlib
import socket
import time
import urllib.error

import grpc
import pytest

import attnbias
from tests.load.attack.attack import BUDGET, HEALTH, PROCESS, Attack, computes
from tests.load.attack.load import GET, LOADS, LOGITS, Flood, large_request, request
from tests.packaging.envoy.calls_test import receives
from tests.packaging.envoy.conftest import StartEdge
from tests.packaging.envoy.edge import (
    Config,
    Edge,
    ask_metrics,
    deployed_config,
    filter_of,
    monitor_of,
)
from tests.support import http2
from tests.support.contract import alibi
from tests.support.server import PATIENCE, Stub, eventually, refused
from tests.support.traffic import Traffic

SLOWEST_SECONDS = 10
"""Maximum duration of a good client's call during an attack: far more than it needs."""

HEAP = 100 << 20
"""Bytes that Envoy may allocate in these tests."""

ATTACK_SECONDS = 5
"""Maximum duration of a load once it has begun."""

ANSWERS = ("http2.outbound_control_flood", "http2.outbound_flood")
FLOODS = {
    "half_frames": ("listener.127.0.0.1_0.downstream_global_cx_overflow",),
    "resets": ("http.edge.downstream_rq_too_many_premature_resets",),
    "headers": ("http2.header_overflow",),
    "references": ("http2.header_list_size_too_large",),
    "small_references": ("http2.header_overflow",),
    "table_sizes": ("http.edge.downstream_cx_protocol_error",),
    "provoked_resets": ("http.edge.downstream_cx_protocol_error",),
    "unacknowledged": ("http2.stream_refused_errors",),
    "pings": ANSWERS,
    "patient_pings": ANSWERS[:1],
    "settings": ANSWERS,
    "empty_data": ("http2.inbound_empty_frames_flood",),
    "window_updates": ("http2.inbound_window_update_frames_flood",),
    "priorities": ("http2.inbound_priority_frames_flood",),
}
"""Envoy's counters for ended connections, ended calls or rejected calls, keyed by load."""


def times_cut(edge: Edge, load: str) -> int:
    stats = edge.stats()
    return sum(stats.get(counter, 0) for counter in FLOODS[load])


def small_heap(config: Config) -> None:
    monitor_of(config, "fixed_heap")["max_heap_size_bytes"] = HEAP
    any_number_of_calls(config)


def any_number_of_calls(config: Config) -> None:
    """Lifts the per-address limit, as if the load came from many addresses."""
    filter_of(config, "local_ratelimit")["filter_enforced"]["default_value"]["numerator"] = 0


def test_every_flood_has_a_counter() -> None:
    assert FLOODS.keys() == {name for name, load in LOADS.items() if isinstance(load, Flood)}


@pytest.mark.parametrize("load", [name for name in LOADS if name != "nothing"])
def test_load_is_memory_bounded_and_other_calls_succeed(start_edge: StartEdge, load: str) -> None:
    edge = start_edge(f"--memory-budget={BUDGET}", count=1, change=small_heap)
    [server] = edge.replicas.servers
    before = edge.resident_bytes()
    bias = attnbias.ALiBi(num_heads=4)
    with (
        edge.client() as client,
        Traffic(lambda: client.get(bias, query_length=8, key_length=8)) as traffic,
        Attack(load, edge.tls_address) as attack,
    ):
        end = time.monotonic() + ATTACK_SECONDS
        while time.monotonic() < end and computes(attack.process):
            pass
        traffic.wait_for(20)
        if load in FLOODS:
            eventually(lambda: times_cut(edge, load) > 0, "Envoy ends it")
        assert attack.stop()["begun"] > 0
    assert traffic.failures == []
    assert max(traffic.seconds) < SLOWEST_SECONDS
    assert server.peak_resident_bytes() <= BUDGET + PROCESS
    assert edge.peak_resident_bytes() - before <= HEAP


def test_connection_resetting_calls_is_closed(edge: Edge) -> None:
    calls = "http.edge.downstream_rq_total"
    before, cut = edge.stats()[calls], times_cut(edge, "resets")
    with Attack("resets", edge.tls_address):
        eventually(lambda: times_cut(edge, "resets") > cut, "it is cut")
    assert edge.stats()[calls] - before <= 100


def few_calls(config: Config) -> None:
    """Allows at most 20 calls per address for the duration of a test."""
    bucket = {"max_tokens": 20, "tokens_per_fill": 20, "fill_interval": "3600s"}
    limit = filter_of(config, "local_ratelimit")
    limit["token_bucket"] = limit["descriptors"][0]["token_bucket"] = bucket


def calls_until_refused(stub: Stub, *metadata: tuple[str, str]) -> tuple[int, grpc.RpcError]:
    ask = stub.channel.unary_unary(HEALTH)
    for count in range(100):
        try:
            ask(b"", metadata=metadata)
        except grpc.RpcError as error:
            return count, error
    raise AssertionError("never refused")


def test_rate_limited_client_gets_retry_pushback(start_edge: StartEdge) -> None:
    edge = start_edge(change=few_calls)
    with edge.stub() as stub:
        count, error = calls_until_refused(stub)
    assert count == 20
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == "local_rate_limited"
    assert ("grpc-retry-pushback-ms", "1000") in error.trailing_metadata()


def test_rate_limit_ignores_connection_and_forwarded_header(start_edge: StartEdge) -> None:
    edge = start_edge(change=few_calls)
    with edge.stub() as stub:
        calls_until_refused(stub)
    for n in range(3):
        with edge.stub() as stub:
            assert calls_until_refused(stub, ("x-forwarded-for", f"192.0.2.{n}"))[0] == 0


def test_rate_limit_is_per_address(start_edge: StartEdge) -> None:
    edge = start_edge(change=few_calls)
    with edge.stub() as stub:
        calls_until_refused(stub)
    other = http2.Connection(edge.tls_address)
    assert other.call(GET, request(alibi(4, 8)), seconds=10).received > 0
    other.close()


def test_client_waits_out_rate_limit(start_edge: StartEdge) -> None:
    def slowly(config: Config) -> None:
        few_calls(config)
        limit = filter_of(config, "local_ratelimit")
        for bucket in (limit["token_bucket"], limit["descriptors"][0]["token_bucket"]):
            bucket["fill_interval"] = "2s"

    edge = start_edge(change=slowly)
    with edge.client() as client:
        for _ in range(50):
            client.describe(attnbias.ALiBi(num_heads=4), query_length=8, key_length=8)
    assert edge.stats()["edge.http_local_rate_limit.rate_limited"] > 0


def few_connections(config: Config) -> None:
    monitor = monitor_of(config, "global_downstream_max_connections")
    monitor["max_active_downstream_connections"] = 20


def test_connections_beyond_the_limit_are_closed(start_edge: StartEdge) -> None:
    edge = start_edge(change=few_connections)
    host, port = edge.address.rsplit(":", 1)
    with contextlib.ExitStack() as stack, edge.stub() as stub:
        assert stub.check() == "SERVING"
        flood = [
            stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(100)
        ]

        def are_closed() -> bool:
            return sum(map(is_closed, flood)) == 100 - 19

        eventually(are_closed, "those beyond the limit closed")
        assert stub.check() == "SERVING"
        # Monitoring still works.
        assert "envoy_server_live" in ask_metrics(edge, "stats/prometheus")


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_idle_connections_close_near_the_limit(start_edge: StartEdge) -> None:
    edge = start_edge(change=few_connections)
    idle = [http2.Connection(edge.tls_address) for _ in range(19)]
    http2.pump(idle, lambda: False, 1)
    assert not any(connection.closed for connection in idle)
    eventually(lambda: pumped_until_closed(idle), "room")
    with edge.stub() as stub:
        assert stub.check() == "SERVING"
    for connection in idle:
        connection.close()


def pumped_until_closed(connections: list[http2.Connection]) -> bool:
    http2.pump(connections, lambda: False, 0.1)
    return any(connection.closed for connection in connections)


def test_metrics_port_exposes_only_metrics_and_ready(edge: Edge) -> None:
    admin = deployed_config()["admin"]["address"]["socket_address"]
    assert admin["address"] == "127.0.0.1"
    assert ask_metrics(edge, "ready") == "LIVE\n"
    for path in ("", "quitquitquit", "stats", "config_dump", "ready/../config_dump", "certs"):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            ask_metrics(edge, path)
        assert refusal.value.code == 404


@pytest.mark.parametrize(
    ("count", "size", "accepted"), [(30, 100, True), (60, 1, False), (1, 9000, False)]
)
def test_header_count_and_size_are_limited(
    edge: Edge, count: int, size: int, accepted: bool
) -> None:
    metadata = [(f"x{n}", "v" * size) for n in range(count)]
    with edge.stub() as stub:
        ask = stub.channel.unary_unary(HEALTH)
        if accepted:
            ask(b"", metadata=metadata)
        else:
            refused(lambda: ask(b"", metadata=metadata))
        assert stub.check() == "SERVING"


def test_concurrent_calls_per_connection_are_limited(edge: Edge) -> None:
    greedy = http2.Connection(edge.tls_address, window=0)
    calls = [greedy.begin(GET, request(alibi(4, 64))) for _ in range(101)]
    http2.pump([greedy], lambda: calls[-1].ended, 20)
    assert [call.ended for call in calls] == [False] * 100 + [True]
    greedy.close()


def test_many_calls_of_several_clients_are_accepted(start_edge: StartEdge) -> None:
    edge = start_edge(change=any_number_of_calls)
    clients = [http2.Connection(edge.tls_address, window=0) for _ in range(11)]
    for client in clients:
        for _ in range(100):
            client.begin(GET, request(alibi(4, 64)))
    answered = "cluster.attnbias.upstream_rq_200"
    assert http2.pump(clients, lambda: edge.stats().get(answered) == 1100, 60)
    for client in clients:
        client.close()


def test_unread_answers_use_little_memory(start_edge: StartEdge) -> None:
    edge = start_edge()
    before = edge.resident_bytes()
    with Attack("unread_large", edge.tls_address):
        eventually(lambda: edge.stats()["cluster.attnbias.upstream_rq_active"] == 300, "all begun")
        eventually(lambda: not receives(edge), "Envoy's buffers are full")
    assert edge.resident_bytes() - before < 300 * (256 << 10)


def test_incomplete_headers_time_out(edge: Edge) -> None:
    given_up = "http.edge.downstream_rq_header_timeout"
    before = edge.stats()[given_up]
    with http2.open_socket(edge.tls_address) as slow:
        beginning = http2.frame(http2.HEADERS, 0, 1, http2.call_headers(GET))
        slow.sendall(http2.PREFACE + http2.settings() + beginning)
        eventually(lambda: edge.stats()[given_up] == before + 1, "it is given up")


def test_incomplete_request_is_not_forwarded(start_edge: StartEdge) -> None:
    edge = start_edge(count=1)
    incomplete = large_request()[:-1000]
    slow = http2.Connection(edge.tls_address)
    slow.begin(GET, incomplete, ends=False)
    received = "http.edge.downstream_cx_rx_bytes_total"
    assert http2.pump([slow], lambda: edge.stats()[received] > len(incomplete), PATIENCE)
    assert edge.stats()["cluster.attnbias.upstream_rq_total"] == 0
    slow.close()


def test_oversized_request_is_rejected(edge: Edge) -> None:
    with edge.stub() as stub:
        error = refused(lambda: stub.get(bytes(9 << 20)))
    assert error.code() == grpc.StatusCode.UNKNOWN
    assert error.details() == "Payload Too Large"


def test_incomplete_request_times_out(edge: Edge) -> None:
    given_up = "http.edge.downstream_rq_timeout"
    before = edge.stats()[given_up]
    slow = http2.Connection(edge.tls_address)
    call = slow.begin(GET, request(alibi(4, 8))[:-1], ends=False)
    assert http2.pump([slow], lambda: call.ended, PATIENCE)
    assert edge.stats()[given_up] == before + 1
    slow.close()


def test_unauthorized_logits_are_rejected_before_completion(
    start_edge: StartEdge, tmp_path: pathlib.Path
) -> None:
    """Envoy forwards these requests before they are complete."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"trainer sha256:{'0' * 64}\n")
    edge = start_edge(f"--tokens={tokens}", count=1)
    stranger = http2.Connection(edge.tls_address)
    calls = [stranger.begin(LOGITS, large_request()[:-1000], ends=False) for _ in range(20)]
    assert http2.pump([stranger], lambda: all(call.ended for call in calls), PATIENCE)
    stranger.close()


def test_incomplete_logits_use_bounded_memory(start_edge: StartEdge) -> None:
    edge = start_edge(f"--memory-budget={BUDGET}", count=1, change=any_number_of_calls)
    [server] = edge.replicas.servers
    headers = {f"x{n}": "v" * 120 for n in range(40)}
    clients = [http2.Connection(edge.tls_address) for _ in range(60)]
    for client in clients:
        for _ in range(100):
            client.begin(LOGITS, large_request()[:5], ends=False, **headers)
    forwarded = "cluster.attnbias.upstream_rq_total"
    assert http2.pump(clients, lambda: edge.stats()[forwarded] >= 6000, PATIENCE)
    assert server.peak_resident_bytes() <= BUDGET + PROCESS
    for client in clients:
        client.close()


def test_connection_without_handshake_is_closed(edge: Edge) -> None:
    host, port = edge.address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as silent:
        eventually(lambda: is_closed(silent), "it is closed")


def test_many_unread_answers_keep_heap_bounded(start_edge: StartEdge) -> None:
    edge = start_edge(change=small_heap)
    before = edge.resident_bytes()
    bias = attnbias.ALiBi(num_heads=4)
    with (
        edge.client() as client,
        Traffic(lambda: client.get(bias, query_length=8, key_length=8)) as traffic,
        contextlib.ExitStack() as attacks,
    ):
        for _ in range(3):
            attacks.enter_context(Attack("unread_large", edge.tls_address))
            traffic.wait_for(40)
        peak = edge.resident_bytes()
    assert peak - before < HEAP
    assert traffic.failures == []
    assert max(traffic.seconds) < SLOWEST_SECONDS
