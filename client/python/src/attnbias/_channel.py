# SPDX-License-Identifier: Apache-2.0
"""The gRPC channel: its options, and the methods this package calls on it."""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.experimental
from grpc_health.v1 import health_pb2

from attnbias._retry import service_config
from attnbias.v1 import logits_pb2, service_pb2

_SERVICE: Final = "attnbias.v1.AttentionBiasService"
_HEALTH: Final = "grpc.health.v1.Health"
_WINDOW_BYTES: Final = 16 << 20
_MAX_FRAME_BYTES: Final = (1 << 24) - 1  # HTTP/2's own limit


class Stub:
    """The service's methods, and the health service's, over one channel."""

    def __init__(
        self, target: str, credentials: grpc.ChannelCredentials | None, max_attempts: int
    ) -> None:
        self._channel = _open(target, credentials, max_attempts)
        # No deserializer: chunks are parsed by hand, to copy them only once.
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
        self.describe_tensor = self._unary("DescribeTensor")
        self.list_tables = self._unary("ListTables")
        self.get_server_info = self._unary("GetServerInfo")
        self.check_health: Any = self._channel.unary_unary(
            f"/{_HEALTH}/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )

    def close(self) -> None:
        """Closes the channel and cancels what is in flight on it."""
        self._channel.close()

    def _unary(self, method: str) -> Any:
        return self._channel.unary_unary(
            f"/{_SERVICE}/{method}",
            request_serializer=getattr(service_pb2, f"{method}Request").SerializeToString,
            response_deserializer=getattr(service_pb2, f"{method}Response").FromString,
        )


def _open(
    target: str, credentials: grpc.ChannelCredentials | None, max_attempts: int
) -> grpc.Channel:
    unary = service_config(
        _SERVICE, ["DescribeTensor", "ListTables", "GetServerInfo"], max_attempts
    )
    options = [
        ("grpc.service_config", unary),
        # Windows and frames of whole chunks from the first byte on, instead of
        # 64 KiB that grow: fewer, larger reads.
        ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
        ("grpc.http2.max_frame_size", _MAX_FRAME_BYTES),
        ("grpc.http2.bdp_probe", 0),
        # gRPC's own second of waiting would outlast our retries after a restart.
        ("grpc.initial_reconnect_backoff_ms", 100),
        # Chunks arrive in the caller's thread, without a hand-over for each.
        (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
    ]
    if credentials is None:
        return grpc.insecure_channel(target, options)
    return grpc.secure_channel(target, credentials, options)
