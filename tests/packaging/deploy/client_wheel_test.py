# SPDX-License-Identifier: Apache-2.0
"""Properties of the Python client's package that can be checked without a network."""

import pathlib
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
CLIENT = ROOT / "client" / "python"
PROTO = ROOT / "proto"


def test_build_without_contract_names_missing_folder(tmp_path: pathlib.Path) -> None:
    copy = shutil.copytree(CLIENT, tmp_path / "a" / "b" / "copy")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    places = f"{copy / 'proto'} or {tmp_path / 'a' / 'proto'}"
    assert f"contract: got {copy} without {places}, want " in done.stderr
    assert "install it inside a clone of the whole repository" in done.stderr


def test_sdist_contains_contract(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path]
    subprocess.run(command, cwd=CLIENT, check=True)
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as files:
        inside = {name.partition("/")[2] for name in files.getnames()}
    for folder in ("attnbias/v1", "google/rpc", "grpc/health/v1"):
        assert inside >= {f"proto/{folder}/{each.name}" for each in (PROTO / folder).iterdir()}
    assert not [name for name in inside if "_pb2" in name]
