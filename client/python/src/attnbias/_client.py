# SPDX-License-Identifier: Apache-2.0
"""The client: one connection to a server, and what can be asked over it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack

import grpc
from grpc_health.v1 import health_pb2

from attnbias._calls import CallGroup, CallOptions
from attnbias._channel import Stub
from attnbias._checks import refuse_unknown, require_instance
from attnbias._download import Download
from attnbias._errors import from_rpc_error
from attnbias._files import check_suffix, write
from attnbias._info import (
    ServerInfo,
    TensorInfo,
    to_server_info,
    to_table_info,
    to_tensor_info,
)
from attnbias._logits import LogitsOptions, LogitsRequest
from attnbias._logits_stream import LogitsStream
from attnbias._memory import part_of
from attnbias._request import Request, RequestOptions
from attnbias._results import holds_vectors, to_result
from attnbias.v1 import service_pb2

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from attnbias._encodings import Encoding
    from attnbias._logits import LogitsTerm
    from attnbias._tables import TableInfo

_DEFAULT_TIMEOUT: Final = 300.0
_DEFAULT_MAX_TENSOR_BYTES: Final = 16 << 30
_CALLS_IN_FLIGHT: Final = 8
_TABLES_PER_PAGE: Final = 1000  # the most that the contract allows


class Client:
    """A connection to an attnbias server; a context manager that closes it.

    Safe to share between threads. Nothing is sent before the first call.

    Args:
        target: "host:port", or any gRPC target.
        timeout: seconds that a call may take, retries included; None for ever.
        credentials: for TLS, as of ``grpc.ssl_channel_credentials``; None is plaintext.
        max_attempts: how often a call is made before its error is raised; a
            stream that has made progress begins to count anew.
        max_tensor_bytes: payloads larger than this are refused before memory is
            allocated for them.

    Every call raises ``attnbias.Error`` (see its subclasses) with the server's
    status, and TypeError or ValueError for what cannot even be sent.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float | None = _DEFAULT_TIMEOUT,
        credentials: grpc.ChannelCredentials | None = None,
        max_attempts: int = 5,
        max_tensor_bytes: int = _DEFAULT_MAX_TENSOR_BYTES,
    ) -> None:
        if max_attempts < 1:
            raise ValueError(f"max_attempts: got {max_attempts}, want at least 1")
        self._timeout = timeout
        self._max_attempts = max_attempts
        self._max_tensor_bytes = max_tensor_bytes
        self._stub = Stub(target, credentials, max_attempts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; calls in flight end with CancelledError."""
        self._stub.close()

    def get(
        self,
        encoding: Encoding,
        *,
        out: Any = None,
        progress: bool | None = None,
        timeout: float | None = None,
        **options: Unpack[RequestOptions],
    ) -> Any:
        """Fetches a tensor.

        Checksums are verified; a stream that breaks is resumed where it broke.

        Args:
            encoding: what to compute, as ``attnbias.T5(...)``.
            out: memory to write into: a numpy array, a torch CPU tensor, or
                anything with the buffer protocol, C-contiguous. Elements have the
                answer's shape (for a Toeplitz that of its diagonals, for several
                tables of one shape theirs after their number), or one axis that
                holds it all; raw bytes any. The result then lies in it.
            progress: True shows a progress bar, False does not; None shows one
                on a terminal, for a large payload that takes long.
            timeout: seconds for this call, instead of the client's.
            **options: the extent and the output, as described in ``Request``:
                positions, position_ids; queries, keys, heads, align,
                query_offset, query_position_ids, key_position_ids; dtype, form,
                values, causal, window_left, window_right, fill, scale.

        Returns:
            By form: "table" a numpy array ``[positions, dim]``, "dense" one of
            ``[heads, queries, keys]``, "toeplitz" a ``Toeplitz`` (with a class
            token a ``BorderedToeplitz``), "key_row" a ``KeyRow``,
            "block_toeplitz_2d" a ``BlockToeplitz``. An encoding of several
            tables gives a named tuple.

        Raises:
            Error: the server's status, or DataLossError for damaged bytes.
            TypeError: an argument is of the wrong type.
            ValueError: an argument cannot be sent, or ``out`` does not fit.
        """
        refuse_unknown(options, RequestOptions, "get")
        request = Request(encoding, **options)
        info, memory = self._download(request, self._options(out, progress, timeout))
        return to_result(info, memory, request, out)

    def logits(
        self,
        term: LogitsTerm,
        rows: Any,
        *,
        keys: int | None = None,
        direction: Literal["left_to_right", "right_to_left", "bidirectional"],
        queries: int | None = None,
        out: npt.NDArray[Any] | None = None,
        timeout: float | None = None,
        **options: Unpack[LogitsOptions],
    ) -> npt.NDArray[Any]:
        """Computes positional logits: what a query and positions alone contribute.

        Rows are streamed in blocks, and no vector is ever gathered for a pair of
        query and key. Checksums are verified both ways; a call that breaks is
        taken up where it broke.

        Args:
            term: ``attnbias.ShawKeys(...)`` or another ``LogitsTerm``.
            rows: queries ``[heads, queries, head_dim]``, for ShawValues attention
                weights ``[heads, queries, keys]``: an array or torch tensor of f64,
                f32, f16 or bf16. None leaves the queries out: Transformer-XL's (d).
            keys: how many; not needed for ShawValues.
            direction: which keys a query sees.
            queries: how many, only where rows is None.
            out: an array to write into, of the right shape and dtype.
            timeout: seconds for this call, instead of the client's.
            **options: align ("start", "end") or query_offset, one of which is
                needed where queries and keys are not as many; dtype, f32 if not
                said; fill, what logits of keys that are not seen become, -inf if
                not said, or "lowest"; scale; query_bias ``[heads, head_dim]``,
                added to every query (Transformer-XL's v).

        Returns:
            ``[heads, queries, keys]``, for ShawValues ``[heads, queries, head_dim]``.

        Raises:
            Error: the server's status, or DataLossError for damaged bytes.
            TypeError: an argument is of the wrong type.
            ValueError: an argument cannot be sent, or ``out`` does not fit.
        """
        refuse_unknown(options, LogitsOptions, "logits")
        request = LogitsRequest(
            term=term, rows=rows, keys=keys, direction=direction, queries=queries, **options
        )
        stream = LogitsStream(
            self._stub.compute_logits, request, self._options(out, False, timeout)
        )
        return stream.run()

    def get_many(self, requests: Iterable[Request], *, timeout: float | None = None) -> list[Any]:
        """Fetches several tensors, a few at a time over the one connection.

        Args:
            requests: as ``attnbias.Request(attnbias.ALiBi(num_heads=8), queries=4, keys=4)``.
            timeout: seconds for each, instead of the client's.

        Returns:
            What ``get`` returns for each, in the same order.

        Raises:
            Error: the first failure; the other calls are then cancelled.
        """
        options = self._options(None, False, timeout)

        def fetch(request: Request) -> Any:
            require_instance(request, Request, "requests", "attnbias.Request(encoding, ...)")
            info, memory = self._download(request, options)
            return to_result(info, memory, request)

        with ThreadPoolExecutor(_CALLS_IN_FLIGHT, "attnbias-get") as pool:
            try:
                futures = [pool.submit(fetch, request) for request in requests]
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                options.calls.cancel()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [future.result() for future in futures]

    def save(
        self,
        path: str | os.PathLike[str],
        encoding: Encoding,
        *,
        progress: bool | None = None,
        timeout: float | None = None,
        **options: Unpack[RequestOptions],
    ) -> TensorInfo:
        """Fetches a tensor into a file, which appears whole or not at all.

        A ``.npy`` holds the one part of a payload, a ``.safetensors`` any number
        under their names ("positions", "diagonals", "row", "block", "border",
        "dense"), with the fingerprints and what a Toeplitz needs as metadata. numpy
        loads bf16 from a ``.npy`` as ``V2``; ``.view(ml_dtypes.bfloat16)`` makes it bf16 again.

        Args:
            path: a name that ends in .npy or .safetensors.
            encoding: as for ``get``.
            progress: as for ``get``.
            timeout: as for ``get``.
            **options: as for ``get``.

        Raises:
            Error: the server's status, or DataLossError for damaged bytes.
            OSError: the file cannot be written.
            ValueError: the name ends otherwise, or a .npy would hold several parts.
        """
        path = Path(path)
        check_suffix(path)
        refuse_unknown(options, RequestOptions, "save")
        request = Request(encoding, **options)
        info, memory = self._download(request, self._options(None, progress, timeout))
        arrays = {part.name: part_of(memory, info, i) for i, part in enumerate(info.parts)}
        write(path, arrays, _metadata(info, request))
        return info

    def describe(
        self,
        encoding: Encoding,
        *,
        timeout: float | None = None,
        **options: Unpack[RequestOptions],
    ) -> TensorInfo:
        """Says what ``get`` of the same would send; nothing is computed.

        Args:
            encoding: as for ``get``.
            timeout: as for ``get``.
            **options: as for ``get``.
        """
        refuse_unknown(options, RequestOptions, "describe")
        spec = Request(encoding, **options).to_spec()
        message = service_pb2.DescribeTensorRequest(spec=spec)
        return to_tensor_info(self._call(self._stub.describe_tensor, message, timeout).header)

    def info(self, *, timeout: float | None = None) -> ServerInfo:
        """What the server is: version, encodings, dtypes, limits."""
        message = service_pb2.GetServerInfoRequest()
        return to_server_info(self._call(self._stub.get_server_info, message, timeout))

    def list_tables(self, *, timeout: float | None = None) -> list[TableInfo]:
        """The learned tables that the server has mounted, by name.

        Args:
            timeout: seconds for each page of a thousand, instead of the client's.
        """
        tables: list[TableInfo] = []
        message = service_pb2.ListTablesRequest(page_size=_TABLES_PER_PAGE)
        while True:
            page = self._call(self._stub.list_tables, message, timeout)
            tables += [to_table_info(table) for table in page.tables]
            message.page_token = page.next_page_token
            if not message.page_token:
                return tables

    def health(self, service: str = "", *, timeout: float | None = None) -> bool:
        """Whether the server, or one service of it, says that it is serving.

        Args:
            service: "" for the server; also "liveness", "readiness".
            timeout: seconds for this call, instead of the client's.

        Raises:
            NotFoundError: the server has no such service.
            UnavailableError: no server answers.
        """
        message = health_pb2.HealthCheckRequest(service=service)
        response = self._call(self._stub.check_health, message, timeout)
        return bool(response.status == health_pb2.HealthCheckResponse.SERVING)

    def _call(self, method: Any, message: Any, timeout: float | None) -> Any:
        try:
            return method(message, timeout=self._timeout if timeout is None else timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    def _download(
        self, request: Request, options: CallOptions
    ) -> tuple[TensorInfo, npt.NDArray[np.uint8]]:
        return Download(self._stub.stream_tensor, request.to_spec(), options).run()

    def _options(self, out: Any, progress: bool | None, timeout: float | None) -> CallOptions:
        return CallOptions(
            max_tensor_bytes=self._max_tensor_bytes,
            max_attempts=self._max_attempts,
            timeout=self._timeout if timeout is None else timeout,
            out=out,
            progress=progress,
            calls=CallGroup(),
        )


def _metadata(info: TensorInfo, request: Request) -> dict[str, str]:
    metadata = {
        "attnbias.fingerprint": info.fingerprint,
        "attnbias.encoding_fingerprint": info.encoding_fingerprint,
    }
    if request.num_queries and request.num_keys:
        metadata["attnbias.query_length"] = str(request.num_queries)
        metadata["attnbias.key_length"] = str(request.num_keys)
    for part in info.parts:
        if part.form == "toeplitz":
            first = str(part.first_relative_position)
            metadata[f"attnbias.{part.name}.first_relative_position"] = first
            metadata[f"attnbias.{part.name}.vectors"] = str(holds_vectors(part, request)).lower()
    return metadata
