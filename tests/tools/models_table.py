# SPDX-License-Identifier: Apache-2.0
"""The table of model types in docs/models.md, made from the register."""

import json
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REGISTER = ROOT / "client/python/src/attnbias/_models/models.json"


def attach(row: dict[str, Any]) -> str:
    """Returns the module that replaces the positions, or the reason why none does, and the row's
    note."""
    cell = row.get("attach") or f"no: {row['unattached']}"
    return "; ".join(filter(None, (cell, row.get("note"))))


def named(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def table() -> str:
    """Returns a row for each group of model types that are treated alike, and the reasons for the
    others."""
    register = json.loads(REGISTER.read_text(encoding="utf-8"))
    rows: dict[tuple[str, str], list[str]] = {}
    for name, row in register["models"].items():
        known = attach(row), "tables" if "tables" in row else ""
        rows.setdefault(known, []).append(name)
    lines = [
        "| `attach` | `--checkpoint` | model types |",
        "|---|---|---|",
        *(f"| {' | '.join(known)} | {named(names)} |" for known, names in sorted(rows.items())),
        "",
        "Any other type is rejected, for one of these reasons:",
        "",
        *(textwrap.fill(f"- {why}", 100, subsequent_indent="  ") for why in register["unserved"]),
    ]
    return "\n".join(lines)
