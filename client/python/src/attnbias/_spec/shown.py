# SPDX-License-Identifier: Apache-2.0
"""How what was asked for is shown: as one writes it, on one line."""

from __future__ import annotations

import reprlib
from dataclasses import fields
from typing import Any, Final, cast


class _Brief(reprlib.Repr):
    """Cuts what is long, and shows an array as its dtype and shape, never its numbers."""

    def repr1(self, x: Any, level: int) -> str:
        if getattr(x, "shape", ()) and hasattr(x, "dtype"):
            return f"{x.dtype}{list(x.shape)}"
        return super().repr1(x, level)


_BRIEF: Final = _Brief()
_BRIEF.maxstring = 100
_BRIEF.maxother = 400  # of one that is shown inside another


class Shown:
    """A dataclass without a representation of its own; shows neither None nor defaults."""

    def __repr__(self) -> str:
        given = [
            f"{field.name}={_BRIEF.repr(value)}"
            for field in fields(cast("Any", self))
            if (value := getattr(self, field.name)) is not None and value is not field.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"
