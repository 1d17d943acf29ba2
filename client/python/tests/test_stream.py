# SPDX-License-Identifier: Apache-2.0
"""A payload arrives complete and correct, or an error is raised; tests/clients covers more
faults."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from fake_server import FINGERPRINT, PAYLOAD, FakeServer, abort, breaks, retry_info, sequence, table

import attnbias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from either_client import Connect
    from fake_server import Context, Request, Step


SINUSOIDAL = attnbias.Sinusoidal(dim=1)


def sends(*messages: bytes) -> Step:
    def step(request: Request, context: Context) -> Iterator[bytes]:
        del request, context
        yield from messages

    return step


def test_whole_payload_arrives(server: FakeServer, client: attnbias.Client) -> None:
    got = client.get(SINUSOIDAL, positions=5000)
    np.testing.assert_array_equal(got, sequence(), strict=True)
    assert got.flags.writeable
    assert len(server.requests) == 1
    assert server.requests[0].read_offset == 0
    assert server.requests[0].expected_fingerprint == ""


def test_first_message_may_carry_data(server: FakeServer, client: attnbias.Client) -> None:
    first, second, *others = PAYLOAD.messages()
    server.script = [sends(first + second, *others)]
    np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED])
def test_broken_stream_is_resumed_at_offset(
    server: FakeServer, client: attnbias.Client, code: grpc.StatusCode
) -> None:
    server.script = [breaks(code, after=7001), breaks(code, after=4500), PAYLOAD.serve]
    np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    assert [r.read_offset for r in server.requests] == [0, 7001, 11501]
    assert [r.expected_fingerprint for r in server.requests] == ["", FINGERPRINT, FINGERPRINT]
    assert server.requests[1].spec == server.requests[0].spec


def test_reset_stream_is_resumed(server: FakeServer, client: attnbias.Client) -> None:
    def reset(request: Request, context: Context) -> Iterator[bytes]:
        yield from PAYLOAD.messages(request.read_offset, 3000)
        context.abort(grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2")

    server.script = [reset, PAYLOAD.serve]
    np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    assert [r.read_offset for r in server.requests] == [0, 3000]


def test_progress_renews_the_attempts(server: FakeServer, connect: Connect) -> None:
    unavailable = breaks(grpc.StatusCode.UNAVAILABLE, retry_info(0), after=2000)
    server.script = [unavailable] * 9 + [PAYLOAD.serve]
    with connect(server.target, max_attempts=2) as client:
        np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    assert len(server.requests) == 10


def test_changed_tensor_restarts_download(server: FakeServer, client: attnbias.Client) -> None:
    changed = table(sequence() + 1, fingerprint="f" * 64)
    server.script = [
        breaks(grpc.StatusCode.UNAVAILABLE, retry_info(0), after=8000),
        breaks(grpc.StatusCode.FAILED_PRECONDITION),
        changed.serve,
    ]
    np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence() + 1)
    assert [r.read_offset for r in server.requests] == [0, 8000, 0]
    assert server.requests[2].expected_fingerprint == ""


def damaged(message: bytes) -> bytes:
    """Flips the lowest bit of the last byte, which belongs to the data."""
    return message[:-1] + bytes([message[-1] ^ 1])


HEADER = PAYLOAD.first()


def test_bad_chunk_is_not_written(server: FakeServer, client: attnbias.Client) -> None:
    server.script = [sends(HEADER, PAYLOAD.chunk(0, 8), damaged(PAYLOAD.chunk(8, 16)))]
    out = np.full((5000, 1), -1, np.float32)
    with pytest.raises(attnbias.DataLossError):
        client.get(SINUSOIDAL, positions=5000, out=out)
    assert out[:2, 0].tolist() == [0, 1]
    assert (out[2:] == -1).all()


def test_failed_call_is_cancelled_immediately(server: FakeServer, client: attnbias.Client) -> None:
    gone = threading.Event()

    def step(request: Request, context: Context) -> Iterator[bytes]:
        del request
        context.add_callback(gone.set)
        yield from (HEADER, damaged(PAYLOAD.chunk(0, 100)))
        gone.wait(20)

    server.script = [step]
    with pytest.raises(attnbias.DataLossError) as caught:
        client.get(SINUSOIDAL, positions=5000)
    # The error keeps a reference to the call, as it would for a user, so the call does not end
    # merely because it is deleted.
    assert caught.value.__traceback__ is not None
    assert gone.wait(10)


def test_backoff_grows_without_server_delay(
    server: FakeServer, client: attnbias.Client, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda _, most: most)
    server.script = [breaks(grpc.StatusCode.UNAVAILABLE)] * 9 + [PAYLOAD.serve]
    np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2, 2])


def test_backoff_uses_full_jitter(
    server: FakeServer, client: attnbias.Client, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda least, _: least)
    server.script = [breaks(grpc.StatusCode.UNAVAILABLE)] * 3 + [PAYLOAD.serve]
    client.get(SINUSOIDAL, positions=5000)
    assert waits == [0, 0, 0]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, attnbias.ResourceExhaustedError),
        (grpc.StatusCode.INVALID_ARGUMENT, attnbias.InvalidArgumentError),
        (grpc.StatusCode.INTERNAL, attnbias.InternalError),
        (grpc.StatusCode.UNIMPLEMENTED, attnbias.UnimplementedError),
        (grpc.StatusCode.FAILED_PRECONDITION, attnbias.FailedPreconditionError),
    ],
)
def test_other_statuses_are_final(
    server: FakeServer, client: attnbias.Client, code: grpc.StatusCode, error: type[attnbias.Error]
) -> None:
    server.script = [breaks(code), PAYLOAD.serve]
    with pytest.raises(error, match=f"{code.name}: as planned"):
        client.get(SINUSOIDAL, positions=5000)
    assert len(server.requests) == 1


def test_retry_delay_beyond_timeout_fails_immediately(server: FakeServer, connect: Connect) -> None:
    server.script = [breaks(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_info(3600))]
    with (
        connect(server.target, timeout=60) as client,
        pytest.raises(attnbias.ResourceExhaustedError) as caught,
    ):
        client.get(SINUSOIDAL, positions=5000)
    assert caught.value.retry_delay == 3600


def waits_for_the_caller(request: Request, context: Context) -> Iterator[bytes]:
    """Sends a part, then nothing until the caller disconnects."""
    yield from PAYLOAD.messages(request.read_offset, 8000)
    gone = threading.Event()
    if context.add_callback(gone.set):
        gone.wait(60)


def test_timeout_ends_a_stalled_stream(server: FakeServer, client: attnbias.Client) -> None:
    server.script = [waits_for_the_caller]
    with pytest.raises(attnbias.DeadlineExceededError):
        client.get(SINUSOIDAL, positions=5000, timeout=0.2)


def test_get_many_keeps_the_order(server: FakeServer, client: attnbias.Client) -> None:
    def by_length(request: Request, context: Context) -> Iterator[bytes]:
        yield from table(sequence(request.spec.table.positions.end)).serve(request, context)

    server.script = [by_length]
    lengths = range(1, 40)
    got = client.get_many(attnbias.Request(SINUSOIDAL, positions=n) for n in lengths)
    assert [len(array) for array in got] == list(lengths)


class Endless:
    """Sends a part, then nothing; reports whether the caller cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled: queue.Queue[bool] = queue.Queue()

    def serve(self, request: Request, context: Context) -> Iterator[bytes]:
        yield from PAYLOAD.messages(request.read_offset, 8000)
        gone = threading.Event()
        context.add_callback(gone.set)
        self.begun.set()
        self.cancelled.put(gone.wait(20))


