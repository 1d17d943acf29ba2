# SPDX-License-Identifier: Apache-2.0
"""A payload that is known to fit one message comes in one, or else as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from fake_server import FakeServer, Payload, abort, retry_info, sequence, table

import attnbias
from attnbias._transport import calls
from attnbias.v1 import service_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from either_client import Connect

SINUSOIDAL = attnbias.Sinusoidal(dim=1)
PAYLOAD = table(sequence())


def as_many(request: Any) -> Payload:
    """A table of as many positions as are asked for."""
    return table(sequence(request.spec.table.positions.end))


def serve_as_many(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
    yield from as_many(request).serve(request, context)


@pytest.fixture
def informed(server: FakeServer, client: attnbias.Client) -> attnbias.Client:
    """A client that has had the payload once, as a stream."""
    server.script = [PAYLOAD.serve]
    server.get = lambda _request, _context: PAYLOAD.message()
    client.get(SINUSOIDAL, positions=5000)
    return client


def test_what_came_once_comes_in_one_message(server: FakeServer, informed: attnbias.Client) -> None:
    got = informed.get(SINUSOIDAL, positions=5000)
    np.testing.assert_array_equal(got, sequence(), strict=True)
    assert got.flags.writeable
    assert len(server.requests) == 1
    assert [r.spec for r in server.get_requests] == [server.requests[0].spec]


def test_it_may_be_written_into_the_callers_memory(
    server: FakeServer, informed: attnbias.Client
) -> None:
    out = np.zeros((5000, 1), np.float32)
    assert informed.get(SINUSOIDAL, positions=5000, out=out) is out
    np.testing.assert_array_equal(out, sequence())
    assert len(server.get_requests) == 1


def test_another_request_is_not_known(server: FakeServer, informed: attnbias.Client) -> None:
    server.script = [serve_as_many]
    informed.get(SINUSOIDAL, positions=4999)
    assert (len(server.requests), len(server.get_requests)) == (2, 0)


def test_what_was_described_is_known(server: FakeServer, client: attnbias.Client) -> None:
    server.describe = [
        lambda _request, _context: service_pb2.DescribeTensorResponse(header=PAYLOAD.header)
    ]
    server.get = lambda _request, _context: PAYLOAD.message()
    client.describe(SINUSOIDAL, positions=5000)
    np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    assert (len(server.requests), len(server.get_requests)) == (0, 1)


def test_what_a_cache_asks_for_is_known(
    server: FakeServer, connect: Connect, tmp_path: Path
) -> None:
    server.describe = [
        lambda _request, _context: service_pb2.DescribeTensorResponse(header=PAYLOAD.header)
    ]
    server.get = lambda _request, _context: PAYLOAD.message()
    with connect(server.target, cache=tmp_path) as client:
        np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
    assert (len(server.requests), len(server.get_requests)) == (0, 1)


def test_a_large_one_is_streamed(
    server: FakeServer, informed: attnbias.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_MESSAGE_BYTES", len(PAYLOAD.data) - 1)
    informed.get(SINUSOIDAL, positions=5000)
    assert (len(server.requests), len(server.get_requests)) == (2, 0)
    monkeypatch.setattr(calls, "_MESSAGE_BYTES", len(PAYLOAD.data))
    informed.get(SINUSOIDAL, positions=5000)
    assert (len(server.requests), len(server.get_requests)) == (2, 1)


def test_as_many_are_remembered(
    server: FakeServer, informed: attnbias.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_MOST_PAYLOADS", 2)
    server.script = [serve_as_many]
    server.get = lambda request, _context: as_many(request).message()
    for positions in (4998, 4999):
        informed.get(SINUSOIDAL, positions=positions)
    assert len(server.get_requests) == 0
    informed.get(SINUSOIDAL, positions=4999)
    assert len(server.get_requests) == 1
    informed.get(SINUSOIDAL, positions=5000)  # the oldest
    assert len(server.get_requests) == 1


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ],
)
def test_where_a_message_is_refused_it_is_streamed(
    server: FakeServer, informed: attnbias.Client, code: grpc.StatusCode
) -> None:
    server.get = refuses(code)
    np.testing.assert_array_equal(informed.get(SINUSOIDAL, positions=5000), sequence())
    assert (len(server.requests), len(server.get_requests)) == (2, 1)
    informed.get(SINUSOIDAL, positions=5000)
    # A payload that was once too large may fit again; else nothing ever will.
    tried_again = code is grpc.StatusCode.INVALID_ARGUMENT
    assert (len(server.requests), len(server.get_requests)) == (3, 1 + tried_again)


def test_a_message_is_asked_for_again(
    server: FakeServer, informed: attnbias.Client, waits: list[float]
) -> None:
    answers: Any = iter(
        [
            refuses(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_info(3)),
            refuses(grpc.StatusCode.UNAVAILABLE),
            lambda _request, _context: PAYLOAD.message(),
        ]
    )

    def answer(request: Any, context: grpc.ServicerContext) -> bytes:
        message: bytes = next(answers)(request, context)
        return message

    server.get = answer
    np.testing.assert_array_equal(informed.get(SINUSOIDAL, positions=5000), sequence())
    assert (len(server.requests), len(server.get_requests)) == (1, 3)
    assert waits[0] == 3


def test_attempts_are_not_made_up_for_by_a_stream(server: FakeServer, connect: Connect) -> None:
    server.script = [PAYLOAD.serve]
    server.get = refuses(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_info(0))
    with connect(server.target, max_attempts=2) as client:
        client.get(SINUSOIDAL, positions=5000)
        with pytest.raises(attnbias.ResourceExhaustedError, match="as planned"):
            client.get(SINUSOIDAL, positions=5000)
    assert (len(server.requests), len(server.get_requests)) == (1, 2)


def refuses(code: grpc.StatusCode, *details: Any) -> Callable[[Any, grpc.ServicerContext], bytes]:
    def answer(_request: Any, context: grpc.ServicerContext) -> bytes:
        abort(context, code, "as planned", *details)
        raise AssertionError

    return answer


DAMAGED = PAYLOAD.message()[:-1] + bytes([PAYLOAD.message()[-1] ^ 1])


def without(**fields: Any) -> bytes:
    """The message with other fields."""
    message = service_pb2.GetTensorResponse.FromString(PAYLOAD.message())
    message.MergeFrom(service_pb2.GetTensorResponse(**fields))
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (DAMAGED, "chunk: 20000 bytes at offset 0 have CRC-32C"),
        (PAYLOAD.message()[:-1], "not protobuf"),
        (b"", "the first message has no header"),
        (without(header_crc32c=1), "header: got CRC-32C"),
        (
            service_pb2.GetTensorResponse(header=PAYLOAD.header).SerializeToString(),
            "message: has 0 bytes, want 20000",
        ),
    ],
)
def test_a_damaged_message_is_an_error(
    server: FakeServer, informed: attnbias.Client, message: bytes, error: str
) -> None:
    server.get = lambda _request, _context: message
    with pytest.raises(attnbias.DataLossError, match=error):
        informed.get(SINUSOIDAL, positions=5000)
    assert (len(server.requests), len(server.get_requests)) == (1, 1)


def test_a_message_holds_what_the_server_says(real_client: attnbias.Client) -> None:
    assert real_client.info().limits.max_unary_bytes == calls._MESSAGE_BYTES


def test_the_real_server_answers_alike(real_client: attnbias.Client) -> None:
    encoding = attnbias.ALiBi(num_heads=8)
    streamed = real_client.get(encoding, query_length=300, key_length=300)
    message = real_client.get(encoding, query_length=300, key_length=300)
    assert message.diagonals.tobytes() == streamed.diagonals.tobytes()
