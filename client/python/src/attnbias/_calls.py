# SPDX-License-Identifier: Apache-2.0
"""The methods of the service, and what making calls of them is.

All that a request needs to know about calls is here. It is a coroutine: the asynchronous client
awaits it, and the calls of the synchronous one block instead of suspending, so that ``run`` has it
in one step. Retries, resuming and checksums are so written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from attnbias._public.grpc.health.v1 import health_pb2
from attnbias.v1 import logits_pb2, service_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from google.protobuf.message import Message

    from attnbias._channel import Endpoint

_SERVICE: Final = "attnbias.v1.AttentionBiasService"
_HEALTH: Final = "grpc.health.v1.Health"

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Method:
    """A method, and the classes of its messages."""

    path: str
    kind: Literal["unary_unary", "unary_stream", "stream_stream"]
    request: type[Message]
    response: type[Message] | None = None
    """None leaves messages as they came. Chunks are parsed by hand, to copy them only once; headers
    are held to their checksum."""

    def of(self, channel: Any) -> Any:
        """What calls the method over a channel of either kind."""
        return getattr(channel, self.kind)(
            self.path,
            request_serializer=self.request.SerializeToString,
            response_deserializer=self.response and self.response.FromString,
        )


STREAM_TENSOR: Final = Method(
    f"/{_SERVICE}/StreamTensor", "unary_stream", service_pb2.StreamTensorRequest
)
GET_TENSOR: Final = Method(f"/{_SERVICE}/GetTensor", "unary_unary", service_pb2.GetTensorRequest)
COMPUTE_LOGITS: Final = Method(
    f"/{_SERVICE}/ComputeLogits", "stream_stream", logits_pb2.ComputeLogitsRequest
)
DESCRIBE_TENSOR: Final = Method(
    f"/{_SERVICE}/DescribeTensor", "unary_unary", service_pb2.DescribeTensorRequest
)
LIST_TABLES: Final = Method(
    f"/{_SERVICE}/ListTables",
    "unary_unary",
    service_pb2.ListTablesRequest,
    service_pb2.ListTablesResponse,
)
GET_SERVER_INFO: Final = Method(
    f"/{_SERVICE}/GetServerInfo",
    "unary_unary",
    service_pb2.GetServerInfoRequest,
    service_pb2.GetServerInfoResponse,
)
CHECK_HEALTH: Final = Method(
    f"/{_HEALTH}/Check",
    "unary_unary",
    health_pb2.HealthCheckRequest,
    health_pb2.HealthCheckResponse,
)
# One request, but sent as a stream, which is the same on the wire: of a unary_stream that is
# cancelled, gRPC would keep its threads for ever, in the way of forks.
WATCH_HEALTH: Final = Method(
    f"/{_HEALTH}/Watch",
    "stream_stream",
    health_pb2.HealthCheckRequest,
    health_pb2.HealthCheckResponse,
)


class Stream(Protocol):
    """A call in flight whose answer is a stream."""

    async def read(self) -> Any:
        """The next message; None at the end, if that is OK.

        Raises:
            CallFailed: it is not.
            CallInterrupted: see there.
        """


class Calls(Protocol):
    """The calls of one request to this package, which end together."""

    endpoint: Endpoint

    @property
    def has_reached(self) -> bool:
        """Whether the client has had a connection to its server."""
        ...

    async def ask(self, method: Method, message: Any, timeout: float | None) -> Any:
        """Makes a call with one answer.

        Raises:
            CallFailed: its status is not OK.
            CancelledError: the calls were cancelled, or the client closed.
        """

    def stream(
        self, method: Method, messages: Message | Iterator[Message], timeout: float | None
    ) -> AbstractAsyncContextManager[Stream]:
        """Makes a call whose answer is a stream. It is over when the block is left, however."""
        ...

    async def together(self, parts: Sequence[Part]) -> None:
        """Does several parts of the work at once, each over a connection of its own.

        Raises:
            Exception: the first of theirs, when the others have ended, too.
        """

    async def do(self, work: Callable[[], _Result]) -> _Result:
        """Does what takes the disk's time, to its end.

        Raises:
            CancelledError: the calls were cancelled, or the client closed, before.
        """
        ...

    async def pause(self, seconds: float) -> None:
        """Waits, but not through a cancel().

        Raises:
            CancelledError: the calls were cancelled, or the client closed.
        """

    async def wait(self, seconds: float) -> None:
        """Waits, but not through a cancel(), and has gRPC look for the server meanwhile.

        Raises:
            CancelledError: the calls were cancelled, or the client closed.
        """


Part: TypeAlias = "Callable[[Calls], Coroutine[Any, Any, Any]]"


def run(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of a coroutine whose calls block."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: _Result = done.value
        return result
    raise AssertionError("a call that should block was awaited")
