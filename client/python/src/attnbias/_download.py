# SPDX-License-Identifier: Apache-2.0
"""One payload: in one message where it is known to fit, else by one stream or by several."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import grpc

from attnbias._assembler import Assembler
from attnbias._calls import GET_TENSOR
from attnbias._errors import DataLossError, Error
from attnbias._header import header_of
from attnbias._info import to_tensor_info
from attnbias._memory import Payload, allocate, borrow, keep_freed_memory, require_within
from attnbias._progress import Progress
from attnbias._range import PayloadChangedError, Range
from attnbias._retry import ask
from attnbias._wire import parse_chunk
from attnbias.v1 import service_pb2

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from attnbias._call_options import CallOptions
    from attnbias._calls import Calls, Part
    from attnbias._info import TensorInfo
    from attnbias._retry import Deadline

# How the rest of a payload is shared out once its first range has come.
_FIRST_BYTES: Final = 16 << 20  # a connection's window: none waits for another inside of it
_CHUNK_BYTES: Final = 1 << 20  # what ranges are rounded to, so that chunks stay whole
_WORTHWHILE_SECONDS: Final = 0.25  # of one stream: less is not worth another connection
_MOST_STREAMS: Final = 8

# A message is refused with these where a stream may not be: it has grown too large, the caller may
# not call the method, or there is none.
_TRY_A_STREAM: Final = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
}


class Download:
    """Gets one payload. An object is good for one run()."""

    def __init__(
        self, spec: service_pb2.TensorSpec, options: CallOptions, deadline: Deadline
    ) -> None:
        self._spec = spec
        self._options = options
        self._deadline = deadline
        self._progress = Progress(options.progress)
        self._payload: Payload | None = None

    async def run(self) -> Payload:
        """Fetches everything, retrying and resuming within the timeout.

        Raises:
            Error: the status of the last attempt.
            TypeError: ``out`` has no memory that can be reached.
            ValueError: ``out`` does not fit the payload.
        """
        keep_freed_memory()
        with self._progress:
            if not (self._options.sizes.fits_message(self._spec) and await self._get()):
                try:
                    await self._stream()
                except PayloadChangedError:  # a table has: everything comes anew, but only once
                    await self._stream_again()
        payload = self._begun()
        self._options.sizes.learn(self._spec, payload.info.nbytes)
        return payload

    async def _get(self) -> bool:
        """Gets it in one message; False where a stream has to."""
        request = service_pb2.GetTensorRequest(spec=self._spec)
        try:
            message = await ask(GET_TENSOR, request, self._options, self._deadline)
        except Error as error:
            if error.code in _TRY_A_STREAM and error.retry_delay is None:
                return False
            raise
        chunk = parse_chunk(message)
        assembler = Assembler(self.accept(header_of(chunk, service_pb2.TensorHeader), 0))
        self.advance(assembler.put(chunk))
        if not assembler.complete:
            raise DataLossError(f"message: has {assembler.at} bytes, want {assembler.end}")
        return True

    async def _stream(self) -> None:
        streams = self._options.streams
        began = time.monotonic()
        await self._range(self._options.calls, 0, None if streams == 1 else _FIRST_BYTES)
        total = self._begun().info.nbytes
        rest = total - _FIRST_BYTES
        if streams == 1 or rest <= 0:
            return
        if streams is None:
            bytes_per_second = _FIRST_BYTES / (time.monotonic() - began)
            worthwhile = max(_FIRST_BYTES, int(bytes_per_second * _WORTHWHILE_SECONDS))
            streams = min(_MOST_STREAMS, -(-rest // worthwhile))
        share = _rounded_up(-(-rest // streams))
        await self._options.calls.together(
            [
                self._part(begin, min(begin + share, total))
                for begin in range(_FIRST_BYTES, total, share)
            ]
        )

    async def _stream_again(self) -> None:
        try:
            await self._stream()
        except PayloadChangedError as changed:
            raise changed.error from None

    def _part(self, begin: int, end: int) -> Part:
        return partial(self._range, begin=begin, end=end)

    async def _range(self, calls: Calls, begin: int, end: int | None) -> None:
        options = self._options.over(calls)
        await Range(self._spec, self, options, self._deadline, begin=begin, end=end).run()

    @property
    def fingerprint(self) -> str:
        """See Target."""
        return self._begun().info.fingerprint

    def accept(self, header: service_pb2.TensorHeader, at: int) -> npt.NDArray[np.uint8]:
        """See Target."""
        info = to_tensor_info(header)
        if at == 0:
            self._payload = Payload(info, self._memory_for(info), header)
            self._progress.begin(info.nbytes)
        else:
            _require_same(info, self._begun().info)
        return self._begun().memory

    def advance(self, count: int) -> None:
        """See Target."""
        self._progress.advance(count)

    def _begun(self) -> Payload:
        assert self._payload is not None
        return self._payload

    def _memory_for(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        require_within(info, self._options.max_tensor_bytes)
        if self._options.out is not None:
            return borrow(self._options.out, info)
        if self._payload is not None and self._payload.info.nbytes == info.nbytes:
            return self._payload.memory
        return allocate(info)


def _require_same(got: TensorInfo, want: TensorInfo) -> None:
    """Holds the header of a stream that goes on against the first one."""
    for name, value, wanted in (
        ("fingerprint", got.fingerprint, want.fingerprint),
        ("parts", got.parts, want.parts),
    ):
        if value != wanted:
            raise DataLossError(f"stream: resumed with {name} {value}, want {wanted}")


def _rounded_up(count: int) -> int:
    return -(-count // _CHUNK_BYTES) * _CHUNK_BYTES
