# SPDX-License-Identifier: Apache-2.0
"""Finds the protections in cmake/Hardening.cmake that a program lacks, according to binutils."""

import pathlib
import re
import subprocess

# Instructions that mark valid targets of indirect jumps: endbr64, paciasp; keyed by ELF's
# e_machine.
LANDING_PADS = {62: b"\xf3\x0f\x1e\xfa", 183: b"\x3f\x23\x03\xd5"}
# Programs always have a few, from the compiler's own start files.
FEW_LANDING_PADS = 100


def lacks(program: pathlib.Path) -> list[str]:
    """Returns the names of the protections that a program lacks."""
    text = subprocess.run(
        ["readelf", "--wide", "--segments", "--dynamic", "--dyn-syms", program],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    content = program.read_bytes()
    pads = content.count(LANDING_PADS[int.from_bytes(content[18:20], "little")])
    has = {
        "position-independent": re.search(r"FLAGS_1\).* PIE", text),
        "bound before it runs": re.search(r"FLAGS_1\).* NOW", text),
        "read-only relocations": re.search(r"^ +GNU_RELRO ", text, re.M),
        "a stack without code": re.search(r"^ +GNU_STACK .* RW +0x\w+$", text, re.M),
        "no library search path": not re.search(r"\((RPATH|RUNPATH)\)", text),
        "a guarded stack": re.search(r" UND __stack_chk_fail\b", text),
        "bounds in the C library's functions": re.search(r" UND __(?!stack)\w+_chk\b", text),
        "landing pads": pads > FEW_LANDING_PADS,
    }
    return [what for what, there in has.items() if not there]
