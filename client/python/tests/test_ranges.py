# SPDX-License-Identifier: Apache-2.0
"""A large payload is fetched in ranges, each over its own connection."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from fake_server import (
    FINGERPRINT,
    PAYLOAD,
    FakeServer,
    Payload,
    abort,
    breaks,
    retry_info,
    sequence,
    table,
)

import attnbias
from attnbias._transport import download

if TYPE_CHECKING:
    from collections.abc import Iterator

    from either_client import Connect
    from fake_server import Context, Request, Step


SINUSOIDAL = attnbias.Sinusoidal(dim=1)
OTHER = table(sequence() + 1, fingerprint="f" * 64)
FIRST = 8000


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_FIRST_BYTES", FIRST)
    monkeypatch.setattr(download, "_CHUNK_BYTES", 1000)


def serves(payload: Payload) -> Step:
    """Answers as a correct server does."""

    def step(request: Request, context: Context) -> Iterator[bytes]:
        if request.expected_fingerprint not in ("", payload.header.fingerprint):
            abort(context, grpc.StatusCode.FAILED_PRECONDITION, "expected_fingerprint: is another")
        end = len(payload.data)
        if request.read_limit:
            end = min(end, request.read_offset + request.read_limit)
        yield from payload.messages(request.read_offset, end)

    return step


def at(offset: int, step: Step, otherwise: Step | None = None) -> Step:
    """Uses one step for the calls that begin at an offset, and another for the rest."""
    otherwise = otherwise or serves(PAYLOAD)

    def chosen(request: Request, context: Context) -> Iterator[bytes]:
        yield from (step if request.read_offset == offset else otherwise)(request, context)

    return chosen


def ranges_of(server: FakeServer) -> list[tuple[int, int]]:
    """Returns the requested ranges in ascending order."""
    return sorted((r.read_offset, r.read_limit) for r in server.requests)


def test_each_range_uses_its_own_connection(server: FakeServer, connect: Connect) -> None:
    server.script = [serves(PAYLOAD)]
    with connect(server.target, streams=3) as client:
        np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
        assert ranges_of(server) == [(0, FIRST), (8000, 4000), (12000, 4000), (16000, 4000)]
        assert server.requests[0].expected_fingerprint == ""
        assert {r.expected_fingerprint for r in server.requests[1:]} == {FINGERPRINT}
        peers = [caller.peer for caller in server.callers]
        assert len(set(peers)) == 3
        assert peers[0] in peers[1:]
        client.get(
            attnbias.Sinusoidal(1, ladder=attnbias.Ladder(base=2.0)), positions=5000
        )  # over the same connection
        assert {caller.peer for caller in server.callers} == set(peers)


def test_ranges_are_whole_chunks(server: FakeServer, connect: Connect) -> None:
    server.script = [serves(PAYLOAD)]
    with connect(server.target, streams=5) as client:
        np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    assert ranges_of(server)[1:] == [(8000, 3000), (11000, 3000), (14000, 3000), (17000, 3000)]


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
def test_first_range_may_fail_after_last_byte(
    server: FakeServer, connect: Connect, code: grpc.StatusCode
) -> None:
    """The range is complete, so the status of its stream does not matter."""
    server.script = [at(0, breaks(code, after=FIRST))]
    with connect(server.target, streams=2) as client:
        np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    assert ranges_of(server) == [(0, FIRST), (8000, 6000), (14000, 6000)]


def test_one_stream_is_one_call(server: FakeServer, client: attnbias.Client) -> None:
    server.script = [serves(PAYLOAD)]
    np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    assert ranges_of(server) == [(0, 0)]


def test_payload_of_one_range_is_one_call(server: FakeServer, connect: Connect) -> None:
    server.script = [serves(table(sequence(FIRST // 4)))]
    with connect(server.target, streams=4) as client:
        client.get(SINUSOIDAL, positions=FIRST // 4)
    assert ranges_of(server) == [(0, FIRST)]


def test_broken_range_is_resumed_alone(server: FakeServer, connect: Connect) -> None:
    broken = breaks(grpc.StatusCode.UNAVAILABLE, retry_info(0), after=2500)
    server.script = [at(12000, broken)]
    with connect(server.target, streams=3) as client:
        np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    expected = [(0, FIRST), (8000, 4000), (12000, 4000), (14500, 1500), (16000, 4000)]
    assert ranges_of(server) == expected


def test_changed_payload_is_fetched_again(server: FakeServer, connect: Connect) -> None:
    server.script = [serves(PAYLOAD), serves(OTHER)]
    with connect(server.target, streams=3) as client:
        np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence() + 1)
    assert [r.read_offset for r in server.requests if not r.expected_fingerprint] == [0, 0]


def test_payload_that_keeps_changing_is_an_error(server: FakeServer, connect: Connect) -> None:
    broken = breaks(grpc.StatusCode.UNAVAILABLE, retry_info(0), after=1000)
    server.script = [at(0, broken, breaks(grpc.StatusCode.FAILED_PRECONDITION, after=0))]
    with (
        connect(server.target, streams=3) as client,
        pytest.raises(attnbias.FailedPreconditionError, match="as planned"),
    ):
        client.get(SINUSOIDAL, positions=5000)
    assert [r.read_offset for r in server.requests].count(0) == 2


def test_replicas_with_different_tables_are_not_mixed(server: FakeServer, connect: Connect) -> None:
    server.script = [serves(PAYLOAD)]
    with FakeServer() as other:
        other.script = [serves(OTHER)]
        with connect(f"ipv4:{server.target},{other.target}", streams=3) as client:
            for _ in range(6):
                got = client.get(SINUSOIDAL, positions=5000) - sequence()
                assert got.min() == got.max()
    assert server.requests
    assert other.requests


def test_wait_is_logged_once(
    server: FakeServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    away = breaks(grpc.StatusCode.UNAVAILABLE, retry_info(0), after=1000)
    server.script = [serves(PAYLOAD), away, away, away, serves(PAYLOAD)]
    with connect(server.target, streams=3) as client:
        np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    assert len([r for r in caplog.records if "again" in r.message]) == 1


AFTER_MAIN = """
import sys, threading
import attnbias, attnbias._transport.download
attnbias._transport.download._FIRST_BYTES = 8000
client = attnbias.Client(sys.argv[1], streams=2)
def late():
    threading.main_thread().join()
    print(client.get(attnbias.Sinusoidal(dim=1), positions=5000).size)
