# SPDX-License-Identifier: Apache-2.0
"""Enum values under their short names: BUCKET_RULE_FLOAT32_LOG is "float32_log"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor import EnumDescriptor
    from google.protobuf.message import Message


def _prefix(enum: EnumDescriptor) -> str:
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")


def set_enum(message: Message, field: str, name: str, path: str) -> None:
    """Sets a field to a short name in any case; raises ValueError naming ``path``."""
    enum: Any = message.DESCRIPTOR.fields_by_name[field].enum_type
    value = enum.values_by_name.get(f"{_prefix(enum)}{name}".upper())
    if value is None or value.number == 0:
        known = ", ".join(repr(enum_name(enum, v.number)) for v in enum.values if v.number != 0)
        raise ValueError(f"{path}: got {name!r}, want one of {known}")
    setattr(message, field, value.number)


def enum_name(enum: EnumDescriptor, number: int) -> str:
    """The short name of a number; the number itself, in digits, where it has none."""
    value = enum.values_by_number.get(number)
    return str(number) if value is None else value.name.removeprefix(_prefix(enum)).lower()
