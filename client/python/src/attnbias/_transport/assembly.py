# SPDX-License-Identifier: Apache-2.0
"""Parses headers and chunks by hand, checks them, and copies data into place.

All responses use the field numbers of StreamTensorResponse, so one parser reads them all. A
generated parser would copy ``data`` into a new bytes object. Here ``data`` stays a view of the
received message and is copied only once, into place. Checksums need the bytes as received, which a
parsed header no longer has. All data is checked before it is written.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import crc32c
import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError, Message

from attnbias._errors import DataLossError

_Header = TypeVar("_Header", bound="Message")

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED32: 4, _FIXED64: 8}
_HEADER, _OFFSET, _CRC32C, _HEADER_CRC32C, _REQUEST_CRC32C, _DATA = 1, 2, 3, 5, 6, 16
_MAX_VARINT_BYTES = 10
_MORE = 0x80  # the bit in a varint byte that announces another byte


class Chunk(NamedTuple):
    """One part of a payload, or the header that precedes the first part."""

    offset: int
    crc32c: int
    data: memoryview
    header: memoryview | None
    header_crc32c: int | None
    request_crc32c: int | None


def parse_chunk(message: bytes) -> Chunk:
    """Finds the fields of a chunk; raises DataLossError for bytes that are not protobuf."""
    offset = 0
    checksums: dict[int, int] = {}
    data, header = memoryview(b""), None
    at, end = 0, len(message)
    while at < end:
        tag, at = _read_varint(message, at)
        field, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, at = _read_varint(message, at)
            if field == _OFFSET:
                offset = value - (value >> 63 << 64)  # offsets are signed
            continue
        if wire_type == _LENGTH_DELIMITED:
            size, at = _read_varint(message, at)
        else:
            size = _FIXED_SIZES.get(wire_type, end)  # the default exceeds what remains
        if size > end - at:
            raise _malformed()
        value_bytes = memoryview(message)[at : at + size]
        if wire_type == _LENGTH_DELIMITED:
            if field == _DATA:
                data = value_bytes
            elif field == _HEADER:
                # protobuf merges repeated occurrences of a header.
                header = value_bytes if header is None else memoryview(bytes(header) + value_bytes)
        elif wire_type == _FIXED32:
            checksums[field] = int.from_bytes(value_bytes, "little")
        at += size
    return Chunk(
        offset=offset,
        crc32c=checksums.get(_CRC32C, 0),
        data=data,
        header=header,
        header_crc32c=checksums.get(_HEADER_CRC32C),
        request_crc32c=checksums.get(_REQUEST_CRC32C),
    )


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(message[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & ~_MORE) << (7 * index)
        if not byte & _MORE:
            return value, at + index + 1
    raise _malformed()


def _malformed() -> DataLossError:
    return DataLossError("message: not a valid protobuf message")


def beyond(size: int, missing: int) -> DataLossError:
    return DataLossError(f"chunk: got {size} bytes of data, want at most the {missing} remaining")


def parse_first(message: bytes | None) -> Chunk:
    """Parses the first message of a stream; None means that the stream ended before it."""
    if message is None:
        raise DataLossError("stream: ended without a header")
    return parse_chunk(message)


def read_header(message: bytes | None, kind: type[_Header], request: bytes) -> _Header:
    """Returns the header in ``message``, which is None if the stream ended before it."""
    chunk = parse_first(message)
    if chunk.data:
        raise beyond(len(chunk.data), 0)
    return header_of(chunk, kind, request)


def header_of(chunk: Chunk, kind: type[_Header], request: bytes) -> _Header:
    """Returns the header of a message that may hold data too.

    Rejects a missing or damaged header, and a response to a request other than ``request``.
    """
    if chunk.header is None:
        raise DataLossError("stream: the first message has no header")
    got = crc32c.crc32c(chunk.header)
    if got != chunk.header_crc32c:
        raise DataLossError(f"header: got CRC-32C {got:08x}, want {_written(chunk.header_crc32c)}")
    want = crc32c.crc32c(request)
    if want != chunk.request_crc32c:
        raise DataLossError(
            f"request_crc32c: got {_written(chunk.request_crc32c)}, want {want:08x}"
        )
    try:
        return kind.FromString(bytes(chunk.header))
    except DecodeError:
        raise _malformed() from None


def _written(checksum: int | None) -> str:
    return "none" if checksum is None else f"{checksum:08x}"


class Assembler:
    """A range [at, limit) of a payload, as it arrives; a limit of None means the payload's end."""

    def __init__(self, at: int = 0, limit: int | None = None) -> None:
        self.at = at
        self.limit = limit
        self.end = -1  # unknown until begin()
        self._target: memoryview[Any] = memoryview(b"")

    def begin(self, memory: npt.NDArray[np.uint8]) -> None:
        """Sets the memory for the whole payload, once a header states its size.

        If the memory is read-only, it is the data of the only chunk, which is checked but not
        copied.
        """
        self._target = memoryview(memory)  # type: ignore[arg-type]  # in numpy's stubs since 3.12
        total = len(self._target)
        self.end = total if self.limit is None else min(self.limit, total)

    @property
    def complete(self) -> bool:
        return self.at == self.end

    def add(self, message: bytes) -> int:
        """Copies the next chunk into place and returns its size; rejects any other chunk."""
        chunk = parse_chunk(message)
        if chunk.header is not None:
            raise DataLossError("stream: a second header")
        return self.put(chunk)

    def put(self, chunk: Chunk) -> int:
        """Copies a parsed chunk, which may have a header, into place; see ``add``."""
        size, missing = len(chunk.data), self.end - self.at
        if size > missing:
            raise beyond(size, missing)
        checksum = crc32c.crc32c(chunk.data)
        if checksum != chunk.crc32c:
            raise DataLossError(
                f"chunk: {size} bytes at offset {chunk.offset} have CRC-32C {checksum:08x}, "
                f"want {chunk.crc32c:08x}"
            )
        if chunk.offset != self.at:
            raise DataLossError(f"chunk: got offset {chunk.offset}, want {self.at}")
        if not self._target.readonly:
            self._target[self.at : self.at + size] = chunk.data
        self.at += size
        return size
