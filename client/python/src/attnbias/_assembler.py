# SPDX-License-Identifier: Apache-2.0
"""Puts chunks where they belong. Nothing is written that was not checked first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import crc32c

from attnbias._errors import DataLossError
from attnbias._wire import parse_chunk

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
        end = self.received + len(chunk.data)
        if chunk.offset != self.received:
            raise DataLossError(f"chunk: got offset {chunk.offset}, want {self.received}")
        if end > len(self._target):
            raise DataLossError(f"chunk: ends at {end}, the payload at {len(self._target)}")
        checksum = crc32c.crc32c(chunk.data)
        if checksum != chunk.crc32c:
            raise DataLossError(
                f"chunk at {chunk.offset}: crc32c is {checksum:08x}, promised {chunk.crc32c:08x}"
            )
        self._target[self.received : end] = chunk.data
        self.received = end
        return len(chunk.data)
