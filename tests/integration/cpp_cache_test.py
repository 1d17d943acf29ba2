# SPDX-License-Identifier: Apache-2.0
"""The C++ client and the Python client share a cache. Go's own tests read what C++ has filled."""

import os
import pathlib
import socket
import subprocess
from typing import Any

import numpy as np
import pytest

import attnbias
from attnbias._cache import key_of
from tests.integration.server import Server

NOBODY = "127.0.0.1:1"
BINARIES = pathlib.Path(os.environ["ATTNBIAS_CLI_BINARY"]).parent
T5 = attnbias.T5(
    num_heads=2, bidirectional=False, table=np.ones((2, 32), "f4"), table_layout="heads_buckets"
)
TUPE = attnbias.Tupe(
    num_heads=1,
    num_buckets=4,
    max_distance=8,
    reset_class_token=True,
    relative_table=np.arange(5, dtype="f4")[:, None],
)
BEIT = attnbias.Beit(
    window_height=2, window_width=2, num_heads=1, table=np.arange(12, dtype="f2")[:, None]
)
SHAW = attnbias.Shaw(left=3, right=3, table=np.arange(28, dtype="f4").reshape(7, 4) / 3)
ALIBI = attnbias.ALiBi(num_heads=3)
ASKED: dict[str, tuple[attnbias.Encoding[Any], dict[str, Any]]] = {
    "causal": (ALIBI, {"queries": 6, "keys": 6, "causal": True, "fill": -9}),
    "mask that hides nothing": (ALIBI, {"queries": 6, "keys": 6, "window_left": 9}),
    "window": (ALIBI, {"queries": (2, 7), "keys": (1, 9), "heads": (1, 3), "query_offset": 4}),
    "dense": (ALIBI, {"queries": 4, "keys": 4, "form": "dense", "dtype": "f64", "causal": True}),
    "row": (
        attnbias.ALiBi(num_heads=2, variant="key_from_end"),
        {"queries": 5, "keys": 5, "dtype": "f16"},
    ),
    "scaled": (T5, {"queries": 7, "keys": 7, "window_left": 2, "scale": 2}),
    "buckets": (
        attnbias.T5(num_heads=2, bidirectional=True),
        {"queries": 9, "keys": 9, "values": "buckets"},
    ),
    "pairs": (T5, {"query_position_ids": [9, 1], "key_position_ids": [0, 4, 2]}),
    "vectors": (SHAW, {"queries": 5, "keys": 5}),
    "border": (TUPE, {"queries": 6, "keys": (2, 6)}),
    "grid": (BEIT, {}),
    "two tables": (attnbias.Rotary(head_dim=8), {"positions": 16, "dtype": "bf16"}),
    "listed": (attnbias.Sinusoidal(dim=4), {"position_ids": [3, 1, 4, 1, 5]}),
}


