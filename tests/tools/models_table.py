# SPDX-License-Identifier: Apache-2.0
"""The tables of model types in docs/models.md, from the register."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REGISTER = ROOT / "client/python/src/attnbias/_models/models.json"


def encodings(row: dict[str, Any]) -> str:
    """Returns the encodings that from_config gives for a rule, or for the parts."""
    cell = f"`{row['rule']}`" if "rule" in row else f"those of {', '.join(row['parts'])}"
    return "; ".join(filter(None, (cell, row.get("note"))))


def named(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def table() -> str:
    """Model types of which all four know the same are one row."""
    register = json.loads(REGISTER.read_text(encoding="utf-8"))
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name, row in register["models"].items():
        attach = row.get("attach") or f"no: {row['unattached']}"
        known = encodings(row), "tables" if "tables" in row else "", attach
        rows.setdefault(known, []).append(name)
    lines = [
        "| `from_config`, `export` | `--checkpoint` | `attach` | model types |",
        "|---|---|---|---|",
        *(f"| {' | '.join(known)} | {named(names)} |" for known, names in sorted(rows.items())),
        "",
        "| not served, since | model types |",
        "|---|---|",
        *(f"| {why} | {named(names)} |" for why, names in register["unserved"].items()),
    ]
    return "\n".join(lines)
