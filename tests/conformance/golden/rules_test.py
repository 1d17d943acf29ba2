# SPDX-License-Identifier: Apache-2.0
"""Changes stored requests according to the contract's rules: values that a rule forbids are
rejected with the field's name, and two requests with the same fingerprint have the same values.
"""

import math
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import grpc
import pytest

from attnbias.v1 import encodings_pb2, logits_pb2, options_pb2, tensor_pb2
from tests.conformance.golden import stored
from tests.support.contract import message
from tests.support.server import Stub

# Number of stored requests in which each field is changed.
BASES = 3


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    with stored.serving() as connected:
        yield connected


UNRULED = {"TableRef", "PositionList", "DoubleList", "Range"}
"""Messages that are field values and have no rules of their own."""


def owners_in(
    owner: Any, path: str = "", *, is_of_buckets: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yields a request's messages that have rules, with their paths, each followed by ".".

    A list of messages is represented by its first message. Messages that apply only to biases are
    left out if the values are BUCKETS.
    """
    yield path, owner
    of_bias = {field.name for field in fields_of(owner) if rule_of(field).of_bias}
    for field, value in owner.ListFields():
        if field.message_type is None or field.message_type.name in UNRULED:
            continue
        if field.name in of_bias and is_of_buckets:
            continue
        if field.is_repeated:
            yield from owners_in(value[0], f"{path}{field.name}[0].", is_of_buckets=is_of_buckets)
        else:
            yield from owners_in(value, f"{path}{field.name}.", is_of_buckets=is_of_buckets)


def is_of_buckets(spec: Any) -> bool:
    return spec.DESCRIPTOR.name == "TensorSpec" and spec.output.values == tensor_pb2.VALUES_BUCKETS


def fields_of(owner: Any) -> list[Any]:
    """Returns the fields of a message, with their options."""
    files = (encodings_pb2, logits_pb2, tensor_pb2)
    types = (file.DESCRIPTOR.message_types_by_name for file in files)
    return list(
        next(of[owner.DESCRIPTOR.name] for of in types if owner.DESCRIPTOR.name in of).fields
    )


def rule_of(field: Any) -> Any:
    return field.GetOptions().Extensions[options_pb2.rule]


@cache
def served(name: str) -> list[Any]:
    """Returns the specs that are served."""
    contents = [line.content for line in stored.lines(name) if not line.is_refused]
    return [
        stored.tensor_spec(content)
        if "tensor" in content
        else stored.logits_requests(content)[0].spec
        for content in contents
    ]


@cache
def fields_in(name: str) -> list[tuple[str, Any]]:
    """Returns every field of the messages in served requests, with the path of its message."""
    found = {
        path: owner
        for spec in served(name)
        for path, owner in owners_in(spec, is_of_buckets=is_of_buckets(spec))
    }
    return [(path, field) for path, owner in found.items() for field in fields_of(owner)]


def bases(name: str, path: str, fits: Any, *, bias: bool = False) -> list[tuple[Any, Any]]:
    """Returns copies of some requests with a suitable message at a path, each paired with that
    message.

    With `bias`, requests for buckets are left out.
    """
    found = []
    for spec in served(name):
        if len(found) == BASES:
            break
        if bias and is_of_buckets(spec):
            continue
        copy = type(spec)()
        copy.CopyFrom(spec)
        owners = owners_in(copy, is_of_buckets=is_of_buckets(spec))
        found += [(copy, owner) for at, owner in owners if at == path and fits(owner)]
    return found


def is_set(owner: Any, field: Any) -> bool:
    return any(each.number == field.number for each, _ in owner.ListFields())


def describe(stub: Stub, spec: Any) -> Any:
    """Returns the answer's header."""
    if spec.DESCRIPTOR.name == "LogitsSpec":
        request = message("ComputeLogitsRequest")(spec=spec)
        return next(iter(stub.logits([request], timeout=stored.TIMEOUT))).header
    request = message("DescribeTensorRequest")(spec=spec)
    return stub.describe(request, timeout=stored.TIMEOUT).header


def refusal(stub: Stub, spec: Any) -> str:
    with pytest.raises(grpc.RpcError) as error:
        describe(stub, spec)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    return str(error.value.details())


def forbidden(field: Any) -> list[float]:
    """Returns numbers that the field can hold but its rule forbids."""
    rule = rule_of(field)
    step = 1 if field.cpp_type != field.CPPTYPE_DOUBLE else 1e-9
    bad = [math.nan, math.inf, -math.inf] if field.cpp_type == field.CPPTYPE_DOUBLE else []
    if rule.HasField("min"):
        bad.append(rule.min - max(step, abs(rule.min) * step))
    if rule.HasField("above"):
        bad.append(rule.above)
    if rule.HasField("max"):
        bad.append(rule.max + max(step, abs(rule.max) * step))
    if rule.even:
        bad.append(rule.min + 1)
    if rule.nonzero:
        bad.append(0.0)
    if rule.least_magnitude:
        bad.append(rule.least_magnitude / 2)
    if field.cpp_type != field.CPPTYPE_DOUBLE:
        most = 2**31 if field.cpp_type == field.CPPTYPE_INT32 else 2**63
        # A 0 counts as not set if the field has no presence.
        bad = [each for each in bad if -most <= each < most and (each or field.has_presence)]
        return [int(each) for each in bad]
    return bad


def has_range(field: Any) -> bool:
    rule = rule_of(field)
    if field.message_type is not None:
        return False
    return any(map(rule.HasField, ("min", "max", "above"))) or rule.finite


@pytest.mark.parametrize("name", stored.names())
def test_out_of_range_numbers_are_rejected(stub: Stub, name: str) -> None:
    for path, field in fields_in(name):
        if not has_range(field):
            continue
        for spec, owner in bases(
            name, path, lambda owner, field=field: is_set(owner, field), bias=rule_of(field).of_bias
        ):
            for number in forbidden(field):
                if field.is_repeated:
                    getattr(owner, field.name)[-1] = number
                else:
                    setattr(owner, field.name, number)
                place = re.escape(f"spec.{path}{field.name}")
                wanted = rf"{place}(\[\d+\])?: got {re.escape(text(number))}, want"
                assert re.match(wanted, refusal(stub, spec)), (refusal(stub, spec), number)


def text(number: float) -> str:
    """Formats a number as the server does."""
    if isinstance(number, int):
        return str(number)
    return f"{number:.6g}"


def is_required(field: Any) -> bool:
    rule = rule_of(field)
    is_plain = field.enum_type is not None or field.message_type is None
    is_bool = field.cpp_type == field.CPPTYPE_BOOL and not field.has_presence
    if field.containing_oneof and len(field.containing_oneof.fields) > 1:
        return False
    has_default = rule.HasField("default") or rule.given_by
    return rule.required or (is_plain and not field.is_repeated and not is_bool and not has_default)


@pytest.mark.parametrize("name", stored.names())
def test_missing_required_fields_are_rejected(stub: Stub, name: str) -> None:
    for path, field in fields_in(name):
        if not is_required(field):
            continue
        found = bases(
            name,
            path,
            lambda owner, field=field: is_set(owner, field),
            bias=rule_of(field).of_bias,
        )
        assert found, f"no request sets {field.full_name}"
        for spec, owner in found:
            owner.ClearField(field.name)
            # Without a table, the fields whose values it provides are missing as well.
            given = [
                each.name
                for each in field.containing_type.fields
                if field.name in rule_of(each).given_by.split("|")
            ]
            names = "|".join([field.name, *given])
            wanted = rf"{re.escape(f'spec.{path}')}({names}): not set, want "
            assert re.match(wanted, refusal(stub, spec))


def set_to_something(owner: Any, field: Any) -> None:
    """Sets a field to its default, or to a number that its rule allows."""
    rule = rule_of(field)
    if field.enum_type is not None:
        setattr(owner, field.name, field.enum_type.values[1].number)
    elif field.message_type is not None and field.message_type.name == "TableRef":
        table = getattr(owner, field.name).inline_table
        table.data_type, table.data = 2, bytes(4)  # one F32 number
        table.shape.extend([1, 1])
    elif field.message_type is not None:
        getattr(owner, field.name).SetInParent()
    elif field.cpp_type == field.CPPTYPE_BOOL:
        setattr(owner, field.name, True)
    else:
        value: Any = float(rule.default or rule.max or 1)
        value = value if field.cpp_type == field.CPPTYPE_DOUBLE else int(value)
        if field.is_repeated:
            getattr(owner, field.name).append(value)
        else:
            setattr(owner, field.name, value)


@pytest.mark.parametrize("name", stored.names())
def test_fields_without_effect_are_rejected(stub: Stub, name: str) -> None:
    tried = 0
    for path, field in fields_in(name):
        rule = rule_of(field)
        for other, wanted in ((rule.only_with, False), (rule.not_with, True)):
            if not other:
                continue
            default = rule_of(field.containing_type.fields_by_name[other]).default

            def fits(
                owner: Any, other: str = other, default: str = default, wanted: bool = wanted
            ) -> bool:
                given = is_set(owner, owner.DESCRIPTOR.fields_by_name[other])
                value = getattr(owner, other) if given or not default else float(default)
                return bool(given if hasattr(value, "DESCRIPTOR") else value) is wanted

            for spec, owner in bases(name, path, fits, bias=rule.of_bias):
                set_to_something(owner, field)
                place = re.escape(f"spec.{path}{field.name}")
                assert re.match(rf"{place}: got .*, want none(:| without) ", refusal(stub, spec))
                tried += 1
    has_some = any(
        rule_of(field).only_with or rule_of(field).not_with for _, field in fields_in(name)
    )
    assert tried or not has_some


def changed(owner: Any, field: Any) -> Iterator[None]:
    """Sets a field to other values, one after another."""
    before = getattr(owner, field.name)
    if field.enum_type is not None:
        for value in field.enum_type.values[1:]:
            setattr(owner, field.name, value.number)
            yield
    elif field.message_type is not None:
        return
    elif field.cpp_type == field.CPPTYPE_BOOL:
        setattr(owner, field.name, not before)
        yield
    elif field.is_repeated:
        numbers = list(before)
        for index in {0, len(numbers) - 1} if numbers else ():
            before[index] = numbers[index] * 2
            yield
            before[index] = numbers[index]
    else:
        for value in (before + 1, before + 2, before * 2):
            setattr(owner, field.name, value)
            yield


ENCODINGS = [
    field.name for field in encodings_pb2.TensorSpec.DESCRIPTOR.oneofs_by_name["encoding"].fields
]


@pytest.mark.parametrize("name", ENCODINGS)
def test_equal_fingerprints_have_equal_numbers(stub: Stub, name: str) -> None:
    """Covers the stored requests, and some of them with a field changed."""
    by_fingerprint: dict[str, str] = {}
    requests = list(served(name)[:25])
    for path, field in fields_in(name):
        if not path.startswith(name):
            continue
        for spec, owner in bases(name, path, lambda owner: owner.ByteSize() > 0):
            for _ in changed(owner, field):
                copy = type(spec)()
                copy.CopyFrom(spec)
                requests.append(copy)
    different = 0
    for spec in requests:
        try:
            header, data = stored.payload(stub, spec)
        except grpc.RpcError:
            continue
        digest = stored.sha256(data)
        assert by_fingerprint.setdefault(header.fingerprint, digest) == digest, spec
        different += 1
    assert different >= 25


def copy_tables(given: Any, resolved: Any) -> None:
    """Replaces digests with the request's tables, which the server does not hold."""
    for field, value in given.ListFields():
        if field.message_type is None:
            continue
        into = getattr(resolved, field.name)
        if field.is_repeated:
            for one, other in zip(value, into, strict=True):
                copy_tables(one, other)
        else:
            into.CopyFrom(value)


@pytest.mark.parametrize("name", ENCODINGS)
def test_explicit_defaults_keep_the_fingerprint(stub: Stub, name: str) -> None:
    for spec in served(name):
        header = describe(stub, spec)
        request = type(spec)()
        request.CopyFrom(header.resolved_spec)
        copy_tables(getattr(spec, name), getattr(request, name))
        again = describe(stub, request)
        assert again.fingerprint == header.fingerprint
        assert again.resolved_spec == header.resolved_spec
