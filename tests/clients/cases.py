# SPDX-License-Identifier: Apache-2.0
"""All cases: each has the request that every client makes, and the expected outcome."""

import math
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import grpc
import numpy as np
from google.rpc import status_pb2

from tests.clients.claims import CLAIMS, GRID_OF_AXES, TABLES, TEXTS, VECTORS
from tests.clients.connections import CONNECTIONS
from tests.clients.faults import (
    CUT,
    DRAINING,
    STALL,
    Fault,
    Refusal,
    apart,
    at,
    chunk,
    empty_chunk,
    flip_last,
    for_calls,
    from_beginning,
    header,
    in_turn,
    none,
    only,
    part,
    replaced,
    resumed,
    then,
    with_header,
)
from tests.clients.trial import (
    LARGE,
    SMALL,
    TABLE,
    TABLE_FILE,
    TABLE_TENSOR,
    Asked,
    Fails,
    Trial,
    alibi,
    encoding,
    sinusoid,
    spoilt,
    t5,
)
from tests.support.cases import Case

ANSWERS = {
    "diagonals": Trial(alibi(query_length=37, key_length=37)),
    "dense, a window, masked": Trial(
        alibi(
            query_length=9,
            queries=(3, 9),
            key_length=9,
            keys=(2, 9),
            heads=(1, 5),
            form="dense",
            data_type="f16",
            causal=True,
        )
    ),
    "dense, one mask filled": Trial(
        alibi(
            query_length=9,
            key_length=9,
            form="dense",
            data_type="bf16",
            window_left=2,
            fill_lowest=True,
        )
    ),
    "dense, positions listed, masked": Trial(
        alibi(query_positions=[9, 0, 1, 4], key_positions=[7, 3], causal=True)
    ),
    "key row": Trial(
        alibi({"variant": "KEY_FROM_END"}, query_length=3, key_length=11, alignment="end")
    ),
    "one number": Trial(alibi(query_length=1, key_length=1, heads=(7, 8), data_type="f64")),
    "table, positions listed": Trial(sinusoid(position_ids=[5, -3, 5, 1 << 40], data_type="f64")),
    "table, fractions listed": Trial(sinusoid(position_ids=[0.5, -3.0, 999.7], data_type="f64")),
    "table, integers as doubles": Trial(sinusoid(position_ids=[5.0, 6.0, 7.0])),
    "two parts": Trial(encoding("rotary", positions=(7, 40))),
    "a grid, by axis": Trial(GRID_OF_AXES),
    "a grid, dense": Trial(GRID_OF_AXES._replace(options=GRID_OF_AXES.options | {"form": "dense"})),
    "block and border": Trial(
        Asked(Case("grid_relative", {"window": [1, 15], "class_token": True, "table": TABLE}), {})
    ),
    "block of three axes, every second query": Trial(
        Asked(
            Case("grid_relative", {"window": [2, 2, 3], "table": np.eye(45, 2, dtype=np.float32)}),
            {"query_stride": [2, 1, 2]},
        )
    ),
    "vectors": Trial(VECTORS),
    "indices": Trial(encoding("deberta", query_length=20, key_length=20, values="buckets")),
    "learned table in the request": Trial(t5(TABLE)),
    "mounted table with an unusual name": Trial(t5(f"{TABLE_FILE}:{TABLE_TENSOR}")),
    "many chunks": Trial(LARGE),
}

