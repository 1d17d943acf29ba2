# SPDX-License-Identifier: Apache-2.0
"""Payloads into .npy and .safetensors files, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUFFIXES = (".npy", ".safetensors")


def check_suffix(path: Path) -> None:
    """Refuses a file name that does not say one of the two formats, with ValueError."""
    if path.suffix not in _SUFFIXES:
        message = f"path: got {str(path)!r}, want a name that ends in {' or '.join(_SUFFIXES)}"
        raise ValueError(message)


def write(path: Path, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, str]) -> None:
    """Writes arrays under their names, or into a .npy the only one; replaces what was there.

    Raises:
        OSError: the file cannot be written.
        ValueError: the name ends otherwise, or a .npy would have to hold several arrays.
    """
    check_suffix(path)
    if path.suffix == ".npy" and len(arrays) != 1:
        message = f"path: a .npy holds one array, got {', '.join(arrays)}; want a .safetensors"
        raise ValueError(message)
    with _replacing(path) as draft:
        if path.suffix == ".npy":
            (array,) = arrays.values()
            np.save(draft, array, allow_pickle=False)
        else:
            save_file(arrays, draft, metadata)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A draft beside path that takes its place when the block succeeds, or vanishes."""
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        yield draft
        os.replace(draft, path)
