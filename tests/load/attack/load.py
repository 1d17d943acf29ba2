# SPDX-License-Identifier: Apache-2.0
"""Loads that a hostile or careless client puts on a server, each an entry in a table.

`python -m tests.load.attack.load NAME HOST:PORT SECONDS` runs one against a server, in a separate
process so that it does not slow the measuring process.
"""

import functools
import itertools
import json
import math
import random
import signal
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.support import http2
from tests.support.contract import SERVICE, alibi, message, nested, spec

MIB = 1 << 20
LARGE = 8 * MIB - 64
"""Size in bytes of a field that makes a message almost too large."""

INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
GET, DESCRIBE, STREAM, LOGITS = (
    f"/{SERVICE}/{method}"
    for method in ("GetTensor", "DescribeTensor", "StreamTensor", "ComputeLogits")
)
WATCH = "/grpc.health.v1.Health/Watch"

Counts = dict[str, int]


@dataclass(frozen=True)
class Calls:
    """Calls that differ only by an index."""

    what: str
    path: str
    body: Callable[[int], bytes]
    """Returns the framed messages of the n-th call."""
    at_once: int
    count: int | None = None
    """Total number of calls; None means no limit."""
    connections: int = 1
    """Number of connections, each from a client with its own address."""
    unsent: int = 0
    """Bytes at the end of the body that are never sent."""
    ends: bool = True
    """True if the client half-closes after its messages."""
    window: int = http2.WIDE
    headers: dict[str, str] = field(default_factory=dict)
    resets_after: float | None = None
    """Seconds after which the client resets the calls that have not ended."""

    def put_on(self, address: str, seconds: float, counts: Counts) -> None:
        connections = [
            http2.Connection(address, self.window, http2.loopback(n))
            for n in range(self.connections)
        ]
        numbers = itertools.count() if self.count is None else iter(range(self.count))
        turns = itertools.cycle(connections)
        running: list[tuple[http2.Connection, http2.Stream]] = []
        patience = math.inf if self.resets_after is None else self.resets_after
        resets_at = time.monotonic() + patience

        def keep_up() -> bool:
            if time.monotonic() >= resets_at:
                for connection, stream in running:
                    connection.reset(stream)
            for call in [(c, s) for c, s in running if s.ended or c.closed]:
                running.remove(call)
                counts["ended"] += 1
                counts["answered"] += call[1].received > 0
            while len(running) < self.at_once and not all(c.closed for c in connections):
                if (n := next(numbers, None)) is None:
                    break
                connection = next(c for c in turns if not c.closed)
                running.append((connection, self._begin(connection, n)))
                counts["begun"] += 1
            return False

        keep_up()
        say_begun()
        http2.pump(connections, keep_up, seconds)

    def _begin(self, connection: http2.Connection, n: int) -> http2.Stream:
        body = memoryview(self.body(n))
        body = body[: len(body) - self.unsent]
        ends = self.ends and not self.unsent
        return connection.begin(self.path, body, ends=ends, **self.headers)


@dataclass(frozen=True)
class Flood:
    """Bytes sent as fast as they are accepted, on connections that never read."""

    what: str
    pieces: Callable[[], Iterable[bytes]]
    """Returns the bytes that each connection sends after the preface and settings."""
    connections: int = 1

    def put_on(self, address: str, seconds: float, counts: Counts) -> None:
        deadline = time.monotonic() + seconds
        sockets = []
        for n in range(self.connections):
            try:
                sockets.append(http2.open_socket(address, http2.loopback(n)))
            except OSError:
                counts["closed"] += 1
        say_begun()
        for connection in sockets:
            connection.settimeout(1)
            counts["begun"] += 1
            try:
                connection.sendall(http2.PREFACE + http2.settings())
                for piece in self.pieces():
                    connection.sendall(piece)
            except TimeoutError:
                counts["held back"] += 1
            except OSError:
                counts["closed"] += 1
        time.sleep(max(0, deadline - time.monotonic()))


def say_begun() -> None:
    """Notifies the parent process that the load has begun, since loads take a while to build."""
    print("begun", flush=True)


# Requests.


def request(of: Any, method: str = "GetTensor", **fields: Any) -> bytes:
    serialised: bytes = message(f"{method}Request")(spec=of, **fields).SerializeToString()
    return http2.framed(serialised)


