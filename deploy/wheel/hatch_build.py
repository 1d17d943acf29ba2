# SPDX-License-Identifier: Apache-2.0
"""Builds a wheel for the machine for which the programs were built; fails without programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of an ELF header


def _machine(program: Path) -> str:
    header = program.read_bytes()[:20]
    return _MACHINES[int.from_bytes(header[18:20], "little")]


class ProgramsBuildHook(BuildHookInterface[Any]):
    """Rejects builds that lack the programs: sdists, and builds from a checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Implements hatchling's hook."""
        del version  # an editable install also needs the programs
        server = Path(self.root) / "src" / "attnbias_server" / "bin" / "attnbias-server"
        if self.target_name != "wheel" or not server.exists():
            message = (
                "attnbias-server contains compiled programs and is published only as wheels, for"
                " Linux on x86_64 and aarch64 with glibc 2.35 or later; elsewhere build the server"
                " from its repository: ./dev wheels makes a wheel, ./dev serve runs it"
            )
            raise RuntimeError(message)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{_machine(server)}"
