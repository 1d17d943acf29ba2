# SPDX-License-Identifier: Apache-2.0
"""One payload: in one message where it is known to fit, else by one stream or by several.

Each stream gets a range, and resumes it where it broke. Also describes a request's payload, as the
server does.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
import numpy as np
from tqdm import tqdm

from attnbias._errors import DataLossError, Error, FailedPreconditionError, NotFoundError
from attnbias._spec.expected import check_answer
from attnbias._spec.info import (
    Payload,
    allocate,
    borrow,
    require_within,
    to_tensor_info,
)
from attnbias._transport.assembly import (
    Assembler,
    header_of,
    parse_chunk,
    parse_first,
    read_header,
)
from attnbias._transport.calls import DESCRIBE_TENSOR, GET_TENSOR, STREAM_TENSOR
from attnbias._transport.channel import WINDOW_BYTES
from attnbias._transport.retry import Retry, ask
from attnbias._transport.statuses import CallFailed, CallInterrupted
from attnbias.v1 import encodings_pb2, service_pb2

if TYPE_CHECKING:
    import numpy.typing as npt

    from attnbias._spec.info import TensorInfo
    from attnbias._transport.calls import CallOptions, Calls
    from attnbias._transport.retry import Deadline


_WORTHWHILE_BYTES = 16 << 20
_PATIENCE = 0.5  # seconds before a bar appears unasked
_USUAL_SHAPE: Final = (80, 24)


class Progress:
    """A bar on stderr.

    Args:
        wanted: True shows it, False does not; None shows it on a terminal, for
            a large payload that takes long.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._wanted = wanted
        self._bar: tqdm[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, total: int) -> None:
        """Begins at nothing of total bytes; again, if the payload has to come anew."""
        if self._bar is not None:
            self._bar.reset(total)
        elif self._wanted or (self._wanted is None and total >= _WORTHWHILE_BYTES):
            columns, lines = _shape_to_assume()
            self._bar = tqdm(
                total=total,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
                disable=False if self._wanted else None,  # None: only on a terminal
                delay=0 if self._wanted else _PATIENCE,
                ncols=columns,
                nrows=lines,
            )

    def advance(self, count: int) -> None:
        """Says that count more bytes have come."""
        if self._bar is not None:
            self._bar.update(count)


def _shape_to_assume() -> tuple[int, int] | tuple[None, None]:
    """Columns and lines for tqdm, which shows nothing on a terminal that reports 0 of them."""
    try:
        reported = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):  # not a terminal
        return None, None
    return (None, None) if min(reported) > 0 else _USUAL_SHAPE


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


# How the rest of a payload is shared out once its first range has come.
_FIRST_BYTES: Final = WINDOW_BYTES  # none of them waits for another window
_CHUNK_BYTES: Final = 1 << 20  # what ranges are rounded to, so that chunks stay whole
_WORTHWHILE_SECONDS: Final = 0.25  # of one stream: less is not worth another connection
_MOST_WORTHWHILE_STREAMS: Final = 8

# A message is refused with these where a stream may not be: the payload has grown too large, or
# this client cannot have any message: they are larger than it takes, it may not call the method, or
# there is none.
_TOO_LARGE: Final = grpc.StatusCode.INVALID_ARGUMENT
_NO_MESSAGES: Final = {
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
}