def _fields(parent: str, *path: str) -> list[int]:
    """Returns field numbers; each field belongs to the message that the previous field holds."""
    descriptor = message(parent).DESCRIPTOR
    numbers = []
    for name in path:
        one = descriptor.fields_by_name[name]
        numbers.append(one.number)
        descriptor = one.message_type
    return numbers


@functools.cache
def empty_fields(encoding_or_extent: str, repeated: str) -> bytes:
    """Returns a request of almost 8 MiB: a repeated field with millions of empty messages, 2 bytes
    each."""
    *outer, number = _fields("GetTensorRequest", "spec", encoding_or_extent, repeated)
    return http2.framed(nested(outer, bytes([number << 3 | 2, 0]) * (LARGE // 2)))


@functools.cache
def large_request() -> bytes:
    """Returns a request with a list of almost 8 MiB of numbers."""
    return request(spec(kerple={"kernel": "KERPLE_KERNEL_LOG", "p": [1.0] * (LARGE // 8)}))


def rotary(n: int, **fields: Any) -> bytes:
    fields |= {"head_dim": 65536, "rope_theta": 10000.0 + n}
    return request(spec(rotary=fields, table={"positions": {"end": 1}}))


xpos = partial(rotary, decay={})
yarn = partial(rotary, yarn={"factor": 4.0, "original_max_position_embeddings": 4096})


def sines(n: int, rows: int = 255, method: str = "StreamTensor") -> bytes:
    fields = {"dim": 65536, "ladder": {"base": 10000.0 + n}}
    return request(spec(sinusoidal=fields, table={"positions": {"end": rows}}), method)


row_of_sines = partial(sines, rows=1, method="GetTensor")


@functools.cache
def long_id() -> bytes:
    """Returns a ModelStreamInfer request with an `id` field of 2 MB."""
    return http2.framed(nested([3], b"x" * (2 * MIB)))


def slopes(n: int) -> bytes:
    fields = {"num_heads": 65535, "alibi_bias_max": 8.0 + n / (1 << 20)}
    return request(spec(alibi=fields, pair={"query_length": 2, "key_length": 2}))


def ties(n: int) -> bytes:
    """Returns a request for four rows of 256 numbers, each a sum of 512 terms that lies between two
    F32 values."""
    numbers = struct.pack("<d", 1 + 2.0**-24) * (512 * 256)
    table = {"data_type": "DATA_TYPE_F64", "shape": [512, 256], "data": numbers}
    resample = {"source": [32, 16], "target": [2, 2], "filter": "FILTER_CUBIC", "antialias": True}
    resample["cubic_a"] = -0.5 - n / (1 << 20)
    fields = {"table": {"inline_table": table}, "resample": resample}
    return request(spec(learned_absolute=fields, table={"positions": {"end": 4}}))


@functools.cache
def _kerple_ends() -> tuple[bytes, bytes]:
    """Returns a request for 65536 heads, split before and after the first number in its `a`."""
    mark = struct.pack("<d", 1234.5)
    numbers = [1234.5] + [1.0] * 65535
    fields = {"kernel": "KERPLE_KERNEL_LOG", "num_heads": 65536, "p": [1.0] * 65536, "a": numbers}
    whole = request(spec(kerple=fields, pair={"query_length": 1, "key_length": 1}))
    before, after = whole.split(mark)
    return before, after


def kerple(n: int) -> bytes:
    before, after = _kerple_ends()
    return before + struct.pack("<d", 1.0 + n) + after


@functools.cache
def listed_positions() -> bytes:
    """Returns a 65 KB request that names 32500 positions and asks for the smallest possible
    chunks."""
    positions = random.Random(0).choices(range(128, 16384), k=32500)
    output = {"data_type": "DATA_TYPE_F16"}
    of = spec(
        sinusoidal={"dim": 2}, table={"position_ids": [{"positions": positions}]}, output=output
    )
    return request(of, "StreamTensor", max_chunk_bytes=4096)


def at_a_fraction(n: int) -> bytes:
    lists = [{"doubles": [n + 0.1]}]
    return request(spec(sinusoidal={"dim": 65536}, table={"position_ids": lists}))


@functools.cache
def zero_sums() -> bytes:
    """Returns a request for 65536 columns whose angles are differences of equal numbers."""
    numbers = b"".join(struct.pack("<f", sign) * 32768 for sign in (1.0, -1.0))
    inline = {"data_type": "DATA_TYPE_F32", "shape": [2, 32768], "data": numbers}
    fields = {"dim": 65536, "axes": [{}, {}], "frequency_matrix": {"inline_table": inline}}
    lists = [{"positions": [7]}] * 2
    return request(spec(sinusoidal=fields, table={"position_ids": lists}))


@functools.cache
def long_name() -> bytes:
    return http2.framed(nested([1], b"x" * LARGE))


@functools.cache
def unknown_group() -> bytes:
    """Returns a request with a group of empty strings in field 2047."""
    return http2.framed(b"\xfb\x7f" + b"\x0a\x00" * (LARGE // 2) + b"\xfc\x7f")


@functools.cache
def gzip_bomb() -> bytes:
    deflate = zlib.compressobj(wbits=31)
    zeros = bytes(MIB)
    bomb = b"".join(deflate.compress(zeros) for _ in range(128)) + deflate.flush()
    return http2.framed(bomb, compressed=True)


@functools.cache
def logits() -> bytes:
    """Returns a ComputeLogits request for 8 MiB of vectors, and the query for which they are
    computed."""
    term = {"sinusoidal": {"dim": 64, "columns": "COLUMNS_SINES_COSINES"}}
    of = message("LogitsSpec")(
        sinusoidal_distances=term,
        num_heads=1,
        head_dim=64,
        query_length=8192,
        key_length=8192,
        direction="DIRECTION_BIDIRECTIONAL",
        data_type="DATA_TYPE_F32",
    )
    row = message("ComputeLogitsRequest")(first_row=0, num_rows=1, data=bytes(64 * 4))
    return request(of, "ComputeLogits") + http2.framed(row.SerializeToString())


def sandwich(n: int, queries: int = 250_000, method: str = "GetTensor") -> bytes:
    """Returns a request for 2 MB of diagonals, each a sum of 32768 cosines."""
    fields = {"num_heads": 1, "dim": 65536, "base": 10000.0 + n}
    keys = queries if method == "GetTensor" else 1
    pair = {"query_length": queries, "key_length": keys, "alignment": "ALIGNMENT_END"}
    return request(spec(sandwich=fields, pair=pair), method)


# Frames.


def calls(kind: int, flags: int, payload: bytes) -> Iterable[bytes]:
    """Yields thousands of calls, each with its headers and one more frame."""
    block = http2.call_headers(GET)
    for first in range(1, 10_000, 2000):
        yield b"".join(
            http2.frame(http2.HEADERS, http2.END_HEADERS, stream, block)
            + http2.frame(kind, flags, stream, payload)
            for stream in range(first, first + 2000, 2)
        )


resets = partial(calls, http2.RESET, 0, struct.pack(">I", http2.CANCEL))
"""Calls that are reset immediately."""
provoked_resets = partial(calls, http2.WINDOW_UPDATE, 0, struct.pack(">I", 2**31 - 1))
"""Calls that the server has to reset: their windows grow beyond what HTTP/2 allows."""
eager_calls = partial(calls, http2.DATA, http2.END_STREAM, http2.framed(xpos(0)))
"""Calls beyond the limit in the server's settings."""


def endless_headers() -> Iterable[bytes]:
    yield http2.frame(http2.HEADERS, 0, 1, http2.call_headers(GET))
    fields = b"".join(http2.header_block(**{f"x{i}": "v" * 100}) for i in range(150))
    for _ in range(64 * MIB // len(fields)):
        yield http2.frame(http2.CONTINUATION, 0, 1, fields)


def continued(field: bytes, block: bytes) -> Iterable[bytes]:
    """Yields a call with a distinct header field and headers that never end."""
    yield http2.frame(http2.HEADERS, 0, 1, http2.call_headers(GET) + field)
    yield from itertools.repeat(http2.frame(http2.CONTINUATION, 0, 1, block), 200)


NEWEST = bytes([0x80 | 62])
"""In HPACK, a one-byte reference to the newest field in the table."""


def header_references() -> Iterable[bytes]:
    """Yields one-byte header fields that refer to a 4 KB field."""
    name, value = b"x", b"v" * 3900
    # Literal with incremental indexing; a length of 127 or more continues in groups of 7 bits.
    length = bytes([0x7F, (len(value) - 127) % 128 | 0x80, (len(value) - 127) // 128])
    return continued(bytes([0x40, len(name)]) + name + length + value, NEWEST * 16000)


small_references = partial(continued, b"\x40\1x\1v", NEWEST * 16000)
"""Adds a two-byte field to HPACK's table, followed by one-byte references to it."""
table_sizes = partial(continued, b"", b"\x20\x3f\xe1\x1f" * 4000)
"""Header blocks that resize HPACK's table to 0 and back to 4096."""


def pings() -> Iterable[bytes]:
    yield from itertools.repeat(http2.frame(http2.PING, 0, 0, bytes(8)) * 4096, 400)


def patient_pings() -> Iterable[bytes]:
    """Yields pings in batches small enough to be answered, until the answers fill all buffers."""
    for _ in range(10_000):
        yield http2.frame(http2.PING, 0, 0, bytes(8)) * 500
        time.sleep(0.002)


def many_settings() -> Iterable[bytes]:
    yield from itertools.repeat(http2.settings(initial_window_size=1) * 4096, 400)


def half_frame() -> Iterable[bytes]:
    """Yields a call whose first data frame is never complete."""
    yield http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.call_headers(GET))
    yield http2.frame(http2.DATA, 0, 1, struct.pack(">BI", 0, 8 * MIB - 64) + bytes(16000))[:-100]


def frames(kind: int, payload: bytes) -> Iterable[bytes]:
    """Yields a call that consists of frames without content."""
    yield http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.call_headers(GET))
    yield from itertools.repeat(http2.frame(kind, 0, 1, payload) * 4096, 100)


empty_data = partial(frames, http2.DATA, b"")
window_updates = partial(frames, http2.WINDOW_UPDATE, struct.pack(">I", 1))
priorities = partial(frames, http2.PRIORITY, struct.pack(">IB", 0, 16))


# The tables.


def together(number: int, what: str, path: str, body: Callable[[int], bytes], **how: Any) -> Calls:
    """Returns this many concurrent calls."""
    return Calls(what, path, body, at_once=number, count=number, **how)


def apart(number: int, what: str, path: str, body: Callable[[int], bytes], **how: Any) -> Calls:
    """Returns the same calls, each on its own connection."""
    return together(number, what, path, body, connections=number, **how)


def kept_up(number: int, what: str, path: str, body: Callable[[int], bytes]) -> Calls:
    """Returns an unlimited number of calls, this many of which are open at any time, each on its
    own connection."""
    return Calls(what, path, body, at_once=number, connections=number)


MEMORY: dict[str, Calls | Flood] = {
    "uploads": apart(
        100, "100 uploads of 8 MB that never end", GET, lambda n: large_request(), unsent=1000
    ),
    "large": apart(100, "100 requests of 8 MB at once", GET, lambda n: large_request()),
    "layers": together(
        1, "8 MB of empty layers of a network", GET, lambda n: empty_fields("mlp_bias", "layers")
    ),
    "position_ids": together(
        1, "8 MB of empty lists of positions", GET, lambda n: empty_fields("table", "position_ids")
    ),
    "group": together(4, "4 groups of 8 MB of empty strings", GET, lambda n: unknown_group()),
    "unread": together(
        1000,
        "1000 unread streams of lists of 65 KB",
        STREAM,
        lambda n: listed_positions(),
        connections=5,
        window=0,
    ),
    "get_rotary": Calls(
        "1000 GetTensor of distinct rotary specs, 65536 columns",
        GET,
        rotary,
        at_once=1000,  # more than memory allows; the others are planned and rejected
        count=1000,
        connections=5,
    ),
    "reals": Calls(
        "1000 GetTensor of 65536 columns at a fraction", GET, at_a_fraction, at_once=16, count=1000
    ),
    "zero_sums": Calls(
        "100 GetTensor of 65536 columns whose angles are sums that are 0",
        GET,
        lambda n: zero_sums(),
        at_once=16,
        count=100,
    ),
    "describe_rotary": Calls(
        "1000 DescribeTensor of the same", DESCRIBE, rotary, at_once=16, count=1000, connections=4
    ),
    "kerple": Calls(
        "600 KERPLE specs of 65536 heads, 1 MB each",
        GET,
        kerple,
        at_once=16,
        count=600,
        connections=4,
    ),
    "xpos": together(64, "64 xPos of 65536 columns at once", GET, xpos),
    "watch": apart(40, "40 Health.Watch of names of 8 MB", WATCH, lambda n: long_name()),
    "gzip": apart(
        8,
        "8 requests of 128 MiB, compressed",
        GET,
        lambda n: gzip_bomb(),
        headers={"grpc_encoding": "gzip"},
    ),
    "logits": apart(
        8, "8 idle ComputeLogits, 8 MiB of vectors each", LOGITS, lambda n: logits(), ends=False
    ),
    "ids": together(
        400,
        "400 ModelStreamInfer with ids of 2 MB, with no answer read",
        INFER,
        lambda n: long_id(),
        connections=40,
        window=0,
    ),
    "resets": Flood("5000 calls that are reset immediately", resets),
    "pings": Flood("1.6 million pings, with no answer read", pings),
    "settings": Flood("1.6 million settings, with no answer read", many_settings),
    "half_frames": Flood("900 calls with half a frame of data", half_frame, connections=900),
}
"""Attacks on memory."""

TIME: dict[str, Calls] = {
    "nothing": Calls("nothing", GET, sandwich, at_once=0),
    "sandwich": Calls(
        "GetTensor of 2 MB of Sandwich of 65536 columns, two at once", GET, sandwich, at_once=2
    ),
    "long_streams": Calls(
        "two StreamTensor of 2^30 queries of the same",
        STREAM,
        lambda n: sandwich(n, 1 << 30, "StreamTensor"),
        at_once=2,
    ),
    "many_xpos": Calls("GetTensor of xPos of 65536 columns, 200 at once", GET, xpos, at_once=200),
    "sines": kept_up(8, "StreamTensor of 255 rows of 65536 sines, 8 at once", STREAM, sines),
    "rows_of_sines": kept_up(
        2, "GetTensor of a row of 65536 sines, by two callers in turn", GET, row_of_sines
    ),
    "slopes": kept_up(8, "GetTensor of ALiBi of 65535 heads, 8 at once", GET, slopes),
    "yarn": kept_up(8, "DescribeTensor of YaRN of 65536 columns, 8 at once", DESCRIBE, yarn),
    "ties": kept_up(8, "GetTensor of resampled rows of ties, 8 at once", GET, ties),
}
"""Attacks on other clients' time."""

UNWANTED: dict[str, Calls] = {
    f"{how}_{name}": replace(load, count=load.at_once, **change)
    for how, change in {
        "expired": {"headers": {"grpc_timeout": "500m"}},
        "reset": {"resets_after": 0.5},
    }.items()
    for name, load in TIME.items()
    if load.at_once
}
"""The same loads, with calls that expire or are reset after half a second."""

PROXY: dict[str, Calls | Flood] = {
    "unread_large": together(
        300,
        "300 unread streams of 256 MiB",
        STREAM,
        lambda n: request(alibi(16, 2048, form="FORM_DENSE"), "StreamTensor"),
        connections=3,
        window=0,
    ),
    "unfinished": together(
        1500,
        "1500 calls with 5 KB of headers, whose messages are never sent",
        GET,
        lambda n: http2.framed(bytes(16)),
        connections=15,
        unsent=16,
        headers={f"x{n}": "v" * 120 for n in range(40)},
    ),
    "headers": Flood("64 MiB of headers of one call", endless_headers),
    "references": Flood("3 MB of references to a header of 4 KB", header_references),
    "small_references": Flood("3 MB of references to a header of 2 bytes", small_references),
    "table_sizes": Flood("1.6 million changes of the size of HPACK's table", table_sizes),
    "provoked_resets": Flood("5000 calls that the server resets", provoked_resets),
    "unacknowledged": Flood(
        "5000 concurrent calls, with the settings not acknowledged", eager_calls
    ),
    "patient_pings": Flood("5 million pings in small batches, with no answer read", patient_pings),
    "empty_data": Flood("400000 frames of data without a byte", empty_data),
    "window_updates": Flood("400000 updates of a window", window_updates),
    "priorities": Flood("400000 changes of a priority", priorities),
}
"""Loads for a proxy, in addition to the floods above."""

LOADS = MEMORY | TIME | UNWANTED | PROXY


def main(name: str, address: str, seconds: str) -> None:
    counts = dict.fromkeys(("begun", "ended", "answered", "held back", "closed"), 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        LOADS[name].put_on(address, float(seconds), counts)
    finally:
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
