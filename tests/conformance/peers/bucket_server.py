# SPDX-License-Identifier: Apache-2.0
"""The server's buckets for very many configurations: several calls in flight on a plain stub."""

from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np
import numpy.typing as npt

import attnbias
from attnbias.v1 import service_pb2, tensor_pb2
from attnbias.v1.encodings_pb2 import TensorSpec

Buckets = npt.NDArray[np.int32]
Configuration = tuple[int, int]

_IN_FLIGHT = 16


class BucketServer:
    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target)
        self._get_tensor = self._channel.unary_unary(
            "/attnbias.v1.AttentionBiasService/GetTensor",
            request_serializer=service_pb2.GetTensorRequest.SerializeToString,
            response_deserializer=service_pb2.GetTensorResponse.FromString,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._channel.close()

    def sweep(
        self, asked: Iterable[tuple[Configuration, Iterable[TensorSpec]]]
    ) -> Iterator[tuple[Configuration, list[Buckets]]]:
        """Each configuration with the buckets of its specs."""
        in_flight: deque[tuple[Configuration, list[Any]]] = deque()
        for configuration, specs in asked:
            requests = (service_pb2.GetTensorRequest(spec=spec) for spec in specs)
            in_flight.append((configuration, [self._get_tensor.future(r) for r in requests]))
            if len(in_flight) == _IN_FLIGHT:
                yield _answer(in_flight.popleft())
        while in_flight:
            yield _answer(in_flight.popleft())


def bucket_spec(encoding: attnbias.Encoding, distance: int, keys: int) -> TensorSpec:
    """The buckets between the query at `distance` and keys from 0 on."""
    spec = encoding.to_spec()
    spec.pair.query_length = 1
    spec.pair.query_offset = distance
    spec.pair.key_length = keys
    spec.output.values = tensor_pb2.VALUES_BUCKETS
    return spec


def _answer(asked: tuple[Configuration, list[Any]]) -> tuple[Configuration, list[Buckets]]:
    configuration, calls = asked
    return configuration, [np.frombuffer(call.result().data, "<i4") for call in calls]
