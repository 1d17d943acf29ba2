# SPDX-License-Identifier: Apache-2.0
"""The process's start, readiness, drain and exit."""

import json
import pathlib
import signal
import socket
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tests.support.contract import DENSE, alibi, dense_alibi, message, sinusoid, spec
from tests.support.server import PATIENCE, Server, eventually, refused, run_server

NAMES = ["", "attnbias.v1.AttentionBiasService", "liveness", "readiness"]


def test_sigterm_lets_running_stream_complete(start_server: Any) -> None:
    server = start_server()
    with server.connect() as stub, server.connect() as other:
        other.check()
        call = stub.stream(alibi(8, 1500, **DENSE))
        got = next(call).data
        got += next(call).data  # flow control holds the rest back
        server.terminate()

        def refusal() -> grpc.RpcError | None:
            return other.describe.future(
                message("DescribeTensorRequest")(spec=alibi(1, 1))
            ).exception()

        # gRPC may drop a call that arrives just as its shutdown starts.
        eventually(lambda: refusal() is not None, "new calls refused")
        assert refusal().code() == grpc.StatusCode.UNAVAILABLE
        got += b"".join(reply.data for reply in call)
    assert got == dense_alibi(8, 1500, 1500).tobytes()
    assert server.process.wait(PATIENCE) == 0


def test_health_watches_see_drain_without_delaying_it(start_server: Any) -> None:
    # The grace period is longer than this test waits.
    server = start_server("--drain-grace=1h")
    with server.connect() as stub:
        # The server starts listening shortly before it is ready.
        eventually(lambda: stub.check("readiness") == "SERVING", "readiness")
        watches = [stub.health.Watch(health_pb2.HealthCheckRequest(service=n)) for n in NAMES]
        serving, not_serving = 1, 2
        assert [next(watch).status for watch in watches] == [serving] * 4
        assert server.stop() == 0
        for watch in watches:
            assert next(watch).status == not_serving
            with pytest.raises(grpc.RpcError) as ended:
                next(watch)
            assert ended.value.code() == grpc.StatusCode.UNAVAILABLE


def test_calls_are_served_during_shutdown_delay(start_server: Any) -> None:
    server = start_server("--shutdown-delay=1h")
    with server.connect() as stub:
        server.terminate()
        eventually(lambda: stub.check("readiness") == "NOT_SERVING", "NOT_SERVING")
        assert stub.check("liveness") == "SERVING"
        assert stub.payload(alibi(8, 4, **DENSE)) == dense_alibi(8, 4, 4).tobytes()
    # Connecting also still works; the second signal ends the delay immediately.
    with server.connect() as stub:
        assert stub.check("liveness") == "SERVING"
    server.terminate()
    assert server.process.wait(PATIENCE) == 128 + signal.SIGTERM


def test_stream_beyond_drain_grace_is_closed(start_server: Any) -> None:
    server = start_server("--drain-grace=100ms")
    with server.connect() as stub:
        call = stub.stream(alibi(32, 4096, **DENSE))
        next(call)
        assert server.stop() == 0
        error = refused(lambda: call)
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def slow(key_length: int) -> Any:
    """Returns a spec that takes minutes to compute on one core: for the band or, if there is none,
    for the first chunk.
    """
    pair = {"query_length": 1, "key_length": key_length, "alignment": "ALIGNMENT_START"}
    return spec(sandwich={"num_heads": 1, "dim": 65536}, pair=pair)


ONE_THREAD = ("--threads=1", "--memory-budget=64MiB")


@pytest.mark.parametrize("key_length", [1 << 19, 1 << 24])
def test_deadline_stops_slow_computation(start_server: Any, key_length: int) -> None:
    server = start_server(*ONE_THREAD)
    with server.connect() as stub:
        call = stub.stream(slow(key_length), timeout=0.5)
        assert refused(lambda: call).code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert len(stub.payload(sinusoid(8, 8), timeout=PATIENCE)) == 8 * 8 * 4


