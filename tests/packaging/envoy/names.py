# SPDX-License-Identifier: Apache-2.0
"""A name server for one name whose addresses change, as a headless Service's do."""

import ipaddress
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HEADER_BYTES = 12
_ANSWER, _IPV4, _INTERNET = 0x8180, 1, 1
_SAME_NAME = 0xC000 | _HEADER_BYTES


class Names:
    """The addresses returned for every name."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.addresses: list[str] = []

    def answer(self, query: bytes) -> bytes:
        end = query.index(b"\0", _HEADER_BYTES) + 5
        kind = struct.unpack(">H", query[end - 4 : end - 2])[0]
        found = self.addresses if kind == _IPV4 else []
        counts = struct.pack(">HHHHH", _ANSWER, 1, len(found), 0, 0)
        records = b"".join(
            struct.pack(">HHHIH", _SAME_NAME, _IPV4, _INTERNET, 1, 4)
            + ipaddress.IPv4Address(address).packed
            for address in found
        )
        return query[:2] + counts + query[_HEADER_BYTES:end] + records


@contextmanager
def name_server() -> Iterator[Names]:
    with socket.socket(type=socket.SOCK_DGRAM) as port:
        port.bind(("127.0.0.1", 0))
        names = Names(port.getsockname()[1])
        thread = threading.Thread(target=_serve, args=(port, names))
        thread.start()
        yield names
        port.sendto(b"", port.getsockname())  # the root label
        thread.join()


def _serve(port: socket.socket, names: Names) -> None:
    while True:
        query, client = port.recvfrom(512)
        if not query:
            return
        port.sendto(names.answer(query), client)
