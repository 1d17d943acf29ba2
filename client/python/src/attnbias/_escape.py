# SPDX-License-Identifier: Apache-2.0
"""Text of others, without what a terminal obeys."""

from __future__ import annotations

from typing import Final

_MOST_CHARACTERS: Final = 400


def escaped(text: str, most: int = _MOST_CHARACTERS) -> str:
    """The text with escape sequences for what a terminal or a log would not print as it is.

    Those are control characters, ends of lines among them, and marks that change the direction of
    text or have no width. A text of more than ``most`` characters is cut.
    """
    shown = "".join(each if each.isprintable() else _escape(each) for each in text[:most])
    return shown if len(text) <= most else f"{shown}..."


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
