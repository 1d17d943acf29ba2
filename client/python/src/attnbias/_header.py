# SPDX-License-Identifier: Apache-2.0
"""Reads the message that carries a header, and holds the header to its checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import crc32c
from google.protobuf.message import DecodeError

from attnbias._errors import DataLossError
from attnbias._wire import beyond, malformed, parse_chunk

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from attnbias._wire import Chunk

_Header = TypeVar("_Header", bound="Message")


def read_header(message: bytes | None, kind: type[_Header]) -> _Header:
    """The header that is alone in the first message of a stream, or in the only one.

    Args:
        message: None where the stream ended before it.
        kind: the class of the header.

    Raises:
        DataLossError: there is none, it is damaged, or not alone.
    """
    if message is None:
        raise DataLossError("stream: ended without a header")
    chunk = parse_chunk(message)
    if chunk.data:
        raise beyond(len(chunk.data), 0)
    return header_of(chunk, kind)


def header_of(chunk: Chunk, kind: type[_Header]) -> _Header:
    """The header of a message that may have data, too.

    Raises:
        DataLossError: there is none, or a damaged one.
    """
    if chunk.header is None:
        raise DataLossError("stream: the first message has no header")
    got, want = crc32c.crc32c(chunk.header), chunk.header_crc32c
    if want is not None and want != got:
        raise DataLossError(f"header: got CRC-32C {got:08x}, want {want:08x}")
    try:
        return kind.FromString(bytes(chunk.header))
    except DecodeError:
        raise malformed() from None
