# SPDX-License-Identifier: Apache-2.0
"""Small specs for every encoding, no two alike, changed one field at a time."""

import random
from collections.abc import Iterator
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from tests.support.cases import case_of

_INTEGERS = (1, 2, 64, 255, 4096, 65535, 65536, 1 << 18, 1 << 20, (1 << 30) - 1, 1 << 40)
_DOUBLES = (1e-300, 1e-3, 0.5, 1.0, 3.0, 1e3, 1e18)
_INTEGER_TYPES = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
_DOUBLE_TYPES = (FieldDescriptor.CPPTYPE_DOUBLE,)
_TABLES = ("TableRef", "InlineTable")


def small_spec(encoding: str, seed: int, length: int = 16) -> Any:
    case = case_of(encoding, seed)
    output = {} if case.has_bias else {"values": "VALUES_BUCKETS", "data_type": "DATA_TYPE_I32"}
    first = max(case.first, 0)
    if case.extent == "grid":
        extent: dict[str, Any] = {"grid": {"query_stride": [1 + seed % 3] * len(case.sides)}}
    elif case.extent == "pair":
        extent = {"pair": {"query_length": length, "key_length": length, "query_offset": first}}
    elif case.axes == 1:
        extent = {"table": {"positions": {"begin": first, "end": first + length}}}
    elif seed % 2 and case.has_grid:
        extent = {"table": {"grid": [length, *[1] * (case.axes - 1)]}}
    else:
        lists = [{"positions": range(first, first + length)}] * case.axes
        extent = {"table": {"position_ids": lists}}
    return case.spec(**extent, output=output)


def widened(spec: Any) -> Iterator[Any]:
    """Yields copies of the spec, each with one integer set to the maximum width or head count."""
    encoding = spec.WhichOneof("encoding")
    for field, _ in getattr(spec, encoding).ListFields():
        if field.cpp_type in _INTEGER_TYPES and not field.is_repeated:
            other = _copy(spec)
            setattr(getattr(other, encoding), field.name, 65536)
            yield other


def changed(spec: Any, chance: random.Random) -> Any:
    """Returns the spec with a different value for one number, switch or choice."""
    other = _copy(spec)
    owner, field = chance.choice(list(_places(other)))
    if field.enum_type is not None:
        value: Any = chance.choice(field.enum_type.values).number
    elif field.cpp_type in _INTEGER_TYPES:
        value = chance.choice(_INTEGERS)
        if field.cpp_type == FieldDescriptor.CPPTYPE_INT32:
            value = min(value, (1 << 31) - 1)
    elif field.cpp_type in _DOUBLE_TYPES:
        value = chance.choice(_DOUBLES)
    else:
        value = not getattr(owner, field.name)
    setattr(owner, field.name, value)
    return other


def _copy(spec: Any) -> Any:
    other = type(spec)()
    other.CopyFrom(spec)
    return other


def _places(owner: Any) -> Iterator[tuple[Any, Any]]:
    """Yields every number, switch or choice in a message and its nested messages."""
    for field in owner.DESCRIPTOR.fields:
        if field.is_repeated or field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            continue
        if field.message_type is None:
            yield owner, field
        elif owner.HasField(field.name) and field.message_type.name not in _TABLES:
            yield from _places(getattr(owner, field.name))


def in_words(spec: Any) -> str:
    """Returns the spec on one line, without its tables' numbers."""
    short = _copy(spec)
    _empty_tables(short)
    text = text_format.MessageToString(short, as_one_line=True)
    return text if len(text) <= 200 else text[:200] + "…"


def _empty_tables(owner: Any) -> None:
    for field, value in owner.ListFields():
        if field.message_type is None:
            continue
        for part in value if field.is_repeated else [value]:
            if field.message_type.name == "InlineTable":
                part.ClearField("data")
            _empty_tables(part)
