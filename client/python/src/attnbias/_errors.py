# SPDX-License-Identifier: Apache-2.0
"""gRPC statuses as exceptions. No other module decides which class a status becomes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from attnbias._words import in_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from attnbias._channel import Endpoint


@dataclass(frozen=True)
class FieldViolation:
    """One wrong field of a request."""

    field: str
    """The argument, or a field of the encoding: ``keys``, ``sinusoidal.dim``."""
    description: str
    """What came and what was wanted."""


class Error(Exception):
    """What a call failed with; the base of all errors that this package defines.

    Attributes:
        code: the gRPC status code.
        message: what the server (or, for local failures, this package) said, in the words of
            this package.
        details: the status's ``google.rpc`` detail messages, decoded; in the contract's words.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode | None = None,
        details: Sequence[Message] = (),
        pushback: float | None = None,
    ) -> None:
        self._pushback = pushback
        self.code = type(self).code if code is None else code
        self.message = message
        self.details = tuple(details)
        super().__init__(f"{self.code.name}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        again = partial(type(self), code=self.code, details=self.details, pushback=self._pushback)
        return again, (self.message,), self.__dict__

    @property
    def field_violations(self) -> tuple[FieldViolation, ...]:
        """Which fields of the request were wrong, and how."""
        return tuple(
            FieldViolation(
                *in_arguments(f"{violation.field}: {violation.description}").split(": ", 1)
            )
            for detail in self.details
            if isinstance(detail, error_details_pb2.BadRequest)
            for violation in detail.field_violations
        )

    @property
    def reason(self) -> str:
        """The machine-readable reason, as in ``TENSOR_TOO_LARGE_FOR_UNARY``; "" without one."""
        for detail in self.details:
            if isinstance(detail, error_details_pb2.ErrorInfo):
                return str(detail.reason)
        return ""

    @property
    def retry_delay(self) -> float | None:
        """Seconds after which the server wants to be asked again.

        Infinite if it does not want to be, None if it did not say.
        """
        if self._pushback is not None:
            return self._pushback
        for detail in self.details:
            if isinstance(detail, error_details_pb2.RetryInfo):
                delay = detail.retry_delay
                return float(delay.seconds) + float(delay.nanos) * 1e-9
        return None


class CancelledError(Error):
    """The call was cancelled, as by closing the client."""

    code = grpc.StatusCode.CANCELLED


class InvalidArgumentError(Error, ValueError):
    """The request is wrong whatever the server's state; see ``field_violations``."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class DeadlineExceededError(Error, TimeoutError):
    """The timeout passed first."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class NotFoundError(Error):
    """A table or service by that name is not on this server."""

    code = grpc.StatusCode.NOT_FOUND


class PermissionDeniedError(Error):
    """The caller may not do this."""

    code = grpc.StatusCode.PERMISSION_DENIED


class ResourceExhaustedError(Error):
    """The server is over its memory budget, or a payload over ``max_tensor_bytes``."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class FailedPreconditionError(Error):
    """The server would no longer send the bytes that were begun."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class AbortedError(Error):
    """The server ended the call, as it does to a client that stops reading or sending."""

    code = grpc.StatusCode.ABORTED


class OutOfRangeError(Error):
    """Positions that the encoding has no numbers for, or an offset beyond the payload."""

    code = grpc.StatusCode.OUT_OF_RANGE


class UnimplementedError(Error):
    """The server does not know a field, an enum value or a method of this client."""

    code = grpc.StatusCode.UNIMPLEMENTED


class InternalError(Error):
    """A defect of the server."""

    code = grpc.StatusCode.INTERNAL


class UnavailableError(Error):
    """No server could be reached, or it went away; retries did not help."""

    code = grpc.StatusCode.UNAVAILABLE


class DataLossError(Error):
    """What came is not what was promised: a checksum, an offset, a length."""

    code = grpc.StatusCode.DATA_LOSS


class UnauthenticatedError(Error):
    """The caller did not say who it is."""

    code = grpc.StatusCode.UNAUTHENTICATED


_BY_CODE = {cls.code: cls for cls in Error.__subclasses__()}

_DETAIL_TYPES = (
    error_details_pb2.BadRequest,
    error_details_pb2.DebugInfo,
    error_details_pb2.ErrorInfo,
    error_details_pb2.Help,
    error_details_pb2.LocalizedMessage,
    error_details_pb2.PreconditionFailure,
    error_details_pb2.QuotaFailure,
    error_details_pb2.RequestInfo,
    error_details_pb2.ResourceInfo,
    error_details_pb2.RetryInfo,
)


class CallFailed(Exception):  # noqa: N818
    """A call ended with another status than OK; whoever made it decides what becomes of that."""

    def __init__(self, error: Error) -> None:
        super().__init__(error)
        self.error = error


class CallInterrupted(Exception):  # noqa: N818
    """A call ended because its process forks; it is to be made again at once."""


_UNREACHED: Final = re.compile(
    r"(?:connections to all backends failing|failed to connect to all addresses)"
    r"(?:; last error: (?P<last>.*))?|errors resolving|DNS resolution failed",
    re.DOTALL,
)
"""How gRPC says that there is no connection, and why there is none to the last address."""

_WHY_UNREACHED: Final = {
    "^errors resolving|^DNS": "{target} is not found: is the name right?",
    "WRONG_VERSION_NUMBER": "{target} answers, but not with TLS: leave out credentials",
    "CERTIFICATE_VERIFY_FAILED|Hostname Verification": (
        "{target} has a certificate that is not trusted here: pass its authority's, as "
        "credentials=grpc.ssl_channel_credentials(root_certificates=...)"
    ),
    "Failed parsing HTTP/2": "{target} answers, but not with gRPC: is it the right port?",
    "Socket closed|reset by peer|handshake": "{target} answers, but not with gRPC {how}",
    "": (
        "nothing answers at {target}: is the server running? attnbias.LocalServer() starts one, "
        "Client(target) asks another"
    ),
}


def from_rpc_error(error: grpc.RpcError, endpoint: Endpoint) -> Error:
    """Turns what gRPC raises into an Error."""
    code = error.code()
    cls = _BY_CODE.get(code, Error)
    message = in_arguments(error.details() or "")
    if code is grpc.StatusCode.UNAVAILABLE and (unreached := _UNREACHED.match(message)):
        message = _unreached(unreached["last"] or message, endpoint)
    return cls(message, code=code, details=_decode_details(error), pushback=_pushback(error))


def _unreached(says: str, endpoint: Endpoint) -> str:
    """What to try, and what gRPC says, in one line."""
    why = next(why for sign, why in _WHY_UNREACHED.items() if re.search(sign, says))
    if endpoint.credentials is None:
        how = "in plaintext: does it need TLS? pass credentials=..."
    else:
        how = "over TLS with these credentials"
    return f"{why.format(target=endpoint.target, how=how)} ({' '.join(says.split())})"


def _pushback(error: Any) -> float | None:
    """What a proxy or a server says in gRPC's own trailer, in seconds.

    What is no number of them forbids another attempt, as gRPC has it.
    """
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-retry-pushback-ms":
            return int(value) / 1000 if str(value).isdecimal() else math.inf
    return None


def _decode_details(error: Any) -> list[Message]:
    try:
        status = rpc_status.from_call(error)
    except (ValueError, DecodeError):  # the details contradict the status, or are not a Status
        return []
    return _unpack(status) if status is not None else []


def _unpack(status: status_pb2.Status) -> list[Message]:
    unpacked: list[Message] = []
    for packed in status.details:
        for detail_type in _DETAIL_TYPES:
            detail = detail_type()
            if packed.Unpack(detail):
                unpacked.append(detail)
    return unpacked
