# SPDX-License-Identifier: Apache-2.0
"""One payload over StreamTensor: begun, resumed where it broke, complete or an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnbias._assembler import Assembler
from attnbias._calls import STREAM_TENSOR
from attnbias._errors import (
    CallFailed,
    CallInterrupted,
    DataLossError,
    Error,
    FailedPreconditionError,
    ResourceExhaustedError,
)
from attnbias._header import read_header
from attnbias._info import TensorInfo, to_tensor_info
from attnbias._memory import allocate, borrow, keep_freed_memory
from attnbias._progress import Progress
from attnbias._retry import Deadline, Retry
from attnbias.v1 import service_pb2

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from attnbias._call_options import CallOptions


@dataclass
class _Payload:
    info: TensorInfo
    memory: npt.NDArray[np.uint8]
    assembler: Assembler


class Download:
    """Gets one payload. An object is good for one run()."""

    def __init__(self, spec: service_pb2.TensorSpec, options: CallOptions) -> None:
        self._spec = spec
        self._options = options
        self._deadline = Deadline(options.timeout)
        self._retry = Retry(options, self._deadline)
        self._progress = Progress(options.progress)
        self._payload: _Payload | None = None
        self._may_restart = True

    async def run(self) -> tuple[TensorInfo, npt.NDArray[np.uint8]]:
        """Fetches everything, retrying and resuming within the timeout.

        Raises:
            Error: the status of the last attempt.
            TypeError: ``out`` has no memory that can be reached.
            ValueError: ``out`` does not fit the payload.
        """
        keep_freed_memory()
        with self._progress:
            while True:
                failure = None
                try:
                    await self._attempt()
                except CallInterrupted:
                    pass
                except CallFailed as failed:
                    failure = failed.error
                if failure is not None:  # not inside except: gRPC's traceback says nothing more
                    await self._recover(failure)
                # Once every byte has come and was checked, the stream may end as it likes.
                if self._payload is not None and self._payload.assembler.complete:
                    return self._payload.info, self._payload.memory

    async def _attempt(self) -> None:
        """Makes one call, from where the last one broke."""
        request = service_pb2.StreamTensorRequest(spec=self._spec)
        if self._payload is not None and self._payload.assembler.received > 0:
            request.read_offset = self._payload.assembler.received
            request.expected_fingerprint = self._payload.info.fingerprint
        timeout = self._deadline.remaining()
        async with self._options.calls.stream(STREAM_TENSOR, request, timeout) as stream:
            first = read_header(await stream.read() or b"", service_pb2.StreamTensorResponse)
            payload = self._begin(to_tensor_info(first.header))
            while (message := await stream.read()) is not None:
                count = payload.assembler.add(message)
                if count > 0:
                    self._progress.advance(count)
                    self._retry.progressed()
        if not payload.assembler.complete:
            received = payload.assembler.received
            raise DataLossError(f"stream: ended in OK after {received} of {payload.info.nbytes}")

    def _begin(self, info: TensorInfo) -> _Payload:
        """Takes a header: of the rest of the payload begun, or of a new one."""
        begun = self._payload
        if begun is not None and begun.assembler.received > 0:
            wanted = begun.info.fingerprint
            if info.fingerprint != wanted:
                raise DataLossError(f"resumed fingerprint: got {info.fingerprint}, want {wanted}")
            return begun
        memory = self._memory_for(info)
        self._payload = _Payload(info, memory, Assembler(memory))
        self._progress.begin(info.nbytes)
        return self._payload

    def _memory_for(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        limit = self._options.max_tensor_bytes
        if info.nbytes > limit:
            raise ResourceExhaustedError(
                f"payload: has {info.nbytes} bytes, max_tensor_bytes is {limit}"
            )
        if self._options.out is not None:
            return borrow(self._options.out, info)
        if self._payload is not None and self._payload.info.nbytes == info.nbytes:
            return self._payload.memory
        return allocate(info)

    async def _recover(self, error: Error) -> None:
        """Returns when the next attempt may begin; raises error where there is none."""
        if self._payload is not None and self._payload.assembler.received > 0:
            assembler = self._payload.assembler
            if assembler.complete:
                return
            if isinstance(error, FailedPreconditionError) and self._may_restart:
                self._may_restart = False
                assembler.restart()
                return
        await self._retry.wait_after(error)
