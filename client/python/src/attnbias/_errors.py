# SPDX-License-Identifier: Apache-2.0
"""Errors from calls, and escaping of text from other programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from attnbias._public.google.rpc import error_details_pb2

__all__ = [
    "AbortedError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "Error",
    "FailedPreconditionError",
    "FieldViolation",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
]


@dataclass(frozen=True)
class FieldViolation:
    """One invalid field of a request."""

    field: str
    """Path of the field, such as ``spec.pair.key_length``."""
    description: str
    """The value received and the values accepted."""


class Error(Exception):
    """A failed call; the base class of all errors that this package defines.

    Attributes:
        code: the gRPC status code.
        message: text from the server (or, for local failures, from this package), with control
            characters escaped.
        details: the decoded ``google.rpc`` details of the status, with control characters escaped.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init_subclass__(cls) -> None:
        """Derives a class's code from its name: INVALID_ARGUMENT for InvalidArgumentError."""
        super().__init_subclass__()
        words = re.findall("[A-Z][a-z]+", cls.__name__.removesuffix("Error"))
        cls.code = getattr(grpc.StatusCode, "_".join(words).upper(), cls.code)

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode | None = None,
        details: Sequence[Message] = (),
        pushback: float | None = None,
    ) -> None:
        self._pushback = pushback
        self.unreached = ""
        """Why there was no connection; "" if there was one."""
        self.code = type(self).code if code is None else code
        lines = message.split("\n")
        self.message = message = "\n".join(escaped(line, MOST_CHARACTERS) for line in lines)
        self.details = tuple(details)
        super().__init__(f"{self.code.name}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        again = partial(type(self), code=self.code, details=self.details, pushback=self._pushback)
        return again, (self.message,), self.__dict__

    @property
    def field_violations(self) -> tuple[FieldViolation, ...]:
        """Invalid fields of the request, with descriptions."""
        return tuple(
            FieldViolation(violation.field, violation.description)
            for detail in self._details(error_details_pb2.BadRequest)
            for violation in detail.field_violations
        )

    @property
    def reason(self) -> str:
        """Machine-readable reason, such as ``TENSOR_TOO_LARGE_FOR_UNARY``; "" if there is none."""
        return next((d.reason for d in self._details(error_details_pb2.ErrorInfo)), "")

    @property
    def request_id(self) -> str:
        """ID of the call in the server's log; "" if the server sent none."""
        return next((d.request_id for d in self._details(error_details_pb2.RequestInfo)), "")

    @property
    def retry_delay(self) -> float | None:
        """Seconds to wait before a retry, as requested by the server.

        Infinite if the server forbids a retry, None if it states no delay.
        """
        if self._pushback is not None:
            return self._pushback
        for detail in self._details(error_details_pb2.RetryInfo):
            delay = detail.retry_delay
            return float(delay.seconds) + float(delay.nanos) * 1e-9
        return None

    def _details(self, kind: type[Message]) -> Iterator[Any]:
        return (detail for detail in self.details if isinstance(detail, kind))


class CancelledError(Error):
    """The call was cancelled, for example by closing the client."""


class InvalidArgumentError(Error, ValueError):
    """The request is invalid regardless of the server's state; see ``field_violations``."""


class DeadlineExceededError(Error, TimeoutError):
    """The timeout passed before the call ended."""


class NotFoundError(Error):
    """The server has no table or service with that name."""


class PermissionDeniedError(Error):
    """The caller's token or certificate does not permit this."""


class ResourceExhaustedError(Error):
    """The server's memory budget is exhausted, or a payload exceeds ``max_tensor_bytes``."""


class FailedPreconditionError(Error):
    """The server can no longer send the rest of a payload that was partly received."""


class AbortedError(Error):
    """The server ended the call, for example because the client stopped reading or sending."""


class OutOfRangeError(Error):
    """The encoding has no values for the positions, or an offset exceeds the payload."""


class UnimplementedError(Error):
    """The server does not know a field, an enum value or a method that this client used."""


class InternalError(Error):
    """A defect in the server."""


class UnavailableError(Error):
    """No server could be reached, or it became unavailable, and retries failed."""


class DataLossError(Error):
    """Received data does not match a checksum, an offset, a length or the request."""


class UnauthenticatedError(Error):
    """The caller's identity is missing or was not accepted."""


MOST_CHARACTERS: Final = 8 << 10  # maximum characters in a message and in each text in its details
_MOST_SHOWN: Final = 400  # maximum characters in other texts


def escaped(text: str, most: int = _MOST_SHOWN) -> str:
    """Returns the text with unprintable characters escaped, for terminals and logs.

    Unprintable characters are control characters, including line breaks, and marks that change the
    text direction or have no width. Text of more than ``most`` characters is truncated.
    """
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text[:most]
    )
    return shown if len(text) <= most else f"{shown}..."
