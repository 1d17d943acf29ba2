# SPDX-License-Identifier: Apache-2.0
"""Converts gRPC statuses to exceptions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from attnbias._errors import MOST_CHARACTERS, Error, UnavailableError, escaped
from attnbias._public.google.rpc import error_details_pb2, status_pb2
from attnbias._transport.channel import Endpoint
from attnbias._transport.credentials import Certificates

_BY_CODE = {cls.code: cls for cls in Error.__subclasses__()}

_DETAIL_TYPES = (
    error_details_pb2.BadRequest,
    error_details_pb2.ErrorInfo,
    error_details_pb2.RequestInfo,
    error_details_pb2.RetryInfo,
)


class CallFailed(Exception):  # noqa: N818
    """A call ended with a status other than OK; the caller decides whether to retry."""

    def __init__(self, error: Error) -> None:
        super().__init__(error)
        self.error = error


class CallInterrupted(Exception):  # noqa: N818
    """A call ended because its process is forking; the caller retries immediately."""


_UNREACHED: Final = re.compile(
    r"(?:connections to all backends failing|failed to connect to all addresses)"
    r"(?:; last error: (?P<last>.*))?|errors resolving|DNS resolution failed",
    re.DOTALL,
)
"""Matches gRPC's message for a missing connection; ``last`` is the reason for the last address."""

_NOT_FOUND: Final = "^errors resolving|^DNS"
_WHY_UNREACHED: Final = {
    _NOT_FOUND: "{target} cannot be resolved: is the name right?",
    "WRONG_VERSION_NUMBER": "{target} answers, but not over TLS: leave out tls, or credentials",
    "has expired": "{target} has a certificate that has expired",
    "CERTIFICATE_VERIFY_FAILED": (
        "{target} has a certificate that is not trusted here: pass its CA's "
        "certificate as tls=attnbias.Tls(ca=FILE)"
    ),
    "Hostname Verification|not in peer cert": (
        "{target} has a certificate for another name: connect using one of its names, or pass one "
        "as tls=attnbias.Tls(server_name=NAME)"
    ),
    "Failed parsing HTTP/2": "{target} answers, but does not speak gRPC: is this the right port?",
    "Socket closed|reset by peer|handshake|alert": (
        "{target} answers, but does not speak gRPC {how}"
    ),
    r"timed out before receiving SETTINGS|\(Endpoint closing\)": (
        "{target} accepts connections, but does not answer: is this the right port?"
    ),
    "": (
        "nothing is answering at {target}: is the server running? Start one with "
        "attnbias.LocalServer(), or connect to another with Client(target)"
    ),
}

_CLOSED: Final = "over TLS: is it starting or stopping, "
_CERTIFICATE: Final = "tls=attnbias.Tls(cert=FILE, key=FILE)"
_WHO_CALLS: Final = (
    "{target} requires authentication: pass token=pathlib.Path(FILE), or " + _CERTIFICATE
)
_NOT_THIS_TOKEN: Final = "{target} rejected this token: is it for this server, and still valid?"
_NOT_THIS_CALLER: Final = (
    "{target} denied permission: ask its operator, or use another token or certificate"
)
_TOO_LARGE: Final = (
    "the message is too large; if it is the request, have the server mount the tables in it "
    "(--tables)"
)


def from_rpc_error(error: grpc.RpcError, endpoint: Endpoint) -> Error:
    code = error.code()
    says = escaped(" ".join((error.details() or "").split()), MOST_CHARACTERS)
    if code is grpc.StatusCode.UNAVAILABLE and (unreached := _UNREACHED.match(says)):
        return unreached_error({"": unreached["last"] or says}, endpoint)
    cls = _BY_CODE.get(code, Error)
    message = _with_advice(code, says, endpoint)
    return cls(message, code=code, details=_decode_details(error), pushback=_pushback(error))


def unreached_error(reasons: Mapping[str, str], endpoint: Endpoint) -> UnavailableError:
    """Returns the error for an endpoint to which there is no connection.

    ``reasons`` are gRPC's, keyed by address ("" if there is only one). The most informative reason
    determines the advice.
    """
    advice = next(
        why
        for sign, why in _WHY_UNREACHED.items()
        if any(re.search(sign, reason) for reason in reasons.values())
    )
    told = "; ".join(
        f"{address}: {reason.replace(';', ',')}" if address else reason
        for address, reason in reasons.items()
    )
    error = UnavailableError(f"{_filled(advice, endpoint)} ({told})")
    error.unreached = told
    return error


def is_of_the_name(error: Error) -> bool:
    """Reports whether the target's name could not be resolved."""
    return re.match(_NOT_FOUND, error.unreached) is not None


def tells_of_a_connection(error: Error) -> bool:
    """Reports whether the error proves that there was a connection to a server or proxy."""
    ended_here = {grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
    return not error.unreached and error.code not in ended_here


def _with_advice(code: grpc.StatusCode, says: str, endpoint: Endpoint) -> str:
    """Returns the server's or gRPC's message with advice, if any, on one line."""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        advice = "no complete response from {target} within the timeout"
    elif code is grpc.StatusCode.UNAUTHENTICATED:
        advice = _WHO_CALLS if endpoint.token is None else _NOT_THIS_TOKEN
    elif code is grpc.StatusCode.PERMISSION_DENIED:
        advice = _NOT_THIS_CALLER
    elif says.startswith("Received message larger than max"):
        advice = _TOO_LARGE
    else:
        return says
    return f"{_filled(advice, endpoint)} ({says})"


def _filled(advice: str, endpoint: Endpoint) -> str:
    how = f"{_CLOSED}or does it require a certificate? Pass {_CERTIFICATE}"
    if endpoint.security is None:
        how = "in plaintext: does it need TLS? Pass tls=True, or tls=attnbias.Tls(ca=FILE)"
    elif isinstance(endpoint.security, Certificates) and endpoint.security.has_own:
        how = f"{_CLOSED}or does it not trust the certificate in tls.cert?"
    return advice.format(target=endpoint.target, how=how)


def _pushback(error: Any) -> float | None:
    """Returns the retry delay from gRPC's own trailer, in seconds.

    As in gRPC, a value that is not a nonnegative integer forbids another attempt: the delay is
    infinite.
    """
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-retry-pushback-ms":
            return int(value) / 1000 if str(value).isdecimal() else math.inf
    return None


def _decode_details(error: Any) -> list[Message]:
    """Returns the details of a status, if they belong to gRPC's status."""
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    try:
        status = status_pb2.Status.FromString(packed)
        if (status.code, status.message) != (error.code().value[0], error.details()):
            return []
        pairs = ((packed, kind()) for packed in status.details for kind in _DETAIL_TYPES)
        details: list[Message] = [detail for each, detail in pairs if each.Unpack(detail)]
    except DecodeError:
        return []
    for detail in details:
        _escape(detail)
    return details


def _escape(message: Any) -> None:
    """Escapes all strings in a message, except map keys."""
    for field, value in message.ListFields():
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            for key in value:
                value[key] = escaped(value[key], MOST_CHARACTERS)
        elif kind is not None:
            for part in value if field.is_repeated else [value]:
                _escape(part)
        elif field.type == FieldDescriptor.TYPE_STRING and field.is_repeated:
            value[:] = [escaped(text, MOST_CHARACTERS) for text in value]
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, escaped(value, MOST_CHARACTERS))
