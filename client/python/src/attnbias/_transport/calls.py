# SPDX-License-Identifier: Apache-2.0
"""The methods of the service, and the function that runs a request's coroutine.

A request is a coroutine, which the asynchronous client awaits. In the synchronous client, calls
block instead of suspending the coroutine, so that ``run`` completes it in one step. Retries,
resumption and checksums are therefore implemented only once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from attnbias._public.grpc.health.v1 import health_pb2
from attnbias.v1 import service_pb2

_SERVICE: Final = service_pb2.DESCRIPTOR.services_by_name["AttentionBiasService"]
_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"]

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Method:
    """A method and its message classes."""

    path: str
    kind: str
    request: type[Message]
    response: type[Message]
    is_raw: bool
    """True if messages are passed as bytes: chunks are parsed by hand, so that they are copied only
    once, and headers and requests are verified by their checksums."""

    def of(self, channel: Any) -> Any:
        """Returns the callable for the method over a channel of either kind."""
        return getattr(channel, self.kind)(
            self.path,
            request_serializer=None if self.is_raw else self.request.SerializeToString,
            response_deserializer=None if self.is_raw else self.response.FromString,
        )


def _method(service: Any, name: str, *, is_raw: bool = False) -> Method:
    method = service.methods_by_name[name]
    sides = (method.client_streaming, method.server_streaming)
    return Method(
        f"/{service.full_name}/{name}",
        "_".join("stream" if is_stream else "unary" for is_stream in sides),
        GetMessageClass(method.input_type),
        GetMessageClass(method.output_type),
        is_raw,
    )


STREAM_TENSOR: Final = _method(_SERVICE, "StreamTensor", is_raw=True)
COMPUTE_LOGITS: Final = _method(_SERVICE, "ComputeLogits", is_raw=True)
DESCRIBE_TENSOR: Final = _method(_SERVICE, "DescribeTensor", is_raw=True)
LIST_TABLES: Final = _method(_SERVICE, "ListTables")
GET_SERVER_INFO: Final = _method(_SERVICE, "GetServerInfo")
CHECK_HEALTH: Final = _method(_HEALTH, "Check")
# Sends the single request as a stream, which is identical on the wire. After a cancelled
# unary_stream call, gRPC would keep its threads forever and thereby block forks.
WATCH_HEALTH: Final = replace(_method(_HEALTH, "Watch"), kind="stream_stream")


Part: TypeAlias = "Callable[[Any], Coroutine[Any, Any, Any]]"
"""Work that makes its calls through the object passed to it."""
Read: TypeAlias = "Callable[[], Coroutine[Any, Any, Any]]"
"""Reads the next message of a stream; returns None if the stream ended with OK.

Raises CallFailed or CallInterrupted if the stream ended in any other way.
"""


def run(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Returns the result of a coroutine whose calls block."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: _Result = done.value
        return result
    raise AssertionError("a call that should block was awaited")
