# SPDX-License-Identifier: Apache-2.0
"""Computes rows with ComputeLogits, in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import crc32c
import numpy as np
import numpy.typing as npt

from attnbias._errors import DataLossError, ResourceExhaustedError
from attnbias._spec.enums import from_data_type
from attnbias._spec.request import LogitsRequest
from attnbias._transport.assembly import Assembler, read_header
from attnbias._transport.calls import COMPUTE_LOGITS, Read
from attnbias._transport.retry import CallOptions, Deadline, Retry
from attnbias.v1 import logits_pb2, tensor_pb2

_MAX_REQUEST_BYTES: Final = (8 << 20) - 4096
# Large enough to amortize a message's cost, small enough that sending, computing and receiving
# overlap.
_BLOCK_BYTES: Final = 2 << 20
_BLOCK_ANSWER_BYTES: Final = 16 << 20


class LogitsStream:
    """Computes one array. Call run() once."""

    def __init__(self, request: LogitsRequest, options: CallOptions) -> None:
        self._options = options
        self._deadline = Deadline(options.timeout)
        self._retry = Retry(options, self._deadline)
        self._rows = request.array()
        self._spec = request.to_spec(self._rows)
        self._answer = self._memory()
        self._answered = 0  # rows

    async def run(self) -> npt.NDArray[Any]:
        """Computes every row; if a call breaks, resumes at the first unanswered row."""
        await self._retry.run(self._attempt)
        return self._answer

    async def _attempt(self) -> None:
        """Makes one call for the rows that have not been answered yet."""
        blocks = list(self._blocks())
        first = logits_pb2.ComputeLogitsRequest(spec=self._spec).SerializeToString()
        requests, timeout = chain([first], self._requests(blocks)), self._deadline.remaining()
        async with self._options.calls.stream(COMPUTE_LOGITS, requests, timeout) as read:
            read_header(await read(), logits_pb2.LogitsHeader, first)
            for begin, end in blocks:
                await self._receive(read, begin, end)

    def _memory(self) -> npt.NDArray[Any]:
        """Returns the memory for the result: the caller's array, or a new one."""
        spec = self._spec
        values = spec.WhichOneof("term") == "shaw_values"
        width = spec.head_dim if values else spec.key_length
        shape = (spec.num_heads, spec.query_length, width)
        dtype = from_data_type(spec.output_data_type or tensor_pb2.DATA_TYPE_F32)
        assert dtype is not None
        size = math.prod(shape) * dtype.itemsize
        limit = self._options.max_tensor_bytes
        if size > limit:
            raise ResourceExhaustedError(
                f"max_tensor_bytes: the response has {size} bytes, but this client accepts at most "
                f"{limit}"
            )
        out = self._options.out
        if out is None:
            return np.empty(shape, dtype)
        if not isinstance(out, np.ndarray) or (out.shape, out.dtype) != (shape, dtype):
            got = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else repr(out)
            raise ValueError(f"out: got {got}, want an array of {dtype} of shape {shape}")
        if not out.flags.writeable:
            raise ValueError("out: got read-only memory, want writable memory")
        return out

    def _blocks(self) -> Iterator[tuple[int, int]]:
        row_bytes = max(self._rows[:, :1].nbytes, 1)
        if row_bytes > _MAX_REQUEST_BYTES:
            raise ValueError(
                f"rows: one row across all heads takes {row_bytes} bytes, want at most "
                f"{_MAX_REQUEST_BYTES}; request fewer heads at a time"
            )
        answer_bytes = max(self._answer[:, :1].nbytes, 1)
        step = max(min(_BLOCK_BYTES // row_bytes, _BLOCK_ANSWER_BYTES // answer_bytes), 1)
        total = self._rows.shape[1]
        for begin in range(self._answered, total, step):
            yield begin, min(begin + step, total)

    def _requests(self, blocks: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        for begin, end in blocks:
            data = self._rows[:, begin:end].tobytes()
            yield logits_pb2.ComputeLogitsRequest(
                first_row=begin, num_rows=end - begin, crc32c=crc32c.crc32c(data), data=data
            ).SerializeToString()

    async def _receive(self, read: Read, begin: int, end: int) -> None:
        """Copies a block's result into place once it has been received completely and checked."""
        heads, _, width = self._answer.shape
        block = np.empty((heads, end - begin, width), self._answer.dtype)
        assembler = Assembler()
        assembler.begin(block.reshape(-1).view(np.uint8))
        while not assembler.complete:
            message = await read()
            if message is None:
                raise DataLossError(f"stream: ended with OK before row {end}")
            assembler.add(message)
        self._answer[:, begin:end] = block
        self._answered = end
        self._retry.progressed()
