# SPDX-License-Identifier: Apache-2.0
"""Generated classes convert to the contract's messages and back."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import attnbias
from attnbias._spec.enums import enum_name
from attnbias._spec.fields import Fields, LogitsTerm, from_spec, set_fields
from attnbias.v1 import encodings_pb2, logits_pb2, options_pb2, tensor_pb2

DIGEST = "sha256:" + "0a" * 32
ENCODINGS = attnbias.Encoding.__subclasses__()


# Members of a oneof, of which a message has only one at a time.
MEMBERS = range(7)


def value_of(field: Any, member: int) -> Any:
    """Returns a value that differs from every default."""
    if field.enum_type is not None:
        return enum_name(field.enum_type, len(field.enum_type.values) - 1)
    if field.message_type is None:
        kind = {field.CPPTYPE_DOUBLE: float, field.CPPTYPE_BOOL: bool}.get(field.cpp_type, int)
        value = kind(field.GetOptions().Extensions[options_pb2.rule].max or 1)
    elif field.message_type.name == "TableRef":
        return DIGEST
    elif field.message_type.name == "DoubleList":
        return (1.5, -2.0)
    else:
        kind = getattr(attnbias, field.message_type.name)
        value = kind(**values_of(field.message_type, kind, member))
    return (value, value) if isinstance(field.default_value, list) else value


def fields_of(message: Any, member: int) -> list[Any]:
    """Returns all fields outside oneofs, and one from each oneof."""
    rivals = {oneof.name: oneof.fields for oneof in message.oneofs if len(oneof.fields) > 1}
    left_out = {
        field.name
        for fields in rivals.values()
        for field in fields
        if field is not fields[member % len(fields)]
    }
    return [field for field in message.fields if field.name not in left_out]


def values_of(message: Any, kind: type[Fields], member: int) -> dict[str, Any]:
    values = {field.name: value_of(field, member) for field in fields_of(message, member)}
    layouts = {f"{name}_layout": "heads_buckets" for name in values}
    return values | {name: value for name, value in layouts.items() if hasattr(kind, name)}


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("kind", ENCODINGS, ids=lambda kind: str(kind.field))
def test_encoding_round_trips_all_fields(kind: Any, member: int) -> None:
    message: Any = encodings_pb2.TensorSpec.DESCRIPTOR.fields_by_name[kind.field].message_type
    encoding = kind(**values_of(message, kind, member))
    spec = encoding.to_spec()
    assert [field.name for field, _ in getattr(spec, kind.field).ListFields()] == [
        field.name for field in fields_of(message, member)
    ]
    returned = from_spec(spec)
    assert returned == encoding
    assert repr(returned) == repr(encoding)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("kind", LogitsTerm.__subclasses__(), ids=lambda kind: str(kind.field))
def test_logits_term_sends_all_fields(kind: Any, member: int) -> None:
    spec = logits_pb2.LogitsSpec()
    message = getattr(spec, kind.field)
    set_fields(message, kind(**values_of(message.DESCRIPTOR, kind, member)), f"{kind.field}.")
    assert len(message.ListFields()) == len(fields_of(message.DESCRIPTOR, member))


MESSAGES = [
    *(tensor_pb2.TableExtent, tensor_pb2.PairExtent, tensor_pb2.GridExtent),
    *(tensor_pb2.Output, tensor_pb2.Mask, logits_pb2.LogitsSpec),
    *(type(getattr(logits_pb2.LogitsSpec(), kind.field)) for kind in LogitsTerm.__subclasses__()),
    *(each for each in vars(encodings_pb2).values() if isinstance(each, type)),
]
WRONG: list[Any] = [object(), "a", "\ud800", 1.5, 1 << 70, 1 << 5000, {1: 2}]
WRONG += [[object()], ["a"], [1 << 70], [[1], 2], [[1.0], [2.0, 3.0]], [[[1], [2, 3]]]]
WRONG += [np.ones((2, 2, 2)), np.array([1 << 63], "u8")]
OF_LIBRARIES = "interpreted|out of range|Field |attnbias.v1|has type|must |inhomogeneous"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(message.DESCRIPTOR.name))
def test_error_names_every_field_and_what_it_wants(message: Any) -> None:
    for name in message.DESCRIPTOR.fields_by_name:
        errors = {}
        for index, value in enumerate(WRONG):
            try:
                set_fields(message(), SimpleNamespace(**{name: value}), "path.")
            except (TypeError, ValueError) as error:
                errors[index] = str(error)
        assert 0 in errors
        for text in errors.values():
            assert re.fullmatch(rf"path\.{name}(\[0\])?: got .+[,;] want .+", text, re.DOTALL)
            assert not re.search(OF_LIBRARIES, text)


def test_all_encoding_classes_are_exported() -> None:
    kinds = [*ENCODINGS, *Fields.__subclasses__(), *LogitsTerm.__subclasses__()]
    assert {kind.__name__ for kind in kinds} <= set(attnbias.__all__)


def test_encoding_extents_match_contract() -> None:
    assert attnbias.Sinusoidal(dim=4).extent == "table"
    assert attnbias.T5(bidirectional=True).extent == "pair"
    assert attnbias.GridRelative(window=(2, 2)).extent == "grid"
    mlp = attnbias.MlpBias(layers=[], activation="relu")
    assert mlp.extent == "pair"
    assert replace(mlp, window=(2, 2)).extent == "grid"


def test_only_first_required_field_is_positional() -> None:
    assert attnbias.Sinusoidal(8) == attnbias.Sinusoidal(dim=8)
    encodings: Any = attnbias
    for kind, arguments in ((encodings.Sinusoidal, (8, 10000.0)), (encodings.T5, (True,))):
        with pytest.raises(TypeError, match="positional argument"):
            kind(*arguments)
