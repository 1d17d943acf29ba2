# SPDX-License-Identifier: Apache-2.0
"""Arguments as fields of the contract's messages, which have the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnbias._checks import bounds, require_instance, set_number
from attnbias._generated import is_repeated
from attnbias._spec.dtypes import to_data_type
from attnbias._spec.enums import set_enum
from attnbias._spec.shown import Shown
from attnbias._spec.tables import to_table_ref
from attnbias.v1 import tensor_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor

    from attnbias._checks import Span


def set_fields(message: Any, arguments: object, path: str = "") -> None:
    """Sets the fields that ``arguments`` has as attributes and that are not None.

    A table's order of axes is the attribute ``NAME_layout``. False is not set where it is the
    default.

    Args:
        message: of the contract.
        arguments: an object.
        path: precedes the names of fields in errors.

    Raises:
        TypeError: a value is of the wrong type.
        ValueError: a value does not fit its field, an enum has no such value, or two fields are
            given of which there can be one.
    """
    fields = message.DESCRIPTOR.fields_by_name
    given = vars(arguments)
    for name, value in given.items():
        if value is None or name not in fields:
            continue
        field = fields[name]
        if isinstance(value, np.bool_):
            value = bool(value)  # noqa: PLW2901  # protobuf's versions differ in what they take
        oneof = field.containing_oneof
        # proto3 has a oneof of its own for each optional field.
        is_choice = oneof is not None and len(oneof.fields) > 1
        if value is False and (is_choice or not field.has_presence):
            continue
        if oneof is not None and is_choice:
            other = message.WhichOneof(oneof.name)
            if other is not None:
                raise ValueError(f"{path}{name}: given beside {other}, want one of the two")
        if field.message_type is tensor_pb2.TableRef.DESCRIPTOR:
            layout = given.get(f"{name}_layout")
            getattr(message, name).CopyFrom(to_table_ref(value, layout, f"{path}{name}"))
        else:
            _set_field(message, field, value, f"{path}{name}")


def _set_field(message: Any, field: FieldDescriptor, value: Any, name: str) -> None:
    kind = field.message_type
    into = getattr(message, field.name)
    if kind is tensor_pb2.Range.DESCRIPTOR:
        into.CopyFrom(_to_range(value, name))
    elif kind is tensor_pb2.PositionList.DESCRIPTOR and is_repeated(field):
        is_nested = len(value) > 0 and np.ndim(value[0]) > 0
        into.extend(_to_list(ids, name) for ids in (value if is_nested else [value]))
    elif kind is tensor_pb2.PositionList.DESCRIPTOR:
        into.CopyFrom(_to_list(value, name))
    elif kind is tensor_pb2.DoubleList.DESCRIPTOR:
        into.SetInParent()
        _extend(into.values, value, name)
    elif kind is not None and is_repeated(field):
        for index, part in enumerate(value):
            _set_message(into.add(), part, f"{name}[{index}]")
    elif kind is not None:
        into.SetInParent()
        _set_message(into, value, name)
    elif field.enum_type is tensor_pb2.DataType.DESCRIPTOR:
        setattr(message, field.name, to_data_type(value, name))
    elif field.enum_type is not None:
        set_enum(message, field.name, value, name)
    elif is_repeated(field):
        _extend(into, value, name)
    else:
        set_number(message, field.name, value, name)


def _extend(numbers: Any, value: Any, name: str) -> None:
    try:
        numbers.extend(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: got {value!r}: {error}") from error


def _set_message(message: Any, value: Any, name: str) -> None:
    kind = message.DESCRIPTOR.name
    want = f"attnbias.{kind}(...)"
    require_instance(value, Shown, name, want)
    if type(value).__name__ != kind:
        raise TypeError(f"{name}: got an object of {type(value).__name__}; want {want}")
    set_fields(message, value, f"{name}.")


def _to_range(span: Span, name: str) -> tensor_pb2.Range:
    begin, end = bounds(span, name)
    try:
        return tensor_pb2.Range(begin=begin, end=end)
    except ValueError as error:
        raise ValueError(f"{name}: got {span!r}: {error}") from error


def _to_list(ids: Any, name: str) -> tensor_pb2.PositionList:
    array = np.asarray(ids)
    if array.ndim != 1 or (array.dtype.kind not in "iuf" and array.size > 0):
        message = f"{name}: got {array.dtype} of shape {array.shape}, want a sequence of numbers"
        raise TypeError(message)
    numbers = array.tolist()
    if numbers and array.dtype.kind == "f":
        return tensor_pb2.PositionList(doubles=numbers)
    return tensor_pb2.PositionList(positions=numbers)
