# SPDX-License-Identifier: Apache-2.0
"""Downloads one payload with StreamTensor, over one stream or in ranges over several.

A broken stream resumes at the byte where it broke. Also fetches the description of a request's
payload.
"""

from __future__ import annotations

import contextlib
import math
import threading
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from attnbias._errors import DataLossError, FailedPreconditionError, NotFoundError
from attnbias._spec.info import (
    Payload,
    TensorInfo,
    allocate,
    borrow,
    part_of,
    require_within,
    to_tensor_info,
)
from attnbias._transport.assembly import Assembler, header_of, parse_first, read_header
from attnbias._transport.calls import DESCRIBE_TENSOR, STREAM_TENSOR
from attnbias._transport.channel import WINDOW_BYTES
from attnbias._transport.retry import CallOptions, Calls, Deadline, Retry, ask
from attnbias._transport.statuses import CallFailed, CallInterrupted
from attnbias.v1 import encodings_pb2, service_pb2

_WORTHWHILE_BYTES = 16 << 20
_PATIENCE = 0.5  # seconds before a bar appears by default


class Progress:
    """A progress bar on stderr; by default only on a terminal, if a large payload takes a while."""

    def __init__(self, wanted: bool | None) -> None:
        self._wanted = wanted
        self._bar: tqdm[Any] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, total: int) -> None:
        """Starts a bar for ``total`` bytes; resets it if the payload is fetched again."""
        if self._bar is not None:
            self._bar.reset(total)
        elif self._wanted or (self._wanted is None and total >= _WORTHWHILE_BYTES):
            self._bar = tqdm(
                total=total,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
                disable=False if self._wanted else None,  # None: only on a terminal
                delay=0 if self._wanted else _PATIENCE,
            )

    def advance(self, count: int) -> None:
        """Reports that ``count`` more bytes were received; ranges call it from their threads."""
        with self._lock:
            if self._bar is not None:
                self._bar.update(count)


# The first range fits in one window of one stream.
_FIRST_BYTES: Final = WINDOW_BYTES
_CHUNK_BYTES: Final = 1 << 20  # ranges are rounded to multiples of this, so that chunks stay whole


_CHANGED: Final = (FailedPreconditionError, NotFoundError)


class _PayloadChangedError(Exception):
    """The rest of a payload cannot be fetched: it has changed, or this replica lacks its table."""


