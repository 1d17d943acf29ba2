# SPDX-License-Identifier: Apache-2.0
"""A program outside the tree that builds the C++ client together with itself."""

import pathlib
import re
import subprocess

import pytest

from tests.support.server_process import running_server

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONSUMER = ROOT / "tests" / "packaging" / "packages" / "consumer"
EXAMPLE = ROOT / "client" / "cpp" / "examples" / "fetch.cc"


@pytest.mark.parametrize("kind", ["folder", "tarball"])
def test_consumer_builds_from_sources(tmp_path: pathlib.Path, kind: str) -> None:
    tarball = tmp_path / "attnbias.tar"
    subprocess.run(
        ["git", "-C", ROOT, "archive", "--prefix=attnbias/", f"--output={tarball}", "HEAD"],
        check=True,
    )
    sources = tarball
    if kind == "folder":
        subprocess.run(["tar", "-xf", tarball, "-C", tmp_path], check=True)
        sources = tmp_path / "attnbias"
    build = tmp_path / "build"
    options = [
        f"-DATTNBIAS={sources}",
        f"-DFETCH={EXAMPLE}",
        "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache",
    ]
    subprocess.run(["cmake", "-G", "Ninja", "-S", CONSUMER, "-B", build, *options], check=True)
    subprocess.run(["cmake", "--build", build, "--target", "fetch"], check=True)
    with running_server() as address:
        said = subprocess.run(
            [build / "fetch", address], check=True, capture_output=True, text=True
        ).stdout
    assert re.search("^fingerprint [0-9a-f]{64}$", said, re.MULTILINE)
