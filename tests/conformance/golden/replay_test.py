# SPDX-License-Identifier: Apache-2.0
"""Sends all stored requests to a server, and checks that the store covers the contract."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from tests.conformance.golden import stored
from tests.conformance.golden.stored import Line
from tests.support.contract import message
from tests.support.server import Stub

FLOATS = {"F64", "F32", "F16", "BF16"}


@pytest.fixture(scope="module", params=["", "--cpu-isa=scalar"], ids=["best", "scalar"])
def stub(request: pytest.FixtureRequest) -> Iterator[Stub]:
    """Yields a stub for a server that uses the processor's best instruction set, and for one
    without SIMD.
    """
    flags = [request.param] if request.param else []
    with stored.serving(*flags) as connected:
        yield connected


@pytest.mark.parametrize("name", stored.names())
def test_answers_match_stored_ones(stub: Stub, name: str) -> None:
    different = []
    for line in stored.lines(name):
        want = {key: line.content[key] for key in stored.ANSWER if key in line.content}
        got = stored.answer(stub, line.content)
        if got != want:
            different.append(f"{line.where}: got {got}, want {want}")
    assert not different, f"{len(different)} requests:\n" + "\n".join(different[:20])


class Use(NamedTuple):
    """The numbers of served and rejected requests for each item."""

    served: Counter[Any]
    refused: Counter[Any]

    def count(self, line: Line, what: Any) -> None:
        (self.refused if line.is_refused else self.served)[what] += 1


@cache
def store() -> list[Line]:
    return [line for name in stored.names() for line in stored.lines(name)]


def messages_in(owner: Any) -> Iterator[Any]:
    """Yields a message and all nested messages."""
    yield owner
    for field, value in owner.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from messages_in(inner)


def requests_of(line: Line) -> list[Any]:
    if "tensor" in line.content:
        return [stored.tensor_spec(line.content)]
    return stored.logits_requests(line.content)


@cache
def uses() -> dict[str, Use]:
    """Returns counts of "set" and "unset" fields, of enum fields' "values", and of "enums"."""
    found: dict[str, Use] = defaultdict(lambda: Use(Counter(), Counter()))
    for line in store():
        for request in requests_of(line):
            for owner in messages_in(request):
                given = dict(owner.ListFields())
                for field in owner.DESCRIPTOR.fields:
                    found["set" if field in given else "unset"].count(line, field.full_name)
                    if field.enum_type is not None and field in given:
                        found["values"].count(line, (field.full_name, given[field]))
                        found["enums"].count(line, (field.enum_type.full_name, given[field]))
    return found


def reachable() -> list[Any]:
    """Returns the descriptors of all messages that a request can contain."""
    found = {}
    left = [message(name).DESCRIPTOR for name in ("TensorSpec", "ComputeLogitsRequest")]
    while left:
        owner = left.pop()
        if owner.full_name not in found:
            found[owner.full_name] = owner
            left += [field.message_type for field in owner.fields if field.message_type]
    return list(found.values())


def fields() -> list[Any]:
    return [field for owner in reachable() for field in owner.fields]


def test_every_encoding_and_term_has_50_served_requests() -> None:
    served = Counter(line.path.stem for line in store() if not line.is_refused)
    assert {name: served[name] for name in stored.names() if served[name] < 50} == {}
    assert len(store()) >= 2000


def test_errors_cover_every_code() -> None:
    codes = Counter(line.content["code"] for line in store() if line.is_refused)
    assert codes.total() >= 200
    assert set(codes) == {
        "DATA_LOSS",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
    }


def test_every_field_is_set_in_a_served_request() -> None:
    served = uses()["set"].served
    assert [field.full_name for field in fields() if not served[field.full_name]] == []


def test_every_field_is_unset_in_a_request() -> None:
    served, refused = uses()["unset"]
    names = [field.full_name for field in fields()]
    assert [name for name in names if not served[name] + refused[name]] == []


def test_every_value_of_every_enum_is_served() -> None:
    served = uses()["enums"].served
    enums = {field.enum_type.full_name: field.enum_type for field in fields() if field.enum_type}
    wanted = [(name, value) for name, enum in enums.items() for value in enum.values[1:]]
    assert [value.name for name, value in wanted if not served[name, value.number]] == []


def test_every_enum_field_has_every_value() -> None:
    served, refused = uses()["values"]
    wanted = [
        (field, value)
        for field in fields()
        if field.enum_type
        for value in field.enum_type.values[1:]
    ]
    assert [
        f"{field.full_name} = {value.name}"
        for field, value in wanted
        if not (served + refused)[field.full_name, value.number]
    ] == []


@pytest.mark.parametrize("name", stored.names())
def test_every_field_has_a_rejected_value(name: str) -> None:
    """Excludes bools, for which every value may be valid."""
    refused = (line.content["changed"] for line in stored.lines(name) if line.is_refused)
    changed = {part for path in refused for part in path.split(".")}
    owner = stored.owner_of(name)
    assert [
        field.name
        for field in owner.fields
        if field.cpp_type != field.CPPTYPE_BOOL and field.name not in changed
    ] == []


@pytest.mark.parametrize("name", stored.names())
def test_every_type_is_served(name: str) -> None:
    answers = [line.content for line in stored.lines(name) if not line.is_refused]
    types = {part[2] for content in answers for part in content.get("parts", [])}
    types |= {content["answer"][0] for content in answers if "answer" in content}
    assert types >= FLOATS or types == {"I32"}  # an encoding that has only indices


@pytest.mark.parametrize("name", stored.names())
def test_every_extent_field_is_used(name: str) -> None:
    found: set[str] = set()
    for line in stored.lines(name):
        for request in requests_of(line):
            extent = request.WhichOneof("extent") if "tensor" in line.content else None
            if extent:
                inside = getattr(request, extent)
                found |= {field.full_name for field, _ in inside.ListFields()}
    extents = {field.rpartition(".")[0] for field in found}
    wanted = {field.full_name for field in fields() if field.containing_type.full_name in extents}
    if "axes" not in stored.owner_of(name).fields_by_name:
        wanted -= {f"attnbias.v1.TableExtent.{field}" for field in ("grid", "grid_offset")}
    # Only encodings with heads have a head window.
    assert {field for field in wanted - found if not field.endswith(".heads")} == set()