threading.Thread(target=late).start()
"""


def test_get_works_after_main_thread_ends(server: FakeServer) -> None:
    server.script = [serves(PAYLOAD)]
    command = [sys.executable, "-c", AFTER_MAIN, server.target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("5000\n", "")


def test_first_failure_cancels_other_ranges(server: FakeServer, connect: Connect) -> None:
    begun, cancelled, left_alone = (threading.Event() for _ in range(3))

    def stalls(request: Request, context: Context) -> Iterator[bytes]:
        del request
        context.add_callback(cancelled.set)
        yield PAYLOAD.first()
        begun.set()
        if not cancelled.wait(5):
            left_alone.set()

    def fails(request: Request, context: Context) -> Iterator[bytes]:
        begun.wait(60)
        yield from breaks(grpc.StatusCode.PERMISSION_DENIED, after=0)(request, context)

    server.script = [at(12000, stalls, at(16000, fails))]
    with (
        connect(server.target, streams=3) as client,
        pytest.raises(attnbias.PermissionDeniedError, match="as planned"),
    ):
        client.get(SINUSOIDAL, positions=5000)
    assert cancelled.wait(10)
    assert not left_alone.is_set()


@pytest.mark.parametrize(
    ("offset", "payload", "says"),
    [
        (12000, OTHER, "resumed with fingerprint f{64}, want 0123"),
        (8000, PAYLOAD, "got 1000 bytes of data, want at most the 0 remaining"),
    ],
)
def test_mismatched_range_is_data_loss(
    server: FakeServer, connect: Connect, offset: int, payload: Payload, says: str
) -> None:
    server.script = [at(offset, payload.serve)]
    with (
        connect(server.target, streams=3) as client,
        pytest.raises(attnbias.DataLossError, match=says),
    ):
        client.get(SINUSOIDAL, positions=5000)


@pytest.mark.parametrize("streams", [0, 65])
def test_invalid_stream_count_is_rejected(connect: Connect, streams: int) -> None:
    with pytest.raises(ValueError, match=f"streams: got {streams}, want 1 to 64"):
        connect("nowhere", streams=streams)
