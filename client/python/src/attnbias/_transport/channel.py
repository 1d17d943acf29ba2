# SPDX-License-Identifier: Apache-2.0
"""gRPC channels to a client's server, with options for this service."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
import grpc.experimental

from attnbias._checks import require_instance
from attnbias._errors import UnavailableError
from attnbias._transport.credentials import Certificates, Tls, Token, certificates_from, token_from

_PORT: Final = 50051
_VARIABLE: Final = "ATTNBIAS_SERVER"
_WANTED: Final = "host, host:port, [IPv6]:port, unix:/path or another gRPC target"

# gRPC schemes that precede a host or comma-separated addresses.
_OF_HOSTS: Final = re.compile(r"(dns:(?://[^/]*/)?|ipv[46]:(?:///)?)(.*)", re.DOTALL)
_OF_OTHERS: Final = re.compile(r"(unix|unix-abstract|vsock):.|(?!https?:)[a-z][a-z0-9.+-]*://.")
_HOST: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[^\]\s]+)?\]|[^\s:/\[\],]+)(?::(?P<port>[0-9]+))?"
)
_BARE_IPV6: Final = re.compile(r"[0-9A-Fa-f.]*(?::[0-9A-Fa-f.]*){2,}(?:%\w+)?")
_MOST_PORT: Final = 65535


def target_from(target: str | None) -> str:
    """Returns the target to open; None selects ``ATTNBIAS_SERVER``, or else this machine."""
    name = "target"
    if target is None:
        target, name = os.environ.get(_VARIABLE) or "localhost", _VARIABLE
    require_instance(target, str, name, "a str, such as 'localhost:50051'")
    if of_hosts := _OF_HOSTS.fullmatch(target):
        scheme, rest = of_hosts.groups()
        hosts = [rest] if scheme.startswith("dns") else rest.split(",")
        return scheme + ",".join(_with_port(host, target, name) for host in hosts)
    if _OF_OTHERS.match(target):
        return target
    return _with_port(target, target, name)


def is_on_this_machine(target: str) -> bool:
    """Reports whether a target from ``target_from`` is reached without a network."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    try:
        return all(
            host == "localhost" or ipaddress.ip_address(host).is_loopback
            for host in map(_host_of, _bare(target).split(","))
        )
    except ValueError:  # another name
        return False


def addresses_of(target: str) -> list[str]:
    """Returns the addresses of a target from ``target_from`` as gRPC targets; none if unknown."""
    if target.startswith(("ipv4:", "ipv6:")):
        scheme, rest = target[:5], target[5:].removeprefix("///")
        return [f"{scheme}{address}" for address in rest.split(",")]
    host, _, port = _bare(target).rpartition(":")
    if host == "localhost":  # gRPC tries both addresses on any system
        return [f"ipv6:[::1]:{port}", f"ipv4:127.0.0.1:{port}"]
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # also for other kinds of targets
        return []
    addresses = [
        f"ipv6:[{address[0]}]:{port}" if family is socket.AF_INET6 else f"ipv4:{address[0]}:{port}"
        for family, *_, address in found
    ]
    return list(dict.fromkeys(addresses))


def _bare(target: str) -> str:
    return re.sub("^(dns|ipv[46]):(///)?", "", target)


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _with_port(host: str, target: str, name: str) -> str:
    if _BARE_IPV6.fullmatch(host):
        host = f"[{host}]"
    match = _HOST.fullmatch(host)
    if match is None or not 0 < int(match["port"] or _PORT) <= _MOST_PORT:
        raise ValueError(f"{name}: got {target!r}, want {_WANTED}")
    return host if match["port"] else f"{host}:{_PORT}"


Metadata: TypeAlias = "Sequence[tuple[str, str | bytes]]"
"""Call metadata: printable ASCII, or bytes under a key that ends in ``-bin``."""

WINDOW_BYTES: Final = 16 << 20
_MAX_FRAME_BYTES: Final = (1 << 24) - 1  # HTTP/2's own limit

_OPTIONS: Final[Mapping[str, Any]] = {
    # Spreads calls over all replicas behind the name, except stopped ones.
    "grpc.lb_policy_name": "round_robin",
    # gRPC's default is one lookup per 30 s, but replicas are replaced within 5 s.
    "grpc.dns_min_time_between_resolutions_ms": 500,
    # Clients in one process do not share a connection, since a connection is limited to one core.
    "grpc.use_local_subchannel_pool": 1,
    # A connection whose peer is silent during a call is closed after 10 + 5 s.
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 5_000,
    "grpc.http2.ping_timeout_ms": 5_000,  # the option that later versions of gRPC read
    "grpc.http2.max_pings_without_data": 0,
    # Reconnects to a restarted server within a tenth of a second.
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 2_000,
    # This package retries within the timeout; gRPC's own retries end after 5 attempts.
    "grpc.enable_retries": 0,
    # Windows and frames that hold whole chunks from the start, instead of growing from 64 KiB,
    # allow fewer and larger reads.
    "grpc.http2.lookahead_bytes": WINDOW_BYTES,
    "grpc.http2.max_frame_size": _MAX_FRAME_BYTES,
    "grpc.http2.bdp_probe": 0,
}

