# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that cuts its connections, or discards the remaining bytes, in the middle of a
response."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence


class CuttingProxy:
    """Forwards to a target; the first connections break after some bytes from the target.

    Args:
        target: "host:port".
        cut_after: the number of bytes after which each connection is cut, in order; later
            connections are not cut.
        swallow_after: the same, but forwarding stops while the connections stay open.
    """

    def __init__(
        self, target: str, cut_after: Sequence[int] = (), swallow_after: Sequence[int] = ()
    ) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._limits = swallow_after or cut_after
        self._swallows = bool(swallow_after)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.connections = 0
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for open_socket in [self._listener, *self._sockets]:
            _end(open_socket)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                index, self.connections = self.connections, self.connections + 1
                limit = self._limits[index] if index < len(self._limits) else None
                for pump in ((client, server, None), (server, client, limit)):
                    threading.Thread(target=self._pump, args=pump, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data if limit is None else data[: max(0, limit - passed)])
                passed += len(data)
                if limit is not None and passed >= limit and not self._swallows:
                    break
        _end(source)
        _end(sink)


def _end(open_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
    open_socket.close()
