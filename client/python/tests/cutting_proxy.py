# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that cuts its connections off in the middle of an answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class CuttingProxy:
    """Forwards to a target; each of the first connections is cut after so many bytes.

    Args:
        target: "host:port".
        cut_after: for the n-th connection, bytes from the target after which it
            is cut; later connections are left alone.
    """

    def __init__(self, target: str, cut_after: list[int]) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._cut_after = cut_after
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
                limit = self._cut_after[index] if index < len(self._cut_after) else None
                threading.Thread(target=_pump, args=(client, server, None), daemon=True).start()
                threading.Thread(target=_pump, args=(server, client, limit), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, limit: int | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
            limit = None if limit is None else limit - len(data)
            if limit is not None and limit <= 0:
                break
    _end(source)
    _end(sink)


def _end(open_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
    open_socket.close()