class Download:
    """Fetches one payload. Call run() once."""

    def __init__(
        self, spec: encodings_pb2.TensorSpec, options: CallOptions, deadline: Deadline
    ) -> None:
        self._spec = spec
        self._options = options
        self._deadline = deadline
        self._progress = Progress(options.progress)
        self._payload: Payload | None = None
        self._has_restarted = False

    async def run(self) -> Payload:
        """Fetches everything, with retries, within the timeout; see ``borrow`` for ``out``."""
        with self._progress:
            with contextlib.suppress(_PayloadChangedError):
                await self._fetch_all()
                return self._begun()
            # A table has changed or is gone, perhaps only on some replicas. The whole payload is
            # fetched again, but only once and over one stream.
            self._has_restarted = True
            await self._fetch(self._options.calls)
            return self._begun()

    async def _fetch_all(self) -> None:
        """Fetches everything, over several streams if it is large and the caller asked for them."""
        streams, calls = self._options.streams, self._options.calls
        if streams == 1:
            await self._fetch(calls)
            return
        await self._fetch(calls, limit=_FIRST_BYTES)
        total = self._begun().info.nbytes
        if total <= _FIRST_BYTES:
            return
        share = math.ceil((total - _FIRST_BYTES) / streams / _CHUNK_BYTES) * _CHUNK_BYTES
        await calls.together(
            [
                partial(self._fetch, at=at, limit=min(at + share, total))
                for at in range(_FIRST_BYTES, total, share)
            ]
        )

    async def _fetch(self, calls: Calls, at: int = 0, limit: int | None = None) -> None:
        """Fetches the bytes from ``at`` to ``limit``, or to the end, over one connection.

        Raises _PayloadChangedError if a resumed stream or a later range reveals a change.
        """
        retry = Retry(replace(self._options, calls=calls), self._deadline)
        assembler = Assembler(at, limit)

        async def attempt() -> None:
            before = assembler.at
            try:
                await self._attempt(calls, assembler)
            except (CallFailed, CallInterrupted) as ended:
                # All bytes have been received and checked, so the stream's status does not matter.
                if assembler.complete:
                    return
                if assembler.at > before:
                    retry.progressed()
                changed = isinstance(ended, CallFailed) and isinstance(ended.error, _CHANGED)
                if changed and before > 0 and not self._has_restarted:
                    raise _PayloadChangedError from None
                raise

        await retry.run(attempt)

    async def _attempt(self, calls: Calls, assembler: Assembler) -> None:
        """Makes one call for the missing bytes of a range."""
        request = service_pb2.StreamTensorRequest(spec=self._spec, read_offset=assembler.at)
        if assembler.limit is not None:
            request.read_limit = assembler.limit - assembler.at
        if assembler.at > 0:
            request.expected_fingerprint = self._begun().info.fingerprint
        sent = request.SerializeToString()
        async with calls.stream(STREAM_TENSOR, sent, self._deadline.remaining()) as read:
            first = parse_first(await read())
            header = header_of(first, service_pb2.TensorHeader, sent)
            assembler.begin(self._accept(header, first.data, assembler.at))
            if first.data:  # a message with only a header has no offset
                self._progress.advance(assembler.put(first))
            while (message := await read()) is not None:
                self._progress.advance(assembler.add(message))
        if not assembler.complete:
            raise DataLossError(f"stream: ended after {assembler.at} bytes, want {assembler.end}")

    def _accept(
        self, header: service_pb2.TensorHeader, data: memoryview, at: int
    ) -> npt.NDArray[np.uint8]:
        """Returns the payload's memory; rejects the header of a different payload."""
        info = to_tensor_info(header)
        if at == 0:
            self._payload = Payload(info, self._memory_for(info, data), header)
            self._progress.begin(info.nbytes)
        for name in ("fingerprint", "parts"):
            got, want = (getattr(each, name) for each in (info, self._begun().info))
            if got != want:
                raise DataLossError(f"stream: resumed with {name} {got}, want {want}")
        return self._begun().memory

    def _begun(self) -> Payload:
        assert self._payload is not None
        return self._payload

    def _memory_for(self, info: TensorInfo, data: memoryview) -> npt.NDArray[np.uint8]:
        """Returns memory for a payload whose first bytes are ``data``."""
        require_within(info.nbytes, self._options.max_tensor_bytes)
        if self._options.out is not None:
            return borrow(self._options.out, info)
        if self._payload is not None and self._payload.info.nbytes == info.nbytes:
            return self._payload.memory
        received = np.frombuffer(data, np.uint8)
        # A structure is read-only, so it may keep the message that holds its values.
        is_structure = info.parts[0].form not in ("table", "dense")
        if is_structure and received.nbytes == info.nbytes and _is_aligned(received, info):
            return received
        return allocate(info)


def _is_aligned(memory: npt.NDArray[np.uint8], info: TensorInfo) -> bool:
    return all(part_of(memory, info, index).flags.aligned for index in range(len(info.parts)))


def _request_for(spec: encodings_pb2.TensorSpec) -> bytes:
    return service_pb2.DescribeTensorRequest(spec=spec).SerializeToString()


async def ask_for_description(
    spec: encodings_pb2.TensorSpec, options: CallOptions, deadline: Deadline
) -> tuple[TensorInfo, bytes]:
    """Returns the server's description, parsed and as received."""
    request = _request_for(spec)
    answer: bytes = await ask(DESCRIBE_TENSOR, request, options, deadline)
    return read_description(answer, spec), answer


def read_description(answer: bytes, spec: encodings_pb2.TensorSpec) -> TensorInfo:
    """Parses a description; rejects a damaged one, or one for a different request."""
    return to_tensor_info(read_header(answer, service_pb2.TensorHeader, _request_for(spec)))
