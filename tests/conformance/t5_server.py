# SPDX-License-Identifier: Apache-2.0
"""The server's buckets for very many configurations: several calls in flight on a plain stub."""

from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np
import numpy.typing as npt

from attnbias.v1 import encodings_pb2, service_pb2, tensor_pb2

Buckets = npt.NDArray[np.int32]
Configuration = tuple[int, int]

_IN_FLIGHT = 16
_RULES = (encodings_pb2.BUCKET_RULE_FLOAT32_LOG, encodings_pb2.BUCKET_RULE_EXACT)


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
        self, configurations: Iterable[Configuration], distance: int, *, bidirectional: bool = False
    ) -> Iterator[tuple[Configuration, Buckets, Buckets]]:
        """FLOAT32_LOG's and EXACT's buckets of each (num_buckets, max_distance).

        They are those of relative positions -distance to 0, or to distance where
        bidirectional.
        """
        in_flight: deque[tuple[Configuration, list[Any]]] = deque()
        for configuration in configurations:
            requests = [
                _request(configuration, rule, distance, bidirectional=bidirectional)
                for rule in _RULES
            ]
            in_flight.append((configuration, [self._get_tensor.future(r) for r in requests]))
            if len(in_flight) == _IN_FLIGHT:
                yield _answer(in_flight.popleft())
        while in_flight:
            yield _answer(in_flight.popleft())


def _request(
    configuration: Configuration, rule: int, distance: int, *, bidirectional: bool
) -> service_pb2.GetTensorRequest:
    num_buckets, max_distance = configuration
    request = service_pb2.GetTensorRequest()
    t5 = request.spec.t5
    t5.num_buckets = num_buckets
    t5.max_distance = max_distance
    t5.bidirectional = bidirectional
    t5.bucket_rule = rule
    pair = request.spec.pair
    pair.query_length = 1
    pair.query_offset = distance
    pair.key_length = (2 * distance if bidirectional else distance) + 1
    request.spec.output.values = tensor_pb2.VALUES_BUCKETS
    return request


def _answer(asked: tuple[Configuration, list[Any]]) -> tuple[Configuration, Buckets, Buckets]:
    configuration, calls = asked
    float32_log, exact = (np.frombuffer(call.result().data, "<i4") for call in calls)
    return configuration, float32_log, exact
