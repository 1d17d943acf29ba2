# SPDX-License-Identifier: Apache-2.0
"""Puts chunks where they belong. Nothing is written that was not checked first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import crc32c

from attnbias._errors import DataLossError
from attnbias._transport.wire import beyond, parse_chunk

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from attnbias._transport.wire import Chunk


class Assembler:
    """A range of a payload in the making: its memory, and how much of it has come.

    Args:
        memory: of the whole payload.
        at: the first byte of the range.
        end: the one after its last; None, or more than there are, is the payload's end.
    """

    def __init__(self, memory: npt.NDArray[np.uint8], at: int = 0, end: int | None = None) -> None:
        self._target: memoryview[Any] = memoryview(memory)  # type: ignore[arg-type]  # numpy's own, since 3.12
        self.at = at
        self.end = len(self._target) if end is None else min(end, len(self._target))

    @property
    def complete(self) -> bool:
        """Whether every byte has come."""
        return self.at == self.end

    def add(self, message: bytes) -> int:
        """Copies one message's chunk to its place and says how many bytes that was.

        Raises:
            DataLossError: it is not the next chunk, does not fit, or is damaged.
        """
        chunk = parse_chunk(message)
        if chunk.header is not None:
            raise DataLossError("stream: a second header")
        return self.put(chunk)

    def put(self, chunk: Chunk) -> int:
        """The same of a chunk that has been read, beside whatever header."""
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
        self._target[self.at : self.at + size] = chunk.data
        self.at += size
        return size
