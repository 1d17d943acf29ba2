# SPDX-License-Identifier: Apache-2.0
"""The recipe for a new encoding names every file that contains an encoding."""

import fnmatch
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
FOLDERS = ("client", "core", "docs", "proto", "server", "tests")
KINDS = {".binpb", ".cc", ".go", ".h", ".inc", ".json", ".jsonl", ".md", ".proto", ".py"}
# Created if the client is installed from source.
GENERATED = "client/python/src/attnbias/v1/"
# An encoding like any other, whose name is neither an English word nor an identifier.
NAME = "sandwich"
# Files that use it only as an example, where any other would do.
EXAMPLES = {
    "tests/docs/recipe_test.py",
    "tests/unit/cpp/tool_test.cc",
    "tests/conformance/peers/documented_rows_test.py",
    "tests/unit/encoding/bits_test.cc",
    "tests/integration/lifecycle_test.py",
}
# Files in the recipe that this encoding does not need.
OTHERS = {
    "core/mount/checkpoint_rules.cc",
    "tests/support/cases.py",
    "tests/unit/memory/evaluator_memory_test.cc",
}


def recipe() -> tuple[list[str], list[str]]:
    """Returns the paths written by hand and the others; * matches part of a name."""
    section = PAGE.read_text().split("\n## Adding an encoding\n")[1].split("\n## ")[0]
    section = section.replace("FAMILY", "*").replace("NAME", NAME)
    first, *others = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    by_hand = re.findall(r"^\| `(.+?)` \|", first, re.MULTILINE)
    return by_hand, re.findall(r"`(\w.+?)`", "".join(others))


def files_with_the_encoding() -> list[str]:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return [
        path.relative_to(ROOT).as_posix()
        for path in [*paths, *ROOT.glob("*.md")]
        if path.suffix in KINDS
        and not path.is_relative_to(ROOT / GENERATED)
        and NAME.encode() in path.read_bytes().lower()
    ]


class RecipeTest(unittest.TestCase):
    def test_recipe_names_every_file_of_an_encoding(self) -> None:
        by_hand, others = recipe()
        paths = ["CHANGELOG.md", *EXAMPLES, *by_hand, *others]
        files = files_with_the_encoding()
        missing = [file for file in files if not any(fnmatch.fnmatch(file, p) for p in paths)]
        self.assertEqual(missing, [])

    def test_every_named_file_contains_an_encoding(self) -> None:
        by_hand, others = recipe()
        files = files_with_the_encoding()
        unused = {path for path in by_hand + others if not fnmatch.filter(files, path)}
        self.assertEqual(unused, OTHERS)

    def test_five_files_are_written_by_hand(self) -> None:
        by_hand, _ = recipe()
        self.assertEqual(len(by_hand), 5)

    def test_contributing_links_to_recipe(self) -> None:
        page = (ROOT / "CONTRIBUTING.md").read_text()
        self.assertIn("(docs/architecture.md#adding-an-encoding)", page)


if __name__ == "__main__":
    unittest.main()
