# SPDX-License-Identifier: Apache-2.0
"""A progress bar for those fetches that keep a person waiting."""

from __future__ import annotations

import os
import sys
from typing import Any, Final, Self

from tqdm import tqdm

_WORTHWHILE_BYTES = 16 << 20
_PATIENCE = 0.5  # seconds before a bar appears unasked
_USUAL_SHAPE: Final = (80, 24)


class Progress:
    """A bar on stderr.

    Args:
        wanted: True shows it, False does not; None shows it on a terminal, for
            a large payload that takes long.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._wanted = wanted
        self._bar: tqdm[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, total: int) -> None:
        """Begins at nothing of total bytes; again, if the payload has to come anew."""
        if self._bar is not None:
            self._bar.reset(total)
        elif self._wanted or (self._wanted is None and total >= _WORTHWHILE_BYTES):
            columns, lines = _shape_to_assume()
            self._bar = tqdm(
                total=total,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
                disable=False if self._wanted else None,  # None: only on a terminal
                delay=0 if self._wanted else _PATIENCE,
                ncols=columns,
                nrows=lines,
            )

    def advance(self, count: int) -> None:
        """Says that count more bytes have come."""
        if self._bar is not None:
            self._bar.update(count)


def _shape_to_assume() -> tuple[int, int] | tuple[None, None]:
    """Columns and lines for tqdm, which shows nothing on a terminal that reports 0 of them."""
    try:
        reported = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):  # not a terminal
        return None, None
    return (None, None) if min(reported) > 0 else _USUAL_SHAPE
