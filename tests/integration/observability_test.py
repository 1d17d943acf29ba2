# SPDX-License-Identifier: Apache-2.0
"""Output for operators: metrics, log lines, reflection, server information."""

import contextlib
import http.client
import os
import pathlib
import re
import socket
import time
from typing import Any

import grpc
import pytest

from tests.support.contract import (
    DENSE,
    LIST_SERVICES,
    REFLECTION,
    SERVICE,
    alibi,
    message,
    sinusoid,
    spec,
)
from tests.support.server import PATIENCE, Server, eventually, refused

METHODS = {
    "DescribeTensor": "unary",
    "GetTensor": "unary",
    "StreamTensor": "server_stream",
    "ListTables": "unary",
    "GetServerInfo": "unary",
}
PHASES = ("plan", "wait", "compute", "write")


def labels(method: str, **more: str) -> str:
    names = more | {"grpc_method": method, "grpc_service": SERVICE, "grpc_type": METHODS[method]}
    return "{" + ",".join(f'{name}="{names[name]}"' for name in sorted(names)) + "}"


def phase_count(method: str, phase: str) -> str:
    return f'attnbias_phase_seconds_count{{grpc_method="{method}",phase="{phase}"}}'


def test_metrics_exist_before_the_first_call(start_server: Any) -> None:
    server = start_server()
    metrics = server.metrics()
    for method in METHODS:
        assert metrics[f"grpc_server_started_total{labels(method)}"] == 0
        assert metrics[f"grpc_server_msg_sent_total{labels(method)}"] == 0
        assert metrics[f"grpc_server_handling_seconds_count{labels(method)}"] == 0
        for phase in PHASES:
            assert metrics[phase_count(method, phase)] == 0
        for code in ("OK", "InvalidArgument", "Canceled", "ResourceExhausted"):
            assert metrics[f"grpc_server_handled_total{labels(method, grpc_code=code)}"] == 0
    for name in (
        "attnbias_cache_hits_total",
        "attnbias_cache_misses_total",
        "attnbias_cache_joins_total",
        "attnbias_cache_evictions_total",
        "attnbias_cache_bytes",
        "attnbias_memory_used_bytes",
        "attnbias_computed_bytes_total",
        "attnbias_computations_total",
        "attnbias_stream_bytes_total",
        "attnbias_draining",
        "attnbias_cuda_bytes_total",
        "attnbias_cuda_fallbacks_total",
        "attnbias_cuda_in_use",
        'attnbias_rejected_total{reason="overload"}',
        'attnbias_rejected_total{reason="caller_limit"}',
        'attnbias_rejected_total{reason="draining"}',
        'attnbias_rejected_total{reason="stalled_client"}',
    ):
        assert metrics[name] == 0, name
    assert metrics["attnbias_memory_budget_bytes"] > 0
    assert sum(1 for name in metrics if name.startswith("attnbias_build_info{version=")) == 1


def test_metrics_count_calls(start_server: Any) -> None:
    server = start_server()
    with server.connect() as stub:
        stub.payload(alibi(4, 512, **DENSE))  # 4 MiB in four chunks
        stub.payload(alibi(4, 512, **DENSE))
        stub.tensor(alibi(4, 8))
        refused(lambda: stub.tensor(alibi(0, 8)))
        handled = f"grpc_server_handled_total{labels('GetTensor', grpc_code='InvalidArgument')}"
        eventually(lambda: server.metrics()[handled] == 1, "the last call counted")
        metrics = server.metrics()
    stream, get = labels("StreamTensor"), labels("GetTensor")
    assert metrics[f"grpc_server_started_total{stream}"] == 2
    assert metrics[f"grpc_server_msg_sent_total{stream}"] == 2 * 4
    assert metrics[f"grpc_server_msg_sent_total{get}"] == 1
    assert metrics[f"grpc_server_handling_seconds_count{get}"] == 2
    # The rejected tensor was neither computed nor written.
    got = [metrics[phase_count("GetTensor", phase)] for phase in PHASES]
    assert got == [2, 2, 1, 1]
    assert metrics["attnbias_stream_bytes_total"] == 2 * (4 << 20)
    assert metrics["attnbias_computations_total"] == 1
    assert metrics["attnbias_cache_misses_total"] == 1
    assert metrics["attnbias_cache_hits_total"] == 2
    assert metrics["attnbias_cache_bytes"] == metrics["attnbias_memory_used_bytes"] > 0
    # An entry holds a key in addition to its values.
    key = metrics["attnbias_cache_bytes"] - metrics["attnbias_computed_bytes_total"]
    assert 0 < key < 2048


