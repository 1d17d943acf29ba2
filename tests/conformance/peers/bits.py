# SPDX-License-Identifier: Apache-2.0
"""Bitwise comparison of arrays, so that -0 differs from 0."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]


def bits(array: Array) -> Array:
    """Returns the array's elements as unsigned integers of the same width."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def assert_same_bits(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    different = np.argwhere(bits(got) != bits(want))
    if len(different):
        first = tuple(different[0])
        raise AssertionError(
            f"{len(different)} of {got.size} elements differ, the first at {first}: "
            f"got {got[first]!r}, want {want[first]!r}"
        )


def to_array(tensor: torch.Tensor) -> Array:
    """Returns a tensor as an array with the same bits; bf16 is supported."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()
