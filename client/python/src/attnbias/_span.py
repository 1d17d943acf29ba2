# SPDX-License-Identifier: Apache-2.0
"""Lengths and windows, as arguments give them."""

from __future__ import annotations

import operator
from typing import SupportsIndex

Span = SupportsIndex | tuple[SupportsIndex, SupportsIndex]
"""A length n, which is [0, n), or a half-open (begin, end)."""


def bounds(span: Span, name: str) -> tuple[int, int]:
    """The half-open bounds of a span; raises TypeError naming ``name``."""
    try:
        if isinstance(span, tuple):
            begin, end = span
            return operator.index(begin), operator.index(end)
        return 0, operator.index(span)
    except (TypeError, ValueError) as error:
        message = f"{name}: got {span!r}, want an integer or a tuple (begin, end) of two"
        raise TypeError(message) from error
