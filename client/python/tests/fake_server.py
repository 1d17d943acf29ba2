# SPDX-License-Identifier: Apache-2.0
"""A server over real gRPC, with responses scripted by the test."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import crc32c
import grpc
import numpy as np
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from grpc_status import rpc_status

from attnbias.v1 import encodings_pb2, logits_pb2, service_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    from google.protobuf.message import Message

Request: TypeAlias = service_pb2.StreamTensorRequest
Context: TypeAlias = grpc.ServicerContext
Step: TypeAlias = "Callable[[Request, Context], Iterator[bytes]]"
"""Answers a StreamTensor call."""

FINGERPRINT = "0123456789abcdef" * 4
_DATA_TYPES = {"<f8": 1, "<f4": 2, "<f2": 3, "<i4": 5}


def header(
    *parts: tuple[str, int, npt.NDArray[Any]],
    fingerprint: str = FINGERPRINT,
    first_relative_position: int = 0,
    resolved_spec: encodings_pb2.TensorSpec | None = None,
    column_axes: Sequence[int] = (),
) -> service_pb2.TensorHeader:
    """Returns a header with parts (name, form, array)."""
    made = service_pb2.TensorHeader(
        fingerprint=fingerprint,
        encoding_fingerprint="e" * 64,
        resolved_spec=resolved_spec,
        column_axes=column_axes,
    )
    for name, form, array in parts:
        made.parts.add(
            name=name,
            data_type=_DATA_TYPES.get(array.dtype.str, tensor_pb2.DATA_TYPE_BF16),
            form=form,
            shape=array.shape,
            offset=made.total_bytes,
            size_bytes=array.nbytes,
            first_relative_position=first_relative_position,
        )
        made.total_bytes += array.nbytes
    return made


class Payload:
    """A header and its bytes, and the messages that contain them."""

    def __init__(self, *parts: tuple[str, int, npt.NDArray[Any]], **fields: Any) -> None:
        self.header = header(*parts, **fields)
        self.data = b"".join(array.tobytes() for _, _, array in parts)

    def first(self) -> bytes:
        return service_pb2.StreamTensorResponse(header=self.header).SerializeToString()

    def chunk(self, begin: int, end: int) -> bytes:
        data = self.data[begin:end]
        return service_pb2.StreamTensorResponse(
            offset=begin, crc32c=crc32c.crc32c(data), data=data
        ).SerializeToString()

    def messages(self, begin: int = 0, end: int | None = None, step: int = 1000) -> Iterator[bytes]:
        """Yields the header, then the bytes [begin, end) in chunks."""
        yield self.first()
        end = len(self.data) if end is None else end
        for at in range(begin, end, step):
            yield self.chunk(at, min(at + step, end))

    def serve(self, request: Request, context: Context) -> Iterator[bytes]:
        """Answers as a correct server does."""
        del context
        yield from self.messages(request.read_offset)


def sequence(count: int = 5000) -> npt.NDArray[np.float32]:
    """Returns the one-column table of Sinusoidal(dim=1)."""
    return np.arange(count, dtype=np.float32)[:, None]


def table(array: npt.NDArray[Any], **fields: Any) -> Payload:
    return Payload(("positions", tensor_pb2.FORM_TABLE, array), **fields)


PAYLOAD = table(sequence())
"""20000 bytes: the table of Sinusoidal(dim=1) at 5000 positions."""


def abort(
    context: grpc.ServicerContext, code: grpc.StatusCode, message: str, *details: Message
) -> None:
    """Ends a call with a status that has google.rpc details."""
    packed = []
    for detail in details:
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    status = status_pb2.Status(code=code.value[0], message=message, details=packed)
    context.abort_with_status(rpc_status.to_status(status))


def breaks(code: grpc.StatusCode, *details: Message, after: int | None = None) -> Step:
    """Ends the call with a status after ``after`` bytes of PAYLOAD; None sends no header either."""

    def step(request: Request, context: Context) -> Iterator[bytes]:
        if after is not None:
            yield from PAYLOAD.messages(request.read_offset, request.read_offset + after)
        abort(context, code, "as planned", *details)

    return step


def describes(_request: object, _context: Context) -> service_pb2.DescribeTensorResponse:
    """Answers as a correct server does for ALiBi with 2 heads, 5 queries and 5 keys."""
    array = np.zeros((2, 9), "f4")
    made = header(("diagonals", tensor_pb2.FORM_TOEPLITZ, array), first_relative_position=-4)
    return service_pb2.DescribeTensorResponse(header=made)


def refuses(_requests: object, context: Context) -> Any:
    abort(context, grpc.StatusCode.INVALID_ARGUMENT, "as planned")


def retry_info(seconds: float) -> error_details_pb2.RetryInfo:
    delay = duration_pb2.Duration()
    delay.FromNanoseconds(int(seconds * 1e9))
    return error_details_pb2.RetryInfo(retry_delay=delay)


def _resolved(spec: encodings_pb2.TensorSpec) -> encodings_pb2.TensorSpec:
    """Resolves a request with its windows, as a correct server does."""
    resolved = encodings_pb2.TensorSpec()
    resolved.CopyFrom(spec)
    if spec.HasField("pair"):
        pair = resolved.pair
        if pair.alignment == tensor_pb2.ALIGNMENT_END:
            pair.query_offset = pair.key_length - pair.query_length
        for window, length in (("queries", pair.query_length), ("keys", pair.key_length)):
            if not pair.HasField(window):
                getattr(pair, window).end = length
    return resolved


def signed(answer: Any, request: Any) -> Any:
    """Adds the checksums that a header lacks, as a correct server does."""
    if answer.HasField("header"):
        for name in ("header", "request"):
            field = f"{name}_crc32c"
            if not answer.HasField(field):
                signs = answer.header if name == "header" else request
                setattr(answer, field, crc32c.crc32c(signs.SerializeToString()))
    return answer


def _understood(kind: Any, message: bytes, request: Any) -> bytes:
    """Adds the resolved request and checksums to a header, as a correct server does."""
    try:
        answer = kind.FromString(message)
    except DecodeError:
        return message
    header = answer.header
    is_whole = answer.HasField("header_crc32c") or header.HasField("resolved_spec")
    if answer.HasField("header") and not is_whole:
        header.resolved_spec.CopyFrom(_resolved(request.spec))
    return signed(answer, request).SerializeToString()  # type: ignore[no-any-return]


class Caller(NamedTuple):
    """The identity that a call sent, and its connection."""

    authorization: str | None
    certificate_name: str | None
    """The common name."""
    peer: str


class FakeServer:
    """Answers the n-th StreamTensor with the n-th entry of its script, and repeats the last entry.

    By default it serves PAYLOAD and a description, and rejects logits.

    Args:
        port: loopback port; 0 selects a free one.
        credentials: None selects plaintext.
    """

    def __init__(self, port: int = 0, credentials: grpc.ServerCredentials | None = None) -> None:
        self.script: list[Step] = [PAYLOAD.serve]
        self.describe: list[Any] = [describes]
        self.requests: list[service_pb2.StreamTensorRequest] = []
        self.describe_calls = 0
        self.metadata: dict[str, str | bytes] = {}
        self.callers: list[Caller] = []
        self.logits: Callable[[Iterator[Any], Context], Iterator[Any]] = refuses
        self.info = service_pb2.GetServerInfoResponse(version="1.2.3")
        self.tables = {"": service_pb2.ListTablesResponse()}
        self.health = health_pb2.HealthCheckResponse.SERVING
        self.watch: Callable[[Any, grpc.ServicerContext], Iterator[Any]] | None = None
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(16))
        self._server.add_generic_rpc_handlers((self._attnbias(), self._health()))
        address = f"127.0.0.1:{port}"
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        self.target = f"127.0.0.1:{port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def _noted(self, answer: Callable[[Any, grpc.ServicerContext], Any]) -> Any:
        """Answers, and records the caller."""

        def noted(request: Any, context: grpc.ServicerContext) -> Any:
            metadata = dict(context.invocation_metadata())
            names = context.auth_context().get("x509_common_name", [])
            self.callers.append(
                Caller(
                    authorization=metadata.get("authorization"),
                    certificate_name=names[0].decode() if names else None,
                    peer=context.peer(),
                )
            )
            return answer(request, context)

        return noted

    def _stream(self, request: Request, context: Context) -> Iterator[bytes]:
        with self._lock:
            step = self.script[min(len(self.requests), len(self.script) - 1)]
            self.requests.append(request)
        for message in step(request, context):
            yield _understood(service_pb2.StreamTensorResponse, message, request)

    def _describe(
        self, request: service_pb2.DescribeTensorRequest, context: grpc.ServicerContext
    ) -> bytes:
        step = self.describe[min(self.describe_calls, len(self.describe) - 1)]
        self.describe_calls += 1
        self.metadata = dict(context.invocation_metadata())
        answer = step(request, context).SerializeToString()
        return _understood(service_pb2.DescribeTensorResponse, answer, request)

    def _compute_logits(
        self, requests: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        first = next(requests)
        for answer in self.logits(chain([first], requests), context):
            yield signed(answer, first)

    def _watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        assert self.watch is not None
        yield from self.watch(request, context)

    def _attnbias(self) -> Any:
        return grpc.method_handlers_generic_handler(
            "attnbias.v1.AttentionBiasService",
            {
                "StreamTensor": grpc.unary_stream_rpc_method_handler(
                    self._noted(self._stream), service_pb2.StreamTensorRequest.FromString, None
                ),
                "ComputeLogits": grpc.stream_stream_rpc_method_handler(
                    self._noted(self._compute_logits),
                    logits_pb2.ComputeLogitsRequest.FromString,
                    logits_pb2.ComputeLogitsResponse.SerializeToString,
                ),
                "DescribeTensor": grpc.unary_unary_rpc_method_handler(
                    self._noted(self._describe), service_pb2.DescribeTensorRequest.FromString, None
                ),
                "ListTables": grpc.unary_unary_rpc_method_handler(
                    self._noted(lambda request, _context: self.tables[request.page_token]),
                    service_pb2.ListTablesRequest.FromString,
                    service_pb2.ListTablesResponse.SerializeToString,
                ),
                "GetServerInfo": grpc.unary_unary_rpc_method_handler(
                    self._noted(lambda _request, _context: self.info),
                    service_pb2.GetServerInfoRequest.FromString,
                    service_pb2.GetServerInfoResponse.SerializeToString,
                ),
            },
        )

    def _health(self) -> Any:
        return grpc.method_handlers_generic_handler(
            "grpc.health.v1.Health",
            {
                "Check": grpc.unary_unary_rpc_method_handler(
                    self._noted(
                        lambda _request, _context: health_pb2.HealthCheckResponse(
                            status=self.health
                        )
                    ),
                    health_pb2.HealthCheckRequest.FromString,
                    health_pb2.HealthCheckResponse.SerializeToString,
                ),
                "Watch": grpc.unary_stream_rpc_method_handler(
                    self._noted(self._watch),
                    health_pb2.HealthCheckRequest.FromString,
                    health_pb2.HealthCheckResponse.SerializeToString,
                ),
            },
        )
