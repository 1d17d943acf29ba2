# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/ and README.md name the encodings and fields that `attnbias list` does."""

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
        elif "=" not in name and not name.endswith("_layout"):
            fields[name] = words[1] if words[0] == "default" else ""
    return encodings


def documented() -> list[tuple[str, dict[str, str]]]:
    """The same out of the pages: under Fields, items `name`: `field` = default, ..."""
    encodings = []
    for page in sorted((ROOT / "docs/encodings").glob("*.md")):
        _, _, section = page.read_text().partition("\n## Fields\n")
        for item in section.split("\n- ")[1:]:
            name, fields = re.fullmatch(r"`(\w+)`: (.*)", " ".join(item.split())).groups()
            encodings.append((name, dict(re.findall(r"`([\w.]+)`(?: = ([^\s,]+))?", fields))))
    return encodings


def test_the_pages_have_the_fields_that_the_tool_lists() -> None:
    pages = documented()
    assert dict(pages) == listed()
    assert len(pages) == len(listed())


def test_the_index_has_a_row_for_every_encoding() -> None:
    rows = re.findall(r"^\| \[`(\w+)`\]", (ROOT / "docs/encodings.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(listed())


def test_the_readme_has_every_encoding() -> None:
    text = (ROOT / "README.md").read_text()
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    assert set(listed()) <= set(re.findall(r"`(\w+)`", rows))
