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


def longer(header: Any) -> None:
    header.parts[0].shape[-1] += 1


def another_rank(header: Any) -> None:
    header.parts[0].shape.append(1)


def empty(header: Any) -> None:
    header.parts[0].shape[0] = 0


def renamed(header: Any) -> None:
    header.parts[0].name += "s"


def of_another_type(header: Any) -> None:
    header.parts[0].data_type = header.parts[0].data_type % 5 + 1


def of_another_form(header: Any) -> None:
    header.parts[0].form = header.parts[0].form % 5 + 1


def moved(header: Any) -> None:
    header.parts[0].first_relative_position += 1


def one_part_more(header: Any) -> None:
    header.parts.add().CopyFrom(header.parts[0])


def one_part_less(header: Any) -> None:
    del header.parts[-1]


def without_fingerprint(header: Any) -> None:
    header.fingerprint = ""


def with_capitals(header: Any) -> None:
    header.encoding_fingerprint = header.encoding_fingerprint.upper() + "A"


CHANGES = (longer, another_rank, empty, renamed, of_another_type, of_another_form, moved)
CHANGES += (one_part_more, one_part_less, without_fingerprint, with_capitals)


@pytest.mark.parametrize("change", CHANGES)
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
