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
)
from attnbias._header import read_header
from attnbias._info import to_tensor_info
from attnbias._memory import Payload, allocate, borrow, keep_freed_memory, require_within
from attnbias._progress import Progress
from attnbias._retry import Retry
from attnbias.v1 import service_pb2

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from attnbias._call_options import CallOptions
    from attnbias._info import TensorInfo
    from attnbias._retry import Deadline


@dataclass
class _Incoming:
    payload: Payload
    assembler: Assembler


class Download:
    """Gets one payload. An object is good for one run()."""

    def __init__(
        self, spec: service_pb2.TensorSpec, options: CallOptions, deadline: Deadline
    ) -> None:
        self._spec = spec
        self._options = options
        self._deadline = deadline
        self._retry = Retry(options, deadline)
        self._progress = Progress(options.progress)
        self._incoming: _Incoming | None = None
        self._resumed = False
        self._may_restart = True

    async def run(self) -> Payload:
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
                if self._incoming is not None and self._incoming.assembler.complete:
                    return self._incoming.payload

    async def _attempt(self) -> None:
        """Makes one call, from where the last one broke."""
        request = service_pb2.StreamTensorRequest(spec=self._spec)
        self._resumed = self._incoming is not None and self._incoming.assembler.received > 0
        if self._incoming is not None and self._resumed:
            request.read_offset = self._incoming.assembler.received
            request.expected_fingerprint = self._incoming.payload.info.fingerprint
        timeout = self._deadline.remaining()
        async with self._options.calls.stream(STREAM_TENSOR, request, timeout) as stream:
            first = read_header(await stream.read(), service_pb2.StreamTensorResponse)
            incoming = self._begin(first.header)
            while (message := await stream.read()) is not None:
                count = incoming.assembler.add(message)
                if count > 0:
                    self._progress.advance(count)
                    self._retry.progressed()
        if not incoming.assembler.complete:
            received, total = incoming.assembler.received, incoming.payload.info.nbytes
            raise DataLossError(f"stream: ended after {received} bytes, want {total}")

    def _begin(self, header: service_pb2.TensorHeader) -> _Incoming:
        """Takes a header: of the rest of the payload begun, or of a new one."""
        info = to_tensor_info(header)
        begun = self._incoming
        if begun is not None and begun.assembler.received > 0:
            _require_same(info, begun.payload.info)
            return begun
        memory = self._memory_for(info)
        self._incoming = _Incoming(Payload(info, memory, header), Assembler(memory))
        self._progress.begin(info.nbytes)
        return self._incoming

    def _memory_for(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        require_within(info, self._options.max_tensor_bytes)
        if self._options.out is not None:
            return borrow(self._options.out, info)
        if self._incoming is not None and self._incoming.payload.info.nbytes == info.nbytes:
            return self._incoming.payload.memory
        return allocate(info)

    async def _recover(self, error: Error) -> None:
        """Returns when the next attempt may begin; raises error where there is none."""
        if self._incoming is not None and self._incoming.assembler.received > 0:
            assembler = self._incoming.assembler
            if assembler.complete:
                return
            if isinstance(error, FailedPreconditionError) and self._resumed and self._may_restart:
                self._may_restart = False
                assembler.restart()
                return
        await self._retry.wait_after(error)


def _require_same(got: TensorInfo, want: TensorInfo) -> None:
    """Holds the header of a stream that goes on against the first one."""
    for name, value, wanted in (
        ("fingerprint", got.fingerprint, want.fingerprint),
        ("parts", got.parts, want.parts),
    ):
        if value != wanted:
            raise DataLossError(f"stream: resumed with {name} {value}, want {wanted}")
