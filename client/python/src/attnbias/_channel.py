# SPDX-License-Identifier: Apache-2.0
"""Channels of gRPC, with the options that suit this service."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
import grpc.experimental

from attnbias._errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
}

_SYNC_OPTIONS: Final[Mapping[str, Any]] = {
    # Chunks arrive in the caller's thread, without a hand-over for each.
    grpc.experimental.ChannelOptions.SingleThreadedUnaryStream: 1,
}

# Targets on this machine: a proxy named in the environment cannot reach them.
_LOOPBACK: Final = re.compile(
    r"unix(-abstract)?:|((ipv[46]|dns):(///)?)?"
    r"(localhost|127(\.\d+){3}|\[?(::1|0:0:0:0:0:0:0:1)\]?)(:\d+)?$"
)


@dataclass(frozen=True)
class Endpoint:
    """Where a server is, and how it is talked to."""

    target: str
    credentials: grpc.ChannelCredentials | None
    metadata: tuple[tuple[str, str], ...]
    options: Mapping[str, Any]
    offline: bool = False
    """Whether it is never to be talked to."""

    def open(self) -> grpc.Channel:
        """A channel whose calls block."""
        return self._open(grpc, _SYNC_OPTIONS)

    def open_async(self) -> grpc.aio.Channel:
        """A channel of the running event loop."""
        return self._open(grpc.aio, {})

    def _open(self, kind: Any, more: Mapping[str, Any]) -> Any:
        if self.offline:
            raise UnavailableError("the client is offline (offline=True), and this needs a server")
        local = {"grpc.enable_http_proxy": 0} if _LOOPBACK.match(self.target) else {}
        merged = list({**_OPTIONS, **more, **local, **self.options}.items())
        if self.credentials is None:
            return kind.insecure_channel(self.target, merged)
        return kind.secure_channel(self.target, self.credentials, merged)