REFUSALS = {
    "a negative number of heads": Trial(
        alibi({"num_heads": -1}, query_length=4, key_length=4),
        fails=Fails(
            "INVALID_ARGUMENT", "alibi.num_heads: ", "INVALID_FIELD", "spec.alibi.num_heads"
        ),
    ),
    "no positions": Trial(
        sinusoid(positions=(4, 4)),
        fails=Fails("INVALID_ARGUMENT", "positions: ", "INVALID_FIELD", "spec.table.positions"),
    ),
    "no such table": Trial(
        t5("nobody's"),
        fails=Fails("NOT_FOUND", "t5.table", "TABLE_NOT_FOUND", "spec.t5.table.name"),
    ),
    "positions beyond the table": Trial(
        encoding("learned_absolute", positions=(0, 100000)),
        fails=Fails("OUT_OF_RANGE", "positions: ", "OUT_OF_RANGE", "spec.table.positions"),
    ),
    "no token": Trial(
        alibi(query_length=4, key_length=4),
        guarded=True,
        fails=Fails("UNAUTHENTICATED", "requires authentication", "NO_CREDENTIALS"),
    ),
    "unknown token": Trial(
        alibi(query_length=4, key_length=4),
        guarded=True,
        settings={"token": "guessed"},
        fails=Fails("UNAUTHENTICATED", "rejected this token", "UNKNOWN_TOKEN"),
    ),
    "a token": Trial(alibi(query_length=4, key_length=4), guarded=True, settings={"token": "all"}),
    "a method that is not allowed": Trial(
        alibi(query_length=4, key_length=4),
        guarded=True,
        settings={"token": "little"},
        fails=Fails("PERMISSION_DENIED", "denied permission", "METHOD_NOT_ALLOWED"),
    ),
    "larger than the client accepts": Trial(
        LARGE,
        settings={"max_tensor_bytes": 5242879},
        fails=Fails(
            "RESOURCE_EXHAUSTED",
            "the tensor has 5242880 bytes, but this client accepts at most 5242879",
        ),
    ),
}


def refused(
    code: str,
    reason: str = "",
    retry_seconds: float | None = None,
    trailers: tuple[tuple[str, str | bytes], ...] = (),
) -> Refusal:
    return Refusal(grpc.StatusCode[code], "not now", reason, retry_seconds, trailers)


def detailed(raw: bytes) -> Trial:
    """Returns a trial with an error whose details are these meaningless bytes."""
    refusal = refused("INVALID_ARGUMENT", trailers=((DETAILS, raw),))
    return Trial(LARGE, then(refusal, after=0), fails=Fails("INVALID_ARGUMENT", "not now"))


def status_with(detail: bytes) -> bytes:
    """Returns the bytes of a status whose detail is an ErrorInfo with these bytes."""
    status = status_pb2.Status(code=grpc.StatusCode.INVALID_ARGUMENT.value[0], message="not now")
    status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=detail)
    return status.SerializeToString()


def late(fault: Fault) -> Trial:
    """Returns a trial that lasts until the client's deadline."""
    fails = Fails("DEADLINE_EXCEEDED", "no complete response from 127.0.0.1:")
    return Trial(LARGE, fault, settings={"timeout": 3}, fails=fails, calls=None)


