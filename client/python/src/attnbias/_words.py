# SPDX-License-Identifier: Apache-2.0
"""What a server says, with the names of this package, and without what a terminal obeys."""

from __future__ import annotations

import re
from typing import Final

from attnbias._enums import enum_name
from attnbias.v1 import encodings_pb2, logits_pb2, tensor_pb2

_WORDS: Final = {
    "spec:": "request:",
    "spec.": "",
    "spec.grid.": "",
    "spec.output.": "",
    "spec.output.mask.": "",
    "spec.pair.": "",
    "spec.table.": "",
    "query_length": "queries",
    "query_positions": "query_position_ids",
    "query_positions.positions": "query_position_ids",
    "key_length": "keys",
    "key_positions": "key_position_ids",
    "key_positions.positions": "key_position_ids",
    "].positions[": "][",
    "alignment": "align",
    "data_type": "dtype",
    "output_data_type": "dtype",
    "fill_lowest": "fill",
    "fill_value": "fill",
    ".inline_table": "",
    ".inline_table.data:": ":",
    ".name:": ":",
    ".sha256:": ":",
    "ListTables has": "Client.list_tables() has",
    "Received message larger than max": (
        "too large a message; if it is the request, have the server mount its tables (--tables)"
    ),
}
_MOST_CHARACTERS: Final = 400
_VALUES: Final = "|".join(
    enum_name(enum, value.number).upper()
    for file in (tensor_pb2, encodings_pb2, logits_pb2)
    for enum in file.DESCRIPTOR.enum_types_by_name.values()
    for value in enum.values
    if value.number
)
# What stands in quotes is the caller's own. An apostrophe follows a letter.
_QUOTED: Final = r"(?<!\w)'[^']*'?"
_PATTERN: Final = re.compile(
    rf"{_QUOTED}|"
    + "|".join(re.escape(word) for word in sorted(_WORDS, key=len, reverse=True))
    + rf"|\b(?:{_VALUES})\b"
)


def in_arguments(message: str) -> str:
    """The message with ``keys`` for ``spec.pair.key_length``, and so on."""

    def translated(found: re.Match[str]) -> str:
        word = found[0]
        return word if word.startswith("'") else _WORDS.get(word, word.lower())

    return _PATTERN.sub(translated, message)


def escaped(text: str, most: int = _MOST_CHARACTERS) -> str:
    """The text with escape sequences for what a terminal or a log would not print as it is.

    Those are control characters, ends of lines among them, and marks that change the direction of
    text or have no width. A text of more than ``most`` characters is cut.
    """
    shown = "".join(each if each.isprintable() else _escape(each) for each in text[:most])
    return shown if len(text) <= most else f"{shown}..."


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
