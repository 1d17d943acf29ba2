# SPDX-License-Identifier: Apache-2.0
"""What a request's answer would be, as the server says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbias._calls import DESCRIBE_TENSOR
from attnbias._expected import check_answer
from attnbias._info import TensorInfo, to_tensor_info
from attnbias._retry import ask
from attnbias._wire import read_header
from attnbias.v1 import encodings_pb2, service_pb2

if TYPE_CHECKING:
    from attnbias._calls import CallOptions
    from attnbias._retry import Deadline


async def ask_for_description(
    spec: encodings_pb2.TensorSpec, options: CallOptions, deadline: Deadline
) -> tuple[TensorInfo, bytes]:
    """What the server says, and its answer as it came."""
    message = service_pb2.DescribeTensorRequest(spec=spec)
    answer: bytes = await ask(DESCRIBE_TENSOR, message, options, deadline)
    info = read_description(answer, spec)
    options.sizes.learn(spec, info.nbytes)
    return info, answer


def read_description(answer: bytes, spec: encodings_pb2.TensorSpec) -> TensorInfo:
    """What such an answer to a request says.

    Raises:
        DataLossError: it is damaged, or describes another tensor than the one that was requested.
        UnimplementedError: it has an element type that this package does not know.
    """
    header = read_header(answer, service_pb2.TensorHeader)
    info = to_tensor_info(header)
    check_answer(header, spec)
    return info