GARBAGE = b"\xff\xff"
NESTED = b"\x7b" * 2000 + b"\x7c" * 2000
"""Unknown groups, each nested in the one before."""
PUSHBACK, DETAILS = "grpc-retry-pushback-ms", "grpc-status-details-bin"
OVERLOADED = refused("RESOURCE_EXHAUSTED", "OVERLOADED", 0.7)
INTERRUPTED = {
    "`UNAVAILABLE` at first": Trial(LARGE, in_turn(then(DRAINING, after=0), none), calls=2),
    "`UNAVAILABLE` forever, `max_attempts` 3": Trial(
        LARGE,
        then(DRAINING, after=0),
        settings={"max_attempts": 3},
        fails=Fails("UNAVAILABLE", "the server drains", "DRAINING"),
        calls=3,
    ),
    "`RESOURCE_EXHAUSTED` twice, with a delay of 0.7 s": Trial(
        LARGE, in_turn(*[then(OVERLOADED, after=0)] * 2, none), calls=3, gap=0.7
    ),
    "`RESOURCE_EXHAUSTED`, with a delay beyond the timeout": Trial(
        LARGE,
        then(refused("RESOURCE_EXHAUSTED", "OVERLOADED", 3600), after=0),
        fails=Fails("RESOURCE_EXHAUSTED", "not now", "OVERLOADED"),
    ),
    "`UNAVAILABLE`, with a delay of 0.7 s": Trial(
        LARGE, in_turn(then(refused("UNAVAILABLE", "", 0.7), after=0), none), calls=2, gap=0.7
    ),
    "a trailer `grpc-retry-pushback-ms: 700`": Trial(
        LARGE,
        in_turn(then(refused("RESOURCE_EXHAUSTED", trailers=((PUSHBACK, "700"),)), after=0), none),
        calls=2,
        gap=0.7,
    ),
    "a trailer `grpc-retry-pushback-ms: -1`": Trial(
        LARGE,
        then(refused("UNAVAILABLE", trailers=((PUSHBACK, "-1"),)), after=0),
        fails=Fails("UNAVAILABLE", "not now"),
    ),
    "`INVALID_ARGUMENT`, with garbage as details": detailed(GARBAGE),
    "`INVALID_ARGUMENT`, with details that end early": detailed(status_with(b"")[:-1]),
    "`INVALID_ARGUMENT`, with details nested 2000 deep": detailed(status_with(b"") + NESTED),
    "`INVALID_ARGUMENT`, with a detail nested 2000 deep": detailed(status_with(NESTED)),
    "`INVALID_ARGUMENT`, with garbage as a detail": detailed(status_with(GARBAGE)),
    "`INVALID_ARGUMENT`, with a detail that is not UTF-8": detailed(
        status_with(b"\x0a\x02\xff\xfe")
    ),
    "`INVALID_ARGUMENT`, with 6 KiB of garbage as details": detailed(GARBAGE * (3 << 10)),
    # Most clients do not read all of it.
    "`RESOURCE_EXHAUSTED`, with 1 MiB of garbage as details": Trial(
        LARGE,
        then(refused("RESOURCE_EXHAUSTED", trailers=((DETAILS, GARBAGE * (1 << 19)),)), after=0),
        fails=Fails("RESOURCE_EXHAUSTED", "not now|metadata size exceeds"),
    ),
    "`RESOURCE_EXHAUSTED` without a delay": Trial(
        LARGE,
        then(refused("RESOURCE_EXHAUSTED"), after=0),
        fails=Fails("RESOURCE_EXHAUSTED", "not now"),
    ),
    "`INTERNAL` midway": Trial(
        LARGE, then(refused("INTERNAL"), after=1), fails=Fails("INTERNAL", "not now")
    ),
    "`UNAVAILABLE` midway": Trial(LARGE, resumed(none), calls=2),
    "`ABORTED` midway": Trial(LARGE, in_turn(then(refused("ABORTED"), after=2), none), calls=2),
    "`CANCELLED` midway": Trial(LARGE, in_turn(then(refused("CANCELLED"), after=2), none), calls=2),
    "`UNAVAILABLE` after each chunk": Trial(LARGE, then(DRAINING, after=1), calls=5),
    "`INTERNAL` after the last byte": Trial(LARGE, then(refused("INTERNAL"), after=5)),
    "connection reset before the header": Trial(LARGE, in_turn(then(CUT, after=0), none), calls=2),
    "connection reset midway": Trial(LARGE, in_turn(then(CUT, after=2), none), calls=2),
    "stalled before the header": late(then(STALL, after=0)),
    "stalled midway": late(then(STALL, after=2)),
}

