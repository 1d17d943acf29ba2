# SPDX-License-Identifier: Apache-2.0
"""No answer from any method of any service repeats more than a small part of the request."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from tests.support.contract import (
    LIST_SERVICES,
    REFLECTION,
    SERVICE,
    alibi,
    inference_message,
    message,
    nested,
)
from tests.support.inference import request_of
from tests.support.server import Server

HUGE = b"x" * (1 << 20)
MOST_BYTES = 16 << 10
"""The most that HUGE may add to an answer: an error contains a one-kilobyte message three times."""
SECONDS = 30

HEALTH = "/grpc.health.v1.Health/"


def methods() -> dict[str, MethodDescriptor]:
    files = (message("GetTensorRequest"), inference_message("ModelInferRequest"))
    return {
        f"/{service.full_name}/{method.name}": method
        for file in files
        for service in file.DESCRIPTOR.file.services_by_name.values()
        for method in service.methods
    }


def text_fields(of: Descriptor, above: tuple[str, ...] = ()) -> Iterator[list[FieldDescriptor]]:
    """Yields the paths of string fields; for recursive messages, only the outer ones."""
    for field in of.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            yield [field]
        elif field.message_type and field.message_type.full_name not in above:
            inside = (*above, of.full_name)
            yield from ([field, *path] for path in text_fields(field.message_type, inside))


def base(path: str) -> bytes:
    """Returns a valid request for the method, to which the tests add one field."""
    spec = alibi(2, 4)
    requests: dict[str, Callable[[], Any]] = {
        f"/{SERVICE}/{method}": lambda method=method: message(f"{method}Request")(spec=spec)
        for method in ("DescribeTensor", "GetTensor", "StreamTensor")
    }
    for method in ("ModelInfer", "ModelStreamInfer"):
        requests[f"/inference.GRPCInferenceService/{method}"] = lambda: request_of(spec)
    serialised: bytes = requests[path]().SerializeToString() if path in requests else b""
    return serialised


def answer_bytes(channel: grpc.Channel, path: str, request: bytes, metadata: Any = ()) -> int:
    """Returns the size of all messages, the status and both kinds of metadata."""
    call = channel.stream_stream(path)(iter([request]), timeout=SECONDS, metadata=metadata)
    size = 0
    try:
        for number, reply in enumerate(call):
            size += len(reply)
            if number > 100 or path.endswith("Watch"):
                call.cancel()
    except grpc.RpcError:
        assert call.code() != grpc.StatusCode.DEADLINE_EXCEEDED
    size += len(call.details() or "")
    for key, value in (*call.initial_metadata(), *call.trailing_metadata()):
        size += len(key) + len(value)
    return size


@pytest.mark.parametrize("path", methods())
def test_errors_do_not_echo_long_request_text(shared_server: Server, path: str) -> None:
    request = base(path)
    fields = list(text_fields(methods()[path].input_type))
    with shared_server.connect() as stub:
        plain = answer_bytes(stub.channel, path, request)
        for field in fields:
            more = nested([one.number for one in field], HUGE)
            size = answer_bytes(stub.channel, path, request + more)
            name = ".".join(one.name for one in field)
            assert size <= plain + MOST_BYTES, f"{name}: {size} bytes"
        unknown = answer_bytes(stub.channel, path, request + nested([99999], HUGE))
        assert unknown <= plain + MOST_BYTES


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (HEALTH + "Check", [[1], [99999]]),
        (HEALTH + "Watch", [[1], [99999]]),
        (REFLECTION, [[1], [3], [4], [5, 1], [6], [7], [99999]]),
    ],
)
def test_health_and_reflection_do_not_echo_long_text(
    shared_server: Server, path: str, fields: list[list[int]]
) -> None:
    with shared_server.connect() as stub:
        for field in fields:
            assert answer_bytes(stub.channel, path, nested(field, HUGE)) <= MOST_BYTES, field


def test_errors_do_not_echo_long_metadata(shared_server: Server) -> None:
    names = ("x-request-id", "traceparent", "authorization", "x-other")
    with shared_server.connect() as stub:
        for name in names:
            metadata = [(name, "x" * 8000)]
            for request in (base(f"/{SERVICE}/GetTensor"), b"\xff"):
                size = answer_bytes(stub.channel, f"/{SERVICE}/GetTensor", request, metadata)
                assert size <= 4096, name


def test_reflection_still_answers(shared_server: Server) -> None:
    with shared_server.connect() as stub:
        ask = stub.channel.stream_stream(REFLECTION)
        (services,) = ask(iter([LIST_SERVICES]), timeout=SECONDS)
        assert SERVICE.encode() in services
        assert b"grpc.health.v1.Health" in services
        (file,) = ask(iter([nested([4], SERVICE.encode())]), timeout=SECONDS)
        assert len(file) > 1000
