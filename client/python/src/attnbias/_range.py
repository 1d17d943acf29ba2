# SPDX-License-Identifier: Apache-2.0
"""A range of a payload over StreamTensor: begun, resumed where it broke, complete or an error."""

from __future__ import annotations

import math
import time
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
from attnbias._wire import read_header
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


class Range:
    """Gets the bytes of a payload from begin to end, or to its last. Good for one run()."""

    def __init__(
        self,
        spec: encodings_pb2.TensorSpec,
        target: Download,
        options: CallOptions,
        deadline: Deadline,
        *,
        begin: int = 0,
        end: int | None = None,
    ) -> None:
        self._spec = spec
        self._target = target
        self._calls = options.calls
        self._deadline = deadline
        self._at = begin
        self._end = end
        self._retry = Retry(options, deadline)
        self._complete = False
        self.bytes_per_second = math.inf
        """Of the attempt that completed it."""

    async def run(self) -> None:
        """Fetches all of it, retrying and resuming within the timeout.

        Raises:
            Error: the status of the last attempt.
            PayloadChangedError: the rest cannot be fetched.
        """
        while not self._complete:
            failure = None
            resumed = self._at > 0
            try:
                await self._attempt()
            except CallInterrupted:
                pass
            except CallFailed as failed:
                failure = failed.error
            # Once every byte has come and was checked, the stream may end as it likes.
            if failure is None or self._complete:
                continue
            if isinstance(failure, (FailedPreconditionError, NotFoundError)) and resumed:
                raise PayloadChangedError(failure)
            await self._retry.wait_after(failure)

    async def _attempt(self) -> None:
        """Makes one call, from where the last one broke."""
        began, first = time.monotonic(), self._at
        request = service_pb2.StreamTensorRequest(spec=self._spec, read_offset=self._at)
        if self._end is not None:
            request.read_limit = self._end - self._at
        if self._at > 0:
            request.expected_fingerprint = self._target.fingerprint
        timeout = self._deadline.remaining()
        async with self._calls.stream(STREAM_TENSOR, request, timeout) as read:
            header = read_header(await read(), service_pb2.TensorHeader)
            memory = self._target.accept(header, self._at)
            assembler = Assembler(memory, self._at, self._end)
            self._complete = assembler.complete
            while (message := await read()) is not None:
                count = assembler.add(message)
                if count > 0:
                    self._at = assembler.at
                    self._complete = assembler.complete
                    self._target.advance(count)
                    self._retry.progressed()
        self.bytes_per_second = (self._at - first) / (time.monotonic() - began)
        if not self._complete:
            raise DataLossError(f"stream: ended after {assembler.at} bytes, want {assembler.end}")
