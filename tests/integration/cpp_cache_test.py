# SPDX-License-Identifier: Apache-2.0
"""The C++ client reads what the Python client has put into a cache."""

import os
import pathlib
import subprocess

import attnbias
from tests.integration.server import Server

HEADS, LENGTH = 8, 1024  # the example's
NOBODY = "127.0.0.1:1"
EXAMPLE = pathlib.Path(os.environ["ATTNBIAS_CLI_BINARY"]).with_name("attnbias-example-fetch")


def example(target: str, cache: pathlib.Path | str) -> str:
    """What client/cpp/examples/fetch.cc says."""
    return subprocess.run(
        [EXAMPLE, target],
        env={**os.environ, "ATTNBIAS_CACHE_DIR": str(cache)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    ).stdout


def test_the_example_runs_without_a_server(shared_server: Server, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cache"
    alibi = attnbias.ALiBi(num_heads=HEADS)
    with attnbias.Client(shared_server.address, cache=folder) as client:
        client.get(alibi, queries=LENGTH, keys=LENGTH)
        client.get(alibi, queries=(LENGTH - 1, LENGTH), keys=LENGTH, form="dense")
    want = example(shared_server.address, "")
    assert example(NOBODY, folder) == want
    for path in (folder / "requests").iterdir():  # as in a folder that was copied
        fingerprint, *_ = path.read_text().split()
        path.write_text(f"{fingerprint} 1 2 3\n")
    assert example(NOBODY, folder) == want


def test_what_is_damaged_comes_from_the_server(
    shared_server: Server, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "cache"
    alibi = attnbias.ALiBi(num_heads=HEADS)
    with attnbias.Client(shared_server.address, cache=folder) as client:
        client.get(alibi, queries=LENGTH, keys=LENGTH)
    (path,) = (folder / "tensors").iterdir()
    data = bytearray(path.read_bytes())
    shown = len(data) + 4 * (-HEADS * (2 * LENGTH - 1) + LENGTH - 4)  # of head 0, key - query -3
    data[shown : shown + 4] = bytes(4)
    path.write_bytes(data)
    assert example(shared_server.address, folder) == example(shared_server.address, "")
    assert path.read_bytes() == data