class Download:
    """Gets one payload. An object is good for one run()."""

    def __init__(
        self, spec: encodings_pb2.TensorSpec, options: CallOptions, deadline: Deadline
    ) -> None:
        self._spec = spec
        self._options = options
        self._deadline = deadline
        self._progress = Progress(options.progress)
        self._payload: Payload | None = None
        self._lock = threading.Lock()

    async def run(self) -> Payload:
        """Fetches everything, retrying and resuming within the timeout.

        Raises:
            Error: the status of the last attempt.
            TypeError: ``out`` has no memory that can be reached.
            ValueError: ``out`` does not fit the payload.
        """
        _keep_freed_memory()
        with self._progress:
            if not (self._options.sizes.fits_message(self._spec) and await self._get()):
                await self._stream()
        payload = self._begun()
        self._options.sizes.learn(self._spec, payload.info.nbytes)
        return payload

    async def _get(self) -> bool:
        """Gets it in one message; False where a stream has to."""
        request = service_pb2.GetTensorRequest(spec=self._spec)
        try:
            message = await ask(GET_TENSOR, request, self._options, self._deadline)
        except Error as error:
            if error.retry_delay is not None or error.code not in {_TOO_LARGE, *_NO_MESSAGES}:
                raise
            if error.code in _NO_MESSAGES:
                self._options.sizes.fit_none()
            return False
        chunk = parse_chunk(message)
        assembler = Assembler(self.accept(header_of(chunk, service_pb2.TensorHeader), 0))
        self.advance(assembler.put(chunk))
        if not assembler.complete:
            raise DataLossError(f"message: has {assembler.at} bytes, want {assembler.end}")
        return True

    async def _stream(self) -> None:
        try:
            await self._stream_ranges()
            return
        except PayloadChangedError:
            pass
        # A table has changed or is gone, perhaps only on some replicas. So all of the payload is
        # fetched again, over one stream.
        try:
            await self._range(self._options.calls)
        except PayloadChangedError as changed:
            raise changed.error from None

    async def _stream_ranges(self) -> None:
        streams, calls = self._options.streams, self._options.calls
        if streams == 1:
            await self._range(calls)
            return
        bytes_per_second = await self._range(calls, end=_FIRST_BYTES)
        total = self._begun().info.nbytes
        rest = total - _FIRST_BYTES
        if rest <= 0:
            return
        if streams is None:
            worthwhile = max(_FIRST_BYTES, bytes_per_second * _WORTHWHILE_SECONDS)
            streams = max(1, min(_MOST_WORTHWHILE_STREAMS, math.ceil(rest / worthwhile)))
        share = math.ceil(rest / streams / _CHUNK_BYTES) * _CHUNK_BYTES
        await calls.together(
            [
                partial(self._range, begin=begin, end=min(begin + share, total))
                for begin in range(_FIRST_BYTES, total, share)
            ]
        )

    async def _range(self, calls: Calls, begin: int = 0, end: int | None = None) -> float:
        """Gets a range, and says at how many bytes a second."""
        options = replace(self._options, calls=calls)
        one = Range(self._spec, self, options, self._deadline, begin, end)
        await one.run()
        return one.bytes_per_second

    @property
    def fingerprint(self) -> str:
        """Of the payload that was begun."""
        return self._begun().info.fingerprint

    def accept(self, header: service_pb2.TensorHeader, at: int) -> npt.NDArray[np.uint8]:
        """The payload's memory, by the header that comes before its byte ``at``.

        Raises:
            DataLossError: the header is of another payload than the one begun.
        """
        info = to_tensor_info(header)
        check_answer(header, self._spec)
        if at == 0:
            self._payload = Payload(info, self._memory_for(info), header)
            self._progress.begin(info.nbytes)
        else:
            _require_same(info, self._begun().info)
        return self._begun().memory

    def advance(self, count: int) -> None:
        """Hears that count more bytes are in their place."""
        with self._lock:  # ranges have threads
            self._progress.advance(count)

    def _begun(self) -> Payload:
        assert self._payload is not None
        return self._payload

    def _memory_for(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        require_within(info.nbytes, self._options.max_tensor_bytes)
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


@functools.cache
def _keep_freed_memory() -> None:
    """Has glibc reuse the memory of received messages; elsewhere does nothing.

    By itself it returns a message's pages to the kernel, only to get cleared
    ones for the next: a third of a download's CPU time. The size from which it
    does so follows the largest block freed, up to 32 MiB; so one is freed, of
    which no page was ever touched.
    """
    np.empty(31 << 20, np.uint8)


async def ask_for_description(
    spec: encodings_pb2.TensorSpec, options: CallOptions, deadline: Deadline
) -> tuple[TensorInfo, bytes]:
    """What the server says, and its answer as it came."""
    message = service_pb2.DescribeTensorRequest(spec=spec)
    answer: bytes = await ask(DESCRIBE_TENSOR, message, options, deadline)
    info = read_description(answer, spec)
    options.sizes.learn(spec, info.nbytes)
    return info, answer


def read_description(answer: bytes, spec: encodings_pb2.TensorSpec) -> TensorInfo:
    """What such an answer to a request says.

    Raises:
        DataLossError: it is damaged, or describes another tensor than the one that was requested.
        UnimplementedError: it has an element type that this package does not know.
    """
    header = read_header(answer, service_pb2.TensorHeader)
    info = to_tensor_info(header)
    check_answer(header, spec)
    return info
