# SPDX-License-Identifier: Apache-2.0
"""A gRPC client that implements HTTP/2 itself.

It can therefore do what gRPC's own clients would not, and at little cost to itself: leave messages
unfinished, never read, and flood. It does not decode header fields, so all it knows about an answer
is its number of bytes and whether it has ended.
"""

import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

DATA, HEADERS, PRIORITY, RESET, SETTINGS = range(5)
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(6, 10)
ACK = END_STREAM = 1
END_HEADERS = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CANCEL = 8

INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 4, 5  # settings
DEFAULT_WINDOW = 65535
WIDE = 2**31 - 1
"""The maximum window, which holds nothing back."""

STRANGER = "127.0.0.66"
"""Source address of connections over TLS, so that per-address limits do not affect other
clients."""

_QUEUED = 1 << 18  # bytes of frames prepared ahead of the socket


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _frame_header(len(payload), kind, flags, stream) + payload


def _frame_header(size: int, kind: int, flags: int, stream: int) -> bytes:
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream)


def header_block(**fields: str) -> bytes:
    """Returns header fields that HPACK leaves unchanged."""
    pairs = ((name.replace("_", "-"), value) for name, value in fields.items())
    return b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in pairs
    )


def call_headers(path: str, **more: str) -> bytes:
    """Returns the header block for a gRPC call."""
    pseudo = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "attnbias"}
    return header_block(**pseudo, content_type="application/grpc", te="trailers", **more)


def framed(message: bytes, *, compressed: bool = False) -> bytes:
    """Returns a message as it is encoded in a call's body."""
    return struct.pack(">BI", compressed, len(message)) + message


def settings(**values: int) -> bytes:
    numbers = {"initial_window_size": INITIAL_WINDOW_SIZE, "max_frame_size": MAX_FRAME_SIZE}
    pairs = (struct.pack(">HI", numbers[name], value) for name, value in values.items())
    return frame(SETTINGS, 0, 0, b"".join(pairs))


def loopback(n: int) -> str:
    """Returns the n-th address from which clients on this machine can connect."""
    return f"127.1.{n // 250}.{n % 250 + 1}"


def open_socket(address: str, source: str = "") -> socket.socket:
    """Connects to HOST:PORT, to unix:PATH, or over TLS to tls:HOST:PORT without verification.

    A connection to a HOST:PORT on loopback comes from the address ``source``, if it is given.
    Connections to other hosts all come from the same address.
    """
    if address.startswith("unix:"):
        file = socket.socket(socket.AF_UNIX)
        file.connect(address.removeprefix("unix:"))
        return file
    over_tls = address.startswith("tls:")
    host, _, port = address.removeprefix("tls:").rpartition(":")
    own = STRANGER if over_tls else source * host.startswith("127.")
    port_socket = socket.create_connection(
        (host, int(port)), source_address=(own, 0) if own else None
    )
    port_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _tls().wrap_socket(port_socket) if over_tls else port_socket


def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.sslsocket_class = _TlsSocket
    return context


