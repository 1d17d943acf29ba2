# SPDX-License-Identifier: Apache-2.0
"""Learned tables: mounted from files, listed, used by name and digest, replaced while served."""

import json
import pathlib
import signal
from typing import Any

import grpc
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.contract import message, spec
from tests.support.server import Details, Server, eventually, refused, run_server
from tests.support.ways import run_tool

BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
CONFIG = {"model_type": "t5", "num_heads": 2, "relative_attention_max_distance": 64}
ENCODER = np.arange(64, dtype="f4").reshape(32, 2)
DECODER = -ENCODER.astype("f2")


def write_checkpoint(folder: pathlib.Path, encoder: Any = ENCODER) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    replace(
        folder / "model.safetensors",
        {
            "shared.weight": np.zeros((4, 4), "f4"),
            f"encoder.{BIAS}": encoder,
            f"decoder.{BIAS}": DECODER,
        },
    )


def replace(path: pathlib.Path, tensors: dict[str, Any]) -> None:
    """Replaces a file atomically by renaming the new one over the old one."""
    save_file(tensors, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def t5(bidirectional: bool, **table: Any) -> Any:
    fields = {"num_heads": 2, "bidirectional": bidirectional, "max_distance": 64, "table": table}
    return spec(t5=fields, pair={"query_length": 4, "key_length": 4})


def numbers(stub: Any, request: Any) -> Any:
    return np.frombuffer(stub.tensor(request).data, "<f4").reshape(2, 7)


def names(stub: Any) -> list[str]:
    return [table.name for table in stub.tables(message("ListTablesRequest")()).tables]


def test_checkpoint_tables_are_served_by_name(start_server: Any, tmp_path: pathlib.Path) -> None:
    write_checkpoint(tmp_path / "model")
    with start_server(f"--checkpoint=m={tmp_path / 'model'}").connect() as stub:
        decoder, encoder = stub.tables(message("ListTablesRequest")()).tables
        assert (decoder.name, encoder.name) == ("m/decoder", "m/encoder")
        assert decoder.source == f"model.safetensors:decoder.{BIAS}"
        assert list(decoder.shape) == [32, 2]
        assert decoder.data_type == 3
        assert str(tmp_path) not in str(decoder)

        # Keys 0 to 3 before the query are in buckets 0 to 3, those after it in 17 to 19.
        rows = [3, 2, 1, 0, 17, 18, 19]
        by_name = t5(True, name="m/encoder")
        np.testing.assert_array_equal(numbers(stub, by_name), ENCODER[rows].T)
        inline = {"data_type": 2, "shape": [32, 2], "data": ENCODER.tobytes()}
        header = stub.header(by_name)
        assert header.fingerprint == stub.header(t5(True, inline_table=inline)).fingerprint
        assert header.resolved_spec.t5.table.sha256 == encoder.sha256
        assert stub.header(header.resolved_spec).fingerprint == header.fingerprint

        # The spec listed with a table needs only an extent.
        ready = decoder.spec
        assert not ready.t5.bidirectional
        ready.pair.CopyFrom(by_name.pair)
        np.testing.assert_array_equal(
            numbers(stub, ready), DECODER[[3, 2, 1, 0, 0, 0, 0]].astype("f4").T
        )


def test_tables_used_together_have_one_spec(start_server: Any, tmp_path: pathlib.Path) -> None:
    config = {"model_type": "swinv2", "window_size": 2, "num_heads": [3]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    place = "encoder.layers.0.blocks.0"
    shapes = {"0.weight": (512, 2), "0.bias": (512,), "2.weight": (3, 512)}
    network = {
        f"{place}.attention.self.continuous_position_bias_mlp.{part}": np.ones(shape, "f4")
        for part, shape in shapes.items()
    }
    save_file(network, tmp_path / "model.safetensors")
    with start_server(f"--checkpoint=m={tmp_path}").connect() as stub:
        bias, hidden, output = stub.tables(message("ListTablesRequest")()).tables
        assert hidden.spec == bias.spec == output.spec
        assert hidden.spec.mlp_bias.layers[0].bias.name == bias.name == f"m/{place}.mlp.0.bias"
        assert output.spec.mlp_bias.layers[1].weight.name == output.name
        assert list(stub.header(output.spec).parts[0].shape) == [3, 3, 3]


def test_folder_and_single_tables_are_mounted_by_name(
    start_server: Any, tmp_path: pathlib.Path
) -> None:
    save_file({"w": ENCODER, "ids": np.arange(3)}, tmp_path / "a.safetensors")
    save_file({"only": ENCODER.T.copy()}, tmp_path / "heads.safetensors")
    server = start_server(
        f"--tables={tmp_path}",
        f"--table=one={tmp_path}/a.safetensors:w",
        f"--table=two={tmp_path}/heads.safetensors",
    )
    with server.connect() as stub:
        assert names(stub) == ["a:w", "heads:only", "one", "two"]
        straight = stub.header(t5(True, name="one"))
        transposed = stub.header(t5(True, name="two", layout=2))
        assert transposed.fingerprint == straight.fingerprint
        # The digest of the transpose is also known.
        assert stub.header(transposed.resolved_spec).fingerprint == straight.fingerprint
    assert server.metrics()["attnbias_mounted_tables"] == 4


def test_list_tables_is_paginated(start_server: Any, tmp_path: pathlib.Path) -> None:
    save_file({f"t{i:04}": ENCODER[:1] for i in range(250)}, tmp_path / "a.safetensors")
    with start_server(f"--tables={tmp_path}").connect() as stub:
        seen, token, pages = [], "", 0
        while pages == 0 or token:
            request = message("ListTablesRequest")(page_token=token)
            page = stub.tables(request)
            seen += [table.name for table in page.tables]
            token, pages = page.next_page_token, pages + 1
        assert (len(seen), len(set(seen)), pages) == (250, 250, 3)
        for field, bad in (("page_size", {"page_size": 1001}), ("page_token", {"page_token": "x"})):
            error = refused(lambda bad=bad: stub.tables(message("ListTablesRequest")(**bad)))
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert Details(error).fields == [field]


def test_unknown_table_is_not_found(start_server: Any, tmp_path: pathlib.Path) -> None:
    write_checkpoint(tmp_path / "model")
    with start_server(f"--checkpoint=m={tmp_path / 'model'}").connect() as stub:
        for field, table in (("name", "m/encoders"), ("sha256", "0" * 64)):
            error = refused(lambda f=field, t=table: stub.header(t5(True, **{f: t})))
            assert error.code() == grpc.StatusCode.NOT_FOUND
            assert Details(error).fields == [f"spec.t5.table.{field}"]
            assert Details(error).reason == "TABLE_NOT_FOUND"
            assert table in error.details()


@pytest.mark.parametrize("how", ["poll", "hangup"])
def test_changed_files_are_remounted(start_server: Any, tmp_path: pathlib.Path, how: str) -> None:
    model = tmp_path / "model"
    write_checkpoint(model)
    poll = "100ms" if how == "poll" else "0s"
    server = start_server(f"--checkpoint=m={model}", f"--tables-poll={poll}")

    def notice() -> None:
        if how == "hangup":
            server.process.send_signal(signal.SIGHUP)

    with server.connect() as stub:
        request = t5(True, name="m/encoder")
        old = stub.tensor(request)
        write_checkpoint(model, ENCODER + 1)
        notice()
        eventually(
            lambda: bool(stub.tensor(request).header.fingerprint != old.header.fingerprint),
            "the new table",
        )
        new = stub.tensor(request)
        before, after = (np.frombuffer(answer.data, "<f4") for answer in (old, new))
        np.testing.assert_array_equal(after, before + 1)

        # The file is overwritten in place and incomplete, so the mounted table stays.
        (model / "model.safetensors").write_bytes(b"not a table")
        notice()
        eventually(lambda: "keeping the previous ones" in server.log(), "a line about the failure")
        assert stub.tensor(request).data == new.data
        assert server.metrics()["attnbias_tables_reload_failed"] == 1

        # A folder in place of the file does not stop the server either.
        config = model / "config.json"
        config.unlink()
        config.mkdir()
        notice()
        eventually(lambda: "got a folder" in server.log(), "a line about the folder")
        config.rmdir()

        write_checkpoint(model)
        notice()
        eventually(lambda: bool(stub.tensor(request).data == old.data), "the first table")
        assert server.metrics()["attnbias_tables_reload_failed"] == 0
    assert server.stop() == 0


MIB = 1 << 20


def write_large_table(folder: pathlib.Path, mebibytes: int) -> None:
    folder.mkdir(exist_ok=True)
    table = np.zeros((mebibytes, MIB // 4), "f4")
    save_file({"w": table}, folder / "new")
    (folder / "new").rename(folder / "large.safetensors")


def test_mounted_tables_count_against_budget(start_server: Any, tmp_path: pathlib.Path) -> None:
    write_large_table(tmp_path, 24)
    server = start_server(f"--tables={tmp_path}", "--memory-budget=64MiB", "--tables-poll=100ms")
    budget = "attnbias_memory_budget_bytes"
    assert server.metrics()[budget] == 40 * MIB
    for mebibytes in (30, 8):
        write_large_table(tmp_path, mebibytes)
        eventually(
            lambda mebibytes=mebibytes: server.metrics()[budget] == (64 - mebibytes) * MIB,
            "the old table's memory released",
        )
    write_large_table(tmp_path, 33)
    eventually(lambda: "keeping the previous ones (1 mounted)" in server.log(), "refused")
    assert server.metrics()[budget] == 56 * MIB
    ended = run_server("--check-config", f"--tables={tmp_path}", "--memory-budget=64MiB")
    assert ended.returncode == 2
    assert (
        f"large.safetensors:w: got {33 * MIB} bytes on top of 0 for other tables, want at most "
        f"{32 * MIB}, half of the memory budget"
    ) in ended.stderr


def test_emptied_folder_keeps_mounted_tables(start_server: Any, tmp_path: pathlib.Path) -> None:
    write_large_table(tmp_path, 1)
    server = start_server(f"--tables={tmp_path}", "--tables-poll=100ms")
    (tmp_path / "large.safetensors").rename(tmp_path / "elsewhere")
    eventually(lambda: server.metrics()["attnbias_tables_reload_failed"] == 1, "noticed")
    assert server.metrics()["attnbias_mounted_tables"] == 1
    assert "got no tables, want at least one" in server.log()
    (tmp_path / "elsewhere").rename(tmp_path / "large.safetensors")
    eventually(lambda: server.metrics()["attnbias_tables_reload_failed"] == 0, "mended")


def test_start_without_tables_warns(start_server: Any, tmp_path: pathlib.Path) -> None:
    server = start_server(f"--tables={tmp_path}", "--tables-poll=100ms")
    assert f"warning --tables: {tmp_path}: got no tables so far" in server.log()
    write_large_table(tmp_path, 1)
    eventually(lambda: server.metrics()["attnbias_mounted_tables"] == 1, "mounted")


def test_empty_table_file_keeps_the_old_table(start_server: Any, tmp_path: pathlib.Path) -> None:
    write_large_table(tmp_path, 1)
    file = tmp_path / "large.safetensors"
    server = start_server(f"--table=x={file}:w", "--tables-poll=100ms")
    save_file({"w": np.zeros((0, 4), "f4")}, tmp_path / "new")
    (tmp_path / "new").rename(file)
    eventually(lambda: "keeping the previous ones (1 mounted)" in server.log(), "refused")
    assert server.metrics()["attnbias_mounted_tables"] == 1
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--tables=/nonexistent", "--tables: /nonexistent: "),
        ("--table=x", "--table: got 'x', want NAME=FILE.safetensors:TENSOR"),
        ("--checkpoint=m={folder}", "model_type: got 'gpt7', want one of "),
        (
            "--table=x={folder}/empty.safetensors:w",
            "empty.safetensors:w: got F32 [0, 4], want F64, F32, F16 or BF16 with one to three "
            "axes, none of length 0",
        ),
    ],
)
def test_unmountable_tables_fail_startup(tmp_path: pathlib.Path, flag: str, says: str) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt7"}')
    save_file({"w": np.zeros((0, 4), "f4")}, tmp_path / "empty.safetensors")
    ended = run_server("--check-config", flag.format(folder=tmp_path))
    assert ended.returncode == 2
    assert says in ended.stderr


def test_table_lists_come_from_environment(tmp_path: pathlib.Path) -> None:
    write_checkpoint(tmp_path / "a")
    write_checkpoint(tmp_path / "b")
    folders = f"a={tmp_path / 'a'},b={tmp_path / 'b'}"
    ended = run_server("--check-config", ATTNBIAS_CHECKPOINT=folders)
    assert f"checkpoint={folders}\n" in ended.stdout


def test_tool_lists_usable_table_options(start_server: Any, tmp_path: pathlib.Path) -> None:
    write_checkpoint(tmp_path / "model")
    server: Server = start_server(f"--checkpoint=m={tmp_path / 'model'}")

    listed = run_tool(server.address, "tables").splitlines()
    assert listed[0] == "m/decoder"
    use = listed[3].split()
    assert "table=name:m/decoder" in use
    out = tmp_path / "bias.npy"
    words = (*use, "--query-length", 4, "--key-length", 4, "--out", out)
    run_tool(server.address, "get", *words)
    np.testing.assert_array_equal(np.load(out)[1], DECODER[[3, 2, 1, 0, 0, 0, 0], 1].astype("f4"))