NOT_PROTOBUF = "message: not a valid protobuf message"
SHORT = "stream: ended after 4194304 bytes, want 5242880"
CHUNKS = {
    "the last chunk missing": spoilt(only(0, 1, 2, 3), SHORT),
    "a chunk missing": spoilt(only(0, 2, 3, 4), "chunk: got offset 2097152, want 1048576"),
    "chunks in another order": spoilt(
        only(0, 2, 1, 3, 4), "chunk: got offset 2097152, want 1048576"
    ),
    "a chunk twice": spoilt(only(0, 1, 1, 2, 3, 4), "chunk: got offset 1048576, want 2097152"),
    "a chunk beyond the end": spoilt(
        only(0, 1, 2, 3, 4, 4),
        "chunk: got 1048576 bytes of data, want at most the 0 remaining",
    ),
    "an empty message": spoilt(
        lambda _, messages: [*messages[:1], b"", *messages[1:]], "chunk: got offset 0, want 1048576"
    ),
    "a chunk without bytes": Trial(
        LARGE, lambda _, messages: [*messages[:1], empty_chunk(1 << 20), *messages[1:]]
    ),
    "endless chunks without bytes": late(
        lambda _, messages: chain(messages[:1], repeat(empty_chunk(1 << 20)))
    ),
    "a negative offset": spoilt(
        chunk(lambda reply: setattr(reply, "offset", -1)), "chunk: got offset -1, want 1048576"
    ),
    "a message cut short": spoilt(replaced(2, lambda raw: raw[:-9]), NOT_PROTOBUF),
    "a flipped bit": spoilt(
        replaced(1, flip_last),
        "chunk: 1048576 bytes at offset 1048576 have CRC-32C [0-9a-f]{8}, want",
    ),
    "no checksum": spoilt(
        chunk(lambda reply: reply.ClearField("crc32c")), "have CRC-32C [0-9a-f]{8}, want 00000000"
    ),
}


def shape(*lengths: int, size: int | None = None, total: bool = True) -> Fault:
    """Declares a different F32 shape in the header, by default with a matching size."""

    def change(owner: Any) -> None:
        owner.shape[:] = lengths
        owner.size_bytes = 4 * math.prod(lengths) if size is None else size

    return part(change, total=total)


