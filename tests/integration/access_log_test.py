# SPDX-License-Identifier: Apache-2.0
"""Log lines for calls: which calls are logged, their phases, and their ids."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.logits_test import queries_of, rows_of, spec_of
from tests.support import http2
from tests.support.contract import DENSE, SERVICE, alibi, message, sinusoid
from tests.support.server import PATIENCE, Server, refused, settled

PHASES = ("plan", "wait", "compute", "write")
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SANE = re.compile(r"[A-Za-z0-9_.:/+=-]{1,128}")


def calls(server: Server) -> list[dict[str, Any]]:
    """Returns the log lines for a server's calls, after stopping it."""
    assert server.stop() == 0
    return [line for line in server.json_log() if line["message"] == "call"]


def phases(call: dict[str, Any]) -> dict[str, float]:
    return {phase: call[f"{phase}_milliseconds"] for phase in PHASES}


@pytest.mark.parametrize(
    ("which", "codes"), [("all", ["OK", "INVALID_ARGUMENT"]), ("errors", ["INVALID_ARGUMENT"])]
)
@pytest.mark.parametrize("level", ["off", "info"])
def test_logged_calls_do_not_depend_on_log_level(
    start_server: Any, which: str, codes: list[str], level: str
) -> None:
    server = start_server(f"--access-log={which}", log_level=level)
    with server.connect() as stub:
        stub.header(alibi(4, 8))
        settled(server)
        refused(lambda: stub.header(alibi(0, 8)))
    assert server.stop() == 0
    lines = server.log().splitlines()
    of_calls = [line for line in lines if " call " in line]
    assert [re.findall(r" code=(\S+)", line) for line in of_calls] == [[code] for code in codes]
    assert " warning call method=DescribeTensor " in of_calls[-1]
    assert (len(lines) > len(of_calls)) is (level == "info")


def test_access_log_can_be_off(start_server: Any) -> None:
    server = start_server("--access-log=off")
    with server.connect() as stub:
        stub.header(alibi(4, 8))
        refused(lambda: stub.header(alibi(0, 8)))
    assert server.stop() == 0
    assert server.log().endswith(" info drained\n")
    assert " call " not in server.log()


def test_call_phases_sum_to_total_time(start_server: Any) -> None:
    server = start_server("--log-format=json")
    with server.connect() as stub:
        for _ in range(2):
            stub.tensor(alibi(4, 8))
            settled(server)
        stub.payload(alibi(4, 512, **DENSE))
    cold, kept, stream = calls(server)
    for call in cold, kept, stream:
        assert sum(phases(call).values()) == pytest.approx(call["milliseconds"])
    assert all(spent > 0 for spent in phases(cold).values())
    # The call is answered without switching threads.
    assert kept["wait_milliseconds"] == 0
    assert stream["write_milliseconds"] > 0


def test_slow_reader_extends_write_phase(start_server: Any) -> None:
    server = start_server("--log-format=json")
    with server.connect() as stub:
        # More than gRPC's largest windows and the kernel's socket buffers can hold.
        stream = stub.stream(alibi(8, 2048, **DENSE))
        received = len(next(stream).data)
        time.sleep(3)
        assert received + sum(len(reply.data) for reply in stream) == 8 * 2048 * 2048 * 4
    (call,) = calls(server)
    assert call["milliseconds"] > 3000
    assert call["write_milliseconds"] > call["milliseconds"] / 2


def test_time_computing_streamed_tensor_is_compute(start_server: Any) -> None:
    """The tensor is too large to cache, and computing it takes longer than reading it."""
    server = start_server(
        "--log-format=json", "--memory-budget=32MiB", "--threads=1", "--cpu-isa=scalar"
    )
    with server.connect() as stub:
        for reply in stub.stream(sinusoid(1 << 13, 1024, data_type="DATA_TYPE_F64")):
            del reply
    (call,) = calls(server)
    assert call["compute_milliseconds"] > 50


