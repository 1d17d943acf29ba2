# SPDX-License-Identifier: Apache-2.0
"""The table of model types in docs/models.md is that of the register."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.tools import models_table  # noqa: E402  # a file of the repository, not a package


class ModelsTableTest(unittest.TestCase):
    def test_it_is_what_the_register_makes(self) -> None:
        page = models_table.PAGE.read_text(encoding="utf-8")
        self.assertEqual(
            page, models_table.with_table(page), "./dev generate renews the table of docs/models.md"
        )


if __name__ == "__main__":
    unittest.main()
