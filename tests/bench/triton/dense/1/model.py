# SPDX-License-Identifier: Apache-2.0
"""A model of Triton's Python backend that has its answer ready."""

from typing import Any

import numpy as np
import triton_python_backend_utils as triton

LENGTH = 1024


class TritonPythonModel:
    def initialize(self, _: dict[str, str]) -> None:
        self._dense = np.ones((32, LENGTH, LENGTH), np.float32)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        heads = int(triton.get_input_tensor_by_name(request, "heads").as_numpy()[0])
        return triton.InferenceResponse([triton.Tensor("dense", self._dense[:heads])])
