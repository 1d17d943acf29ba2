# SPDX-License-Identifier: Apache-2.0
"""Faults that a server injects into answers that carry payloads.

A fault receives the call number, counted from 0, and the messages that the real server would send:
chunks from the requested offset on, the first of which has the header. It yields the messages to
send instead.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import grpc
from crc32c import crc32c

from tests.support.contract import header_checksum, message


class Refusal(NamedTuple):
    """Ends the stream with this status."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    retry_seconds: float | None = None
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    """Trailing metadata to send in place of the details."""


class Stall:
    """Sends nothing more, but leaves the stream open."""


class Cut:
    """Resets the connection."""


class Away(NamedTuple):
    """Stops the server, which comes back after a few seconds."""

    seconds: float


class Pause(NamedTuple):
    """Sends nothing for a few seconds."""

    seconds: float


Step = bytes | Refusal | Stall | Cut | Away | Pause
Fault = Callable[[int, list[bytes]], Iterable[Step]]
Change = Callable[[Any], object]
"""Changes a message or a header in place."""

STALL, CUT = Stall(), Cut()
DRAINING = Refusal(grpc.StatusCode.UNAVAILABLE, "the server drains", "DRAINING")


def none(_attempt: int, messages: list[bytes]) -> Iterable[Step]:
    return messages


def then(*steps: Step, after: int) -> Fault:
    """Sends the first messages, then runs these steps."""
    return lambda _, messages: [*messages[:after], *steps]


def only(*order: int) -> Fault:
    """Sends only the messages with these indices, in this order."""
    return lambda _, messages: [messages[index] for index in order]


def replaced(index: int, change: Callable[[bytes], bytes]) -> Fault:
    """Replaces the bytes of one message; -1 is the last."""

    def fault(_attempt: int, messages: list[bytes]) -> Iterable[Step]:
        spoilt = list(messages)
        spoilt[index] = change(spoilt[index])
        return spoilt

    return fault


def chunk(change: Change, index: int = 1) -> Fault:
    """Changes fields of one chunk."""
    return replaced(index, lambda raw: _changed(raw, change))


def apart(messages: list[bytes]) -> list[bytes]:
    """Sends the header alone, followed by the first chunk."""
    first = _parsed(messages[0])
    names = ("header", "header_crc32c", "request_crc32c")
    alone = type(first)(**{name: getattr(first, name) for name in names})
    for name in names:
        first.ClearField(name)
    return [alone.SerializeToString(), first.SerializeToString(), *messages[1:]]


def header(change: Change) -> Fault:
    """Sends another header, with a correct checksum."""

    def changed(reply: Any) -> None:
        change(reply.header)
        reply.header_crc32c = header_checksum(reply)

    return chunk(changed, 0)


def part(change: Change, *, total: bool = True) -> Fault:
    """Changes the header's only part; by default, the total stays consistent."""

    def changed(owner: Any) -> None:
        change(owner.parts[0])
        if total:
            owner.total_bytes = owner.parts[0].size_bytes

    return header(changed)


def in_turn(*each: Fault) -> Fault:
    """Applies one fault per call, and the last one to all later calls."""
    return lambda attempt, messages: each[min(attempt, len(each) - 1)](attempt, messages)


def for_calls(count: int, fault: Fault) -> Fault:
    """Applies a fault to the first calls only."""
    return lambda attempt, messages: (fault if attempt < count else none)(attempt, messages)


def resumed(*each: Fault) -> Fault:
    """Breaks the first call after two chunks, and applies these faults to the following ones."""
    return in_turn(then(DRAINING, after=2), *each)


def with_header(header_bytes: bytes) -> Fault:
    """Replaces the first message's header with these bytes, which need not be a valid header."""

    def change(raw: bytes) -> bytes:
        fields = _parsed(raw)
        fields.ClearField("header")
        fields.header_crc32c = crc32c(header_bytes)
        start = b"\x0a" + _varint(len(header_bytes)) + header_bytes
        return start + bytes(fields.SerializeToString())

    return replaced(0, change)


def at(offset: int, spoil: Callable[[list[bytes]], Iterable[Step]]) -> Fault:
    """Corrupts the chunk at an offset and later chunks in the same call. A call that begins there
    is unaffected.
    """

    def fault(_attempt: int, messages: list[bytes]) -> Iterable[Step]:
        for index in range(1, len(messages)):
            if _parsed(messages[index]).offset == offset:
                return [*messages[:index], *spoil(messages[index:])]
        return messages

    return fault


def from_beginning(first: Fault, rest: Fault) -> Fault:
    """Applies one fault to calls that start at byte 0, and another to calls that start later."""

    def fault(attempt: int, messages: list[bytes]) -> Iterable[Step]:
        is_rest = _parsed(messages[0]).offset > 0
        return (rest if is_rest else first)(attempt, messages)

    return fault


def empty_chunk(offset: int) -> bytes:
    raw: bytes = message("StreamTensorResponse")(offset=offset).SerializeToString()
    return raw


def flip_last(raw: bytes) -> bytes:
    """Flips a bit of the payload; the data is the last field."""
    return raw[:-1] + bytes([raw[-1] ^ 1])


def _changed(raw: bytes, change: Change) -> bytes:
    reply = _parsed(raw)
    change(reply)
    spoiled: bytes = reply.SerializeToString()
    return spoiled


def _parsed(raw: bytes) -> Any:
    return message("StreamTensorResponse").FromString(raw)


def _varint(value: int) -> bytes:
    low, more = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(more) if more else bytes([low])