# Connections other than the first serve one large payload and are closed when idle.
_SPARE_OPTIONS: Final[Mapping[str, Any]] = {"grpc.client_idle_timeout_ms": 10_000}

# Time that gRPC allows for a connection attempt, and for a name lookup.
_PATIENCE_OPTIONS: Final = ("grpc.min_reconnect_backoff_ms", "grpc.dns_ares_query_timeout")
_MOST_MILLISECONDS: Final = (1 << 31) - 1

_METADATA_KEY: Final = re.compile("[0-9a-z_.-]+")

_SYNC_OPTIONS: Final[Mapping[str, Any]] = {
    # Chunks arrive on the caller's thread, without a thread switch per chunk.
    grpc.experimental.ChannelOptions.SingleThreadedUnaryStream: 1,
}


@dataclass(frozen=True)
class Endpoint:
    """A server's target, and how to connect to it."""

    target: str
    security: grpc.ChannelCredentials | Certificates | None
    """None means plaintext."""
    token: Token | None
    metadata: Metadata
    options: Mapping[str, Any]
    offline: bool = False
    """True if calls to it are refused."""
    connect_timeout: float | None = None
    """Seconds that a client waits for its first connection; None means the call's timeout."""

    def open(self, *, spare: bool) -> grpc.Channel:
        return self._open(grpc, {**_SYNC_OPTIONS, **(_SPARE_OPTIONS if spare else {})})

    def open_async(self, *, spare: bool) -> grpc.aio.Channel:
        return self._open(grpc.aio, _SPARE_OPTIONS if spare else {})

    def open_to(self, address: str) -> grpc.Channel:
        """Opens a channel to one of the target's addresses; calls over it block."""
        host = "" if "," in self.target else _host_of(_bare(self.target))
        names = {"grpc.default_authority": host, "grpc.ssl_target_name_override": host}
        return self._open(grpc, {**_SYNC_OPTIONS, **(names if host else {})}, address)

    def renew(self) -> bool:
        """Rereads certificates; returns True if channels opened earlier are outdated."""
        return isinstance(self.security, Certificates) and self.security.renew()

    def call_metadata(self) -> Metadata:
        return self.metadata if self.token is None else (*self.metadata, self.token.as_metadata())

    def _open(self, kind: Any, more: Mapping[str, Any], address: str | None = None) -> Any:
        if self.offline:
            raise UnavailableError("the client is offline (offline=True), and this needs a server")
        options = {**_OPTIONS, **more}
        if self.connect_timeout is not None:
            milliseconds = math.ceil(min(self.connect_timeout * 1000, _MOST_MILLISECONDS))
            options |= dict.fromkeys(_PATIENCE_OPTIONS, milliseconds)
        if is_on_this_machine(self.target):  # no proxy can reach this machine
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
    """Returns the endpoint for a client's arguments; errors name the invalid argument."""
    target = target_from(target)
    security: grpc.ChannelCredentials | Certificates | None = credentials
    kinds = (grpc.ChannelCredentials, type(None))
    require_instance(credentials, kinds, "credentials", "grpc.ChannelCredentials, or None")
    if credentials is None:
        security = certificates_from(tls)
    elif tls is not None:
        raise ValueError(f"tls: got {tls} and credentials; want one of the two")
    require_instance(options, Mapping, "channel_options", "a dict, or None")
    metadata = _pairs(metadata)
    sent = token_from(token, metadata)
    _require_legal(metadata)
    if sent is not None and security is None and not is_on_this_machine(target):
        raise ValueError(
            f"{sent.name}: got a token but no TLS, and {target} is not on this machine, so others "
            "could read the token: pass tls=True, or tls=attnbias.Tls(ca=FILE)"
        )
    return Endpoint(target, security, sent, metadata, dict(options), offline, connect_timeout)


def _pairs(metadata: Metadata) -> Metadata:
    try:
        return tuple((key, value) for key, value in metadata)
    except (TypeError, ValueError):
        got = f"metadata: got an object of type {type(metadata).__name__}"
        raise TypeError(f"{got}; want pairs, such as [('tenant', 'a')]") from None


def _require_legal(metadata: Metadata) -> None:
    """Rejects metadata that gRPC would reject on each call without naming it."""
    for key, value in metadata:
        if not isinstance(key, str) or not _METADATA_KEY.fullmatch(key):
            raise ValueError(
                f"metadata: got the key {key!r}, want lowercase letters, digits, '-', '_' and '.'"
            )
        wanted = bytes if key.endswith("-bin") else str
        if not isinstance(value, wanted):
            got = type(value).__name__
            raise TypeError(f"metadata: got {got} for {key!r}, want {wanted.__name__}")
        if isinstance(value, str) and not (value.isascii() and value.isprintable()):
            raise ValueError(
                f"metadata: got a value for {key!r} that is not printable ASCII, want printable "
                "ASCII, or bytes and a key that ends in '-bin'"
            )