def test_client_time_is_in_no_phase(start_server: Any) -> None:
    server = start_server("--log-format=json")

    def requests() -> Iterator[Any]:
        time.sleep(0.3)
        yield spec_of(5, 7)
        time.sleep(0.3)
        yield rows_of(0, queries_of(5))

    with server.connect() as stub:
        list(stub.logits(requests()))
    (call,) = calls(server)
    assert 500 < call["milliseconds"] - sum(phases(call).values()) < call["milliseconds"]
    assert all(spent > 0 for spent in phases(call).values())


def test_call_has_request_id_and_trace_of_client(start_server: Any) -> None:
    server = start_server("--log-format=json")
    metadata = (("x-request-id", "order-7/a"), ("traceparent", TRACE))
    with server.connect() as stub:
        stub.get(_request(4), metadata=metadata)
        settled(server)
        error = refused(lambda: stub.get(_request(0), metadata=metadata))
    assert dict(error.trailing_metadata())["x-request-id"] == "order-7/a"
    found = [(call["request_id"], call["trace"], call["code"]) for call in calls(server)]
    assert found == [("order-7/a", TRACE, "OK"), ("order-7/a", TRACE, "INVALID_ARGUMENT")]


def test_missing_request_id_is_generated(start_server: Any) -> None:
    server = start_server("--log-format=json")
    with server.connect() as stub:
        for _ in range(3):
            stub.get(_request(4))
        settled(server)
        error = refused(lambda: stub.get(_request(0)))
    lines = calls(server)
    made = [call["request_id"] for call in lines]
    assert dict(error.trailing_metadata())["x-request-id"] == made[-1]
    assert len(set(made)) == len(made) == 4
    assert all(SANE.fullmatch(name) for name in made)
    assert {call["trace"] for call in lines} == {""}


HOSTILE_IDS = [
    *("evil " * 1000, "evil" * 40, 'evil" code=OK', "evil\\n", "évil", "evil\u2028"),
    *("evil\n2026-01-01T00:00:00Z info call", "evil\0", "evil\x1b[2J"),
]
HOSTILE_TRACES = [TRACE + "-evil", TRACE + "\x7fevil", TRACE[:-4] + "evil", *HOSTILE_IDS]
HOSTILE = [("x-request-id", value) for value in HOSTILE_IDS] + [
    ("traceparent", value) for value in HOSTILE_TRACES
]


@pytest.mark.parametrize("form", ["json", "text"])
def test_unsafe_metadata_is_not_logged(start_server: Any, form: str) -> None:
    server = start_server(f"--log-format={form}")
    with server.connect() as stub:
        for key, value in HOSTILE:
            if value.isascii() and value.isprintable():
                stub.get(_request(4), metadata=[(key, value)])
        stub.get(_request(4), metadata=[("x-request-id", "evil")] * 2)
    # gRPC's own clients would not send these.
    for key, value in HOSTILE:
        if len(value) < 100:
            send_as_it_is(server, {key.replace("-", "_"): value})
    settled(server)
    assert server.stop() == 0
    log = server.log()
    assert not re.search("vil|4bf9", log)
    if form == "text":
        lines = log.splitlines()
        assert all(re.match(r"\d{4}-\d\d-\d\dT\S+Z (info|warning) ", line) for line in lines)
        names = re.findall(" request_id=([^ ]*) trace= error=", log)
    else:
        names = [line["request_id"] for line in server.json_log() if "request_id" in line]
    assert len(names) > 10
    assert all(SANE.fullmatch(name) for name in names)


def send_as_it_is(server: Server, headers: dict[str, str]) -> None:
    connection = http2.Connection(server.address)
    body = http2.framed(_request(4).SerializeToString())
    stream = connection.begin(f"/{SERVICE}/GetTensor", body, **headers)
    assert http2.pump([connection], lambda: stream.ended or connection.closed, PATIENCE)
    connection.close()


def test_long_metadata_does_not_grow_memory(start_server: Any) -> None:
    server = start_server()
    metadata = (("x-request-id", "x" * 6000), ("traceparent", "0" * 6000))
    with server.connect() as stub:
        for _ in range(100):
            stub.get(_request(4), metadata=metadata)
        before = server.resident_bytes()
        for _ in range(1000):
            stub.get(_request(4), metadata=metadata)
        assert server.resident_bytes() - before < 4 << 20


def _request(heads: int) -> Any:
    return message("GetTensorRequest")(spec=alibi(heads, 8))
