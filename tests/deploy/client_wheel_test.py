# SPDX-License-Identifier: Apache-2.0
"""The Python client's package as far as it can be told without a network."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = ROOT / "client" / "python"


def test_a_copy_of_the_client_alone_names_what_is_missing(tmp_path: pathlib.Path) -> None:
    copy = shutil.copytree(CLIENT, tmp_path / "a" / "b" / "copy")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert (
        f"contract: got {copy} without {copy / 'proto'} or {tmp_path / 'a' / 'proto'}, want "
        in (done.stderr)
    )
    assert "install it inside a clone of the whole repository" in done.stderr


def test_an_sdist_has_the_contract(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path]
    subprocess.run(command, cwd=CLIENT, check=True)
    (archive,) = tmp_path.iterdir()
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("attnbias-*/")
    for folder in ("attnbias/v1", "google/rpc", "grpc/health/v1"):
        ours = sorted(path.name for path in (unpacked / "proto" / folder).iterdir())
        assert ours == sorted(path.name for path in (ROOT / "proto" / folder).iterdir())
    assert not list(unpacked.glob("src/**/*_pb2*"))
