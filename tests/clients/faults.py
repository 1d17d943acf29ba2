# SPDX-License-Identifier: Apache-2.0
"""What a faulty server does to the answer of a StreamTensor.

A fault gets the number of the call, counted from 0, and the messages that the real server would
send: the header, and chunks from the offset that was asked for. It gives what is sent instead.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import grpc


class Refusal(NamedTuple):
    """The stream ends with this status."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    retry_seconds: float | None = None


class Stall:
    """Nothing more comes, and the stream does not end."""


class Cut:
    """The connection is reset."""


Step = bytes | Refusal | Stall | Cut
Fault = Callable[[int, list[bytes]], Iterable[Step]]


def none(_attempt: int, messages: list[bytes]) -> Iterable[Step]:
    return messages


def flipped_byte(_attempt: int, messages: list[bytes]) -> Iterable[Step]:
    """In the payload, of which data is the last field."""
    spoiled = bytearray(messages[1])
    spoiled[-1] ^= 1
    return [messages[0], bytes(spoiled), *messages[2:]]
