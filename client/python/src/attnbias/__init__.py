# SPDX-License-Identifier: Apache-2.0
"""Client for attnbias, which computes, caches and streams Transformers' position tensors.

with attnbias.Client("localhost:50051") as client:
    table = client.get(attnbias.Sinusoidal(dim=512), positions=131072)
"""

from attnbias._client import Client
from attnbias._encodings import T5, ALiBi, Encoding, MultiAxisSinusoidal, Rotary, Sinusoidal, Xpos
from attnbias._errors import (
    AbortedError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    Error,
    FailedPreconditionError,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from attnbias._info import ServerInfo, ServerLimits, TensorInfo, TensorPart
from attnbias._request import Request, RequestOptions
from attnbias._tensors import KeyRow, Toeplitz

__all__ = [
    "T5",
    "ALiBi",
    "AbortedError",
    "CancelledError",
    "Client",
    "DataLossError",
    "DeadlineExceededError",
    "Encoding",
    "Error",
    "FailedPreconditionError",
    "FieldViolation",
    "InternalError",
    "InvalidArgumentError",
    "KeyRow",
    "MultiAxisSinusoidal",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "Request",
    "RequestOptions",
    "ResourceExhaustedError",
    "Rotary",
    "ServerInfo",
    "ServerLimits",
    "Sinusoidal",
    "TensorInfo",
    "TensorPart",
    "Toeplitz",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "Xpos",
]
