# SPDX-License-Identifier: Apache-2.0
"""One TensorSpec over every access path to the server: a unary call, a stream, the command-line
tool.

The tool's arguments are derived from the spec by reflection, and its files are read back by the
safetensors package and numpy, without code from the clients under test.
"""

import itertools
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import safetensors
from safetensors.numpy import save_file

from tests.support.contract import message
from tests.support.server import Stub
from tests.support.server_process import PATIENCE

MAX_UNARY_BYTES = (4 << 20) - (64 << 10)

_ARRAY_TYPES: dict[str, Any] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I32": np.dtype("<i4"),
}


class Part(NamedTuple):
    """One tensor of a payload, bit for bit."""

    data_type: str
    shape: tuple[int, ...]
    data: bytes


Parts = dict[str, Part]


def part_of(array: Any) -> Part:
    """Returns an array as a part; its bytes are those on the wire."""
    (data_type,) = (name for name, dtype in _ARRAY_TYPES.items() if dtype == array.dtype)
    return Part(data_type, array.shape, np.ascontiguousarray(array).tobytes())


def array_of(part: Part) -> Any:
    return np.frombuffer(part.data, _ARRAY_TYPES[part.data_type]).reshape(part.shape)


def parts_of(result: Any, names: list[str]) -> Parts:
    """Returns the Python client's result, keyed by the header's part names. The result is an array,
    or an object that holds arrays under these names, some of them nested."""
    arrays = {}
    for name in names:
        table, _, axis = name.partition(".axis")
        if axis:
            arrays[name] = getattr(result, table, result).axes[int(axis)]
            continue
        holder = result if hasattr(result, name) else getattr(result, "toeplitz", None)
        arrays[name] = result if isinstance(result, np.ndarray) else getattr(holder, name)
    return {name: part_of(array) for name, array in arrays.items()}


def table(array: Any, **fields: Any) -> Any:
    """Returns a TableRef to an inline table with the array's values."""
    part = part_of(array)
    inline = message("InlineTable")(
        data_type=f"DATA_TYPE_{part.data_type}", shape=part.shape, data=part.data
    )
    return message("TableRef")(inline_table=inline, **fields)


def by_unary_call(stub: Stub, spec: Any) -> Parts:
    response = stub.tensor(spec)
    return _cut(response.header, response.data)


def by_stream(stub: Stub, spec: Any, **fields: Any) -> Parts:
    header = None
    pieces = []
    end = 0
    for reply in stub.stream(spec, **fields):
        header = header or reply.header
        assert reply.offset == end
        end += len(reply.data)
        pieces.append(reply.data)
    assert header is not None
    assert end == header.total_bytes
    return _cut(header, b"".join(pieces))


def by_command_line(address: str, spec: Any, folder: pathlib.Path) -> Parts:
    out = folder / "tensor.safetensors"
    run_tool(address, "get", *command_line(spec, folder), f"--out={out}")
    return {
        name: Part(tensor["dtype"], tuple(tensor["shape"]), bytes(tensor["data"]))
        for name, tensor in safetensors.deserialize(out.read_bytes())
    }


def run_tool(address: str, *arguments: object, folder: pathlib.Path | None = None) -> str:
    """Returns the output of the tool, which must succeed; `folder` contains its files."""
    done = tool(address, *arguments, folder=folder)
    assert done.returncode == 0, (done.args, done.stderr)
    return done.stdout


def refusal_of_tool(address: str, spec: Any, folder: pathlib.Path) -> str:
    """Returns the tool's message for a spec that the server rejects, starting with the status
    name."""
    done = tool(address, "get", *command_line(spec, folder))
    assert done.returncode == 1, (done.args, done.stdout, done.stderr)
    return done.stderr.removeprefix("attnbias: ")


def tool(
    address: str, *arguments: object, folder: pathlib.Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [os.environ["ATTNBIAS_CLI_BINARY"], "--server", address, *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def command_line(spec: Any, folder: pathlib.Path) -> list[str]:
    """Returns the arguments of `attnbias get` for the spec; its tables become files in the
    folder."""
    encoding = spec.WhichOneof("encoding")
    extent = spec.WhichOneof("extent")
    words = [encoding, *_assignments(getattr(spec, encoding), "", folder, itertools.count())]
    return [*words, *(_flags(getattr(spec, extent)) if extent else ()), *_flags(spec.output)]


def _cut(header: Any, payload: bytes) -> Parts:
    assert len(payload) == header.total_bytes
    return {
        part.name: Part(
            _short(part, "data_type").upper(),
            tuple(part.shape),
            payload[part.offset : part.offset + part.size_bytes],
        )
        for part in header.parts
    }


def _short(owner: Any, field: str) -> str:
    """Returns "key_from_end" for ALIBI_VARIANT_KEY_FROM_END."""
    values = owner.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    prefix = values[0].name.removesuffix("UNSPECIFIED")
    name: str = values[getattr(owner, field)].name
    return name.removeprefix(prefix).lower()


def _assignments(
    owner: Any, prefix: str, folder: pathlib.Path, files: Iterator[int]
) -> Iterator[str]:
    for field, value in owner.ListFields():
        name = prefix + field.name
        if field.message_type is None:
            yield f"{name}={_text(owner, field, value)}"
        elif field.message_type.name == "DoubleList":
            yield f"{name}={','.join(map(repr, value.values))}"
        elif field.message_type.name != "TableRef":
            parts = enumerate(value) if field.is_repeated else [("", value)]
            for index, part in parts:
                place = f"{name}.{index}".removesuffix(".")
                if part.ListFields():
                    yield from _assignments(part, f"{place}.", folder, files)
                else:
                    yield f"{place}={{}}"
        else:
            yield f"{name}={_table_text(value, folder / f'table{next(files)}')}"
            if value.layout:
                yield f"{name}_layout={_short(value, 'layout')}"


def _text(owner: Any, field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return _short(owner, field.name)
    if field.is_repeated:
        return ",".join(repr(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _table_text(table: Any, path: pathlib.Path) -> str:
    """Returns the table's name or digest, or a file with its numbers, in alternating formats."""
    source = table.WhichOneof("source")
    if source != "inline_table":
        return f"{source}:{getattr(table, source)}"
    inline = table.inline_table
    data_type = _short(inline, "data_type").upper()
    array = array_of(Part(data_type, tuple(inline.shape), inline.data))
    if data_type != "BF16" and int(path.name[-1]) % 2:
        np.save(path.with_suffix(".npy"), array)
        return f"@{path}.npy"
    save_file({"other": array[:1], "t.weight": array}, path.with_suffix(".safetensors"))
    return f"@{path}.safetensors:t.weight"


def _flags(owner: Any) -> Iterator[str]:
    """Yields a flag for each field of an extent, of the output or of its mask."""
    for field, value in owner.ListFields():
        flag = f"--{field.name.replace('_', '-')}"
        if field.message_type is None:
            yield f"{flag}={_text(owner, field, value)}"
        elif field.message_type.name == "Mask":
            yield from _flags(value)
        elif field.message_type.name == "Range":
            yield f"{flag}={value.begin}:{value.end}"
        else:
            for positions in value if field.is_repeated else [value]:
                yield f"{flag}={','.join(map(str, [*positions.positions, *positions.doubles]))}"