def cpp_get(target: str, cache: pathlib.Path, *specs: Any) -> subprocess.Popen[str]:
    """A program in C++ that asks for these, and says header and payload of each in hex."""
    process = subprocess.Popen(
        [BINARIES / "attnbias-cpp-get", target, *(["offline"] if target == NOBODY else [])],
        env={**os.environ, "ATTNBIAS_CACHE_DIR": str(cache)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("".join(f"{spec.SerializeToString().hex()}\n" for spec in specs))
    process.stdin.close()
    process.stdin = None  # for communicate()
    return process


def said_by(process: subprocess.Popen[str]) -> list[str]:
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    return said.splitlines()


def assert_same(got: Any, want: Any) -> None:
    assert (type(got), repr(got)) == (type(want), repr(want))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    for name in ("resolved_spec", "mask", "class_query", "class_key"):
        assert getattr(got, name, None) == getattr(want, name, None), name


def files_in(folder: pathlib.Path) -> list[str]:
    return sorted(path.parent.name for path in folder.rglob("*") if path.is_file())


def test_python_maps_what_cpp_has_filled(shared_server: Server, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cache"
    requests = {name: attnbias.Request(encoding, **to) for name, (encoding, to) in ASKED.items()}
    specs = [request.to_spec() for request in requests.values()]
    assert len(said_by(cpp_get(shared_server.address, folder, *specs))) == len(specs)
    assert attnbias.Cache(folder).verify() == []
    with (
        attnbias.Client(shared_server.address, cache="") as direct,
        attnbias.Client(NOBODY, cache=folder, offline=True) as offline,
    ):
        for encoding, options in ASKED.values():
            want = direct.get(encoding, **options)
            info = direct.describe(encoding, **options)
            assert_same(offline.get(encoding, **options), want)
            assert offline.describe(encoding, **options) == info
            file = folder / "tensors" / f"{info.fingerprint}.safetensors"
            assert_same(attnbias.load(file), want)


def test_cpp_maps_what_python_has_filled(shared_server: Server, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cache"
    specs = [
        attnbias.Request(encoding, **options).to_spec() for encoding, options in ASKED.values()
    ]
    with attnbias.Client(shared_server.address, cache=folder) as client:
        for encoding, options in ASKED.values():
            client.get(encoding, **options)
    before = {path: path.stat().st_ino for path in folder.rglob("*")}
    got = said_by(cpp_get(NOBODY, folder, *specs))
    assert got == said_by(cpp_get(shared_server.address, tmp_path / "other", *specs))
    assert {path: path.stat().st_ino for path in folder.rglob("*")} == before


def test_processes_of_both_fetch_at_once(shared_server: Server, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cache"
    encoding = attnbias.Sinusoidal(dim=256)
    lengths = [4000 + step for step in range(4)]
    specs = [attnbias.Request(encoding, positions=length).to_spec() for length in lengths]
    others = [cpp_get(shared_server.address, folder, *specs) for _ in range(2)]
    with attnbias.Client(shared_server.address, cache=folder) as client:
        own = [client.get(encoding, positions=length) for length in lengths]
    want = [table.tobytes().hex() for table in own]
    for process in others:
        assert [line.split()[1] for line in said_by(process)] == want
    assert files_in(folder) == ["requests"] * 4 + ["tensors"] * 4
    assert attnbias.Cache(folder).verify() == []


SMALL = attnbias.Sinusoidal(dim=8)
SMALL_SPEC = attnbias.Request(SMALL, positions=9).to_spec()


def test_cpp_waits_for_who_has_the_lock(shared_server: Server, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cache"
    draft = attnbias.Cache(folder).try_lock(key_of(SMALL_SPEC))
    assert draft is not None
    with draft:
        process = cpp_get(shared_server.address, folder, SMALL_SPEC)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        assert files_in(folder) == ["drafts"]
    said_by(process)
    assert files_in(folder) == ["requests", "tensors"]


def test_the_lock_of_cpp_ends_with_it(shared_server: Server, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cache"
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        attnbias.Client(shared_server.address, cache=folder) as client,
    ):
        holder = cpp_get(f"127.0.0.1:{silent.getsockname()[1]}", folder, SMALL_SPEC)
        silent.accept()[0].close()
        with pytest.raises(attnbias.DeadlineExceededError):
            client.get(SMALL, positions=9, timeout=0.5)
        holder.kill()
        holder.communicate()
        assert files_in(folder) == ["drafts"]
        client.get(SMALL, positions=9)
    assert files_in(folder) == ["requests", "tensors"]


def example(target: str, cache: pathlib.Path | str) -> str:
    """What client/cpp/examples/fetch.cc says."""
    return subprocess.run(
        [BINARIES / "attnbias-example-fetch", target],
        env={**os.environ, "ATTNBIAS_CACHE_DIR": str(cache)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    ).stdout


def test_the_example_runs_without_a_server(shared_server: Server, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cache"
    want = example(shared_server.address, "")
    assert example(shared_server.address, folder) == want
    assert example(NOBODY, folder) == want
