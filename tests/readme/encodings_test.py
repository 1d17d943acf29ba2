# SPDX-License-Identifier: Apache-2.0
"""docs/encodings.md and README.md name the encodings and fields that `attnbias list` does."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def listed() -> dict[str, dict[str, str]]:
    """Encodings, their fields, and of each the default, or "" where it has none."""
    command = [os.environ["ATTNBIAS_CLI_BINARY"], "list"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    encodings: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        name, *words = line.split()
        if not words:
            fields = encodings.setdefault(name, {})
        elif not name.endswith("_layout"):
            fields[name] = words[1] if words[0] == "default" else ""
    return encodings


def documented() -> dict[str, dict[str, str]]:
    """The same out of the table of fields, whose rows are `name` | ... | `field` = default, ..."""
    section = (ROOT / "docs/encodings.md").read_text().split("\n## Fields\n")[1]
    encodings = {}
    for row in re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", section, re.MULTILINE):
        fields = re.findall(r"`([\w.]+)`(?: = ([^\s,]+))?", row[1])
        encodings[row[0]] = dict(fields)
    return encodings


def test_the_table_of_fields_is_what_the_tool_lists() -> None:
    assert documented() == listed()


def test_the_readme_has_every_encoding() -> None:
    text = (ROOT / "README.md").read_text()
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    assert set(listed()) <= set(re.findall(r"`(\w+)`", rows))
