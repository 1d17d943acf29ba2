# SPDX-License-Identifier: Apache-2.0
"""Fails where a page, a program or the contract has a line that is too wide to read."""

import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDEST = 100
TAB = 4
FOLDERS = ("client", "cmake", "core", "deploy", "docs", "examples", "proto", "server", "tests")
PATTERNS = (
    *("*.md", "*.proto", "*.h", "*.cc", "*.cu", "*.py", "*.go", "*.sh", "*.js", "*.java"),
    *("CMakeLists.txt", "*.cmake"),
)
# protoc's work.
GENERATED = (
    "client/go/attnbiaspb/",
    "client/python/src/attnbias/_public/",
    "client/python/src/attnbias/v1/",
)
# ruff does not count these either.
PYTHON_PRAGMA = re.compile(r"\s+# type: ignore\[.*")


def files() -> Iterator[pathlib.Path]:
    yield from (ROOT / "dev", ROOT / ".ci/run", ROOT / "CMakeLists.txt")
    yield from sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        found = [path for pattern in PATTERNS for path in (ROOT / folder).rglob(pattern)]
        yield from sorted(found)


def lines_that_can_be_broken(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Omits a page's table rows, blocks of code, and lines with an address."""
    in_block = False
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if path.suffix == ".md":
            in_block ^= line.startswith("```")
            if in_block or line.startswith("|"):
                continue
        if "://" not in line:
            yield number, PYTHON_PRAGMA.sub("", line) if path.suffix == ".py" else line


def main() -> int:
    found = 0
    for path in files():
        name = str(path.relative_to(ROOT))
        if name.startswith(GENERATED):
            continue
        for number, line in lines_that_can_be_broken(path):
            width = len(line.expandtabs(TAB))
            if width > WIDEST:
                found += 1
                print(f"{name}:{number}: got {width} columns, want at most {WIDEST}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
