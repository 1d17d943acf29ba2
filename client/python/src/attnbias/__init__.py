# SPDX-License-Identifier: Apache-2.0
"""Client for attnbias, which computes, caches and streams Transformers' position tensors.

with attnbias.Client("localhost:50051") as client:
    table = client.get(attnbias.Sinusoidal(dim=512), positions=131072)
"""

from attnbias._client import Client
from attnbias._encodings import (
    T5,
    ALiBi,
    Beit,
    Deberta,
    DynamicPositionBias,
    Encoding,
    Fire,
    Kerple,
    LearnedRelative,
    PositionMlpLayer,
    Sandwich,
    Sinusoidal,
    Swin,
    SwinV2,
    Tupe,
)
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
from attnbias._grid import BlockToeplitz, BorderedToeplitz
from attnbias._info import ServerInfo, ServerLimits, TensorInfo, TensorPart
from attnbias._request import Request, RequestOptions
from attnbias._tensors import KeyRow, Toeplitz

__all__ = [
    "T5",
    "ALiBi",
    "AbortedError",
    "Beit",
    "BlockToeplitz",
    "BorderedToeplitz",
    "CancelledError",
    "Client",
    "DataLossError",
    "DeadlineExceededError",
    "Deberta",
    "DynamicPositionBias",
    "Encoding",
    "Error",
    "FailedPreconditionError",
    "FieldViolation",
    "Fire",
    "InternalError",
    "InvalidArgumentError",
    "Kerple",
    "KeyRow",
    "LearnedRelative",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "PositionMlpLayer",
    "Request",
    "RequestOptions",
    "ResourceExhaustedError",
    "Sandwich",
    "ServerInfo",
    "ServerLimits",
    "Sinusoidal",
    "Swin",
    "SwinV2",
    "TensorInfo",
    "TensorPart",
    "Toeplitz",
    "Tupe",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
]