def test_process_metrics_match_procfs(start_server: Any) -> None:
    server = start_server()
    with server.connect() as stub:
        stub.payload(sinusoid(1 << 16, 64))
    metrics = server.metrics()
    process = pathlib.Path(f"/proc/{server.process.pid}")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    used = sum(int(field) for field in fields[11:13]) / ticks
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / ticks
    most = re.search(r"Max open files +(\d+)", (process / "limits").read_text())
    assert most is not None
    resident = metrics["process_resident_memory_bytes"]
    assert resident == pytest.approx(server.resident_bytes(), rel=0.1)
    # The reader's own connection uses one descriptor.
    assert metrics["process_open_fds"] == pytest.approx(server.descriptors(), abs=2)
    assert metrics["process_max_fds"] == int(most[1])
    assert metrics["process_cpu_seconds_total"] == pytest.approx(used, abs=0.5, rel=0.1)
    assert metrics["process_start_time_seconds"] == pytest.approx(time.time() - age, abs=5)
    types = re.findall(r"^# TYPE process_(\w+) (\w+)$", server.exposition(), re.MULTILINE)
    gauges = ("max_fds", "open_fds", "resident_memory_bytes", "start_time_seconds")
    assert dict(types) == {"cpu_seconds_total": "counter"} | dict.fromkeys(gauges, "gauge")


def test_draining_server_is_not_ready(start_server: Any) -> None:
    server = start_server("--shutdown-delay=30s")
    eventually(lambda: server.metrics()["attnbias_ready"] == 1, "ready")
    server.terminate()
    eventually(lambda: server.metrics()["attnbias_ready"] == 0, "not ready")
    assert server.metrics()["attnbias_draining"] == 1  # during the shutdown delay
    for path, status in (("/readyz", 503), ("/healthz", 200)):
        connection = http.client.HTTPConnection(server.metrics_address, timeout=PATIENCE)
        connection.request("GET", path)
        assert connection.getresponse().status == status
        connection.close()


def test_cancelled_call_is_logged_with_peer(start_server: Any) -> None:
    server = start_server("--log-format=json")
    with server.connect() as stub:
        call = stub.stream(alibi(8, 1500, form="FORM_DENSE"))
        next(call)
        call.cancel()
        eventually(lambda: '"code":"CANCELLED"' in server.log(), "the call's line")
    (line,) = [line for line in server.json_log() if line.get("code") == "CANCELLED"]
    assert line["peer"].startswith("ipv4:127.0.0.1:")


def test_json_log_has_one_line_per_call(start_server: Any) -> None:
    server = start_server("--log-format=json")
    with server.connect() as stub:
        header = stub.header(alibi(4, 8))
        stub.tensor(alibi(4, 8))
        stub.payload(sinusoid(4, 6))
        refused(lambda: stub.tensor(alibi(0, 8)))
    assert server.stop() == 0
    lines = server.json_log()
    # Lines are logged when calls end, shortly after clients receive the status.
    calls = [line for line in lines if line["message"] == "call"]
    calls.sort(key=lambda call: (call["bytes"], call["code"]))
    assert [(c["method"], c["code"], c["bytes"], c["encoding"]) for c in calls] == [
        ("GetTensor", "INVALID_ARGUMENT", 0, ""),
        ("DescribeTensor", "OK", 0, "alibi"),
        ("StreamTensor", "OK", 4 * 6 * 4, "sinusoidal"),
        ("GetTensor", "OK", 4 * 15 * 4, "alibi"),
    ]
    assert calls[0]["error"].startswith("spec.alibi.num_heads: not set")
    assert calls[3]["fingerprint"] == header.fingerprint
    for call in calls:
        assert call["peer"].startswith("ipv4:127.0.0.1:")
        assert call["milliseconds"] > 0
        assert call["level"] == ("info" if call["code"] == "OK" else "warning")
        assert call["time"].endswith("Z")


def test_text_log_is_one_line_per_call_even_for_hostile_input(start_server: Any) -> None:
    server = start_server()
    with server.connect() as stub:
        table = {"sha256": "a\nb\u2028" * 100}
        refused(lambda: stub.tensor(spec(t5={"table": table})))
    assert server.stop() == 0
    (line,) = [line for line in server.log().splitlines() if " call " in line]
    assert "method=GetTensor" in line
    assert "code=INVALID_ARGUMENT" in line


