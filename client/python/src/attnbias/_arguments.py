# SPDX-License-Identifier: Apache-2.0
"""Arguments as fields of the contract's messages, which have the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnbias._checks import set_number
from attnbias._dtypes import to_data_type
from attnbias._enums import set_enum
from attnbias._generated import is_repeated
from attnbias._span import bounds
from attnbias._tables import to_table_ref
from attnbias.v1 import tensor_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor

    from attnbias._span import Span


def set_fields(message: Any, arguments: object, path: str = "") -> None:
    """Sets the fields that ``arguments`` has as attributes, but for None and False.

    Args:
        message: of the contract.
        arguments: an object.
        path: what errors name a field by, before its name.

    Raises:
        TypeError: a value is of the wrong type.
        ValueError: a value does not fit its field, an enum has no such value, or two fields are
            given of which there can be one.
    """
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in vars(arguments).items():
        if value is None or value is False or name not in fields:
            continue
        field = fields[name]
        if field.containing_oneof is not None:
            other = message.WhichOneof(field.containing_oneof.name)
            if other is not None:
                raise ValueError(f"{path}{name}: given beside {other}, want one of the two")
        _set_field(message, field, value, f"{path}{name}")


def _set_field(message: Any, field: FieldDescriptor, value: Any, name: str) -> None:
    kind = field.message_type
    if kind is tensor_pb2.TableRef.DESCRIPTOR:
        getattr(message, field.name).CopyFrom(to_table_ref(value, None, name))
    elif kind is tensor_pb2.Range.DESCRIPTOR:
        getattr(message, field.name).CopyFrom(_to_range(value, name))
    elif kind is tensor_pb2.PositionList.DESCRIPTOR and is_repeated(field):
        is_nested = len(value) > 0 and np.ndim(value[0]) > 0
        lists = [_to_list(ids, name) for ids in (value if is_nested else [value])]
        getattr(message, field.name).extend(lists)
    elif kind is tensor_pb2.PositionList.DESCRIPTOR:
        getattr(message, field.name).CopyFrom(_to_list(value, name))
    elif kind is not None:
        value.set_fields(getattr(message, field.name), name)
    elif field.enum_type is tensor_pb2.DataType.DESCRIPTOR:
        setattr(message, field.name, to_data_type(value, name))
    elif field.enum_type is not None:
        set_enum(message, field.name, value, name)
    else:
        set_number(message, field.name, value, name)


def _to_range(span: Span, name: str) -> tensor_pb2.Range:
    begin, end = bounds(span, name)
    try:
        return tensor_pb2.Range(begin=begin, end=end)
    except ValueError as error:
        raise ValueError(f"{name}: got {span!r}: {error}") from error


def _to_list(ids: Any, name: str) -> tensor_pb2.PositionList:
    array = np.asarray(ids)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size > 0):
        message = f"{name}: got {array.dtype} of shape {array.shape}, want a sequence of integers"
        raise TypeError(message)
    return tensor_pb2.PositionList(positions=array.tolist())