def test_get_many_cancels_the_others_when_one_fails(
    server: FakeServer, client: attnbias.Client
) -> None:
    endless = Endless()

    def either(request: Request, context: Context) -> Iterator[bytes]:
        if request.spec.sinusoidal.ladder.base == 1:
            yield from endless.serve(request, context)
        endless.begun.wait(60)
        abort(context, grpc.StatusCode.INVALID_ARGUMENT, "as planned")

    server.script = [either]
    requests = [
        attnbias.Request(attnbias.Sinusoidal(1, ladder=attnbias.Ladder(base=base)), positions=5000)
        for base in (1, 2)
    ]
    with pytest.raises(attnbias.InvalidArgumentError):
        client.get_many(requests)
    assert endless.cancelled.get(timeout=60)


def test_get_many_cancels_calls_when_iterator_raises(server: FakeServer) -> None:
    endless = Endless()
    server.script = [endless.serve]

    def requests() -> Iterator[attnbias.Request]:
        yield attnbias.Request(SINUSOIDAL, positions=5000)
        endless.begun.wait(60)
        raise LookupError("as planned")

    with attnbias.Client(server.target) as client, pytest.raises(LookupError, match="as planned"):
        client.get_many(requests())
    assert endless.cancelled.get(timeout=60)


def test_close_cancels_calls(server: FakeServer, connect: Connect) -> None:
    client = connect(server.target)
    begun = threading.Event()

    def step(request: Request, context: Context) -> Iterator[bytes]:
        begun.set()
        yield from waits_for_the_caller(request, context)

    server.script = [step]

    def close_once_begun() -> None:
        begun.wait(60)
        client.close()

    closer = threading.Thread(target=close_once_begun)
    closer.start()
    with pytest.raises(attnbias.CancelledError):
        client.get(SINUSOIDAL, positions=5000)
    closer.join()
