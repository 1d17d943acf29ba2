# SPDX-License-Identifier: Apache-2.0
"""Writes generated files, or with --check lists outdated ones."""

import sys
from pathlib import Path


def renew(texts: dict[Path, str], command: str) -> None:
    """Writes each file's text or, with --check in sys.argv, exits with an error if a file
    differs."""
    stale = [
        path
        for path, text in texts.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv and stale:
        sys.exit(f"not current, {command} renews them: {', '.join(map(str, stale))}")
    for path in stale:
        path.write_text(texts[path], encoding="utf-8")