class _TlsSocket(ssl.SSLSocket):
    """Raises what other sockets raise if an operation would block."""

    def sendmsg(self, pieces: Iterable[Any], *_: Any) -> int:
        try:
            return self.send(b"".join(pieces))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recv(self, size: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(size, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None


@dataclass
class Stream:
    """One call, from the client's side."""

    number: int
    unsent: memoryview
    half_closes: bool
    window: int
    received: int = 0
    """Message bytes received; 0 for an answer that is an error."""
    ended: bool = False


class Connection:
    """Begins calls; `pump` sends and reads. Each call receives at most `window` bytes."""

    def __init__(self, address: str, window: int = WIDE, source: str = "") -> None:
        self.socket = open_socket(address, source)
        self.socket.setblocking(False)
        self.closed = False
        self._out = deque([memoryview(PREFACE + settings(initial_window_size=window))])
        self._in = bytearray()
        self._streams: dict[int, Stream] = {}
        self._sending: dict[int, Stream] = {}
        self._next = 1
        self._window = self._initial_window = DEFAULT_WINDOW
        self._max_frame = 16384
        if window > DEFAULT_WINDOW:
            self._send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", window - DEFAULT_WINDOW)))

    def close(self) -> None:
        self.closed = True
        self.socket.close()

    def begin(self, path: str, body: bytes, *, ends: bool = True, **headers: str) -> Stream:
        """Begins a call with these messages; the client then half-closes if `ends` is true."""
        stream = Stream(self._next, memoryview(body), ends, self._initial_window)
        self._next += 2
        self._streams[stream.number] = stream
        self._sending[stream.number] = stream
        self._send(frame(HEADERS, END_HEADERS, stream.number, call_headers(path, **headers)))
        return stream

    def reset(self, stream: Stream) -> None:
        self._send(frame(RESET, 0, stream.number, struct.pack(">I", CANCEL)))
        self._end(stream)

    def call(self, path: str, body: bytes, seconds: float) -> Stream:
        """Makes a unary call and waits this many seconds for its answer."""
        stream = self.begin(path, body)
        pump([self], lambda: stream.ended or self.closed, seconds)
        return stream

    def wants_to_send(self) -> bool:
        return bool(self._out) or (self._window > 0 and self._next_sender() is not None)

    def send_some(self) -> None:
        self._make_frames()
        while self._out:
            try:
                sent = self.socket.sendmsg([*self._out][:64])
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            while sent:
                piece = self._out.popleft()
                if sent < len(piece):
                    self._out.appendleft(piece[sent:])
                sent -= min(sent, len(piece))
            self._make_frames()

    def read_some(self) -> None:
        try:
            received = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self.close()
            return
        self._in += received
        at = 0
        while len(self._in) >= at + 9:
            size, kind, flags, number = struct.unpack_from(">IBBI", b"\0" + self._in[at : at + 9])
            if len(self._in) < at + 9 + size:
                break
            self._take(kind, flags, number, bytes(self._in[at + 9 : at + 9 + size]))
            at += 9 + size
        del self._in[:at]

    def _send(self, frames: bytes) -> None:
        self._out.append(memoryview(frames))

    def _next_sender(self) -> Stream | None:
        return next((s for s in self._sending.values() if s.window > 0 or not s.unsent), None)

    def _make_frames(self) -> None:
        queued = sum(len(piece) for piece in self._out)
        while queued < _QUEUED and (stream := self._next_sender()) is not None:
            size = min(len(stream.unsent), stream.window, self._window, self._max_frame)
            if size == 0 and stream.unsent:
                return
            last = size == len(stream.unsent)
            flags = END_STREAM if last and stream.half_closes else 0
            self._send(_frame_header(size, DATA, flags, stream.number))
            self._out.append(stream.unsent[:size])
            stream.unsent = stream.unsent[size:]
            stream.window -= size
            self._window -= size
            queued += 9 + size
            if last:
                del self._sending[stream.number]

    def _end(self, stream: Stream) -> None:
        stream.ended = True
        self._streams.pop(stream.number, None)
        self._sending.pop(stream.number, None)

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        stream = self._streams.get(number)
        if kind == SETTINGS and not flags & ACK:
            self._take_settings(payload)
        elif kind == PING and not flags & ACK:
            self._send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE and number == 0:
            self._window += struct.unpack(">I", payload)[0]
        elif stream is None:
            return
        elif kind == WINDOW_UPDATE:
            stream.window += struct.unpack(">I", payload)[0]
        elif kind == DATA:
            stream.received += len(payload)
        if stream and (kind == RESET or (kind in (DATA, HEADERS) and flags & END_STREAM)):
            self._end(stream)

    def _take_settings(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == INITIAL_WINDOW_SIZE:
                for stream in self._streams.values():
                    stream.window += value - self._initial_window
                self._initial_window = value
            elif name == MAX_FRAME_SIZE:
                self._max_frame = value
        self._send(frame(SETTINGS, ACK, 0, b""))


def pump(connections: Sequence[Connection], done: Callable[[], bool], seconds: float) -> bool:
    """Sends and reads until `done` or a timeout; returns whether `done` was met."""
    poll = select.poll()
    by_descriptor = {c.socket.fileno(): c for c in connections if not c.closed}
    deadline = time.monotonic() + seconds
    while not done():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        for descriptor, connection in by_descriptor.items():
            wants = select.POLLOUT if connection.wants_to_send() else 0
            poll.register(descriptor, select.POLLIN | wants)
        for descriptor, event in poll.poll(min(left, 0.1) * 1000):
            connection = by_descriptor[descriptor]
            if event & select.POLLOUT:
                connection.send_some()
            if event & ~select.POLLOUT and not connection.closed:
                connection.read_some()
            if connection.closed:
                poll.unregister(descriptor)
                del by_descriptor[descriptor]
    return True
