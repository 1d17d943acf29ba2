# SPDX-License-Identifier: Apache-2.0
"""The tables on the pages in docs/, row by row."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[3] / "docs"
_SEPARATOR = re.compile(r"^\|[-:| ]+\|$")


class Row(NamedTuple):
    page: str  # relative to docs/
    section: str  # the nearest heading above
    header: str  # of the first column
    cells: tuple[str, ...]


def rows_of(page: str) -> Iterator[Row]:
    """Yields the rows of a page's tables, outside code blocks."""
    section, header, in_code = "", "", False
    lines = (DOCS / page).read_text().splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("```"):
            in_code = not in_code
        if in_code:
            continue
        if line.startswith("#"):
            section = line.lstrip("# ")
        if not line.startswith("|") or _SEPARATOR.match(line):
            continue
        cells = tuple(cell.strip() for cell in line.strip().strip("|").split(" | "))
        if _SEPARATOR.match(following):
            header = cells[0]
            continue
        yield Row(page, section, header, cells)


def section_of(page: str, section: str) -> list[Row]:
    rows = [row for row in rows_of(page) if row.section == section]
    assert rows, f"{page} has no table in {section!r}"
    return rows


def paragraph_of(page: str, beginning: str) -> str:
    """Returns the paragraph that starts with this text, on one line."""
    paragraphs = (DOCS / page).read_text().split("\n\n")
    found = [text.replace("\n", " ") for text in paragraphs if text.startswith(beginning)]
    assert len(found) == 1, f"{page} has {len(found)} paragraphs that begin {beginning!r}"
    return found[0]


def names_in(text: str) -> list[str]:
    """Returns the names of classes and functions in backticks."""
    return re.findall(r"`(\w+)`", text)


def configs_in(text: str) -> list[str]:
    """Returns the names of configurations in backticks."""
    return re.findall(r"`(\w+Config)`", text)
