# SPDX-License-Identifier: Apache-2.0
"""Only a complete and correct next chunk is written, whatever the stream contains."""

from __future__ import annotations

import contextlib

import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbias import DataLossError, UnimplementedError
from attnbias._spec.info import allocate, part_of, to_tensor_info
from attnbias._transport.assembly import Assembler, parse_chunk
from attnbias.v1 import service_pb2, tensor_pb2

MOST_BYTES = 1000

# Chunks: changes to the offset and checksum, and the data.
CHUNKS = st.tuples(
    st.just(0) | st.integers(-2, 2), st.just(0) | st.integers(1, 2**32 - 1), st.binary(max_size=20)
)


@given(st.integers(0, 60), st.lists(CHUNKS, max_size=8))
def test_chunk_is_written_completely_or_not_at_all(
    size: int, chunks: list[tuple[int, int, bytes]]
) -> None:
    memory = np.zeros(size, np.uint8)
    assembler = Assembler()
    assert not assembler.complete
    assembler.begin(memory)
    wanted = b""
    for shift, damage, data in chunks:
        message = service_pb2.StreamTensorResponse(
            offset=len(wanted) + shift, crc32c=crc32c.crc32c(data) ^ damage, data=data
        ).SerializeToString()
        if shift == damage == 0 and len(wanted) + len(data) <= size:
            assert assembler.add(message) == len(data)
            wanted += data
        else:
            with pytest.raises(DataLossError, match="chunk"):
                assembler.add(message)
        assert assembler.at == len(wanted)
        assert memory.tobytes() == wanted.ljust(size, b"\0")
    assert assembler.complete == (len(wanted) == size)


def test_received_memory_is_checked_but_not_copied() -> None:
    data = b"numbers"
    message = service_pb2.StreamTensorResponse(crc32c=crc32c.crc32c(data), data=data)
    chunk = parse_chunk(message.SerializeToString())
    memory = np.frombuffer(chunk.data, np.uint8)
    for checksum in (chunk.crc32c, chunk.crc32c ^ 1):
        assembler = Assembler()
        assembler.begin(memory)
        with contextlib.nullcontext() if checksum == chunk.crc32c else pytest.raises(DataLossError):
            assembler.put(chunk._replace(crc32c=checksum))
        assert assembler.complete == (checksum == chunk.crc32c)


LENGTHS = st.integers(0, 5) | st.sampled_from([-1, 2**31, 2**62, 2**63 - 1])


def within(number: int) -> int:
    """Returns the nearest number that fits in 64 bits."""
    return min(max(number, -(2**62)), 2**62)


@st.composite
def headers(draw: st.DrawFn) -> service_pb2.TensorHeader:
    """Draws a header whose parts may be inconsistent."""
    header = service_pb2.TensorHeader()
    wrong = st.just(0) | st.integers(-8, 8)
    for _ in range(draw(st.integers(0, 3))):
        shape = draw(st.lists(LENGTHS, max_size=4) | st.just([1] * 70))
        size = 4
        for length in shape:
            size *= length
        part = tensor_pb2.TensorPart(
            data_type=draw(st.just(2) | st.integers(0, 6)),  # type: ignore[arg-type]  # any number
            form=draw(st.integers(0, 9)),  # type: ignore[arg-type]
            shape=shape,
            offset=header.total_bytes + draw(wrong),
            size_bytes=within(size + draw(wrong)),
        )
        header.parts.append(part)
        header.total_bytes = within(header.total_bytes + part.size_bytes)
    header.total_bytes += draw(wrong)
    return header


@given(headers())
def test_accepted_header_has_parts_that_fit(header: service_pb2.TensorHeader) -> None:
    try:
        info = to_tensor_info(header)
    except (DataLossError, UnimplementedError):
        return
    assert info.nbytes == sum(part.nbytes for part in info.parts) >= 0
    if info.nbytes > MOST_BYTES:
        return
    memory = allocate(info)
    for index, part in enumerate(info.parts):
        array = part_of(memory, info, index)
        assert (array.shape, array.nbytes) == (part.shape, part.nbytes)
