# SPDX-License-Identifier: Apache-2.0
"""The gRPC channel: its options, and the methods this package calls on it."""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.experimental
from grpc_health.v1 import health_pb2

from attnbias._calls import CallGroup
from attnbias.v1 import logits_pb2, service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SERVICE: Final = "attnbias.v1.AttentionBiasService"
_HEALTH: Final = "grpc.health.v1.Health"
_WINDOW_BYTES: Final = 16 << 20
_MAX_FRAME_BYTES: Final = (1 << 24) - 1  # HTTP/2's own limit

_OPTIONS: Final[Mapping[str, Any]] = {
    # Every replica behind the name gets its share, and one that goes is left out.
    "grpc.lb_policy_name": "round_robin",
    # gRPC itself looks a name up every 30 s at most; replicas are replaced in 5.
    "grpc.dns_min_time_between_resolutions_ms": 500,
    # Two clients in one process do not share a connection, which has one core's speed.
    "grpc.use_local_subchannel_pool": 1,
    # A peer that is silent while a call waits for it is given up after 10 + 5 s.
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 5_000,
    "grpc.http2.ping_timeout_ms": 5_000,  # what later versions of gRPC look at
    "grpc.http2.max_pings_without_data": 0,
    # A server that restarts is found again within a tenth of a second.
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 2_000,
    # This package retries, with the timeout as its bound; gRPC knows no more than 5 attempts.
    "grpc.enable_retries": 0,
    # Windows and frames of whole chunks from the first byte on, instead of
    # 64 KiB that grow: fewer, larger reads.
    "grpc.http2.lookahead_bytes": _WINDOW_BYTES,
    "grpc.http2.max_frame_size": _MAX_FRAME_BYTES,
    "grpc.http2.bdp_probe": 0,
    # Chunks arrive in the caller's thread, without a hand-over for each.
    grpc.experimental.ChannelOptions.SingleThreadedUnaryStream: 1,
}

_CLOSED: Final = "the client is closed"

# Targets on this machine: a proxy named in the environment cannot reach them.
_LOOPBACK: Final = re.compile(
    r"unix(-abstract)?:|((ipv[46]|dns):(///)?)?"
    r"(localhost|127(\.\d+){3}|\[?(::1|0:0:0:0:0:0:0:1)\]?)(:\d+)?$"
)


class Connection:
    """The service's methods, and the health service's, over one channel."""

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None,
        metadata: Sequence[tuple[str, str]],
        options: Mapping[str, Any],
    ) -> None:
        self.target = target
        self._lock = threading.Lock()
        self._closed = False
        self._groups: weakref.WeakSet[CallGroup] = weakref.WeakSet()
        self.metadata = tuple(metadata)
        self._channel = _open(target, credentials, options)
        # No deserializer: chunks are parsed by hand, to copy them only once; headers are
        # held to their checksum as they came.
        self.stream_tensor: Any = self._channel.unary_stream(
            f"/{_SERVICE}/StreamTensor",
            request_serializer=service_pb2.StreamTensorRequest.SerializeToString,
            response_deserializer=None,
        )
        self.compute_logits: Any = self._channel.stream_stream(
            f"/{_SERVICE}/ComputeLogits",
            request_serializer=logits_pb2.ComputeLogitsRequest.SerializeToString,
            response_deserializer=None,
        )
        self.describe_tensor: Any = self._channel.unary_unary(
            f"/{_SERVICE}/DescribeTensor",
            request_serializer=service_pb2.DescribeTensorRequest.SerializeToString,
            response_deserializer=None,
        )
        self.list_tables = self._unary("ListTables")
        self.get_server_info = self._unary("GetServerInfo")
        self.check_health: Any = self._channel.unary_unary(
            f"/{_HEALTH}/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )

    def new_group(self) -> CallGroup:
        """A group of calls, which close() cancels."""
        group = CallGroup()
        with self._lock:
            self._groups.add(group)
            if self._closed:
                group.cancel(_CLOSED)
        return group

    def close(self) -> None:
        """Cancels what is in flight or waits, and closes the channel."""
        with self._lock:
            self._closed = True
            groups = list(self._groups)
        for group in groups:
            group.cancel(_CLOSED)
        self._channel.close()

    @contextlib.contextmanager
    def reconnecting(self) -> Iterator[None]:
        """Keeps gRPC connecting for the length of a block in which no call is made.

        It reads its sockets only while somebody waits for a call: here, for one that
        is sent as soon as there is a connection.
        """
        request = health_pb2.HealthCheckRequest()
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ValueError):  # the channel is closed; whoever waits is told
                waiting = self.check_health.future(
                    request, metadata=self.metadata, wait_for_ready=True
                )
                stack.callback(waiting.cancel)
            yield

    def _unary(self, method: str) -> Any:
        return self._channel.unary_unary(
            f"/{_SERVICE}/{method}",
            request_serializer=getattr(service_pb2, f"{method}Request").SerializeToString,
            response_deserializer=getattr(service_pb2, f"{method}Response").FromString,
        )


def _open(
    target: str, credentials: grpc.ChannelCredentials | None, options: Mapping[str, Any]
) -> grpc.Channel:
    local = {"grpc.enable_http_proxy": 0} if _LOOPBACK.match(target) else {}
    merged = list({**_OPTIONS, **local, **options}.items())
    if credentials is None:
        return grpc.insecure_channel(target, merged)
    return grpc.secure_channel(target, credentials, merged)
