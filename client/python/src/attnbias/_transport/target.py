# SPDX-License-Identifier: Apache-2.0
"""Which server is meant: from what a user writes to a target of gRPC."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from typing import Final

from attnbias._checks import require_instance

_PORT: Final = 50051
_VARIABLE: Final = "ATTNBIAS_SERVER"
_WANTED: Final = "host, host:port, [IPv6]:port, unix:/path or another target of gRPC"

# Names of gRPC whose rest is a host, or addresses with commas between them.
_OF_HOSTS: Final = re.compile(r"(dns:(?://[^/]*/)?|ipv[46]:(?:///)?)(.*)", re.DOTALL)
_OF_OTHERS: Final = re.compile(r"(unix|unix-abstract|vsock):.|(?!https?:)[a-z][a-z0-9.+-]*://.")
_HOST: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[^\]\s]+)?\]|[^\s:/\[\],]+)(?::(?P<port>[0-9]+))?"
)
_BARE_IPV6: Final = re.compile(r"[0-9A-Fa-f.]*(?::[0-9A-Fa-f.]*){2,}(?:%\w+)?")
_MOST_PORT: Final = 65535


def target_from(target: str | None) -> str:
    """The target to open.

    Args:
        target: what the user gave. None is what ``ATTNBIAS_SERVER`` says, without it this machine.

    Raises:
        TypeError: it is no text.
        ValueError: it names no server.
    """
    if target is None:
        given = os.environ.get(_VARIABLE) or "localhost"
        return _with_ports(given, _VARIABLE if given != "localhost" else "target")
    require_instance(target, str, "target", "a str, as 'localhost:50051'")
    return _with_ports(target, "target")


def is_on_this_machine(target: str) -> bool:
    """Whether a target of ``target_from`` is reached without a network."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    hosts = re.sub(r"^(dns|ipv[46]):(///)?", "", target).split(",")
    return all(_is_loopback(host.rpartition(":")[0]) for host in hosts)


def addresses_of(target: str) -> list[str]:
    """The addresses of a target of ``target_from``, as gRPC's targets; none of one without."""
    if target.startswith(("ipv4:", "ipv6:")):
        scheme, rest = target[:5], target[5:].removeprefix("///")
        return [f"{scheme}{address}" for address in rest.split(",")]
    host, _, port = re.sub("^dns:(///)?", "", target).rpartition(":")
    if host == "localhost":  # gRPC tries both, whatever the system has
        return [f"ipv6:[::1]:{port}", f"ipv4:127.0.0.1:{port}"]
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a target of another kind, too
        return []
    addresses = [
        f"ipv6:[{address[0]}]:{port}" if family is socket.AF_INET6 else f"ipv4:{address[0]}:{port}"
        for family, *_, address in found
    ]
    return list(dict.fromkeys(addresses))


def host_of(target: str) -> str:
    """The name by which a target of ``target_from`` is asked for; "" of a list of addresses."""
    if "," in target:
        return ""
    return re.sub("^(dns|ipv[46]):(///)?", "", target).rpartition(":")[0].strip("[]")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:  # a name
        return False


def _with_ports(target: str, name: str) -> str:
    if of_hosts := _OF_HOSTS.fullmatch(target):
        scheme, rest = of_hosts.groups()
        hosts = [rest] if scheme.startswith("dns") else rest.split(",")
        return scheme + ",".join(_with_port(host, target, name) for host in hosts)
    if _OF_OTHERS.match(target):
        return target
    return _with_port(target, target, name)


def _with_port(host: str, target: str, name: str) -> str:
    if _BARE_IPV6.fullmatch(host):
        host = f"[{host}]"
    match = _HOST.fullmatch(host)
    if match is None or not 0 < int(match["port"] or _PORT) <= _MOST_PORT:
        raise ValueError(f"{name}: got {target!r}, want {_WANTED}")
    return host if match["port"] else f"{host}:{_PORT}"