OF_ANOTHER_REQUEST = chunk(
    lambda reply: setattr(reply, "request_crc32c", reply.request_crc32c ^ 1), 0
)
NOT_THIS_REQUEST = "request_crc32c: got [0-9a-f]{8}, want [0-9a-f]{8}"
DOES_NOT_ADD_UP = "header: part positions at byte [08] has shape .* does not add up"
HEADERS = {
    "nothing, and `OK`": spoilt(only(), "stream: ended without a header"),
    "the header alone": spoilt(
        lambda _, messages: apart(messages)[:1], "stream: ended after 0 bytes, want 5242880"
    ),
    "the header alone, then all chunks": Trial(LARGE, lambda _, messages: apart(messages)),
    "the header alone, then all chunks, after a break": Trial(
        LARGE, resumed(lambda _, messages: apart(messages)), calls=2
    ),
    "all chunks without a header": spoilt(
        lambda _, messages: apart(messages)[1:], "stream: the first message has no header"
    ),
    "the header with more than all data": spoilt(
        chunk(lambda reply: setattr(reply, "data", reply.data + b"more"), 0),
        "chunk: got 2340 bytes of data, want at most the 2336 remaining",
        SMALL,
    ),
    "the header with a chunk of another offset": spoilt(
        chunk(lambda reply: setattr(reply, "offset", 4), 0), "chunk: got offset 4, want 0"
    ),
    "the header with a flipped bit": spoilt(
        replaced(0, flip_last), "chunk: 1048576 bytes at offset 0 have CRC-32C [0-9a-f]{8}, want"
    ),
    "an empty first message": spoilt(
        lambda _, messages: [b"", *messages], "stream: the first message has no header"
    ),
    "a second header": spoilt(
        lambda _, messages: [apart(messages)[0], *messages], "stream: a second header"
    ),
    "a second header midway": spoilt(only(0, 1, 0, 2, 3, 4), "stream: a second header"),
    "a header cut short": spoilt(lambda _, messages: [apart(messages)[0][:-2]], NOT_PROTOBUF),
    "garbage as the header": spoilt(with_header(b"\xff" * 9), NOT_PROTOBUF),
    "a header with another checksum": spoilt(
        chunk(lambda reply: reply.header.parts[0].ClearField("name"), 0),
        "header: got CRC-32C [0-9a-f]{8}, want [0-9a-f]{8}",
    ),
    "a header without a checksum": spoilt(
        chunk(lambda reply: reply.ClearField("header_crc32c"), 0),
        "header: got CRC-32C [0-9a-f]{8}, want none",
    ),
    "no checksum of the request": spoilt(
        chunk(lambda reply: reply.ClearField("request_crc32c"), 0),
        "request_crc32c: got none, want [0-9a-f]{8}",
    ),
    "the answer to another request": spoilt(OF_ANOTHER_REQUEST, NOT_THIS_REQUEST),
    "a header of 5 MiB": Trial(
        LARGE,
        header(lambda owner: owner.derived.add(name="x" * (5 << 20))),
        fails=Fails(
            "RESOURCE_EXHAUSTED", "[Rr]eceived message larger than max|the message is too large"
        ),
    ),
    "a header that declares 1 TiB": Trial(
        LARGE,
        shape(1 << 30, 256),
        fails=Fails("RESOURCE_EXHAUSTED", "the tensor has 1099511627776 bytes"),
    ),
    "a header that declares more than is sent": spoilt(
        shape(5121, 256), "stream: ended after 5242880 bytes, want 5243904"
    ),
    "a header that declares less than is sent": spoilt(
        shape(1024, 256), "chunk: got 1048576 bytes of data, want at most the 0 remaining"
    ),
    "a shape that does not match the size": spoilt(shape(5121, 256, size=5242880), DOES_NOT_ADD_UP),
    "negative lengths": spoilt(shape(-5120, -256), DOES_NOT_ADD_UP),
    "a shape beyond 64 bits": spoilt(shape(1 << 31, 1 << 31, size=0), DOES_NOT_ADD_UP),
    "a hole before the part": spoilt(
        part(lambda owner: setattr(owner, "offset", 8)), DOES_NOT_ADD_UP
    ),
    "a total other than the sum": spoilt(
        shape(5121, 256, total=False),
        "header.total_bytes: got 5242880, want 5243904, the sum of its parts",
    ),
    "no parts": spoilt(
        header(lambda owner: (owner.ClearField("parts"), owner.ClearField("total_bytes"))),
        "header: has no parts",
    ),
    "65 axes": spoilt(
        shape(5120, 256, *[1] * 63), "header: part positions has 65 axes, want at most 64"
    ),
    "a header twice in its message": spoilt(
        replaced(0, lambda raw: raw + raw), "header: got CRC-32C [0-9a-f]{8}, want [0-9a-f]{8}"
    ),
    "an unknown form": Trial(
        LARGE,
        part(lambda owner: setattr(owner, "form", 99)),
        fails=Fails("UNIMPLEMENTED", "header: part positions has form 99"),
    ),
    "an unknown element type": Trial(
        LARGE,
        part(lambda owner: setattr(owner, "data_type", 99)),
        fails=Fails("UNIMPLEMENTED", "header: part positions has data_type 99"),
    ),
} | CLAIMS