@pytest.mark.parametrize("key_length", [1 << 19, 1 << 24])
def test_drain_grace_stops_slow_computation(start_server: Any, key_length: int) -> None:
    server = start_server(*ONE_THREAD, "--drain-grace=1s")
    with server.connect() as stub:
        call = stub.stream(slow(key_length))
        eventually(lambda: server.calls("started", "StreamTensor") == 1, "the call")
        server.terminate()
        refused(lambda: call)
    assert server.process.wait(PATIENCE) == 0


def test_sigint_drains(start_server: Any) -> None:
    server = start_server()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE) == 0


ENDING = ["USR1", "USR2", "ALRM", "VTALRM", "PROF", "POLL", "PWR", "STKFLT", "PIPE", "XFSZ"]
"""Signals that end a process by default but must not end the server."""


@pytest.mark.parametrize(
    "number",
    [
        *(getattr(signal, f"SIG{name}") for name in ENDING),
        *(signal.SIGRTMIN, signal.SIGRTMIN + 7, signal.SIGRTMAX),
        signal.SIGHUP,  # reloads files
    ],
)
def test_other_signals_do_not_end_the_server(start_server: Any, number: int) -> None:
    server = start_server()
    server.process.send_signal(number)
    with server.connect() as stub:
        eventually(lambda: stub.check("readiness") == "SERVING", "an answer")
    assert server.process.poll() is None
    assert server.stop() == 0


def test_health_is_reported_by_name(shared_server: Server) -> None:
    with shared_server.connect() as stub:
        eventually(lambda: stub.check() == "SERVING", "readiness")
        assert [stub.check(name) for name in NAMES] == ["SERVING"] * 4
        error = refused(lambda: stub.check("no.such.Service"))
        assert error.code() == grpc.StatusCode.NOT_FOUND
        watch = stub.health.Watch(health_pb2.HealthCheckRequest(service="no.such.Service"))
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()


def write_specs(path: pathlib.Path, *specs: Any) -> str:
    path.write_text(json.dumps(specs))
    return f"--precompute={path}"


SINUSOID = {"sinusoidal": {"dim": 256}, "table": {"positions": {"end": 100000}}}
ALIBI = {"alibi": {"numHeads": 8}, "pair": {"query_length": 4096, "key_length": 4096}}
SMALL = {"alibi": {"numHeads": 8}, "pair": {"query_length": 64, "key_length": 64}}


def test_precompute_finishes_before_readiness(start_server: Any, tmp_path: pathlib.Path) -> None:
    server = start_server(write_specs(tmp_path / "specs.json", SINUSOID, ALIBI), "--threads=1")
    with server.connect() as stub:
        before_ready = 0
        while stub.check("readiness") == "NOT_SERVING":
            before_ready += 1
            assert stub.check("liveness") == "SERVING"
        assert before_ready > 0
        assert server.metrics()["attnbias_computations_total"] == 2
        stub.payload(sinusoid(100000, 256))
        stub.payload(alibi(8, 4096))
        assert server.metrics()["attnbias_computations_total"] == 2
        assert server.metrics()["attnbias_cache_misses_total"] == 2


def test_sigterm_stops_precomputation(start_server: Any, tmp_path: pathlib.Path) -> None:
    huge = {"sinusoidal": {"dim": 4096}, "table": {"positions": {"end": 200000}}}
    server = start_server(
        write_specs(tmp_path / "specs.json", huge), "--threads=1", "--memory-budget=64GiB"
    )
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("content", "mention"),
    [
        ("{}", "not a JSON array"),
        ("[", "not JSON"),
        ('[{"alibi": {"num_heads": 8}, "colour": 1}]', "entry 0"),
        (json.dumps([SINUSOID, {"alibi": {"num_heads": 0}}]), "entry 1: alibi.num_heads"),
        ('[{"alibi": {"num_heads": 8, "variant": 77}}]', "entry 0: alibi.variant"),
    ],
    ids=["object", "broken", "unknown field", "bad spec", "unknown enum value"],
)
def test_bad_precompute_file_is_a_configuration_error(
    tmp_path: pathlib.Path, content: str, mention: str
) -> None:
    path = tmp_path / "specs.json"
    path.write_text(content)
    done = run_server(f"--precompute={path}", "--check-config")
    assert done.returncode == 2
    assert "--precompute" in done.stderr
    assert mention in done.stderr


