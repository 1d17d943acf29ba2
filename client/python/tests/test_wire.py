# SPDX-License-Identifier: Apache-2.0
"""The hand-written chunk reader agrees with protobuf, and survives any input."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from attnbias import DataLossError
from attnbias._transport.assembly import parse_chunk
from attnbias.v1 import service_pb2

CASES = [
    {},
    {"offset": 1, "crc32c": 1, "data": b"x"},
    {"offset": (1 << 63) - 1, "crc32c": 0xFFFFFFFF, "data": b"y" * 300},
    {"offset": 300, "data": b"z" * 20000},
    {"crc32c": 7},
    {"offset": -1},
    {"offset": -(1 << 63)},
]


@pytest.mark.parametrize("fields", CASES)
def test_reads_protobuf_encoded_chunks(fields: dict[str, object]) -> None:
    message = service_pb2.StreamTensorResponse(**fields)  # type: ignore[arg-type]
    chunk = parse_chunk(message.SerializeToString())
    assert chunk.offset == message.offset
    assert chunk.crc32c == message.crc32c
    assert bytes(chunk.data) == message.data


def test_data_is_a_view_of_the_message() -> None:
    message = service_pb2.StreamTensorResponse(data=b"abc").SerializeToString()
    assert parse_chunk(message).data.obj is message


def test_unknown_fields_are_skipped() -> None:
    known = service_pb2.StreamTensorResponse(offset=5, crc32c=6, data=b"abc").SerializeToString()
    varint, fixed64 = b"\xa0\x06\x96\x01", b"\xa1\x06" + bytes(8)
    bytes_, fixed32 = b"\xa2\x06\x03def", b"\xa5\x06" + bytes(4)
    chunk = parse_chunk(varint + fixed64 + known + bytes_ + fixed32)
    assert (chunk.offset, chunk.crc32c, bytes(chunk.data)) == (5, 6, b"abc")


def test_overlong_length_varint_is_read() -> None:
    # The server may pad lengths to align the following data.
    message = b"\x82\x01\x83\x80\x80\x80\x00abc"
    assert service_pb2.StreamTensorResponse.FromString(message).data == b"abc"
    assert bytes(parse_chunk(message).data) == b"abc"


@pytest.mark.parametrize(
    "message",
    [
        b"\x82",
        b"\x82\x01",
        b"\x82\x01\x05abcd",
        b"\x1d\x00\x00\x00",
        b"\x10" + b"\xff" * 11,
        b"\x13",
        b"\x17",
    ],
)
def test_broken_messages_are_data_loss(message: bytes) -> None:
    with pytest.raises(DataLossError, match="message: not a valid protobuf message"):
        parse_chunk(message)


MESSAGES = st.builds(
    service_pb2.StreamTensorResponse,
    offset=st.integers(-(2**63), 2**63 - 1),
    crc32c=st.integers(0, 2**32 - 1),
    data=st.binary(max_size=300),
).map(service_pb2.StreamTensorResponse.SerializeToString)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A message with some bytes changed or inserted, and perhaps truncated."""
    message = bytearray(draw(MESSAGES))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(message)))
        message[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
    return bytes(message[: draw(st.integers(0, len(message)) | st.none())])


@given(damaged() | st.binary(max_size=40))
def test_agrees_with_protobuf_on_damaged_messages(message: bytes) -> None:
    try:
        chunk = parse_chunk(message)
        wanted = service_pb2.StreamTensorResponse.FromString(message)
    except (DataLossError, DecodeError):
        return
    # Eight bytes, signed or unsigned.
    assert (chunk.offset - wanted.offset) % 2**64 == 0
    assert chunk.crc32c == wanted.crc32c
    assert bytes(chunk.data) == wanted.data


@given(MESSAGES)
def test_random_protobuf_messages_are_read(message: bytes) -> None:
    assert len(parse_chunk(message).data) <= len(message)
