# SPDX-License-Identifier: Apache-2.0
"""What a caller decides about a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnbias._calls import Calls
    from attnbias._sizes import Sizes


@dataclass(frozen=True)
class CallOptions:
    """That, and what makes the calls."""

    calls: Calls
    max_tensor_bytes: int
    max_attempts: int | None
    timeout: float | None
    out: Any
    progress: bool | None
    streams: int | None
    """How many connections a large payload comes over; None is as many as are worth it."""
    sizes: Sizes
