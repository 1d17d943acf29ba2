# SPDX-License-Identifier: Apache-2.0
"""The client: a connection to a server and its calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial, wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Self,
    SupportsIndex,
    TypeVar,
    Unpack,
    overload,
)

import grpc
import numpy.typing as npt

from attnbias._arrays.sharding import Sharding, to_sharding
from attnbias._arrays.tables import RotaryTables, XposTables
from attnbias._cache.cache import Cache, require_bytes, require_folder
from attnbias._cache.fetch import CachedFetch
from attnbias._checks import require_instance, require_integer, require_known
from attnbias._errors import DataLossError, UnavailableError, escaped
from attnbias._files import metadata_of, to_path, write
from attnbias._public.grpc.health.v1 import health_pb2
from attnbias._spec.fields import Compact, Encoding, LogitsTerm, TableInfo
from attnbias._spec.info import (
    Payload,
    ServerInfo,
    TensorInfo,
    part_of,
    to_server_info,
    to_table_info,
)
from attnbias._spec.options import RequestOptions
from attnbias._spec.request import (
    AnyCall,
    CompactCall,
    DenseCall,
    GridCall,
    JaxCall,
    LogitsOptions,
    LogitsRequest,
    MeshCall,
    Request,
)
from attnbias._spec.results import ShardedRequest, to_result
from attnbias._transport.calls import (
    CHECK_HEALTH,
    GET_SERVER_INFO,
    LIST_TABLES,
    WATCH_HEALTH,
    run,
)
from attnbias._transport.channel import Metadata, endpoint_to
from attnbias._transport.connection import CallGroup, Connection
from attnbias._transport.credentials import Tls
from attnbias._transport.download import Download, ask_for_description
from attnbias._transport.logits import LogitsStream
from attnbias._transport.retry import CallOptions, Calls, Deadline, ask
from attnbias._transport.statuses import CallFailed, CallInterrupted
from attnbias.v1 import service_pb2

if TYPE_CHECKING:
    import jax
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement


Out = TypeVar("Out")
_Answer = TypeVar("_Answer")
_Arguments = ParamSpec("_Arguments")

CALLS_IN_FLIGHT: Final = 8
_MAX_STREAMS: Final = 64
WANTED_REQUESTS: Final = "a list of attnbias.Request(encoding, ...)"
CACHE_VARIABLE: Final = "ATTNBIAS_CACHE_DIR"
_TABLES_PER_PAGE: Final = 1000  # the maximum that the contract allows
_MOST_PAGES: Final = 100  # a list with more pages is assumed to be endless


class BaseClient:
    """Base class of both clients; see ``Client``."""

    def __init__(
        self,
        target: str | None = None,
        *,
        timeout: float | None = 300.0,
        connect_timeout: float | None = 10.0,
        tls: bool | Tls | None = None,
        token: str | os.PathLike[str] | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Metadata = (),
        channel_options: Mapping[str, Any] | None = None,
        max_attempts: int | None = None,
        max_tensor_bytes: int = 16 << 30,
        streams: int = 1,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int | None = None,
        offline: bool = False,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name != "self"}
        if max_attempts is not None:
            require_integer(
                max_attempts, "max_attempts", "an integer, or None", "at least 1, or None"
            )
        require_integer(streams, "streams", "an integer", f"1 to {_MAX_STREAMS}", most=_MAX_STREAMS)
        require_integer(
            max_tensor_bytes, "max_tensor_bytes", "a number of bytes", "at least 0", least=0
        )
        self._timeout = _checked(timeout, "timeout")
        self._streams = streams
        self._max_attempts = max_attempts
        self._max_tensor_bytes = max_tensor_bytes
        self._cache = _cache_in(cache, cache_bytes)
        for name, value in {"offline": offline, "cache_bytes": cache_bytes}.items():
            if value and self._cache is None:
                want = f"want cache=FOLDER, or {CACHE_VARIABLE}"
                raise ValueError(f"{name}: got {value} without a cache; {want}")
        self._endpoint = endpoint_to(
            target,
            tls=tls,
            token=token,
            credentials=credentials,
            metadata=metadata,
            options={} if channel_options is None else channel_options,
            offline=offline,
            connect_timeout=_checked(connect_timeout, "connect_timeout"),
        )
        self._open()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._endpoint.target!r})"

    def __getstate__(self) -> dict[str, Any]:
        cannot = f"cannot pickle a {type(self).__name__} with"
        state = dict(self._arguments)
        if state.pop("credentials") is not None:
            raise TypeError(f"{cannot} credentials: make one in each process, or pass tls=")
        if isinstance(state["token"], str) and state["token"]:
            raise TypeError(
                f"{cannot} a token, which anyone with the pickle could read: pass its file as "
                "token=pathlib.Path(...), or set ATTNBIAS_CLIENT_TOKEN_FILE to its path"
            )
        return state | {  # regardless of the other process's environment
            "target": self._endpoint.target,
            "metadata": self._endpoint.metadata,
            "channel_options": self._endpoint.options,
            "cache": self._cache.folder if self._cache is not None else "",
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a copy connects as the original does

    def _open(self) -> None:
        """Makes the connection that ``_new_calls`` uses; nothing is sent yet."""
        raise NotImplementedError

    def _new_calls(self) -> Calls:
        raise NotImplementedError

    async def _get(
        self,
        encoding: Encoding[Any],
        out: Any,
        progress: bool | None,
        timeout: float | None,
        extent: Any,
        *,
        sharding: Sharding | None,
    ) -> Any:
        require_known(Client.get, extent, RequestOptions.__annotations__)
        request = Request(encoding, **extent)
        options = self._options(out, progress, timeout)
        if sharding is None:
            return await self._fetch(request, options)
        deadline = Deadline(options.timeout)
        info = await self._describe_request(request, options, deadline)
        sharded = ShardedRequest(request, info, sharding)
        answers = [await self._download(piece, options, deadline) for piece in sharded.pieces]
        return sharded.assemble(answers)

    async def _fetch(self, request: Request, options: CallOptions) -> Any:
        require_instance(request, Request, "requests", "attnbias.Request(encoding, ...)")
        return await self._download(request, options, Deadline(options.timeout))

    async def _download(self, request: Request, options: CallOptions, deadline: Deadline) -> Any:
        info, memory, _ = await self._payload(request, options, deadline)
        result = to_result(info, memory, request)
        return result if options.out is None else options.out

    async def _payload(self, request: Request, options: CallOptions, deadline: Deadline) -> Payload:
        with request.encoding._renaming_errors():
            if self._cache is not None:
                return await CachedFetch(request, options, deadline, self._cache).get()
            return await Download(request.to_spec(), options, deadline).run()

    async def _logits(
        self,
        term: LogitsTerm,
        rows: Any,
        *,
        key_length: SupportsIndex | None = None,
        direction: Literal["left_to_right", "right_to_left", "bidirectional"],
        query_length: SupportsIndex | None = None,
        out: npt.NDArray[Any] | None = None,
        timeout: float | None = None,
        **options: Unpack[LogitsOptions],
    ) -> npt.NDArray[Any]:
        """Computes positional logits, which depend only on queries and positions.

        Rows are streamed in blocks, and the vectors for all query-key pairs are never materialized.
        Checksums are verified in both directions; an interrupted call resumes.

        Args:
            term: ``attnbias.ShawKeys(...)`` or another ``LogitsTerm``.
            rows: queries ``[heads, queries, head_dim]`` or, for ShawValues, attention weights
                ``[heads, queries, keys]``, as an array or torch tensor of f64, f32, f16 or bf16.
                None omits the queries, as in term (d) of Transformer-XL.
            key_length: number of keys; not needed for ShawValues.
            direction: which keys a query sees.
            query_length: number of queries; required if rows is None, otherwise not allowed.
            out: an array to write into, with the result's shape and dtype.
            timeout: seconds for this call, instead of the client's.
            **options: alignment ("start", "end") or query_offset, one of which is required if the
                numbers of queries and keys differ; output_data_type, which accepts the values of
                ``Request.data_type`` and is f32 by default; fill_value, the logit for hidden keys
                (-inf by default), or fill_lowest; scale; query_bias ``[heads, head_dim]``, added to
                every query (Transformer-XL's v).

        Returns:
            ``[heads, queries, keys]`` or, for ShawValues, ``[heads, queries, head_dim]``.

        Raises:
            Error: the server returned an error status, or bytes were damaged (DataLossError).
            TypeError: an argument is of the wrong type.
            ValueError: an argument cannot be sent, or ``out`` does not fit.
        """
        require_known(BaseClient._logits, options, LogitsOptions.__annotations__)
        request = LogitsRequest(term, rows, key_length, direction, query_length, **options)
        return await LogitsStream(request, self._options(out, False, timeout)).run()

    async def _save(
        self,
        path: str | os.PathLike[str],
        encoding: Encoding[Any],
        *,
        progress: bool | None = None,
        timeout: float | None = None,
        **options: Unpack[RequestOptions],
    ) -> TensorInfo:
        """Fetches a tensor into a file, which appears whole or not at all.

        A ``.npy`` file holds a one-part payload. A ``.safetensors`` file holds all parts under
        their names ("positions", "diagonals", "row", "block", "border", "dense") and the metadata
        from which ``attnbias.load`` restores the result. NumPy loads the bf16 values in a ``.npy``
        file as ``V2``; ``attnbias.load`` loads them as bf16. The arguments after the path are the
        same as for ``get``.

        Raises:
            Error: the server returned an error status, or bytes were damaged (DataLossError).
            OSError: the file cannot be written.
            ValueError: the suffix is neither .npy nor .safetensors, or a .npy file would hold
                several parts.
        """
        path = to_path(path)
        require_known(BaseClient._save, options, RequestOptions.__annotations__)
        request = Request(encoding, **options)
        call = self._options(None, progress, timeout)
        info, memory, _ = await self._payload(request, call, Deadline(call.timeout))
        arrays = {part.name: part_of(memory, info, i) for i, part in enumerate(info.parts)}
        metadata = metadata_of(to_result(info, memory, request), info)
        await call.calls.do(partial(write, path, arrays, metadata))
        return info

    async def _describe(
        self,
        encoding: Encoding[Any],
        *,
        timeout: float | None = None,
        **options: Unpack[RequestOptions],
    ) -> TensorInfo:
        """Describes the payload that ``get`` would return, without computing it."""
        require_known(BaseClient._describe, options, RequestOptions.__annotations__)
        request = Request(encoding, **options)
        call = self._options(None, False, timeout)
        return await self._describe_request(request, call, Deadline(call.timeout))

    async def _describe_request(
        self, request: Request, options: CallOptions, deadline: Deadline
    ) -> TensorInfo:
        with request.encoding._renaming_errors():
            if self._cache is not None:
                return await CachedFetch(request, options, deadline, self._cache).describe()
            info, _ = await ask_for_description(request.to_spec(), options, deadline)
            return info

    async def _info(self, *, timeout: float | None = None) -> ServerInfo:
        """Returns the server's version, encodings, dtypes and limits."""
        message, options = service_pb2.GetServerInfoRequest(), self._options(None, False, timeout)
        answer = await ask(GET_SERVER_INFO, message, options, Deadline(options.timeout))
        return to_server_info(answer)

    async def _list_tables(self, *, timeout: float | None = None) -> list[TableInfo]:
        """Returns the learned tables that the server has mounted, sorted by name.

        Args:
            timeout: seconds for the whole list, instead of the client's.
        """
        options = self._options(None, False, timeout)
        deadline = Deadline(options.timeout)
        tables: list[TableInfo] = []
        message = service_pb2.ListTablesRequest(page_size=_TABLES_PER_PAGE)
        for _ in range(_MOST_PAGES):
            page = await ask(LIST_TABLES, message, options, deadline)
            for table in page.tables:
                if tables and table.name <= tables[-1].name:
                    raise DataLossError(
                        f'tables: got "{escaped(table.name)}" after "{escaped(tables[-1].name)}", '
                        "want names in ascending order"
                    )
                tables.append(to_table_info(table))
            message.page_token = page.next_page_token
            if not message.page_token:
                return tables
            if not page.tables:
                raise DataLossError("tables: got an empty page before the last, want tables")
        raise DataLossError(
            f"tables: got more than {_MOST_PAGES} pages, want at most {_MOST_PAGES}"
        )

    async def _health(self, service: str = "", *, timeout: float | None = None) -> bool:
        """Returns True if the server, or one of its services, reports SERVING; never retries.

        Args:
            service: "" for the server as a whole; others are "liveness" and "readiness".
            timeout: seconds for this call, instead of the client's.

        Raises:
            NotFoundError: the server has no such service.
            UnavailableError: no server answers.
        """
        require_instance(service, str, "service", "a name, such as 'readiness'")
        message = health_pb2.HealthCheckRequest(service=service)
        options = replace(self._options(None, False, timeout), max_attempts=1)
        answer = await ask(CHECK_HEALTH, message, options, Deadline(options.timeout))
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def _until_serving(self, deadline: Deadline) -> None:
        """Returns once the server reports SERVING.

        Raises:
            Error: the deadline passed or the connection ended first.
        """
        while True:
            requests = iter([health_pb2.HealthCheckRequest()])
            calls, left = self._new_calls(), deadline.remaining()
            try:
                async with calls.stream(WATCH_HEALTH, requests, left) as read:
                    while (response := await read()) is not None:
                        if response.status == health_pb2.HealthCheckResponse.SERVING:
                            return
            except CallInterrupted:
                continue
            except CallFailed as failed:
                raise failed.error from None
            raise UnavailableError("the server no longer reports whether it is serving")

    def _options(
        self, out: Any, progress: bool | None, timeout: float | None, calls: Calls | None = None
    ) -> CallOptions:
        require_instance(progress, (bool, type(None)), "progress", "True, False or None")
        return CallOptions(
            calls=calls or self._new_calls(),
            max_tensor_bytes=self._max_tensor_bytes,
            max_attempts=self._max_attempts,
            timeout=self._timeout if timeout is None else _checked(timeout, "timeout"),
            out=out,
            progress=progress,
            streams=self._streams,
        )


def _blocking(
    method: Callable[Concatenate[Any, _Arguments], Coroutine[Any, Any, _Answer]],
) -> Callable[Concatenate[Any, _Arguments], _Answer]:
    """Returns the synchronous client's method for a coroutine that both clients share."""
    name = method.__name__.removeprefix("_")
    method.__name__, method.__qualname__ = name, f"Client.{name}"  # for errors and help()

    @wraps(method)
    def call(client: Any, /, *args: _Arguments.args, **options: _Arguments.kwargs) -> _Answer:
        return run(method(client, *args, **options))

    return call


class Client(BaseClient):
    """A connection to an attnbias server, and a context manager that closes it.

    Safe to share between threads, and between processes: a pickled or forked client opens its own
    connection. A client sends nothing before its first call.

    Args:
        target: "host", "host:port" or any gRPC target; the default port is 50051. None means the
            environment variable ``ATTNBIAS_SERVER`` or, if that is unset, this machine.
        timeout: seconds that a call may take, retries included; None means no limit.
        connect_timeout: seconds within which a call must connect if the client has never been
            connected. If it cannot, it raises UnavailableError with the reason, such as a closed
            port, an unknown name, a different protocol or a wrong certificate. Once the client has
            been connected, only the timeout applies. None means the timeout.
        tls: True enables TLS with the system's certificate authorities, ``attnbias.Tls(ca=...,
            cert=..., key=...)`` enables it with the given files, and False disables it. None means
            that the environment decides: ``ATTNBIAS_CLIENT_TLS=1`` or files named by
            ``ATTNBIAS_CLIENT_TLS_CA``, ``..._CERT`` and ``..._KEY`` enable TLS; the default is
            plaintext.
        token: identifies the caller: either the path of a file that contains a bearer token, such
            as ``pathlib.Path("/run/secrets/attnbias")``, or the token itself as a str ("" means no
            token). A changed file is read again. None means the environment variable
            ``ATTNBIAS_CLIENT_TOKEN_FILE`` or ``ATTNBIAS_CLIENT_TOKEN``. A token leaves this machine
            only over TLS.
        credentials: gRPC credentials, such as ``grpc.ssl_channel_credentials()``, instead of
            ``tls``.
        metadata: pairs sent with each call, such as ``[("tenant", "a")]``. Keys are lowercase;
            values are ASCII, or bytes under a key that ends in ``-bin``.
        channel_options: gRPC options that override this package's, such as
            ``{"grpc.lb_policy_name": "pick_first"}``. By default, calls are distributed over all of
            the target's addresses, names are looked up again when a connection ends, and a
            connection is closed if its peer is silent for 15 s during a call.
        max_attempts: maximum number of attempts at a call before its error is raised. Progress on a
            stream resets the count. By default, only the timeout applies.
        max_tensor_bytes: larger payloads are rejected before memory is allocated for them.
        streams: number of connections, 1 to 64, over which a payload larger than 16 MiB is fetched
            in ranges. One stream receives at most one 16 MiB window per round trip, which is 0.2
            GB/s at 80 ms. More streams therefore help if round trips are long, but not within one
            machine.
        cache: a folder for caching fetched tensors, such as "~/.cache/attnbias". Processes that
            request a cached tensor map it from this folder, without a call; arrays are then
            read-only. None means the environment variable ``ATTNBIAS_CACHE_DIR``; "" means no
            cache.
        cache_bytes: maximum size of the cache in bytes; it evicts the least recently used tensors.
            None means no limit.
        offline: True means that no server is ever called: a tensor that is not cached raises
            NotFoundError, and a call that needs a server raises UnavailableError.

    Calls raise ``attnbias.Error`` (see its subclasses) with the server's status, and TypeError or
    ValueError for arguments that cannot be sent.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; calls in flight end with CancelledError."""
        self._connection.close()

    @overload
    def get(self, encoding: Encoding[Compact], **options: Unpack[CompactCall]) -> Compact: ...
    @overload
    def get(self, encoding: Encoding[Any], **options: Unpack[GridCall]) -> Any: ...
    @overload
    def get(self, encoding: Encoding[Any], **options: Unpack[DenseCall]) -> npt.NDArray[Any]: ...
    @overload
    def get(
        self, encoding: Encoding[Compact], *, out: None = None, **options: Unpack[AnyCall]
    ) -> Compact | npt.NDArray[Any]: ...
    @overload
    def get(self, encoding: Encoding[Any], *, out: Out, **options: Unpack[AnyCall]) -> Out: ...
    @overload
    def get(
        self, encoding: Encoding[RotaryTables] | Encoding[XposTables], **options: Unpack[MeshCall]
    ) -> Any: ...
    @overload
    def get(self, encoding: Encoding[Any], **options: Unpack[MeshCall]) -> DTensor: ...
    @overload
    def get(
        self, encoding: Encoding[RotaryTables] | Encoding[XposTables], **options: Unpack[JaxCall]
    ) -> Any: ...
    @overload
    def get(self, encoding: Encoding[Any], **options: Unpack[JaxCall]) -> jax.Array: ...
    def get(
        self,
        encoding: Encoding[Any],
        *,
        out: Any = None,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        sharding: jax.sharding.Sharding | None = None,
        progress: bool | None = None,
        timeout: float | None = None,
        **options: Unpack[RequestOptions],
    ) -> Any:
        """Fetches a tensor.

        Checksums are verified; an interrupted stream resumes.

        Args:
            encoding: the encoding to compute, such as ``attnbias.T5(...)``.
            out: C-contiguous memory to write into: a NumPy array, a torch CPU tensor, or any object
                with the buffer protocol. An array must have either one axis with all elements or
                the result's shape. For a Toeplitz, that is the shape of its diagonals. Several
                tables of equal shape need an additional first axis, over the tables. Raw bytes may
                have any shape. This object is also the result.
            device_mesh: a torch mesh, which makes the result a ``DTensor``. This process fetches
                only the shard that it holds.
            placements: ``Shard(dim)`` or ``Replicate()`` for each axis of the mesh. Dims refer to
                the dense array, or to each table.
            sharding: a JAX sharding (``NamedSharding``), which makes the result a ``jax.Array`` of
                the dense array, or of each table. A part that several devices hold is fetched only
                once.
            progress: True shows a progress bar, False does not; None shows one on a terminal if a
                large payload takes a while.
            timeout: seconds for this call, instead of the client's.
            **options: the extent and the output, as described in ``Request``:
                positions, position_ids, grid, grid_offset; query_length, key_length, alignment,
                query_offset, queries, keys, heads, query_stride, query_positions, key_positions;
                data_type, form, values, causal, window_left, window_right,
                fill_value, fill_lowest, scale.

        Returns:
            The type depends on the form. "table" returns a NumPy array ``[positions, dim]``, or a
            ``GridTable`` over a grid; "dense" an array ``[heads, queries, keys]``; "toeplitz" a
            ``Toeplitz``, or a ``BorderedToeplitz`` with a class token; "key_row" a ``KeyRow``;
            "block_toeplitz" a ``BlockToeplitz``. Rotary returns ``RotaryTables`` or, with a decay,
            ``XposTables``. The default is the encoding's compact form, or "dense" if none exists,
            as for most position lists, grid windows and masked key rows. ``out`` is returned if
            given. With ``device_mesh`` or ``sharding``, the result is dense, and form applies only
            to the transfer.

        Raises:
            Error: the server returned an error status, or bytes were damaged (DataLossError).
            TypeError: an argument is of the wrong type.
            ValueError: an argument cannot be sent, ``out`` does not fit, or the tensor cannot have
                this sharding.
        """
        shards = to_sharding(device_mesh, placements, sharding, out)
        return run(self._get(encoding, out, progress, timeout, options, sharding=shards))

    def get_many(self, requests: Iterable[Request], *, timeout: float | None = None) -> list[Any]:
        """Fetches several tensors, a few at a time over one connection.

        Args:
            requests: requests such as ``attnbias.Request(attnbias.Sinusoidal(dim=8),
                positions=4)``.
            timeout: seconds for each call, instead of the client's.

        Returns:
            The results of ``get``, in the order of the requests.

        Raises:
            Error: the first failure; the other calls are then cancelled.
        """
        require_instance(requests, Iterable, "requests", WANTED_REQUESTS)
        calls = self._new_calls()
        options = self._options(None, False, timeout, calls)

        def fetch(request: Request) -> Any:
            return run(self._fetch(request, options))

        with ThreadPoolExecutor(CALLS_IN_FLIGHT, "attnbias-get") as pool:
            try:
                futures = [pool.submit(fetch, request) for request in requests]
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                calls.cancel("canceled because another call failed")
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [future.result() for future in futures]

    logits = _blocking(BaseClient._logits)
    save = _blocking(BaseClient._save)
    describe = _blocking(BaseClient._describe)
    info = _blocking(BaseClient._info)
    list_tables = _blocking(BaseClient._list_tables)
    health = _blocking(BaseClient._health)
    BaseClient.__init__.__qualname__ = "Client.__init__"  # for errors

    def _open(self) -> None:
        self._connection = Connection(self._endpoint)

    def _new_calls(self) -> CallGroup:
        return self._connection.new_group()


def _cache_in(folder: str | os.PathLike[str] | None, max_bytes: int | None) -> Cache | None:
    require_instance(
        folder, (str, os.PathLike, type(None)), "cache", "a folder, such as '~/.cache/attnbias'"
    )
    require_bytes(max_bytes, "cache_bytes")
    name = "cache"
    if folder is None:
        folder, name = os.environ.get(CACHE_VARIABLE, ""), CACHE_VARIABLE
    if not os.fspath(folder):
        return None
    require_folder(folder, name)
    return Cache(folder, max_bytes=max_bytes)


def _checked(seconds: float | None, name: str) -> float | None:
    if seconds is None:
        return None
    if not isinstance(seconds, (int, float)):
        raise TypeError(f"{name}: got {seconds!r}, want a positive number of seconds, or None")
    if seconds > 0:
        return seconds
    raise ValueError(f"{name}: got {seconds}, want a positive number of seconds, or None")
