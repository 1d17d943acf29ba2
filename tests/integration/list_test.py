# SPDX-License-Identifier: Apache-2.0
"""What `attnbias list` says that each rope_type needs and takes is what the server demands."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from tests.integration.contract import spec
from tests.integration.server import Details, Server, Stub, refused
from tests.integration.ways import run_tool

HEAD_DIM = 8
VALUES: dict[str, Any] = {
    "factor": 2.0,
    "max_position_embeddings": 64,
    "original_max_position_embeddings": 32,
    "sequence_length": 128,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "truncate": False,
    "attention_factor": 1.5,
    "short_factor": [1.0] * (HEAD_DIM // 2),
    "long_factor": [2.0] * (HEAD_DIM // 2),
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "inverse_frequencies": [1.0] * (HEAD_DIM // 2),
}


@dataclass(frozen=True)
class Needs:
    """Of one rope_type. Of several names it needs exactly one."""

    needs: list[list[str]]
    takes: list[str]

    def named(self) -> set[str]:
        return {*itertools.chain.from_iterable(self.needs), *self.takes}


def listed(address: str) -> dict[str, Needs]:
    """What the tool prints, by rope_type."""
    lines = re.findall(r"^  rope_type=(\w+): (.*)$", run_tool(address, "list", "rotary"), re.M)
    return {name: _parsed(text) for name, text in lines}


def _parsed(text: str) -> Needs:
    parts = dict(part.split(" ", 1) for part in text.split("; ") if part != "nothing more")
    needs = [names.removeprefix("one of ").split(" | ") for names in _split(parts.get("needs"))]
    return Needs(needs, _split(parts.get("takes")))


def _split(names: str | None) -> list[str]:
    return names.split(", ") if names else []


@pytest.fixture(scope="module")
def stub(shared_server: Server) -> Iterator[Stub]:
    with shared_server.connect() as connected:
        yield connected


@pytest.fixture(scope="module")
def rope_types(shared_server: Server) -> dict[str, Needs]:
    found = listed(shared_server.address)
    assert len(found) == 8
    assert set().union(*(needs.named() for needs in found.values())) == set(VALUES)
    return found


def rotary(rope_type: str, fields: set[str]) -> Any:
    return spec(
        rotary={
            "head_dim": HEAD_DIM,
            "rope_type": f"ROPE_TYPE_{rope_type.upper()}",
            **{field: VALUES[field] for field in fields},
        },
        table={"positions": {"end": 3}},
    )


def refused_field(stub: Stub, request: Any) -> tuple[str, str]:
    error = refused(lambda: stub.header(request))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    (field,) = Details(error).fields
    return field.removeprefix("spec.rotary."), error.details() or ""


def test_what_a_rope_type_needs_is_enough(stub: Stub, rope_types: dict[str, Needs]) -> None:
    for name, rope_type in rope_types.items():
        for chosen in itertools.product(*rope_type.needs):
            stub.header(rotary(name, set(chosen)))


def test_without_a_needed_field_it_is_refused(stub: Stub, rope_types: dict[str, Needs]) -> None:
    for name, rope_type in rope_types.items():
        for left_out in rope_type.needs:
            others = {names[0] for names in rope_type.needs if names != left_out}
            field, message = refused_field(stub, rotary(name, others))
            assert field in left_out, (name, message)
            assert ": not set, want" in message


def test_of_alternatives_it_needs_only_one(stub: Stub, rope_types: dict[str, Needs]) -> None:
    for name, rope_type in rope_types.items():
        for names in rope_type.needs:
            for two in itertools.combinations(names, 2):
                others = {needed[0] for needed in rope_type.needs if needed != names}
                field, _ = refused_field(stub, rotary(name, {*others, *two}))
                assert field in two, name


def test_what_it_takes_is_taken(stub: Stub, rope_types: dict[str, Needs]) -> None:
    beside = {"mscale": "mscale_all_dim", "mscale_all_dim": "mscale"}
    for name, rope_type in rope_types.items():
        needed = {names[0] for names in rope_type.needs}
        for field in rope_type.takes:
            stub.header(rotary(name, {*needed, field, beside.get(field, field)}))


def test_what_it_does_not_name_is_refused(stub: Stub, rope_types: dict[str, Needs]) -> None:
    for name, rope_type in rope_types.items():
        needed = {names[0] for names in rope_type.needs}
        for other in set(VALUES) - rope_type.named():
            field, message = refused_field(stub, rotary(name, {*needed, other}))
            assert field == other, message