@pytest.mark.parametrize(
    ("name", "mention"), [("none.json", "no such file"), (".", "got a folder, want a regular file")]
)
def test_error_names_unreadable_precompute_file(
    tmp_path: pathlib.Path, name: str, mention: str
) -> None:
    done = run_server(f"--precompute={tmp_path / name}", "--check-config")
    assert done.returncode == 2
    assert f"--precompute: {tmp_path / name}: {mention}" in done.stderr


def test_precompute_beyond_budget_ends_the_process(tmp_path: pathlib.Path) -> None:
    done = run_server(
        write_specs(tmp_path / "specs.json", SMALL, SINUSOID),
        "--memory-budget=1MiB",
        "--listen=127.0.0.1:0",
        "--metrics-listen=127.0.0.1:0",
    )
    assert done.returncode == 1
    assert "precompute entry 1" in done.stderr


def test_check_config_prints_effective_settings() -> None:
    done = run_server("--check-config", "--memory-budget=2GiB", ATTNBIAS_DRAIN_GRACE="7s")
    assert done.returncode == 0, done.stderr
    effective = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert effective["memory-budget"] == "2GiB"
    assert effective["drain-grace"] == "7s"
    assert effective["listen"] == "[::]:50051"
    assert effective["cpu-isa"] in ("avx512", "avx2", "neon", "scalar")


@pytest.mark.parametrize(
    ("flags", "mention"),
    [
        (["--memory-budget=-1"], "--memory-budget"),
        (["--listen=here"], "--listen"),
        (["--cpu-isa=abacus"], "--cpu-isa: got 'abacus'"),
        (["--frobnicate"], "--frobnicate"),
    ],
)
def test_check_config_names_invalid_setting(flags: list[str], mention: str) -> None:
    done = run_server("--check-config", *flags)
    assert done.returncode == 2
    assert mention in done.stderr


def test_port_in_use_ends_the_process_with_one_line(shared_server: Server) -> None:
    done = run_server(f"--listen={shared_server.address}", "--metrics-listen=127.0.0.1:0")
    assert done.returncode == 1
    assert f"cannot listen on {shared_server.address}" in done.stderr
    done = run_server("--listen=127.0.0.1:0", f"--metrics-listen={shared_server.metrics_address}")
    assert done.returncode == 1
    assert f"cannot serve metrics on {shared_server.metrics_address}" in done.stderr


def test_every_kernel_set_returns_the_same_bytes(start_server: Any) -> None:
    spec = sinusoid(5000, 130)
    with start_server().connect() as stub:
        best, *others = stub.info(message("GetServerInfoRequest")()).instruction_sets
        whole = stub.payload(spec)
    for name in others:
        with start_server(f"--cpu-isa={name}").connect() as stub:
            info = stub.info(message("GetServerInfoRequest")())
            assert (info.instruction_sets[0], best in info.instruction_sets) == (name, True)
            assert stub.payload(spec) == whole


def test_serves_ipv6_and_ipv4_on_one_socket(start_server: Any) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    server = start_server("--listen=[::]:0")
    assert server.address.startswith("[::]:")
    port = server.address.rpartition(":")[2]
    for host in ("127.0.0.1", "[::1]"):
        server.address = f"{host}:{port}"
        with server.connect() as stub:
            assert stub.check("liveness") == "SERVING"
