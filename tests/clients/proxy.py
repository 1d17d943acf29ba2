# SPDX-License-Identifier: Apache-2.0
"""A server that corrupts its answers: a proxy in front of a real server. It forwards every call as
bytes, and injects one fault into answers that carry payloads or tables.

A front between it and its clients forwards TCP, so that a fault can reset connections.
"""

import asyncio
import contextlib
import pathlib
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import Any, Self

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from tests.clients.faults import Away, Cut, Fault, Pause, Refusal, Stall
from tests.clients.fronts import Front, nothing, plain
from tests.support.contract import SERVICE

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER value that makes close() reset the connection
_PASSED_ON = ("authorization",)
# On the wire, a unary call is a stream of one message.
_TABLES = f"/{SERVICE}/ListTables"
"""Faults make up this method's answers, since only the server that issued a page token knows it."""
_SPOILT = {_TABLES, f"/{SERVICE}/StreamTensor"}


class Loop:
    """An event loop in a thread, since gRPC requires all servers in a process to share one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


class Proxy(grpc.GenericRpcHandler):
    """Runs until the `with` block ends."""

    def __init__(
        self, loop: Loop, server: str, fault: Fault, front: Front, certificates: pathlib.Path
    ) -> None:
        self.calls: list[float] = []
        """The times at which calls for a payload or for tables arrived."""
        self.target = ""
        self.certificates = certificates
        self._loop = loop
        self._address = server
        self._fault = fault
        self._front = front
        self._at_target = contextlib.AsyncExitStack()
        self._away: asyncio.Task[None] | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> Self:
        self._loop.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._stop())

    async def _start(self) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(self._address, options)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self,))
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.target = await self._at_target.enter_async_context(self._front(self))

    async def _stop(self) -> None:
        await self._at_target.aclose()
        self._cut()
        await self._server.stop(None)
        await self._channel.close()

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method
        if method in _SPOILT:
            return grpc.unary_stream_rpc_method_handler(partial(self._spoil, method))

        async def pass_on(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            async with _passing(context) as options:
                async for answer in self._channel.stream_stream(method)(requests, **options):
                    yield answer

        return grpc.stream_stream_rpc_method_handler(pass_on)

    async def _spoil(self, method: str, request: bytes, context: Any) -> None:
        attempt = len(self.calls)
        self.calls.append(time.monotonic())
        answers = [] if method == _TABLES else await self._ask(method, request, context)
        for step in self._fault(attempt, answers):
            match step:
                case bytes():
                    await context.write(step)
                case Refusal():
                    await context.abort(step.code, step.message, step.trailers or _details(step))
                case Stall():
                    await asyncio.Event().wait()  # until the client ends the call
                case Cut():
                    self._cut()
                case Pause():
                    await asyncio.sleep(step.seconds)
                case Away():  # a separate task, since closing the connection cancels this one
                    self._away = asyncio.create_task(self._go_away(step.seconds))
                    await asyncio.Event().wait()

    async def _ask(self, method: str, request: bytes, context: Any) -> list[bytes]:
        async with _passing(context) as options:
            call = self._channel.unary_stream(method)(request, **options)
            return [answer async for answer in call]

    async def _go_away(self, seconds: float) -> None:
        await self._at_target.aclose()
        self._cut()
        host, _, port = self.target.rpartition(":")
        place = host, int(port)
        async with nothing(self, place):
            await asyncio.sleep(seconds)
        await self._at_target.enter_async_context(plain(self, place))

    def _cut(self) -> None:
        open_ones = [writer for writer in self._connections if not writer.is_closing()]
        for writer in open_ones:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        self._connections = set()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handles one client connection."""
        self._connections.add(writer)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def _passing(context: Any) -> AsyncIterator[dict[str, Any]]:
    """Yields the arguments for a call to the real server; if that call fails, the proxied call ends
    with the same error."""
    metadata = [(key, value) for key, value in context.invocation_metadata() if key in _PASSED_ON]
    try:
        yield {"metadata": metadata, "timeout": context.time_remaining()}
    except grpc.aio.AioRpcError as error:
        trailers = tuple(error.trailing_metadata() or ())
        await context.abort(error.code(), error.details() or "", trailers)


def _details(refusal: Refusal) -> tuple[tuple[str, bytes], ...]:
    """Returns the details as a server sends them, in addition to the code and message."""
    status = status_pb2.Status(code=refusal.code.value[0], message=refusal.message)
    if refusal.reason:
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=refusal.reason))
    if refusal.retry_seconds is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(refusal.retry_seconds * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return (("grpc-status-details-bin", status.SerializeToString()),)
