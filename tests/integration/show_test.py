# SPDX-License-Identifier: Apache-2.0
"""Compares PNG files from `attnbias show` with the values that `attnbias get` fetches."""

import pathlib
from typing import Any

import numpy as np
import pytest
from matplotlib import image

from tests.support.server import Server
from tests.support.ways import run_tool, tool


def lengths(queries: int, keys: int) -> list[str]:
    return [f"--query-length={queries}", f"--key-length={keys}"]


WINDOW = "--queries=30:40"
BUCKETS = ["t5", "bidirectional=true", "--values=buckets", *lengths(40, 40)]
PAIRS = [
    ["alibi", "num_heads=4", *lengths(48, 48), "--causal", "--window-left=20"],
    ["alibi", "num_heads=4", *lengths(3000, 1500), "--alignment=end", "--data-type=f64"],
    # A key row, whose keys cannot be given as a list.
    ["alibi", "num_heads=4", "variant=key_from_end", *lengths(20, 2000), "--alignment=end"],
    ["t5", "bidirectional=false", "num_heads=4", "table=@t5.npy", *lengths(40, 40), WINDOW],
    ["t5", "bidirectional=true", "num_heads=4", "table=@t5.npy", *lengths(9, 9)],
    ["swin", "window=5,6", "table=@swin.npy"],
    ["beit", "window=5,6", "table=@beit.npy"],
]
TABLES = [
    (["sinusoidal", "dim=48", "--positions=128"], "positions"),
    (["rotary", "head_dim=16", "--positions=100:5000", "--part=sin"], "sin"),
    (["xlnet", "dim=16", *lengths(20, 30), "--alignment=start"], "diagonals"),
]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    random = np.random.default_rng(5)
    for name, rows in (("swin", 99), ("beit", 102), ("t5", 32)):
        np.save(tmp_path / f"{name}.npy", random.standard_normal((rows, 4)).astype(np.float32))
    return tmp_path


def assert_drawn(numbers: Any, path: pathlib.Path) -> None:
    """Equal values have equal colors, and larger ones lighter colors; infinite ones are gray."""
    pixels = (image.imread(path) * 255).round().astype(int)
    indices = []
    for length, count in zip(numbers.shape, pixels.shape, strict=False):
        drawn = min(length, count)
        indices.append(np.arange(count) * drawn // count * length // drawn)
    wanted = numbers[np.ix_(*indices)].astype(np.float64)
    grey = (pixels == pixels[..., :1]).all(axis=-1)
    np.testing.assert_array_equal(grey, ~np.isfinite(wanted))
    order = np.argsort(wanted[~grey], kind="stable")
    # There are 700 colors; a rounded one may be darker by less than one step.
    lightness = (pixels[~grey] @ (0.2126, 0.7152, 0.0722))[order]
    assert (np.diff(lightness) > -1).all()
    assert len(np.unique(lightness)) > min(50, len(np.unique(wanted[~grey])) / 2)
    assert tuple(pixels[~grey][order[0]]) == (68, 1, 84)
    assert tuple(pixels[~grey][order[-1]]) == (253, 231, 37)


def compare(server: Server, folder: pathlib.Path, shown: list[str], fetched: list[str]) -> str:
    """Compares a picture with the values that it shows, and returns the tool's output."""
    said = run_tool(server.address, "show", *shown, "--png=a.png", folder=folder)
    run_tool(server.address, "get", *fetched, "--out=a.npy", folder=folder)
    numbers = np.load(folder / "a.npy")
    assert_drawn(numbers.reshape(numbers.shape[-2:]), folder / "a.png")
    return said


@pytest.mark.parametrize("line", PAIRS, ids=lambda line: " ".join(line[:3]))
def test_shows_pairs_of_one_head(
    shared_server: Server, folder: pathlib.Path, line: list[str]
) -> None:
    fetched = [*line, "--heads=2:3", "--form=dense"]
    said = compare(shared_server, folder, [*line, "--head=2"], fetched)
    assert said.startswith(f"{line[0]}, head 2 of 4, ")


def test_shows_bucket_indices(shared_server: Server, folder: pathlib.Path) -> None:
    compare(shared_server, folder, BUCKETS, [*BUCKETS, "--form=dense"])


@pytest.mark.parametrize(("line", "part"), TABLES, ids=lambda each: each[0])
def test_shows_tables_and_vectors(
    shared_server: Server, folder: pathlib.Path, line: list[str], part: str
) -> None:
    whole = [word for word in line if not word.startswith("--part")]
    compare(shared_server, folder, line, [*whole, f"--part={part}"])


def test_shows_terabyte_tensor_from_compact_form(shared_server: Server) -> None:
    line = ["alibi", "num_heads=4", *lengths(1000000, 1000000), "--causal"]
    lines = run_tool(shared_server.address, "show", *line).splitlines()
    assert lines[0].endswith("keys across, 37 x 73 of 1000000 x 1000000")
    assert lines[-1].endswith("@ 0, /: masked")


def test_show_rejects_oversized_download(shared_server: Server) -> None:
    line = ["alibi", "num_heads=4", "variant=key_from_end", *lengths(1000000, 1000000)]
    done = tool(shared_server.address, "show", *line)
    assert done.returncode == 1
    assert "at most 67108864" in done.stderr
    assert "--keys" in done.stderr
