# SPDX-License-Identifier: Apache-2.0
"""What a caller decides about a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnbias._calls import CallGroup
    from attnbias._channel import Connection


@dataclass(frozen=True)
class CallOptions:
    """That, the connection it goes over, and the group that it belongs to."""

    connection: Connection
    max_tensor_bytes: int
    max_attempts: int | None
    timeout: float | None
    out: Any
    progress: bool | None
    calls: CallGroup
