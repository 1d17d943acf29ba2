# SPDX-License-Identifier: Apache-2.0
"""A payload as what a user holds: an array, a Toeplitz, a KeyRow, or several by name."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbias._errors import DataLossError
from attnbias._memory import part_of
from attnbias._tensors import KeyRow, Toeplitz

if TYPE_CHECKING:
    import numpy.typing as npt

    from attnbias._info import TensorInfo, TensorPart
    from attnbias._request import Request


def to_result(
    info: TensorInfo, memory: npt.NDArray[np.uint8], request: Request, out: Any = None
) -> Any:
    """Gives each part its form; several become a named tuple.

    An ``out`` that already is the array asked for is returned itself.
    """
    parts = [_to_part(info, memory, request, index) for index in range(len(info.parts))]
    if len(parts) > 1:
        fields = [part.name for part in info.parts]
        tensors: Any = namedtuple(f"{type(request.encoding).__name__}Tensors", fields)  # type: ignore[misc]
        return tensors(*parts)
    (result,) = parts
    same = isinstance(result, np.ndarray) and isinstance(out, np.ndarray)
    if same and (out.dtype, out.shape) == (result.dtype, result.shape):
        return out
    return result


def holds_vectors(part: TensorPart, request: Request) -> bool:
    """Whether the last axis of a part over pairs is the columns of vectors."""
    return request.encoding.vectors and part.dtype.kind != "i"


def _to_part(
    info: TensorInfo, memory: npt.NDArray[np.uint8], request: Request, index: int
) -> npt.NDArray[Any] | Toeplitz | KeyRow:
    part = info.parts[index]
    array = part_of(memory, info, index)
    if part.form == "key_row":
        return KeyRow(array, query_length=request.num_queries, fingerprint=info.fingerprint)
    if part.form != "toeplitz":
        return array
    try:
        return Toeplitz(
            array,
            query_length=request.num_queries,
            key_length=request.num_keys,
            first_relative_position=part.first_relative_position,
            vectors=holds_vectors(part, request),
            fingerprint=info.fingerprint,
        )
    except ValueError as error:
        raise DataLossError(f"header: {error}") from error
