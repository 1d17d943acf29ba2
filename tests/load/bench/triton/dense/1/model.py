# SPDX-License-Identifier: Apache-2.0
"""ALiBi as a model of Triton's Python backend: computed for each request or only once."""

from typing import Any

import numpy as np
import triton_python_backend_utils as triton

LENGTH = 1024


class TritonPythonModel:
    def initialize(self, _: dict[str, str]) -> None:
        positions = np.arange(LENGTH, dtype=np.float32)
        self._distances = -np.abs(positions - positions[:, None])
        self._ready = self._compute(32)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        heads, is_ready = (
            triton.get_input_tensor_by_name(request, name).as_numpy()[0]
            for name in ("heads", "is_ready")
        )
        dense = self._ready[:heads] if is_ready else self._compute(heads)
        return triton.InferenceResponse([triton.Tensor("dense", dense)])

    def _compute(self, heads: int) -> Any:
        slopes = 2.0 ** (-8 * np.arange(1, heads + 1, dtype=np.float32) / heads)
        return slopes[:, None, None] * self._distances
