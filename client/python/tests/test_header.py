# SPDX-License-Identifier: Apache-2.0
"""A header that differs from the one sent is rejected, in any message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np
import pytest
from fake_server import PAYLOAD

import attnbias
from attnbias._transport.assembly import read_header
from attnbias.v1 import logits_pb2, service_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc
    from fake_server import FakeServer

SINUSOIDAL = attnbias.Sinusoidal(dim=1)
LOGITS = logits_pb2.LogitsHeader(num_heads=1, width=4, data_type=tensor_pb2.DATA_TYPE_F32)
CARRIERS: list[tuple[Any, Any]] = [
    (service_pb2.StreamTensorResponse, PAYLOAD.header),
    (service_pb2.DescribeTensorResponse, PAYLOAD.header),
    (logits_pb2.ComputeLogitsResponse, LOGITS),
]


REQUEST = b"a request"


def signed(kind: Any, header: Any) -> Any:
    return kind(
        header=header,
        header_crc32c=crc32c.crc32c(header.SerializeToString()),
        request_crc32c=crc32c.crc32c(REQUEST),
    )


def flips(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the message with each bit flipped in turn, and the index of the byte."""
    for bit in range(8 * len(message)):
        damaged = bytearray(message)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(damaged)


@pytest.mark.parametrize(("kind", "header"), CARRIERS)
def test_every_bit_flip_in_header_is_detected(kind: Any, header: Any) -> None:
    message = signed(kind, header).SerializeToString()
    begin = message.index(header.SerializeToString())
    inside = range(begin, begin + header.ByteSize())
    refused = 0
    for at, damaged in flips(message):
        try:
            # A flipped bit outside the header may lengthen a varint's tag.
            assert read_header(damaged, type(header), REQUEST) == header
            assert at not in inside
        except attnbias.DataLossError:
            refused += 1
    assert refused >= 8 * len(inside)


@pytest.mark.parametrize(("kind", "header"), CARRIERS)
@pytest.mark.parametrize("request_crc32c", [None, 0, 7])
def test_answer_to_another_request_is_rejected(
    kind: Any, header: Any, request_crc32c: int | None
) -> None:
    message = signed(kind, header)
    assert read_header(message.SerializeToString(), type(header), REQUEST) == header
    message.ClearField("request_crc32c")
    if request_crc32c is not None:
        message.request_crc32c = request_crc32c
    got = "none" if request_crc32c is None else f"{request_crc32c:08x}"
    says = f"request_crc32c: got {got}, want {crc32c.crc32c(REQUEST):08x}"
    with pytest.raises(attnbias.DataLossError, match=says):
        read_header(message.SerializeToString(), type(header), REQUEST)


def test_checksum_covers_received_bytes() -> None:
    """A server may write fields in a different order than this side's protobuf does."""
    header = PAYLOAD.header
    first, second = header.SerializeToString(), service_pb2.TensorHeader(total_bytes=20000)
    written = second.SerializeToString() + first
    fields = service_pb2.StreamTensorResponse(
        header_crc32c=crc32c.crc32c(written), request_crc32c=crc32c.crc32c(REQUEST)
    )
    length = len(written)
    message = b"\x0a" + bytes([length & 127 | 128, length >> 7]) + written
    message += fields.SerializeToString()
    assert read_header(message, service_pb2.TensorHeader, REQUEST) == header


def test_split_header_is_merged() -> None:
    begin, end = (
        service_pb2.TensorHeader(fingerprint="abc"),
        service_pb2.TensorHeader(total_bytes=24),
    )
    checksum = crc32c.crc32c(begin.SerializeToString() + end.SerializeToString())
    message = service_pb2.StreamTensorResponse(header=begin).SerializeToString()
    message += service_pb2.StreamTensorResponse(
        header=end, header_crc32c=checksum, request_crc32c=crc32c.crc32c(REQUEST)
    ).SerializeToString()
    want = service_pb2.TensorHeader(fingerprint="abc", total_bytes=24)
    assert read_header(message, service_pb2.TensorHeader, REQUEST) == want


def test_checksum_of_zero_is_verified() -> None:
    message = service_pb2.StreamTensorResponse(header=PAYLOAD.header, header_crc32c=0)
    with pytest.raises(attnbias.DataLossError, match=r"header: got CRC-32C [0-9a-f]{8}, want 0{8}"):
        read_header(message.SerializeToString(), service_pb2.TensorHeader, REQUEST)


def test_damaged_description_is_data_loss(server: FakeServer, client: attnbias.Client) -> None:
    """A different shape with the same number of bytes, which only a checksum can detect."""
    damaged = signed(service_pb2.DescribeTensorResponse, PAYLOAD.header)
    damaged.header.parts[0].shape[:] = [2500, 2]
    damaged.ClearField("request_crc32c")
    server.describe = [lambda _request, _context: damaged]
    with pytest.raises(attnbias.DataLossError, match="header: got CRC-32C"):
        client.describe(SINUSOIDAL, positions=5000)


def test_damaged_header_ends_logits(server: FakeServer, client: attnbias.Client) -> None:
    def serve(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        del requests, context
        yield logits_pb2.ComputeLogitsResponse(header=LOGITS, header_crc32c=1)

    server.logits = serve
    rows = np.zeros((1, 4, 2), np.float32)
    term = attnbias.ShawKeys(table=np.zeros((3, 2), np.float32), left=1, right=1)
    with pytest.raises(attnbias.DataLossError, match="header: got CRC-32C"):
        client.logits(term, rows, key_length=4, direction="bidirectional")
