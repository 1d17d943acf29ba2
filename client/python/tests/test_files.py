# SPDX-License-Identifier: Apache-2.0
"""Files that ``save`` writes and ``load`` reads, and errors for damaged and foreign files."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
from fake_server import FINGERPRINT, FakeServer, Payload, sequence, table
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from test_structure import DTYPES, KINDS, dense_of, make

import attnbias
from attnbias._files import metadata_of
from attnbias.v1 import encodings_pb2, tensor_pb2

if TYPE_CHECKING:
    from pathlib import Path

SPEC = encodings_pb2.TensorSpec(
    alibi={"num_heads": 2},
    pair={
        "query_length": 4,
        "key_length": 6,
        "query_offset": 2,
        "queries": {"end": 4},
        "keys": {"end": 6},
    },
    output={"mask": {"causal": True, "fill_value": float("-inf")}},
)


def load_structure(path: Path) -> Any:
    """Loads a structure of any kind from a file that may contain other tensors."""
    got = attnbias.load(path)
    assert isinstance(got, attnbias.Structure)
    return got


def assert_same(got: attnbias.Structure, want: attnbias.Structure) -> None:
    assert type(got) is type(want)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.dense(), dense_of(want), strict=True)
    assert got.fingerprint == want.fingerprint
    assert got.resolved_spec == want.resolved_spec


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [None, 3])
def test_structure_round_trips(kind: str, heads: int | None, dtype: Any, tmp_path: Path) -> None:
    bias = make(kind, heads, dtype=dtype)
    window = bias.window(queries=(1, 4), keys=(2, 3))
    bias.fingerprint = FINGERPRINT
    bias.resolved_spec = SPEC
    for number, structure in enumerate((bias, window, window.window(queries=(1, 2)))):
        path = tmp_path / f"{number}.safetensors"
        attnbias.save(structure, path)
        again: Any = attnbias.load(str(path))
        assert_same(again, structure)
        if isinstance(bias, attnbias.Toeplitz):
            assert again.first_relative_position == structure.first_relative_position  # type: ignore[attr-defined]


@pytest.mark.parametrize("stride", [(1, 1, 1), (2, 1, 3)])
def test_three_axis_grid_round_trips(stride: tuple[int, ...], tmp_path: Path) -> None:
    block = np.arange(45, dtype=np.float32).reshape(3, 3, 5)
    spec = attnbias.GridRelative((2, 2, 3)).to_spec()
    spec.grid.query_stride.extend(stride)
    bias = attnbias.BlockToeplitz(block, query_stride=stride)
    served = attnbias.BlockToeplitz(block, query_stride=stride)
    served.fingerprint, served.resolved_spec = FINGERPRINT, spec
    for structure in (bias, bias.window(queries=1, keys=(2, 9)), served):
        attnbias.save(structure, tmp_path / "bias.safetensors")
        again: Any = attnbias.load(tmp_path / "bias.safetensors")
        assert_same(again, structure)
        assert again.query_stride == stride


def test_mask_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "bias.safetensors"
    mask = attnbias.Mask(window_left=0, window_right=3)
    bias = attnbias.Toeplitz(
        sequence(9).T, query_length=4, key_length=6, first_relative_position=-3, mask=mask
    )
    for part in (bias, bias.window(queries=(3, 4), keys=1)):
        attnbias.save(part, path)
        assert load_structure(path).mask == mask
    attnbias.save(make("toeplitz"), path)
    assert load_structure(path).mask is None


def test_mask_is_read_from_file_of_tool(tmp_path: Path) -> None:
    path = tmp_path / "bias.safetensors"
    bias = make("toeplitz")
    bias.resolved_spec = SPEC
    metadata = metadata_of(bias, bias)
    assert "attnbias.diagonals.mask" not in metadata  # nor in the command-line tool's files
    save_file(bias.parts(), path, metadata)
    assert load_structure(path).mask == attnbias.Mask(causal=True)


@pytest.mark.parametrize("kind", ["toeplitz", "key_row", "block"])
def test_npy_holds_only_the_numbers(kind: str, tmp_path: Path) -> None:
    bias = make(kind, dtype=ml_dtypes.bfloat16)
    attnbias.save(bias, tmp_path / "bias.npy")
    (held,) = bias.parts().values()
    np.testing.assert_array_equal(attnbias.load(tmp_path / "bias.npy"), held, strict=True)


def test_npy_of_several_parts_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a .npy holds one array, got diagonals, border"):
        attnbias.save(make("bordered"), tmp_path / "bias.npy")
    assert list(tmp_path.iterdir()) == []


def test_save_rejects_plain_arrays(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="bias: got an object of type ndarray; want a Toeplitz"):
        attnbias.save(np.zeros(3), tmp_path / "a.npy")  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", ["npy", "safetensors"])
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_file_mode_follows_umask(tmp_path: Path, suffix: str, umask: int) -> None:
    before = os.umask(umask)
    try:
        attnbias.save(make("toeplitz"), tmp_path / f"bias.{suffix}")
    finally:
        os.umask(before)
    mode = stat.S_IMODE((tmp_path / f"bias.{suffix}").stat().st_mode)
    assert mode == 0o666 & ~umask


DIAGONALS = sequence(2 * 9).reshape(2, 9)
TOEPLITZ = Payload(
    ("diagonals", tensor_pb2.FORM_TOEPLITZ, DIAGONALS),
    first_relative_position=-5,
    resolved_spec=SPEC,
)


def test_load_of_saved_file_equals_get(
    server: FakeServer, client: attnbias.Client, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"query_length": 4, "key_length": 6, "query_offset": 2, "causal": True}
    encoding = attnbias.ALiBi(num_heads=2)
    server.script = [TOEPLITZ.serve] * 2
    client.save(tmp_path / "bias.safetensors", encoding, **asked)
    got = client.get(encoding, **asked)
    again = load_structure(tmp_path / "bias.safetensors")
    assert_same(again, got)
    assert again.first_relative_position == -5
    assert again.fingerprint == FINGERPRINT
    assert again.resolved_spec.output.mask.causal


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("suffix", ["npy", "safetensors"])
def test_table_round_trips(
    server: FakeServer, client: attnbias.Client, tmp_path: Path, suffix: str, dtype: Any
) -> None:
    values = sequence(24).reshape(4, 6).astype(dtype)
    server.script = [table(values).serve]
    dtype = values.dtype.name
    client.save(tmp_path / f"t.{suffix}", attnbias.Sinusoidal(dim=6), positions=4, data_type=dtype)
    np.testing.assert_array_equal(attnbias.load(tmp_path / f"t.{suffix}"), values, strict=True)


@pytest.mark.parametrize(
    ("encoding", "kind"),
    [
        (attnbias.Rotary(head_dim=4), attnbias.RotaryTables),
        (attnbias.Xpos(4, center=1), attnbias.XposTables),
    ],
)
def test_several_tables_load_by_name(
    server: FakeServer, client: attnbias.Client, tmp_path: Path, encoding: Any, kind: Any
) -> None:
    tables = sequence(12 * len(kind._fields)).reshape(-1, 3, 4)
    parts = zip(kind._fields, tables, strict=True)
    payload = Payload(*[(name, tensor_pb2.FORM_TABLE, array) for name, array in parts])
    server.script = [payload.serve] * 2
    client.save(tmp_path / "t.safetensors", encoding, positions=3)
    for got in (client.get(encoding, positions=3), attnbias.load(tmp_path / "t.safetensors")):
        assert isinstance(got, kind)
        np.testing.assert_array_equal(np.stack(got), tables, strict=True)


# ---- invalid files


def refused(path: Path, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        attnbias.load(path)
    assert str(path) in str(caught.value)


def test_unknown_suffix_and_missing_file_are_rejected(tmp_path: Path) -> None:
    refused(tmp_path / "bias.pt", "want a name that ends in .npy or .safetensors")
    for name in ("none.npy", "none.safetensors"):
        with pytest.raises(FileNotFoundError, match=name):
            attnbias.load(tmp_path / name)


def test_foreign_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": np.zeros((2, 2), "f4")}, path)
    refused(
        path, r"no attnbias metadata; want a file written by Client.save, attnbias.save or the tool"
    )
    save_file({"a": np.zeros(2), "b": np.zeros(2)}, path, {"attnbias.fingerprint": "f"})
    refused(path, "its tensors a, b do not form an attnbias response")
    np.savez(tmp_path / "zip", a=np.zeros(2))
    (tmp_path / "zip.npz").rename(tmp_path / "zip.npy")
    refused(tmp_path / "zip.npy", "magic string")
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    refused(tmp_path / "o.npy", "object|Object")
    for name in ("empty.npy", "empty.safetensors"):
        (tmp_path / name).write_bytes(b"")
        refused(tmp_path / name, "empty|small|short|magic")


@pytest.mark.parametrize(
    ("kind", "name", "value", "says"),
    [
        ("toeplitz", "query_length", None, "attnbias.query_length: missing from its metadata"),
        ("toeplitz", "query_length", "five", "attnbias.query_length: got 'five', want an integer"),
        ("toeplitz", "query_length", "6", "diagonals: got shape"),
        ("toeplitz", "diagonals.vectors", "maybe", "diagonals.vectors: got 'maybe', want true or"),
        ("toeplitz", "resolved_spec", "{", "Expecting|JSON|Failed"),
        ("toeplitz", "resolved_spec", '{"alibi": 3}', "alibi"),
        ("toeplitz", "diagonals.mask", '{"window_left": -1}', "window_left: got -1, want an"),
        ("toeplitz", "diagonals.mask", "causal", "Expecting|JSON|Failed"),
        ("toeplitz", "diagonals.first_relative_position", str(1 << 63), "want a 64-bit integer"),
        ("key_row", "query_length", "0", "attnbias.query_length: got 0, want at least 1"),
        ("key_row", "query_length", str(1 << 63), "query_length: .* a 64-bit integer"),
        ("key_row", "key_length", "5", r"row: got length 4, want 5 \(attnbias.key_length\)"),
        ("key_row", "key_length", None, "attnbias.key_length: missing from its metadata"),
        ("block", "block.first_query", "4", "queries: got .* want a nonempty window"),
        ("block", "block.query_stride", "2,two", "block.query_stride: got 'two', want an integer"),
        ("bordered", "border.class_key", "4", "class_key: got 4, want None or an integer in"),
        ("bordered", "border.class_query", "first", "border.class_query: got 'first'"),
    ],
)
def test_error_names_invalid_metadata(
    kind: str, name: str, value: str | None, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "bias.safetensors"
    attnbias.save(make(kind), path)
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    metadata.pop(f"attnbias.{name}", None)
    if value is not None:
        metadata[f"attnbias.{name}"] = value
    save_file(arrays, path, metadata)
    refused(path, says)


@pytest.mark.parametrize("kind", ["block with border", "bordered"])
def test_parts_of_mixed_types_are_rejected(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bias.safetensors"
    bias = make(kind)
    arrays = {**bias.parts(), "border": bias.parts()["border"].astype(np.float64)}
    save_file(arrays, path, metadata_of(bias, bias))
    refused(path, "border.*: got dtypes .*float64.*; want the same dtype")


def test_mismatched_tables_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "tables.safetensors"
    metadata = {"attnbias.fingerprint": FINGERPRINT}
    cos = np.zeros((3, 4), np.float32)
    save_file({"cos": cos, "sin": np.zeros((3, 2), np.float32)}, path, metadata)
    refused(path, r"cos, sin: got shapes \(3, 4\), \(3, 2\); want the same shape")
    save_file({"cos": cos, "sin": cos, "scale": cos.astype(np.float64)}, path, metadata)
    refused(path, "scale.*: got dtypes .*float64.*; want the same dtype")


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_longest_file_name_is_accepted(suffix: str, tmp_path: Path) -> None:
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    path = tmp_path / f"{'b' * (longest - len(suffix))}{suffix}"
    attnbias.save(make("toeplitz"), path)
    assert list(tmp_path.iterdir()) == [path]


def test_metadata_of_newer_server_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bias.safetensors"
    bias = make("toeplitz")
    attnbias.save(bias, path)
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + size])
    spec = {"alibi": {"num_heads": 3, "of_tomorrow": 1}, "later": {}}
    header["__metadata__"]["attnbias.resolved_spec"] = json.dumps(spec)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + path.read_bytes()[8 + size :])
    assert load_structure(path).resolved_spec == encodings_pb2.TensorSpec(alibi={"num_heads": 3})


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    for kind in KINDS:
        bias = make(kind)
        bias.resolved_spec = SPEC
        attnbias.save(bias, folder / f"{kind}.safetensors")
    np.save(folder / "array.npy", sequence(24).reshape(4, 6))
    attnbias.save(make("key_row", dtype=ml_dtypes.bfloat16), folder / "bf16.npy")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@given(data=st.data())
def test_damaged_files_are_rejected_or_consistent(
    whole_files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(whole_files)))
    content = bytearray(whole_files[name])
    for _ in range(data.draw(st.integers(1, 3))):
        # Most faults are near the beginning.
        at = data.draw(st.integers(0, min(600, len(content))) | st.integers(0, len(content)))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "remove"]))
        if kind == "flip" and at < len(content):
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "cut":
            del content[at:]
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=4))
        else:
            del content[at : at + data.draw(st.integers(1, 8))]
    path = tmp_path_factory.mktemp("damaged") / name
    path.write_bytes(content)
    try:
        got = attnbias.load(path)
    except ValueError as refusal:
        said = str(refusal)
    else:
        said = ""
    if said:
        assert said.startswith(str(path))
        return
    arrays = got.parts().values() if isinstance(got, attnbias.Structure) else [got]
    assert sum(array.nbytes for array in arrays) <= len(content)
    if isinstance(got, attnbias.Structure) and got.size < 10_000:
        assert got.dense().shape == got.shape
