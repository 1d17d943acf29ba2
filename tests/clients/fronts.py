# SPDX-License-Identifier: Apache-2.0
"""Fronts listen at a client's target, in front of the faulty server or something else.

A front receives its backend and yields the target while its block runs.
"""

import asyncio
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

Connection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Behind(Protocol):
    """The faulty server in plaintext, and certificates for fronts that use TLS."""

    certificates: pathlib.Path

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accepts one connection."""


Front = Callable[[Behind], AbstractAsyncContextManager[str]]
Place = tuple[str, int]
"""An address and a port (0 for a free one)."""
HERE: Place = ("127.0.0.1", 0)


def plain(behind: Behind, place: Place = HERE) -> AbstractAsyncContextManager[str]:
    """Forwards to the faulty server."""
    return _listening(behind.forward, place)


def over_tls(certificate: str) -> Callable[..., AbstractAsyncContextManager[str]]:
    """Forwards to the faulty server, over TLS with a certificate for this name."""

    def front(behind: Behind, place: Place = HERE) -> AbstractAsyncContextManager[str]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2"])
        folder = behind.certificates
        context.load_cert_chain(folder / f"{certificate}.pem", folder / f"{certificate}.key")
        return _listening(behind.forward, place, context)

    return front


@asynccontextmanager
async def nothing(_behind: Behind, place: Place = HERE) -> AsyncIterator[str]:
    """Yields a port that refuses connections."""
    with _bound(place) as held:
        yield _address(held)


@asynccontextmanager
async def unknown_host(_behind: Behind) -> AsyncIterator[str]:
    """Yields a name without an address, reserved by RFC 6761."""
    yield "nowhere.invalid:50051"


def http(_behind: Behind) -> AbstractAsyncContextManager[str]:
    """Answers as an HTTP/1.1 server."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    return _listening(refuse, HERE)


def silent(_behind: Behind) -> AbstractAsyncContextManager[str]:
    """Accepts connections but never sends a byte."""

    async def ignore(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    return _listening(ignore, HERE)


def late(seconds: float) -> Front:
    """Refuses connections for a few seconds, then forwards to the faulty server."""

    @asynccontextmanager
    async def front(behind: Behind) -> AsyncIterator[str]:
        held = _bound(HERE)

        async def listen() -> None:
            with held:
                await asyncio.sleep(seconds)
                async with await asyncio.start_server(behind.forward, sock=held):
                    await asyncio.Event().wait()

        listening = asyncio.create_task(listen())
        try:
            yield _address(held)
        finally:
            listening.cancel()

    return front


def addresses(*fronts: Front) -> Front:
    """Returns a front for a target with several addresses, each with its own front."""

    @asynccontextmanager
    async def front(behind: Behind) -> AsyncIterator[str]:
        first, second = fronts
        async with first(behind) as one, second(behind) as other:
            yield f"ipv4:{one},{other}"

    return front


def localhost(on_ipv6: Any, on_ipv4: Any) -> Front:
    """Returns a front for `localhost`: one front for each of its addresses, on the same port."""

    @asynccontextmanager
    async def front(behind: Behind) -> AsyncIterator[str]:
        async with on_ipv4(behind) as ipv4:
            port = int(ipv4.rpartition(":")[2])
            async with on_ipv6(behind, ("::1", port)):
                yield f"localhost:{port}"

    return front


def has_two_localhosts() -> bool:
    found = socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
    return {address[0] for *_, address in found} >= {"127.0.0.1", "::1"}


@asynccontextmanager
async def _listening(
    handler: Connection, place: Place, context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    server = await asyncio.start_server(handler, sock=_bound(place), ssl=context)
    try:
        yield _address(server.sockets[0])
    finally:
        server.close()


def _bound(place: Place) -> socket.socket:
    """Returns a socket that does not listen yet, so that connections to it are refused."""
    bound = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(place)
    return bound


def _address(bound: Any) -> str:
    host, port, *_ = bound.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
