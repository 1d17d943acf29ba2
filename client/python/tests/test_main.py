# SPDX-License-Identifier: Apache-2.0
"""``python -m attnbias``: tensors that an export provides to an offline client, and folder
listings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import attnbias
from attnbias.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    "ATTNBIAS_SERVER_BINARY" not in os.environ, reason="ATTNBIAS_SERVER_BINARY is not set"
)

LENGTH = 48
ROTARY = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
LONGROPE = {
    "model_type": "phi3",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "original_max_position_embeddings": 32,
    "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
}
OF_A_LENGTH = attnbias.Longrope(
    [1.0] * 8,
    long_factor=[2.0] * 8,
    original_max_position_embeddings=32,
    max_position_embeddings=4096,
    sequence_length=LENGTH,
)
BLOOM = {"model_type": "bloom", "n_head": 6}
T5 = {"model_type": "t5", "num_heads": 6}
MARIAN = {"model_type": "marian", "d_model": 32}
DEBERTA = {"model_type": "deberta-v2", "relative_attention": True, "position_buckets": 16}
POSITIONS = {"positions": LENGTH}
PAIRS: dict[str, Any] = {"query_length": LENGTH, "key_length": LENGTH}
ASKED: dict[str, tuple[dict[str, Any], str, dict[str, Any], dict[str, Any]]] = {
    "rotary": (ROTARY, "rotary", {}, POSITIONS),
    "longrope": (LONGROPE, "rotary", {"longrope": OF_A_LENGTH}, POSITIONS),
    "bloom": (BLOOM, "decoder", {}, PAIRS),
    "t5-encoder": (T5, "encoder", {}, {**PAIRS, "values": "buckets"}),
    "t5-decoder": (T5, "decoder", {}, {**PAIRS, "values": "buckets"}),
    "marian": (MARIAN, "decoder.positions", {}, POSITIONS),
    "deberta": (DEBERTA, "encoder", {}, PAIRS),
}


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/conformance/peers covers exports for ``attach``."""
    monkeypatch.setattr("attnbias._models.export.can_attach", lambda: False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def export(tmp_path: Path, folder: Path) -> Iterator[Callable[..., int]]:
    """Exports a configuration from a server that stops on ``close()`` or at the test's end."""
    server = attnbias.LocalServer("--threads=1")
    server.start()

    def run(config: dict[str, Any], *options: str) -> int:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        common = ["--config", str(path), "--max-length", str(LENGTH), "--cache", str(folder)]
        return main(["export", *common, "--server", server.target, *options])

    run.close = server.close  # type: ignore[attr-defined]
    yield run
    server.close()


def dense(answer: Any) -> Any:
    return [np.asarray(part) for part in (answer if isinstance(answer, tuple) else (answer,))]


@pytest.mark.parametrize("name", ASKED)
def test_exported_tensors_are_available_offline(
    export: Any, folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config, place, missing, options = ASKED[name]
    encoding: Any = attnbias.from_config(config)[place]
    encoding = replace(encoding, **missing)
    with attnbias.LocalServer() as client:
        want = client.get(encoding, **options)
    assert export(config) == 0
    said = capsys.readouterr()
    assert said.err == (
        "attnbias: torch and transformers are not installed: the tensors that attach() requests "
        "are left out\n"
    )
    export.close()
    with attnbias.Client(cache=folder, offline=True) as client:
        got = client.get(encoding, **options)
        info = client.describe(encoding, **options)
    for one, other in zip(dense(got), dense(want), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
    line = f"fetched {info.fingerprint} {info.nbytes} bytes, {type(encoding).__name__}("
    assert line in said.out


def test_data_type_does_not_apply_to_indices(export: Any, folder: Path) -> None:
    for config in (ROTARY, T5):
        assert export(config, "--data-type", "f16") == 0
    with attnbias.Client(cache=folder, offline=True) as client:
        rotary: Any = attnbias.from_config(ROTARY)["rotary"]
        assert client.get(rotary, positions=LENGTH, data_type="f16").cos.dtype == np.float16
        t5: Any = attnbias.from_config(T5)["encoder"]
        assert client.get(t5, **PAIRS, values="buckets").dtype == np.int32


def test_export_skips_cached_tensors(export: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(ROTARY) == 0
    first = capsys.readouterr().out
    assert export(ROTARY) == 0
    assert capsys.readouterr().out == first.replace("rotary: fetched", "rotary: there")


def test_equal_requests_are_one_line(export: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert export({"model_type": "umt5", "num_layers": 3}) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("encoder.layers.0 and 2 more: fetched ")
    assert second.startswith("decoder.layers.0 and 2 more: fetched ")


def test_encodings_without_table_are_skipped(
    export: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export({"model_type": "mpnet"}) == 0
    out = capsys.readouterr().out
    assert "encoder: fetched " in out
    left_out = "left out: its learned table is in the checkpoint\n"
    assert f"positions: {left_out}" in out
    assert export({"model_type": "gpt2"}) == 1
    said = capsys.readouterr()
    assert said.out == f"positions: {left_out}"
    assert said.err.endswith("config: nothing in it can be computed without a checkpoint\n")


def test_cache_commands_list_verify_and_clear(
    export: Any, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for config in (ROTARY, BLOOM):
        export(config)
    capsys.readouterr()
    monkeypatch.setenv("ATTNBIAS_CACHE_DIR", str(folder))
    assert main(["cache", "ls"]) == 0
    head, bloom, rotary = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["fingerprint", "encoding", "shape", "dtype", "bytes", "last", "used"]
    assert bloom[1:4] == ["alibi", "row[6,48]", "float32"]
    assert rotary[1:5] == ["rotary", "cos[48,16]", "sin[48,16]", "float32"]
    damaged = folder / "tensors" / f"{rotary[0]}.safetensors"
    assert rotary[5] == str(damaged.stat().st_size)

    assert main(["cache", "verify"]) == 0
    assert capsys.readouterr().out == "2 tensors are intact\n"
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert main(["cache", "verify"]) == 1
    said = f"{damaged} was damaged and has been removed\n1 tensors are intact\n"
    assert capsys.readouterr().out == said

    assert main(["cache", "clear"]) == 0
    assert not any(path.is_file() for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (["export", "--config", "C", "--max-length", "0"], 2, "got '0', want a positive int"),
        (["export", "--config", "C"], 2, "the following arguments are required: --max-length"),
        (
            ["export", "--config", "MISSING", "--max-length", "4"],
            1,
            "config: got 'MISSING', want config.json",
        ),
        (["export", "--config", "BROKEN", "--max-length", "4"], 1, "BROKEN: not JSON"),
        (
            ["export", "--config", "ODD", "--max-length", "4"],
            1,
            "model_type: got 'odd', want a model",
        ),
        (["cache"], 2, "the following arguments are required: ACTION"),
        (["cache", "verify"], 1, "cache: got 'cache', want an existing folder"),
    ],
)
def test_errors_are_one_line_without_traceback(
    tmp_path: Path, arguments: list[str], status: int, why: str
) -> None:
    (tmp_path / "C").write_text(json.dumps(ROTARY))
    (tmp_path / "BROKEN").write_text("{")
    (tmp_path / "ODD").write_text('{"model_type": "odd"}')
    done = subprocess.run(
        [sys.executable, "-m", "attnbias", *arguments],
        cwd=tmp_path,
        env={**os.environ, "ATTNBIAS_CACHE_DIR": "cache"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, "")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_unwritable_folder_is_an_error(
    export: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    (folder / "drafts").touch()  # in place of a folder
    assert export(ROTARY) == 1
    assert capsys.readouterr().err.endswith(f"{folder}: cannot store what was fetched\n")
