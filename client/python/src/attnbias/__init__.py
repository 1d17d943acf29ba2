# SPDX-License-Identifier: Apache-2.0
"""Client for attnbias, which computes, caches and streams Transformers' position tensors.

with attnbias.Client("localhost:50051") as client:
    table = client.get(attnbias.Sinusoidal(dim=512), positions=131072)
"""

from attnbias._client import Client
from attnbias._encodings import (
    T5,
    ALiBi,
    Conformer,
    Encoding,
    LearnedAbsolute,
    Shaw,
    Sinusoidal,
    SymmetricSinusoidal,
    TransformerXL,
    XLNet,
)
from attnbias._encodings import T5, ALiBi, Beit, Encoding, Sinusoidal, Swin, SwinV2, Tupe
from attnbias._encodings import T5, ALiBi, Encoding, Rotary, Sinusoidal
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
from attnbias._info import ServerInfo, ServerLimits, TableInfo, TensorInfo, TensorPart
from attnbias._logits import (
    AbsoluteKeys,
    LogitsOptions,
    LogitsTerm,
    ShawKeys,
    ShawValues,
    SinusoidalDistances,
)
from attnbias._request import Request, RequestOptions
from attnbias._tensors import KeyRow, Toeplitz

__all__ = [
    "T5",
    "ALiBi",
    "AbortedError",
    "Beit",
    "BlockToeplitz",
    "BorderedToeplitz",
    "AbsoluteKeys",
    "CancelledError",
    "Client",
    "Conformer",
    "DataLossError",
    "DeadlineExceededError",
    "Encoding",
    "Error",
    "FailedPreconditionError",
    "FieldViolation",
    "InternalError",
    "InvalidArgumentError",
    "KeyRow",
    "LearnedAbsolute",
    "LogitsOptions",
    "LogitsTerm",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "Request",
    "RequestOptions",
    "ResourceExhaustedError",
    "Rotary",
    "ServerInfo",
    "ServerLimits",
    "Shaw",
    "Sinusoidal",
    "SymmetricSinusoidal",
    "TableInfo",
    "ShawKeys",
    "ShawValues",
    "Sinusoidal",
    "SinusoidalDistances",
    "TensorInfo",
    "TensorPart",
    "Toeplitz",
    "TransformerXL",
    "Swin",
    "SwinV2",
    "TensorInfo",
    "TensorPart",
    "Toeplitz",
    "Tupe",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "XLNet",
]
