# SPDX-License-Identifier: Apache-2.0
"""The server holds each field of an encoding to its rule in the contract."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from attnbias.v1 import options_pb2, service_pb2
from tests.attack.specs import small_spec
from tests.integration.cases import CASES
from tests.integration.contract import message
from tests.integration.server import Details, Server, Stub, refused

SEEDS = range(80)  # with these the cases have each field, and each value of an enum


@pytest.fixture(scope="module")
def stub(shared_server: Server) -> Stub:
    return shared_server.connect()


def rule_of(field: Any) -> Any:
    return field.GetOptions().Extensions[options_pb2.rule]


def beyond(field: Any) -> Iterator[Any]:
    """Values that the rule excludes."""
    rule = rule_of(field)
    if rule.HasField("above"):
        yield rule.above
    if field.cpp_type == field.CPPTYPE_DOUBLE:
        yield from (math.nan, math.inf, -math.inf) if rule.finite or rule.HasField("max") else ()
        yield from [math.nextafter(rule.min, -math.inf)] if rule.HasField("min") else ()
        yield from [math.nextafter(rule.max, math.inf)] if rule.HasField("max") else ()
        return
    # 0 is no value of a number that other fields may give.
    step = 2 if rule.even or rule.given_by else 1
    yield from [int(rule.min) - step] if rule.HasField("min") else ()
    yield from [int(rule.max) + step] if rule.HasField("max") and rule.max < 2**31 - 1 else ()
    yield from [int(rule.max) - 1] if rule.even else ()


def value_of(owner: Any, field: Any) -> Any:
    """The value of a field or, if it is not set, its default."""
    if field in (present for present, _ in owner.ListFields()):
        return getattr(owner, field.name)
    default = rule_of(field).default
    if field.enum_type is not None and default:
        return field.enum_type.values_by_name[default].number
    return float(default or 0)


def is_idle(owner: Any, field: Any) -> bool:
    """The field has no meaning next to the others."""
    fields, rule = owner.DESCRIPTOR.fields_by_name, rule_of(field)
    if rule.only_with and not value_of(owner, fields[rule.only_with]):
        return True
    if rule.not_with and value_of(owner, fields[rule.not_with]):
        return True
    for other in filter(lambda other: other.enum_type is not None, owner.DESCRIPTOR.fields):
        naming = set()
        for value in other.enum_type.values:
            options = value.GetOptions().Extensions
            needs, takes = options[options_pb2.needs], options[options_pb2.takes]
            if field.name in "|".join((*needs, *takes)).split("|"):
                naming.add(value.number)
        if naming and value_of(owner, other) not in naming:
            return True
    return False


def allowed(field: Any) -> Any:
    """A value that the rule has."""
    rule = rule_of(field)
    if field.enum_type is not None:
        return field.enum_type.values_by_name[rule.default].number
    if field.cpp_type == field.CPPTYPE_BOOL:
        return True
    kind = float if field.cpp_type == field.CPPTYPE_DOUBLE else int
    return kind(rule.default or rule.min or 1)


def with_value(spec: Any, field: Any, value: Any) -> Any:
    changed = type(spec)()
    changed.CopyFrom(spec)
    owner = getattr(changed, spec.WhichOneof("encoding"))
    if isinstance(field.default_value, list):
        getattr(owner, field.name)[:] = [value, *getattr(owner, field.name)[1:]]
    else:
        setattr(owner, field.name, value)
    return changed


def check(stub: Stub, encoding: str, values: Callable[[Any, Any], Iterator[Any]]) -> set[str]:
    """Tries values of each field, for the first seed that has any; all are refused."""
    tried: set[str] = set()
    for seed in SEEDS:
        # In the client's classes, whose descriptors have the rules.
        spec = service_pb2.TensorSpec.FromString(small_spec(encoding, seed).SerializeToString())
        owner: Any = getattr(spec, encoding)
        fields = [field for field in owner.DESCRIPTOR.fields if field.message_type is None]
        for field in [field for field in fields if field.name not in tried]:
            for value in values(owner, field):
                tried.add(field.name)
                bad = with_value(spec, field, value).SerializeToString()
                error = refused(lambda bad=bad: stub.header(message("TensorSpec").FromString(bad)))
                assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
                (name,) = Details(error).fields
                assert name.removesuffix("[0]") == f"spec.{encoding}.{field.name}", value
    return tried


def values_beyond(owner: Any, field: Any) -> Iterator[Any]:
    if field in (present for present, _ in owner.ListFields()):
        yield from beyond(field)


def values_of_idle_fields(owner: Any, field: Any) -> Iterator[Any]:
    if is_idle(owner, field):
        yield allowed(field)


@pytest.mark.parametrize("encoding", CASES)
def test_values_beyond_a_rule_are_refused(stub: Stub, encoding: str) -> None:
    tried = check(stub, encoding, values_beyond)
    fields = getattr(service_pb2.TensorSpec(), encoding).DESCRIPTOR.fields
    assert tried == {field.name for field in fields if list(beyond(field))}


@pytest.mark.parametrize("encoding", CASES)
def test_fields_without_a_meaning_are_refused(stub: Stub, encoding: str) -> None:
    check(stub, encoding, values_of_idle_fields)
