# SPDX-License-Identifier: Apache-2.0
"""The table of flags is what the server has."""

import pathlib

from tests.support.server import run_server

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "operations" / "run.md"


def written() -> dict[str, str]:
    """The default of each flag in the table."""
    defaults = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `--"):
            flags, default, _ = (cell.strip() for cell in line.strip("|").split("|", 2))
            names = flags.replace("`", "").split(", ")
            # One for each of several flags, or one that they share.
            values = default.replace("`", "").split(", ") if len(names) > 1 else [default]
            for name, value in zip(names, values * (len(names) // len(values)), strict=True):
                defaults[name.removeprefix("--")] = value.strip("`")
    return defaults


def test_the_page_has_every_flag_and_its_default() -> None:
    lines = run_server("--check-config").stdout.splitlines()
    effective = dict(line.split("=", 1) for line in lines)
    defaults = written()
    assert defaults.keys() == effective.keys()
    for name, default in defaults.items():
        # Words stand where it is the machine's, or would be hard to read.
        if " " not in default:
            assert effective[name] == ("0" if default == "0s" else default), name
