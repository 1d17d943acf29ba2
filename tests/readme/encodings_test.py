# SPDX-License-Identifier: Apache-2.0
"""docs/encodings.md leads to every encoding. The other tables of encodings are generated."""

import re
from pathlib import Path

import attnbias

INDEX = Path(__file__).resolve().parents[2] / "docs/encodings.md"


def test_the_index_has_a_row_for_every_encoding() -> None:
    rows = re.findall(r"^\| \[`(\w+)`\]", INDEX.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(kind.field for kind in attnbias.Encoding.__subclasses__())