def test_first_log_line_states_settings(start_server: Any) -> None:
    server = start_server("--threads=3", "--memory-budget=64MiB", "--cpu-isa=scalar")
    with server.connect() as stub:
        version = stub.info(message("GetServerInfoRequest")()).version
    (line,) = [line for line in server.log().splitlines() if " attnbias-server " in line]
    settings = "cpu-isa=scalar threads=3 memory-budget=67108864 backend=cpu"
    assert f" info attnbias-server {version} {settings} grpc=1." in line


def test_suspicious_settings_are_warned_about(
    start_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNBIAS_MEMORY_BUGDET", "1GiB")
    log = start_server("--memory-budget=1EiB").log()
    assert " warning ATTNBIAS_MEMORY_BUGDET: does not correspond to any flag\n" in log
    assert " warning --memory-budget: got 1152921504606846976, more than the " in log


def test_unusable_span_exporter_is_warned_about(
    start_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Builds without the library warn about any setting, other builds about unusable ones."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    server = start_server()
    assert re.search(" warning OTEL_.*; no spans are exported\n", server.log())
    assert server.metrics()["attnbias_spans_dropped"] == 0


def test_server_information_lists_limits(shared_server: Server) -> None:
    with shared_server.connect() as stub:
        info = stub.info(message("GetServerInfoRequest")())
    assert info.version.count(".") == 2
    assert list(info.backends) == ["cpu"]
    assert "scalar" in info.instruction_sets
    encodings = message("TensorSpec").DESCRIPTOR.oneofs_by_name["encoding"].fields
    assert list(info.encodings) == [field.name for field in encodings]
    assert info.limits.max_unary_bytes == 4 * 2**20 - 64 * 2**10
    assert info.limits.max_chunk_bytes == 2 * 2**20
    assert info.limits.max_inline_table_bytes == 2 * 2**20
    assert info.limits.max_position_list_length == 262144
    assert info.limits.memory_budget_bytes > 0


@pytest.mark.skipif(
    pathlib.Path("/dev/nvidiactl").exists(), reason="this machine has a CUDA device"
)
@pytest.mark.parametrize("flags", [("--backend=cuda",), ("--cuda-min-bytes=1MiB",)])
def test_missing_cuda_device_falls_back_to_cpu(start_server: Any, flags: tuple[str, ...]) -> None:
    server = start_server(*flags)
    with server.connect() as stub:
        info = stub.info(message("GetServerInfoRequest")())
        assert len(stub.payload(alibi(8, 4, **DENSE))) == 8 * 4 * 4 * 4
    assert list(info.backends) == ["cpu"]
    assert server.metrics()["attnbias_cuda_in_use"] == 0
    lines = [line for line in server.log().splitlines() if "CUDA" in line]
    assert len(lines) == 1
    assert "computing on the CPU only: no CUDA device: " in lines[0]


def test_cpu_backend_does_not_probe_cuda(start_server: Any) -> None:
    for flags in (), ("--backend=cpu", "--cuda-min-bytes=1"):
        assert "CUDA" not in start_server(*flags).log()


def test_reflection_can_be_disabled(start_server: Any) -> None:
    with start_server("--reflection=false").connect() as stub:
        error = refused(lambda: stub.channel.stream_stream(REFLECTION)(iter([LIST_SERVICES])))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/favicon.ico", 404),
        ("GET", "/" + "x" * 5000, 404),
        ("HEAD", "/metrics", 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/version", 200),
        ("POST", "/metrics", 405),
        ("OPTIONS", "/metrics", 405),
        ("BREW", "/metrics", 405),
    ],
)
def test_metrics_port_answers_any_http_request(
    start_server: Any, method: str, path: str, status: int
) -> None:
    server = start_server()
    eventually(lambda: server.metrics()["attnbias_ready"] == 1, "ready")
    for _ in range(3):
        connection = http.client.HTTPConnection(server.metrics_address, timeout=PATIENCE)
        connection.request(method, path, headers={"Cookie": "c" * 3000})
        assert connection.getresponse().status == status
        connection.close()
    assert server.metrics()["attnbias_draining"] == 0
    with server.connect() as stub:
        assert stub.check() == "SERVING"


def test_metrics_port_survives_non_http_input(start_server: Any) -> None:
    server = start_server()
    host, port = server.metrics_address.rsplit(":", 1)
    for bytes_sent in (b"", b"\0" * 100_000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET " * 50_000):
        with (
            socket.create_connection((host, int(port)), timeout=PATIENCE) as raw,
            contextlib.suppress(ConnectionError),
        ):
            raw.sendall(bytes_sent)
    assert server.metrics()["attnbias_draining"] == 0
