# SPDX-License-Identifier: Apache-2.0
"""The code that the CUDA compiler generated for the kernels, read back from the library."""

import pathlib
import re
import subprocess
from collections.abc import Mapping

import pytest

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "build/cuda/bin/libattnbias_cuda.so"
ARCHITECTURES = ("sm_80", "sm_90")


def cuobjdump(*options: str) -> str:
    return subprocess.run(
        ["cuobjdump", *options, str(LIBRARY)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def instructions(architecture: str) -> Mapping[str, list[str]]:
    """Returns the instruction names of each kernel, in order."""
    kernels = {}
    for part in cuobjdump("-sass", "-arch", architecture).split("Function : ")[1:]:
        name, _, code = part.partition("\n")
        kernels[name] = re.findall(
            r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d\s+)?([A-Z0-9_.]+)", code, re.M
        )
    return kernels


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_expansion_has_no_spills(architecture: str) -> None:
    expansions = {
        name: code for name, code in instructions(architecture).items() if "Expand" in name
    }
    assert len(expansions) == 3  # for 2-, 4- and 8-byte elements
    for name, code in expansions.items():
        assert not [word for word in code if word.startswith(("STL", "LDL"))], name


def test_ptx_is_included_for_newer_devices() -> None:
    assert re.findall(r"\.target (\S+)", cuobjdump("-ptx")) == ["sm_90"]
