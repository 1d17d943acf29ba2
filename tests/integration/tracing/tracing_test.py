# SPDX-License-Identifier: Apache-2.0
"""Call spans that reach a collector, and calls while no collector accepts spans."""

import pathlib
import re
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.integration.logits_test import queries_of, rows_of, spec_of
from tests.integration.tracing.collector import Collector, Impostor, black_hole
from tests.support import inference
from tests.support.certificates import Authority
from tests.support.contract import DENSE, SERVICE, alibi, message
from tests.support.server import Server, eventually, free_port, refused, settled

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01"), ("tracestate", "a=1,b=2"))
NOT_SAMPLED = (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-00"),)
PHASES = ("plan", "wait", "compute", "write")
WARNING = "warning dropping spans, "
LATE = "600000"  # milliseconds; longer than a test may take


@pytest.fixture
def collector(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Yields a collector to which servers export after 50 ms."""
    with Collector(tmp_path) as collector:
        export_to(collector.endpoint, monkeypatch)
        yield collector


def export_to(endpoint: str, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    settings.setdefault("BSP_SCHEDULE_DELAY", "50")
    for name, value in settings.items():
        monkeypatch.setenv(f"OTEL_{name}", value)


def request_of(heads: int) -> Any:
    return message("GetTensorRequest")(spec=alibi(heads, 8))


def calls_of(server: Server) -> list[dict[str, Any]]:
    """Returns the log lines for calls."""
    return [line for line in server.json_log() if line["message"] == "call"]


def traceparent_of(span: dict[str, Any]) -> str:
    return f"00-{span['traceId']}-{span['spanId']}-{span['flags']:02x}"


def test_span_attributes_match_access_log(start_server: Any, collector: Collector) -> None:
    server = start_server("--log-format=json")
    with server.connect() as stub:
        stub.header(alibi(4, 8))
        stub.tensor(alibi(4, 8))
        stub.payload(alibi(4, 512, **DENSE))
        stub.tables(message("ListTablesRequest")())
        stub.info(message("GetServerInfoRequest")())
        list(stub.logits([spec_of(5, 7), rows_of(0, queries_of(5))]))
        inference.call(stub.channel, "ServerMetadata")
        refused(lambda: stub.tensor(alibi(0, 8)))
        stub.check()
        settled(server)
    spans = collector.after(8)
    lines = {line["request_id"]: line for line in calls_of(server)}
    assert len(lines) == 8
    for span in spans:
        found = span["attributes"]
        line = lines.pop(found["attnbias.request_id"])
        assert span["name"] == found["rpc.method"]
        assert span["name"].rpartition("/")[2] == line["method"]
        assert span["kind"] == 2  # a server span
        assert traceparent_of(span) == line["trace"]
        assert "parentSpanId" not in span or not span["parentSpanId"]
        assert found["rpc.system.name"] == "grpc"
        assert found["rpc.response.status_code"] == line["code"]
        assert found["client.address"] == "127.0.0.1"
        assert found["attnbias.bytes"] == line["bytes"]
        for key in "encoding", "fingerprint", "identity", "error":
            assert found.get(f"attnbias.{key}", "") == line[key]
        took = (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e6
        assert took == pytest.approx(line["milliseconds"], abs=1e-3)
        for phase in PHASES:
            seconds = found[f"attnbias.{phase}_seconds"]
            assert seconds * 1e3 == pytest.approx(line[f"{phase}_milliseconds"])
        assert not span["status"]  # the client caused the error
    assert {span["name"].rpartition("/")[0] for span in spans} == {SERVICE, inference.SERVICE}


def test_span_events_are_call_phases(start_server: Any, collector: Collector) -> None:
    server = start_server()
    with server.connect() as stub:
        stub.tensor(alibi(4, 8))
        settled(server)
        stub.payload(alibi(4, 4096, **DENSE))

        def requests() -> Iterator[Any]:
            yield spec_of(5, 7)
            yield rows_of(0, queries_of(5))

        list(stub.logits(requests()))
    unary, stream, logits = collector.after(3)
    start, end = int(unary["startTimeUnixNano"]), int(unary["endTimeUnixNano"])
    times = [*(int(event["timeUnixNano"]) for event in unary["events"]), end]
    assert times == sorted(times)
    assert times[0] == start
    # Even a short call produces every event, so the test reads the call's phases from them.
    spent = dict.fromkeys(PHASES, 0)
    for event, at, until in zip(unary["events"], times, times[1:], strict=False):
        spent[event["name"]] += until - at
    for phase in PHASES:
        seconds = unary["attributes"][f"attnbias.{phase}_seconds"]
        assert seconds > 0
        assert spent[phase] / 1e9 == pytest.approx(seconds, abs=1e-6)
    assert len(stream["events"]) == 32
    assert {"client", *PHASES} == {event["name"] for event in logits["events"]}


def test_call_continues_trace_of_client(start_server: Any, collector: Collector) -> None:
    server = start_server("--log-format=json")
    with server.connect() as stub:
        stub.get(request_of(4), metadata=SAMPLED)
        settled(server)
        refused(lambda: stub.get(request_of(0), metadata=SAMPLED))
        settled(server)
        stub.get(request_of(4), metadata=NOT_SAMPLED)
        settled(server)
        stub.get(request_of(4), metadata=[("traceparent", SAMPLED[0][1] + "-evil")])
        settled(server)
    *children, root = collector.after(3)
    for span in children:
        assert span["traceId"] == TRACE_ID
        assert span["parentSpanId"] == PARENT_ID
        assert span["traceState"] == "a=1,b=2"
        assert int(span["flags"]) & 1 == 1
    assert root["traceId"] != TRACE_ID
    assert not root.get("parentSpanId")
    traces = [line["trace"] for line in calls_of(server)]
    assert [traces[0], traces[1], traces[3]] == [traceparent_of(s) for s in (*children, root)]
    assert re.fullmatch(f"00-{TRACE_ID}-[0-9a-f]{{16}}-00", traces[2])


def test_server_failure_sets_error_status(start_server: Any, collector: Collector) -> None:
    server = start_server()
    with server.connect() as stub:
        error = refused(lambda: stub.get(b"\x7a\x00"))  # a field that no version has
        settled(server)
        call = stub.stream(alibi(8, 1500, **DENSE))
        next(call)
        call.cancel()
        settled(server)
    failed, cancelled = collector.after(2)
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert failed["status"] == {"code": 2, "message": error.details()}
    assert failed["attributes"]["error.type"] == "UNIMPLEMENTED"
    assert not cancelled["status"]
    assert cancelled["attributes"]["rpc.response.status_code"] == "CANCELLED"


@pytest.mark.parametrize(
    ("setting", "numbers"),
    [
        ("always_on:", (1, 1, 1)),
        ("always_off:", (0, 0, 0)),
        ("traceidratio:0", (0, 0, 0)),
        ("traceidratio:1", (1, 1, 1)),
        ("parentbased_always_on:", (1, 1, 0)),
        ("parentbased_always_off:", (0, 1, 0)),
        ("parentbased_traceidratio:0", (0, 1, 0)),
        ("parentbased_traceidratio:1.0", (1, 1, 0)),
    ],
)
def test_sampler_decides_which_calls_have_spans(
    start_server: Any,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    numbers: tuple[int, int, int],
) -> None:
    """Covers calls without a parent, with a sampled parent, and with an unsampled parent."""
    sampler, _, argument = setting.partition(":")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    server = start_server()
    with server.connect() as stub:
        for number, metadata in enumerate(((), SAMPLED, NOT_SAMPLED)):
            name = ("x-request-id", str(number))
            stub.get(request_of(4), metadata=[name, *metadata])
    assert server.stop() == 0  # sends the remaining spans
    spans = collector.after(sum(numbers))
    found = sorted(int(span["attributes"]["attnbias.request_id"]) for span in spans)
    assert found == [number for number, there in enumerate(numbers) if there]


def test_trace_ratio_of_half_samples_half(
    start_server: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    server = start_server()
    with server.connect() as stub:
        for _ in range(400):
            stub.get(request_of(4))
    assert server.stop() == 0
    eventually(lambda: len(collector.spans()) >= 100, "spans")
    assert 100 < len(collector.spans()) < 300


def test_resource_attributes_come_from_environment(
    start_server: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resource() -> dict[str, Any]:
        seen = len(collector.spans())
        server = start_server()
        with server.connect() as stub:
            stub.get(request_of(4))
        return dict(collector.after(seen + 1)[-1]["resource"])

    plain = resource()
    assert plain["service.name"] == "attnbias-server"
    assert re.fullmatch(r"\d+\.\d+\.\d+", plain["service.version"])
    assert plain["telemetry.sdk.language"] == "cpp"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=7,k8s.pod.name=a-0")
    assert resource() == plain | {"service.version": "7", "k8s.pod.name": "a-0"}
    monkeypatch.setenv("OTEL_SERVICE_NAME", "biases")
    assert resource()["service.name"] == "biases"


def test_spans_are_exported_over_mutual_tls(
    start_server: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("collector", alternatives="DNS:localhost")
    own = authority.sign("attnbias")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(authority.certificate))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", str(own.certificate))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", str(own.key))
    with Collector(tmp_path, authority=authority, pair=pair) as collector:
        export_to(collector.endpoint, monkeypatch)
        for endpoint in collector.endpoint, collector.endpoint.removeprefix("https://"):
            seen = len(collector.spans())
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint)
            server = start_server()
            with server.connect() as stub:
                stub.get(request_of(4))
            collector.after(seen + 1)


def test_endpoint_without_scheme_can_be_insecure(
    start_server: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_to(f"localhost:{collector.port}", monkeypatch, EXPORTER_OTLP_INSECURE="true")
    with start_server().connect() as stub:
        stub.get(request_of(4))
    collector.after(1)


def test_configured_headers_are_sent_with_spans(
    start_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Impostor() as impostor:
        headers = "Authorization=Bearer%20x%3Dy%2Cz, x-team = blue"
        export_to(impostor.endpoint + "/", monkeypatch, EXPORTER_OTLP_HEADERS=headers)
        with start_server().connect() as stub:
            stub.get(request_of(4))
        eventually(lambda: bool(impostor.metadata), "an export")
        assert impostor.metadata[0]["authorization"] == "Bearer x=y,z"
        assert impostor.metadata[0]["x-team"] == "blue"


def test_rejected_spans_are_counted_as_dropped(
    start_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ExportTracePartialSuccess: 1 rejected, "too late"
    with Impostor(b"\x0a\x0c\x08\x01\x12\x08too late") as impostor:
        export_to(impostor.endpoint, monkeypatch)
        server = start_server()
        with server.connect() as stub:
            stub.get(request_of(4))
        eventually(lambda: server.metrics()["attnbias_spans_dropped"] == 1, "a span rejected")
        assert f" {WARNING}1 so far: too late\n" in server.log()


def threads_of(server: Server) -> int:
    return len(list(pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"OTEL_SDK_DISABLED": "True", "OTEL_TRACES_EXPORTER": "otlp"},
        {"OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_no_spans_are_sent_by_default(
    start_server: Any,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
) -> None:
    on = threads_of(start_server())
    if not settings:
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    server = start_server("--log-format=json")
    assert threads_of(server) < on
    with server.connect() as stub:
        stub.get(request_of(4), metadata=SAMPLED)
    assert server.stop() == 0
    assert [line["trace"] for line in calls_of(server)] == [SAMPLED[0][1]]
    assert collector.spans() == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=%00"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "=c"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
        ("OTEL_TRACES_SAMPLER", "xray"),
        ("OTEL_TRACES_SAMPLER", "parentbased_"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
    ],
)
def test_invalid_settings_are_warned_about(
    start_server: Any, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    export_to(f"http://127.0.0.1:{free_port()}", monkeypatch)
    if variable == "OTEL_TRACES_SAMPLER_ARG":
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv(variable, value)
    server = start_server()
    with server.connect() as stub:
        stub.get(request_of(4), metadata=SAMPLED)
    assert server.stop() == 0
    (line,) = [line for line in server.log().splitlines() if " OTEL_" in line]
    assert re.search(f" warning {variable}: got .+; no spans are exported$", line)
    assert "secret" not in line
    assert f" trace={SAMPLED[0][1]} " in server.log()


def test_spans_arrive_once_collector_is_reachable(
    start_server: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    export_to(f"http://localhost:{port}", monkeypatch)
    server = start_server()
    with server.connect() as stub:
        stub.get(request_of(4))
        eventually(lambda: server.metrics()["attnbias_spans_dropped"] == 1, "a span dropped")
        assert server.log().count(WARNING) == 1
        with Collector(tmp_path, port=port) as collector:

            def arrives() -> bool:
                stub.get(request_of(4))
                return len(collector.spans()) > 0

            eventually(arrives, "spans in the collector")


def test_unresponsive_collector_does_not_affect_calls(
    start_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with black_hole() as endpoint:
        export_to(
            endpoint,
            monkeypatch,
            EXPORTER_OTLP_TIMEOUT=LATE,
            BSP_MAX_QUEUE_SIZE="16",
            BSP_MAX_EXPORT_BATCH_SIZE="8",
        )
        server = start_server()
        with server.connect() as stub:
            for _ in range(500):
                stub.get(request_of(4))
            settled(server)
        # The rest waits in the queue, or in the exporter.
        assert server.metrics()["attnbias_spans_dropped"] >= 500 - 16 - 8 - 1
        assert server.log().count(WARNING) == 1
        assert server.stop() == 0


def test_shutdown_flushes_last_spans(
    start_server: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", LATE)
    server = start_server()
    with server.connect() as stub:
        for _ in range(100):
            stub.get(request_of(4))
    assert server.stop() == 0
    assert len(collector.after(100)) == 100
