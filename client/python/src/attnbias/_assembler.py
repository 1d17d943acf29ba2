# SPDX-License-Identifier: Apache-2.0
"""Puts chunks where they belong. Nothing is written that was not checked first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import crc32c

from attnbias._errors import DataLossError
from attnbias._wire import beyond, parse_chunk

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Assembler:
    """A payload in the making: its memory, and how much of it has come."""

    def __init__(self, memory: npt.NDArray[np.uint8]) -> None:
        self._target: memoryview[Any] = memoryview(memory)  # type: ignore[arg-type]  # numpy's own, since 3.12
        self.received = 0

    @property
    def complete(self) -> bool:
        """Whether every byte has come."""
        return self.received == len(self._target)

    def restart(self) -> None:
        """Begins anew, with the same memory."""
        self.received = 0

    def add(self, message: bytes) -> int:
        """Copies one message's chunk to its place and says how many bytes that was.

        Raises:
            DataLossError: it is not the next chunk, does not fit, or is damaged.
        """
        chunk = parse_chunk(message)
        size, missing = len(chunk.data), len(self._target) - self.received
        if chunk.header is not None:
            raise DataLossError("stream: a second header")
        if size > missing:
            raise beyond(size, missing)
        checksum = crc32c.crc32c(chunk.data)
        if checksum != chunk.crc32c:
            raise DataLossError(
                f"chunk: {size} bytes at offset {chunk.offset} have CRC-32C {checksum:08x}, "
                f"want {chunk.crc32c:08x}"
            )
        if chunk.offset != self.received:
            raise DataLossError(f"chunk: got offset {chunk.offset}, want {self.received}")
        self._target[self.received : self.received + size] = chunk.data
        self.received += size
        return size
