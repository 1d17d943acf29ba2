# SPDX-License-Identifier: Apache-2.0
"""Generated classes as messages of the contract, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import attnbias
from attnbias._arguments import set_fields
from attnbias._enums import enum_name
from attnbias._fields import Fields, LogitsTerm, from_spec
from attnbias.v1 import encodings_pb2, logits_pb2, options_pb2

DIGEST = "sha256:" + "0a" * 32
ENCODINGS = attnbias.Encoding.__subclasses__()


def value_of(field: Any) -> Any:
    """A value that no default equals."""
    if field.enum_type is not None:
        return enum_name(field.enum_type, len(field.enum_type.values) - 1)
    if field.message_type is None:
        kind = {field.CPPTYPE_DOUBLE: float, field.CPPTYPE_BOOL: bool}.get(field.cpp_type, int)
        value = kind(field.GetOptions().Extensions[options_pb2.rule].max or 1)
    elif field.message_type.name == "TableRef":
        return DIGEST
    else:
        kind = getattr(attnbias, field.message_type.name)
        value = kind(**values_of(field.message_type, kind))
    return (value, value) if isinstance(field.default_value, list) else value


def values_of(message: Any, kind: type[Fields]) -> dict[str, Any]:
    values = {field.name: value_of(field) for field in message.fields}
    layouts = {f"{name}_layout": "heads_buckets" for name in values}
    return values | {name: value for name, value in layouts.items() if hasattr(kind, name)}


@pytest.mark.parametrize("kind", ENCODINGS, ids=lambda kind: str(kind.field))
def test_all_fields_of_an_encoding_travel_and_return(kind: Any) -> None:
    message: Any = encodings_pb2.TensorSpec.DESCRIPTOR.fields_by_name[kind.field].message_type
    encoding = kind(**values_of(message, kind))
    spec = encoding.to_spec()
    assert [field.name for field, _ in getattr(spec, kind.field).ListFields()] == [
        field.name for field in message.fields
    ]
    returned = from_spec(spec)
    assert returned == encoding
    assert repr(returned) == repr(encoding)


@pytest.mark.parametrize("kind", LogitsTerm.__subclasses__(), ids=lambda kind: str(kind.field))
def test_all_fields_of_a_term_travel(kind: Any) -> None:
    spec = logits_pb2.LogitsSpec()
    message = getattr(spec, kind.field)
    set_fields(message, kind(**values_of(message.DESCRIPTOR, kind)), f"{kind.field}.")
    assert len(message.ListFields()) == len(message.DESCRIPTOR.fields)


def test_each_class_is_public() -> None:
    kinds = [*ENCODINGS, *Fields.__subclasses__(), *LogitsTerm.__subclasses__()]
    assert {kind.__name__ for kind in kinds} <= set(attnbias.__all__)


def test_extents_are_those_of_the_contract() -> None:
    assert attnbias.Sinusoidal(dim=4).extent == "table"
    assert attnbias.T5(bidirectional=True).extent == "pair"
    assert attnbias.GridRelative(window=(2, 2)).extent == "grid"
    mlp = attnbias.MlpBias(layers=[], activation="relu")
    assert mlp.extent == "pair"
    assert replace(mlp, window=(2, 2)).extent == "grid"


def test_only_the_first_required_field_goes_by_place() -> None:
    assert attnbias.Sinusoidal(8) == attnbias.Sinusoidal(dim=8)
    encodings: Any = attnbias
    for kind, arguments in ((encodings.Sinusoidal, (8, 10000.0)), (encodings.T5, (True,))):
        with pytest.raises(TypeError, match="positional argument"):
            kind(*arguments)
