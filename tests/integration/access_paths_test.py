# SPDX-License-Identifier: Apache-2.0
"""Every encoding with random hyperparameters, extents and outputs, over every access path: Python,
a unary call, a stream, the tool with files in both formats, and both calls of the Open Inference
Protocol. All must return the same bits.

Python's spec, the tool's arguments, the stub's message and that protocol's request are built from
the same case, each by separate code.
"""

import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors
from google.protobuf import json_format

import attnbias
from tests.clients.driver import in_classes
from tests.support import inference, ways
from tests.support.cases import ENCODINGS, Case, case_of
from tests.support.contract import message
from tests.support.options import options_of
from tests.support.server import Server, Stub

SEEDS = range(12)


class Served(NamedTuple):
    address: str
    stub: Stub
    client: attnbias.Client


@pytest.fixture(scope="module")
def served(shared_server: Server) -> Iterator[Served]:
    address = shared_server.address
    with shared_server.connect() as stub, attnbias.Client(address) as client:
        yield Served(address, stub, client)


def python_encoding(case: Case) -> attnbias.Encoding:
    classes = {encoding.field: encoding for encoding in attnbias.Encoding.__subclasses__()}
    return classes[case.encoding](**in_classes(case.owner, case.fields))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_access_path_returns_the_same_bits(
    served: Served, tmp_path: pathlib.Path, encoding: str, seed: int
) -> None:
    case = case_of(encoding, seed)
    options = options_of(case, np.random.default_rng(seed))
    spec = case.asked(options)
    want = ways.by_unary_call(served.stub, spec)
    assert ways.by_stream(served.stub, spec, max_chunk_bytes=4096) == want

    channel = served.stub.channel
    assert inference.by_infer(channel, spec) == want
    assert inference.by_stream_infer(channel, spec) == want
    metadata = inference.call(channel, "ModelMetadata", name=encoding)
    assert set(want) <= {output.name for output in metadata.outputs}

    got = served.client.get(python_encoding(case), **options)
    assert ways.parts_of(got, list(want)) == want

    assert ways.by_command_line(served.address, spec, tmp_path) == want
    for name, part in want.items():
        if part.data_type == "BF16":  # .npy has no such type
            continue
        out = tmp_path / f"{name}.npy"
        words = [*ways.command_line(spec, tmp_path), f"--out={out}", f"--part={name}"]
        ways.run_tool(served.address, "get", *words)
        assert ways.part_of(np.load(out)) == part


@pytest.mark.parametrize("seed", SEEDS[:4])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_python_and_tool_files_are_equivalent(
    served: Served, tmp_path: pathlib.Path, encoding: str, seed: int
) -> None:
    case = case_of(encoding, seed)
    options = options_of(case, np.random.default_rng(seed))
    spec = case.asked(options)
    said = {}
    for name in ("python", "tool"):
        out = tmp_path / f"{name}.safetensors"
        if name == "python":
            served.client.save(out, python_encoding(case), **options)
        else:
            words = [*ways.command_line(spec, tmp_path), f"--out={out}"]
            ways.run_tool(served.address, "get", *words)
        with safetensors.safe_open(out, "numpy") as file:
            said[name] = file.metadata()
    # Two JSON writers agree on content, but not on whitespace.
    resolved = {
        json_format.Parse(
            metadata.pop("attnbias.resolved_spec"), message("TensorSpec")()
        ).SerializeToString(deterministic=True)
        for metadata in said.values()
    }
    assert len(resolved) == 1
    assert said["tool"] == said["python"]
    again = attnbias.load(tmp_path / "tool.safetensors")
    got = served.client.get(python_encoding(case), **options)
    names = list(ways.by_unary_call(served.stub, spec))
    assert ways.parts_of(again, names) == ways.parts_of(got, names)
    if isinstance(got, attnbias.Structure):
        assert again.fingerprint == got.fingerprint
        assert again.shape == got.shape
        assert np.array_equal(again.dense(), got.dense())


def test_tool_shows_one_axis_of_a_grid(served: Served) -> None:
    rotary = ["rotary", "head_dim=8", "axes.0={}", "axes.1={}"]
    grid = ["--grid=3,30", "--grid-offset=5,-7", "--part=cos.axis1"]
    shown = ways.run_tool(served.address, "show", *rotary, *grid)
    title = "rotary, cos.axis1, f32: positions down, columns across, 30 x 4\n"
    assert shown.startswith(title)
    assert shown.removeprefix(title).split()[0] == "-7"


def fields_reached(owner: Any) -> set[str]:
    """Returns the names of all fields that are set, including nested ones, and of enum values."""
    reached = set()
    for field, value in owner.ListFields():
        reached.add(field.full_name)
        if field.enum_type is not None:
            reached.add(field.enum_type.values_by_number[value].name)
        elif field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                reached |= fields_reached(part)
    return reached


def all_fields(descriptor: Any) -> set[str]:
    every = set()
    for field in descriptor.fields:
        every.add(field.full_name)
        if field.enum_type is not None:
            every |= {v.name for v in field.enum_type.values if v.number}
        elif field.message_type is not None and field.message_type.name != "TableRef":
            every |= all_fields(field.message_type)
    return every


# These follow from the window and its class token.
FOLLOW = {"grid_relative": {"attnbias.v1.Resample.target", "attnbias.v1.Resample.prefix_rows"}}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_generated_cases_reach_every_field(encoding: str) -> None:
    reached: set[str] = set()
    for seed in range(200):
        reached |= fields_reached(getattr(case_of(encoding, seed).spec(), encoding))
    descriptor = message("TensorSpec").DESCRIPTOR.fields_by_name[encoding].message_type
    assert all_fields(descriptor) - reached == FOLLOW.get(encoding, set())
