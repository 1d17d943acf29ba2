# SPDX-License-Identifier: Apache-2.0
"""Channels of gRPC, with the options that suit this service."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
import grpc.aio
import grpc.experimental

from attnbias._errors import UnavailableError
from attnbias._transport.target import host_of, is_on_this_machine, target_from
from attnbias._transport.tls import Certificates, certificates_from
from attnbias._transport.token import token_from

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from attnbias._transport.tls import Tls
    from attnbias._transport.token import Token

Metadata: TypeAlias = "Sequence[tuple[str, str | bytes]]"
"""What calls carry: printable ASCII, or bytes under a key that ends in ``-bin``."""

WINDOW_BYTES: Final = 16 << 20
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
    "grpc.http2.lookahead_bytes": WINDOW_BYTES,
    "grpc.http2.max_frame_size": _MAX_FRAME_BYTES,
    "grpc.http2.bdp_probe": 0,
}

# Connections beside the first serve one large payload, and are given up when it has come.
_SPARE_OPTIONS: Final[Mapping[str, Any]] = {"grpc.client_idle_timeout_ms": 10_000}

# How long gRPC waits for a connection, once it is begun, and for the answer to a name.
_PATIENCE_OPTIONS: Final = ("grpc.min_reconnect_backoff_ms", "grpc.dns_ares_query_timeout")
_MOST_MILLISECONDS: Final = (1 << 31) - 1

_METADATA_KEY: Final = re.compile("[0-9a-z_.-]+")

_SYNC_OPTIONS: Final[Mapping[str, Any]] = {
    # Chunks arrive in the caller's thread, without a hand-over for each.
    grpc.experimental.ChannelOptions.SingleThreadedUnaryStream: 1,
}


@dataclass(frozen=True)
class Endpoint:
    """Where a server is, and how it is talked to."""

    target: str
    security: grpc.ChannelCredentials | Certificates | None
    """None is plaintext."""
    token: Token | None
    metadata: Metadata
    options: Mapping[str, Any]
    offline: bool = False
    """Whether it is never to be talked to."""
    connect_timeout: float | None = None
    """Seconds that a client waits for its first connection; None as long as for an answer."""

    @property
    def is_plaintext(self) -> bool:
        """Whether others on the way could read what is sent."""
        return self.security is None

    @property
    def has_certificate(self) -> bool:
        """Whether a certificate of the client's own is known to say who calls."""
        return isinstance(self.security, Certificates) and self.security.has_own

    def open(self, *, spare: bool) -> grpc.Channel:
        """A channel whose calls block."""
        return self._open(grpc, {**_SYNC_OPTIONS, **(_SPARE_OPTIONS if spare else {})})

    def open_async(self, *, spare: bool) -> grpc.aio.Channel:
        """A channel of the running event loop."""
        return self._open(grpc.aio, _SPARE_OPTIONS if spare else {})

    def open_to(self, address: str) -> grpc.Channel:
        """A channel whose calls block, to one of the target's addresses."""
        host = host_of(self.target)
        names = {"grpc.default_authority": host, "grpc.ssl_target_name_override": host}
        return self._open(grpc, {**_SYNC_OPTIONS, **(names if host else {})}, address)

    def renew(self) -> bool:
        """Whether channels that were opened before have other certificates than a new one."""
        return isinstance(self.security, Certificates) and self.security.renew()

    def call_metadata(self) -> Metadata:
        """What a call that begins now carries."""
        return self.metadata if self.token is None else (*self.metadata, self.token.as_metadata())

    def _open(self, kind: Any, more: Mapping[str, Any], address: str | None = None) -> Any:
        if self.offline:
            raise UnavailableError("the client is offline (offline=True), and this needs a server")
        options = {**_OPTIONS, **more}
        if self.connect_timeout is not None:
            milliseconds = math.ceil(min(self.connect_timeout * 1000, _MOST_MILLISECONDS))
            options |= dict.fromkeys(_PATIENCE_OPTIONS, milliseconds)
        if is_on_this_machine(self.target):  # a proxy named in the environment cannot reach it
            options["grpc.enable_http_proxy"] = 0
        security = self.security
        if isinstance(security, Certificates):
            if security.server_name is not None:
                options["grpc.ssl_target_name_override"] = security.server_name
            security = security.credentials()
        merged = list({**options, **self.options}.items())
        target = address or self.target
        if security is None:
            return kind.insecure_channel(target, merged)
        return kind.secure_channel(target, security, merged)


def endpoint_to(
    target: str | None,
    *,
    tls: bool | Tls | None,
    token: str | os.PathLike[str] | None,
    credentials: grpc.ChannelCredentials | None,
    metadata: Metadata,
    options: Mapping[str, Any],
    offline: bool,
    connect_timeout: float | None,
) -> Endpoint:
    """What the arguments of a client mean.

    Raises:
        TypeError: one is of the wrong type.
        ValueError: one names nothing, or two contradict each other.
    """
    target = target_from(target)
    security: grpc.ChannelCredentials | Certificates | None = credentials
    if credentials is None:
        security = certificates_from(tls)
    elif tls is not None:
        raise ValueError(f"tls: got {tls} beside credentials; want one of the two")
    sent = token_from(token, metadata)
    _require_legal(metadata)
    if sent is not None and security is None and not is_on_this_machine(target):
        raise ValueError(
            f"{sent.name}: got one for {target}, which is not on this machine, in plaintext that "
            "others could read: pass tls=True, or tls=attnbias.Tls(ca=FILE)"
        )
    return Endpoint(
        target, security, sent, tuple(metadata), dict(options), offline, connect_timeout
    )


def _require_legal(metadata: Metadata) -> None:
    """Names what gRPC would refuse without a name, at each call."""
    for key, value in metadata:
        if not isinstance(key, str) or not _METADATA_KEY.fullmatch(key):
            raise ValueError(
                f"metadata: got the key {key!r}, want lower-case letters, digits, and any of -_."
            )
        wanted = bytes if key.endswith("-bin") else str
        if not isinstance(value, wanted):
            got = type(value).__name__
            raise TypeError(f"metadata: got {got} for {key!r}, want {wanted.__name__}")
        if isinstance(value, str) and not (value.isascii() and value.isprintable()):
            raise ValueError(
                f"metadata: got a value of {key!r} that is not printable ASCII, want one that is, "
                "or bytes and a key that ends in '-bin'"
            )
