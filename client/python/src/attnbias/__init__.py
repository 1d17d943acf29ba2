# SPDX-License-Identifier: Apache-2.0
"""Client for attnbias, which computes, caches and streams Transformers' position tensors.

with attnbias.Client("localhost:50051") as client:
    table = client.get(attnbias.Sinusoidal(dim=512), positions=131072)
"""

from attnbias._client import (
    Client,
)
from attnbias._encodings import (
    T5,
    ALiBi,
    Beit,
    Conformer,
    Encoding,
    LearnedAbsolute,
    Rotary,
    Shaw,
    Sinusoidal,
    Swin,
    SwinV2,
    SymmetricSinusoidal,
    TransformerXL,
    Tupe,
    XLNet,
)
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
from attnbias._grid import (
    BlockToeplitz,
    BorderedToeplitz,
)
from attnbias._info import (
    ServerInfo,
    ServerLimits,
    TableInfo,
    TensorInfo,
    TensorPart,
)
from attnbias._logits import (
    AbsoluteKeys,
    LogitsOptions,
    LogitsTerm,
    ShawKeys,
    ShawValues,
    SinusoidalDistances,
)
from attnbias._request import (
    Request,
    RequestOptions,
)
from attnbias._tensors import (
    KeyRow,
    Toeplitz,
)

__all__ = [
    "T5",
    "ALiBi",
    "AbortedError",
    "AbsoluteKeys",
    "Beit",
    "BlockToeplitz",
    "BorderedToeplitz",
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
    "Shaw",
    "ShawKeys",
    "ShawValues",
    "Sinusoidal",
    "SinusoidalDistances",
    "Swin",
    "SwinV2",
    "SymmetricSinusoidal",
    "TableInfo",
    "TensorInfo",
    "TensorPart",
    "Toeplitz",
    "TransformerXL",
    "Tupe",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "XLNet",
    "Xpos",
]