MISMATCH = Refusal(grpc.StatusCode.FAILED_PRECONDITION, "other bytes", "FINGERPRINT_MISMATCH")
NOT_MOUNTED = Refusal(grpc.StatusCode.NOT_FOUND, "not mounted here", "TABLE_NOT_FOUND")
BREAK = then(DRAINING, after=2)
RESUMED = {
    "resumed with another fingerprint": spoilt(
        resumed(header(lambda owner: setattr(owner, "fingerprint", "0" * 64))),
        "stream: resumed with fingerprint 0{64}, want [0-9a-f]{64}",
        calls=2,
    ),
    "resumed with another number of columns": spoilt(
        resumed(shape(5120, 512)), "stream: resumed with parts? .*, want ", calls=2
    ),
    "resumed with the answer to another request": spoilt(
        resumed(OF_ANOTHER_REQUEST), NOT_THIS_REQUEST, calls=2
    ),
    "resumed at the beginning": spoilt(
        resumed(chunk(lambda reply: setattr(reply, "offset", 0), 0)),
        "chunk: got offset 0, want 2097152",
        calls=2,
    ),
    "`FAILED_PRECONDITION` when resuming": Trial(
        LARGE, resumed(then(MISMATCH, after=0), none), calls=3
    ),
    "`FAILED_PRECONDITION` when resuming again": Trial(
        LARGE,
        in_turn(BREAK, then(MISMATCH, after=0), BREAK, then(MISMATCH, after=0)),
        fails=Fails("FAILED_PRECONDITION", "other bytes", "FINGERPRINT_MISMATCH"),
        calls=4,
    ),
    "`NOT_FOUND` when resuming": Trial(LARGE, resumed(then(NOT_MOUNTED, after=0), none), calls=3),
    "`NOT_FOUND` when resuming again": Trial(
        LARGE,
        in_turn(BREAK, then(NOT_MOUNTED, after=0), BREAK, then(NOT_MOUNTED, after=0)),
        fails=Fails("NOT_FOUND", "not mounted here", "TABLE_NOT_FOUND"),
        calls=4,
    ),
    "`FAILED_PRECONDITION` midway": Trial(
        LARGE,
        then(MISMATCH, after=2),
        fails=Fails("FAILED_PRECONDITION", "other bytes", "FINGERPRINT_MISMATCH"),
    ),
}

ONE_MESSAGE = {
    "the correct answer, twice": Trial(SMALL, settings={"times": 2}, calls=2),
    "`UNAVAILABLE` the second time": Trial(
        SMALL, in_turn(none, then(DRAINING, after=0), none), settings={"times": 2}, calls=3
    ),
    "a flipped bit in the only message": spoilt(
        replaced(0, flip_last), "chunk: 2336 bytes at offset 0 have CRC-32C", SMALL
    ),
    "the only message cut short": spoilt(replaced(0, lambda raw: raw[:-9]), NOT_PROTOBUF, SMALL),
}
# 24 MiB, and an offset beyond the 16 MiB window.
HUGE, PLACE = sinusoid(positions=(0, 24576)), 21 << 20
RANGES = {
    "the correct answer, 24 MiB": Trial(HUGE),
    "a flipped bit beyond 16 MiB": spoilt(
        at(PLACE, lambda rest: [flip_last(rest[0]), *rest[1:]]),
        f"chunk: 1048576 bytes at offset {PLACE} have CRC-32C",
        HUGE,
    ),
    "`UNAVAILABLE` beyond 16 MiB": Trial(HUGE, at(PLACE, lambda _: [DRAINING]), calls=2),
    # A reset may discard everything sent during its call, so the resets must stop at some point.
    "connection reset beyond 16 MiB": Trial(
        HUGE, for_calls(10, at(PLACE, lambda _: [CUT])), calls=None
    ),
    "`NOT_FOUND` beyond 16 MiB": Trial(
        HUGE,
        from_beginning(in_turn(at(PLACE, lambda _: [DRAINING]), none), then(NOT_MOUNTED, after=0)),
        calls=3,
    ),
    "another fingerprint beyond 16 MiB": spoilt(
        from_beginning(
            at(PLACE, lambda _: [DRAINING]),
            header(lambda owner: setattr(owner, "fingerprint", "0" * 64)),
        ),
        "stream: resumed with fingerprint 0{64}, want [0-9a-f]{64}",
        HUGE,
        calls=2,
    ),
    "`OK` beyond 16 MiB": spoilt(
        at(PLACE, lambda _: []), f"stream: ended after {PLACE} bytes, want", HUGE
    ),
}
# How many streams have started when one of them fails depends on timing.
RANGES |= {
    f"{name}, `streams` 3": replace(trial, settings={"streams": 3}, calls=None)
    for name, trial in RANGES.items()
}

TRIALS = (
    ANSWERS
    | REFUSALS
    | CONNECTIONS
    | INTERRUPTED
    | CHUNKS
    | HEADERS
    | TEXTS
    | TABLES
    | RESUMED
    | ONE_MESSAGE
    | RANGES
)
