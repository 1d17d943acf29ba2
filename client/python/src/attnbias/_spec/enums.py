# SPDX-License-Identifier: Apache-2.0
"""Enum values and element types under their short names.

BUCKET_RULE_FLOAT32_LOG is "float32_log", DATA_TYPE_BF16 is "bf16".
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

from attnbias._arrays.convert import BFLOAT16
from attnbias.v1 import tensor_pb2

if TYPE_CHECKING:
    import torch

DType: TypeAlias = "npt.DTypeLike | torch.dtype"


def _prefix(enum: EnumDescriptor) -> str:
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")


def set_enum(message: Message, field: str, name: str, path: str) -> None:
    """Sets a field by a short name in any case; raises ValueError naming ``path``."""
    enum: Any = message.DESCRIPTOR.fields_by_name[field].enum_type
    known = {enum_name(enum, value.number): value.number for value in enum.values if value.number}
    number = known.get(str(name).lower())
    if number is None:
        raise ValueError(f"{path}: got {name!r}, want one of {', '.join(map(repr, known))}")
    setattr(message, field, number)


def enum_name(enum: EnumDescriptor, number: int) -> str:
    """Returns the short name for a number, or its digits if it has no name."""
    value = enum.values_by_number.get(number)
    return str(number) if value is None else value.name.removeprefix(_prefix(enum)).lower()


_DTYPES: Final[dict[tensor_pb2.DataType, np.dtype[Any]]] = {
    tensor_pb2.DATA_TYPE_F64: np.dtype("<f8"),
    tensor_pb2.DATA_TYPE_F32: np.dtype("<f4"),
    tensor_pb2.DATA_TYPE_F16: np.dtype("<f2"),
    tensor_pb2.DATA_TYPE_BF16: BFLOAT16,
    tensor_pb2.DATA_TYPE_I32: np.dtype("<i4"),
}
_NAMES: Final = {
    tensor_pb2.DataType.Name(number).removeprefix("DATA_TYPE_").lower(): number
    for number in _DTYPES
} | {dtype.name: number for number, dtype in _DTYPES.items()}


def to_data_type(dtype: DType, name: str = "data_type") -> tensor_pb2.DataType:
    """Returns the contract's number for "bf16", "bfloat16", or a NumPy or torch dtype."""
    text = str(dtype).lower()
    # NumPy has more names, but not every reader knows that "f8" and "float" mean float64.
    if not isinstance(dtype, str):
        text = text.removeprefix("torch.")  # NumPy rejects torch's dtypes
        with contextlib.suppress(TypeError):
            text = np.dtype(dtype).name
    if text not in _NAMES or dtype is float:
        raise ValueError(f"{name}: got {dtype!r}, want one of {', '.join(_NAMES)}")
    return _NAMES[text]


def from_data_type(data_type: tensor_pb2.DataType) -> np.dtype[Any] | None:
    """Returns the NumPy dtype of a ``DataType``; None for one this package does not know."""
    return _DTYPES.get(data_type)
