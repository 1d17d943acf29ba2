# SPDX-License-Identifier: Apache-2.0
"""Every link on a page points to an existing file and, after #, to an existing heading."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "client").glob("*/README.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "examples/README.md",
]
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)#?([^)\s]*)\)")
# Code, in which Go's `AsToeplitz[float32](tensor)` is not a link.
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Returns the anchors of headings, as GitHub derives them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(text)
    }


def broken_links(page: pathlib.Path, text: str) -> list[str]:
    broken = []
    for path, anchor in LINK.findall(CODE.sub("", text)):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(f"{path}#{anchor}")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: pathlib.Path) -> None:
    assert broken_links(page, page.read_text()) == []


def test_broken_links_are_reported() -> None:
    text = "[a](README.md#install) [b](none.md) [c](README.md#nowhere) [d](https://example.org)"
    assert broken_links(ROOT / "README.md", text) == ["none.md#", "README.md#nowhere"]
