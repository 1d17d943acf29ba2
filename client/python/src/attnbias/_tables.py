# SPDX-License-Identifier: Apache-2.0
"""Learned tables as the contract's TableRef. Knows numpy arrays and torch tensors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from attnbias._dtypes import BFLOAT16, set_data_type
from attnbias._enums import set_enum
from attnbias._torch import is_torch_tensor, to_numpy
from attnbias.v1 import tensor_pb2

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def to_table_ref(table: Any, layout: str | None, name: str) -> tensor_pb2.TableRef:
    """Makes a TableRef of an array, or of ``"sha256:..."``; errors name the field ``name``."""
    reference = tensor_pb2.TableRef()
    if layout is not None:
        set_enum(reference, "layout", layout, f"{name}_layout")
    if isinstance(table, str):
        match = _DIGEST.fullmatch(table)
        if match is None:
            message = f"{name}: got {table!r}, want an array or 'sha256:' and 64 hex digits"
            raise ValueError(message)
        reference.sha256 = match[1]
    else:
        reference.inline_table.CopyFrom(_inline(table, name))
    return reference


def _inline(table: Any, name: str) -> tensor_pb2.InlineTable:
    array = to_numpy(table.cpu()) if is_torch_tensor(table) else np.asarray(table)
    if array.dtype != BFLOAT16 and array.dtype.kind != "f":
        message = f"{name}: got an array of {array.dtype}, want f64, f32, f16 or bf16"
        raise TypeError(message)
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    inline = tensor_pb2.InlineTable(shape=array.shape, data=little.tobytes())
    set_data_type(inline, array.dtype)
    return inline
