# SPDX-License-Identifier: Apache-2.0
"""The page on running a server names every flag, and no others."""

import pathlib
import re

from tests.support.server import run_server

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "operations" / "run.md"


def test_page_lists_every_flag_and_no_others() -> None:
    flags = {line.split("=")[0] for line in run_server("--check-config").stdout.splitlines()}
    section = PAGE.read_text().partition("\n## Flags\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`--([a-z-]+)`", section)) == flags
