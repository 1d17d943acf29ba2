# SPDX-License-Identifier: Apache-2.0
"""Files that others replace while the process runs."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_Value = TypeVar("_Value")

_log: Final = logging.getLogger("attnbias")


class Watched(Generic[_Value]):
    """What files hold, read again when one of them has changed.

    What is then wrong with them is logged, and what was read before stays.

    Args:
        files: which files.
        read: gives what they hold. Its ValueError says what is wrong with them, and comes out of
            the first reading.
    """

    def __init__(self, files: Sequence[Path], read: Callable[[], _Value]) -> None:
        self._files = files
        self._read = read
        self._seen = self._states()
        self.value = read()

    def renew(self) -> bool:
        """Looks at the files; whether they now hold something else."""
        states = self._states()
        if states == self._seen:
            return False
        self._seen = states
        try:
            value = self._read()
        except ValueError as error:
            _log.warning("%s; what was read before is used on", error)
            return False
        changed = value != self.value
        self.value = value
        return changed

    def _states(self) -> list[object]:
        """What tells one state of the files from another; taken before they are read."""
        return [_state(file) for file in self._files]


def _state(file: Path) -> object:
    try:
        status = os.stat(file)
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_bytes(file: Path, name: str) -> bytes:
    """What a file holds.

    Raises:
        ValueError: it cannot be read; names the argument ``name``.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: cannot read {str(file)!r}: {error.strerror}") from None
