# SPDX-License-Identifier: Apache-2.0
"""The server's buckets for many configurations, with several calls in flight on a plain stub."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self
from unittest import mock

import grpc
import numpy as np
import numpy.typing as npt
import torch
from t5_rules import rounded_log

import attnbias
from attnbias.v1 import service_pb2, tensor_pb2
from attnbias.v1.encodings_pb2 import TensorSpec

Buckets = npt.NDArray[np.int32]
Configuration = tuple[int, int]
Rule = Callable[[Configuration, npt.NDArray[np.int64]], Buckets]

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

    def __exit__(self, *exception: object) -> None:
        self._channel.close()

    def differences(
        self,
        configurations: Sequence[Configuration],
        specs_of: Callable[[Configuration], list[TensorSpec]],
        distances: npt.NDArray[np.int64],
        exact_rule: Rule,
        torch_rule: Rule,
    ) -> list[list[int]]:
        """Returns [*configuration, distance, FLOAT32_LOG's bucket, EXACT's] where the buckets
        differ.

        Compares the buckets for both rules (`specs_of` returns the specs) with the rules' oracles.
        torch's own logarithm is not correctly rounded, which changes the buckets of a few
        configurations.
        """
        found = []
        swept = rounded_otherwise = 0
        asked = ((configuration, specs_of(configuration)) for configuration in configurations)
        for configuration, (float32_log, exact) in self._sweep(asked):
            assert np.array_equal(exact, exact_rule(configuration, distances)), configuration
            if not np.array_equal(float32_log, torch_rule(configuration, distances)):
                rounded_otherwise += 1
                with mock.patch.object(torch, "log", rounded_log):
                    want = torch_rule(configuration, distances)
                assert np.array_equal(float32_log, want), configuration
            for i in np.flatnonzero(float32_log != exact):
                row = [*configuration, distances[i], float32_log[i], exact[i]]
                found.append([int(number) for number in row])
            swept += 1
        assert swept == len(configurations)
        assert rounded_otherwise <= 100
        return found

    def _sweep(
        self, asked: Iterable[tuple[Configuration, Iterable[TensorSpec]]]
    ) -> Iterator[tuple[Configuration, list[Buckets]]]:
        """Yields each configuration with the buckets for its specs."""
        in_flight: deque[tuple[Configuration, list[Any]]] = deque()
        for configuration, specs in asked:
            requests = (service_pb2.GetTensorRequest(spec=spec) for spec in specs)
            in_flight.append((configuration, [self._get_tensor.future(r) for r in requests]))
            if len(in_flight) == _IN_FLIGHT:
                yield _answer(in_flight.popleft())
        while in_flight:
            yield _answer(in_flight.popleft())


def bucket_spec(encoding: attnbias.Encoding, distance: int, keys: int) -> TensorSpec:
    """Returns the spec for the buckets between the query at `distance` and keys from 0 on."""
    spec = encoding.to_spec()
    spec.pair.query_length = 1
    spec.pair.query_offset = distance
    spec.pair.key_length = keys
    spec.output.values = tensor_pb2.VALUES_BUCKETS
    return spec


def _answer(asked: tuple[Configuration, list[Any]]) -> tuple[Configuration, list[Buckets]]:
    configuration, calls = asked
    return configuration, [np.frombuffer(call.result().data, "<i4") for call in calls]
