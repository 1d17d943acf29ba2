# SPDX-License-Identifier: Apache-2.0
"""Checks arguments; errors state the value received and the values accepted."""

from __future__ import annotations

import difflib
import math
import operator
import reprlib
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]
"""Explicit positions."""
Reals: TypeAlias = Sequence[float] | npt.NDArray[np.integer[Any] | np.floating[Any]]
"""Explicit positions that may be fractions."""

Span = SupportsIndex | tuple[SupportsIndex, SupportsIndex]
"""A length n, meaning [0, n), or a half-open range (begin, end)."""


def require_instance(value: Any, kind: type | tuple[type, ...], name: str, want: str) -> None:
    """Raises TypeError naming ``name`` unless value is an instance of ``kind``."""
    if isinstance(value, kind):
        return
    if isinstance(value, type):
        got = f"the class {value.__name__}, not an instance"
    elif isinstance(value, str):
        got = repr(value)
    else:
        got = f"an object of type {type(value).__name__}"
    raise TypeError(f"{name}: got {got}; want {want}")


def require_integer(
    value: Any, name: str, kind: str, want: str, *, least: int = 1, most: float = math.inf
) -> None:
    """Raises an error naming ``name`` unless value is an integer in [least, most]."""
    require_instance(value, Integral, name, kind)
    if isinstance(value, bool):
        raise TypeError(f"{name}: got {value}; want {kind}")
    if not least <= value <= most:
        raise ValueError(f"{name}: got {value}, want {want}")


def require_known(call: Any, given: Iterable[str], known: Iterable[str], want: str = "") -> None:
    """Raises Python's TypeError for an unknown ``**option``, with ``want`` or the closest name."""
    names = [*known, *(call.__kwdefaults__ or ())]
    for name in given:
        if name not in names:
            near = [f". Did you mean {it!r}?" for it in difflib.get_close_matches(name, names, 1)]
            got = f"{call.__qualname__}() got an unexpected keyword argument {name!r}"
            raise TypeError(got + (want or "".join(near)))


def bounds(span: Span, name: str, also: str = "") -> tuple[int, int]:
    """Returns the half-open bounds of a span; raises TypeError naming ``name``."""
    try:
        if isinstance(span, tuple):
            begin, end = span
            return operator.index(begin), operator.index(end)
        return 0, operator.index(span)
    except (TypeError, ValueError) as error:
        want = f"an integer or a tuple (begin, end) of two{also}"
        raise TypeError(f"{name}: got {reprlib.repr(span)}, want {want}") from error
