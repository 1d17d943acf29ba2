# SPDX-License-Identifier: Apache-2.0
"""The contract's options determine the parts of every answer, and clients refuse any other."""

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

import attnbias
from attnbias._spec.expected import check_answer
from attnbias.v1 import encodings_pb2, options_pb2, service_pb2
from tests.support.cases import ENCODINGS, case_of
from tests.support.options import options_of
from tests.support.server import Server

SEEDS = range(40)


def of_client(message: Any, kind: type[Any]) -> Any:
    """The same message in the client's own class."""
    return kind.FromString(message.SerializeToString())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_options_determine_every_answer(shared_server: Server, encoding: str) -> None:
    with shared_server.connect() as stub:
        for seed in SEEDS:
            case = case_of(encoding, seed)
            spec = case.asked(options_of(case, np.random.default_rng(seed)))
            header = of_client(stub.header(spec), service_pb2.TensorHeader)
            check_answer(header, of_client(spec, encodings_pb2.TensorSpec))
            # The answer to the request as the server understood it is the same.
            check_answer(header, header.resolved_spec)


def takes_heads_from_others(encoding: str) -> bool:
    specs: Any = encodings_pb2.TensorSpec.DESCRIPTOR.fields_by_name
    field = specs[encoding].message_type.fields_by_name.get("num_heads")
    return field is not None and bool(field.GetOptions().Extensions[options_pb2.rule].given_by)


@pytest.mark.parametrize("encoding", list(filter(takes_heads_from_others, ENCODINGS)))
def test_other_heads_than_the_request_gives_are_refused(
    shared_server: Server, encoding: str
) -> None:
    answers = 0
    with shared_server.connect() as stub:
        for seed in SEEDS:
            case = case_of(encoding, seed)
            asked = case.asked(
                {} if case.extent == "grid" else {"query_length": 5, "key_length": 5}
            )
            getattr(asked, encoding).ClearField("num_heads")
            spec = of_client(asked, encodings_pb2.TensorSpec)
            try:
                header = of_client(stub.header(asked), service_pb2.TensorHeader)
            except grpc.RpcError:  # Nothing gives the number.
                continue
            answers += 1
            check_answer(header, spec)
            getattr(header.resolved_spec, encoding).num_heads += 1
            for part in header.parts:
                part.shape[0] += 1
            with pytest.raises(attnbias.DataLossError, match=r"has shape .*, want"):
                check_answer(header, spec)
    assert answers > 0


def changed(field: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    """With another value of the first part's field."""

    def apply(header: Any) -> None:
        setattr(header.parts[0], field, change(getattr(header.parts[0], field)))

    return apply


def with_capitals(header: Any) -> None:
    header.encoding_fingerprint = header.encoding_fingerprint.upper() + "A"


CHANGES: dict[str, Callable[[Any], Any]] = {
    "longer": lambda header: header.parts[0].shape.append(header.parts[0].shape.pop() + 1),
    "another_rank": lambda header: header.parts[0].shape.append(1),
    "empty": lambda header: header.parts[0].shape.__setitem__(0, 0),
    "renamed": changed("name", lambda name: name + "s"),
    "of_another_type": changed("data_type", lambda number: number % 5 + 1),
    "of_another_form": changed("form", lambda number: number % 5 + 1),
    "moved": changed("first_relative_position", lambda first: first + 1),
    "one_part_more": lambda header: header.parts.add().CopyFrom(header.parts[0]),
    "one_part_less": lambda header: header.parts.pop(),
    "without_fingerprint": lambda header: header.ClearField("fingerprint"),
    "with_capitals": with_capitals,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_another_answer_is_refused(
    shared_server: Server, encoding: str, change: Callable[[Any], None]
) -> None:
    with shared_server.connect() as stub:
        case = case_of(encoding, 2)
        spec = case.asked(options_of(case, np.random.default_rng(2)))
        header = of_client(stub.header(spec), service_pb2.TensorHeader)
    change(header)
    with pytest.raises(attnbias.Error, match=r"header.*want") as refused:
        check_answer(header, of_client(spec, encodings_pb2.TensorSpec))
    assert refused.value.code.name == "DATA_LOSS"
