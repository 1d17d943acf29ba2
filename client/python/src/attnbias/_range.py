# SPDX-License-Identifier: Apache-2.0
"""A range of a payload over StreamTensor: begun, resumed where it broke, complete or an error."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnbias._assembler import Assembler
from attnbias._calls import STREAM_TENSOR
from attnbias._errors import (
    CallFailed,
    CallInterrupted,
    DataLossError,
    Error,
    FailedPreconditionError,
    NotFoundError,
)
from attnbias._retry import Retry
from attnbias._wire import header_of, parse_first
from attnbias.v1 import encodings_pb2, service_pb2

if TYPE_CHECKING:
    from attnbias._calls import CallOptions
    from attnbias._download import Download
    from attnbias._retry import Deadline


class PayloadChangedError(Exception):
    """The rest of a payload cannot be fetched: it has changed, or this replica lacks its table."""

    def __init__(self, error: Error) -> None:
        super().__init__(error)
        self.error = error


@dataclass(eq=False)
class Range:
    """Gets the bytes of a payload from ``at`` to ``end``, or to its last. Good for one run()."""

    spec: encodings_pb2.TensorSpec
    target: Download
    options: CallOptions
    deadline: Deadline
    at: int = 0
    end: int | None = None
    complete: bool = field(default=False, init=False)
    bytes_per_second: float = field(default=math.inf, init=False)
    """Of the attempt that completed it."""

    def __post_init__(self) -> None:
        self._retry = Retry(self.options, self.deadline)

    async def run(self) -> None:
        """Fetches all of it, retrying and resuming within the timeout.

        Raises:
            Error: the status of the last attempt.
            PayloadChangedError: the rest cannot be fetched.
        """
        while not self.complete:
            failure = None
            resumed = self.at > 0
            try:
                await self._attempt()
            except CallInterrupted:
                pass
            except CallFailed as failed:
                failure = failed.error
            # Once every byte has come and was checked, the stream may end as it likes.
            if failure is None or self.complete:
                continue
            if isinstance(failure, (FailedPreconditionError, NotFoundError)) and resumed:
                raise PayloadChangedError(failure)
            await self._retry.wait_after(failure)

    async def _attempt(self) -> None:
        """Makes one call, from where the last one broke."""
        began, first = time.monotonic(), self.at
        request = service_pb2.StreamTensorRequest(spec=self.spec, read_offset=self.at)
        if self.end is not None:
            request.read_limit = self.end - self.at
        if self.at > 0:
            request.expected_fingerprint = self.target.fingerprint
        timeout = self.deadline.remaining()
        async with self.options.calls.stream(STREAM_TENSOR, request, timeout) as read:
            chunk = parse_first(await read())
            memory = self.target.accept(header_of(chunk, service_pb2.TensorHeader), self.at)
            assembler = Assembler(memory, self.at, self.end)
            self.complete = assembler.complete
            if chunk.data:  # a header alone has no offset
                self._advance(assembler, assembler.put(chunk))
            while (message := await read()) is not None:
                self._advance(assembler, assembler.add(message))
        self.bytes_per_second = (self.at - first) / (time.monotonic() - began)
        if not self.complete:
            raise DataLossError(f"stream: ended after {assembler.at} bytes, want {assembler.end}")

    def _advance(self, assembler: Assembler, count: int) -> None:
        """Hears that a message brought count bytes."""
        if count == 0:
            return
        self.at = assembler.at
        self.complete = assembler.complete
        self.target.advance(count)
        self._retry.progressed()
