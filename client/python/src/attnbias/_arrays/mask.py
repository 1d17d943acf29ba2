# SPDX-License-Identifier: Apache-2.0
"""Masks for Toeplitz structures."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from attnbias._checks import require_instance
from attnbias.v1 import tensor_pb2


@dataclass(frozen=True, kw_only=True)
class Mask:
    """Pairs hidden from attention. The attributes match arguments of ``Client.get``.

    Attributes:
        causal: hides keys after the query.
        window_left: hides keys more than this many positions before the query; None means no limit.
        window_right: hides keys more than this many positions after the query; None means no limit.
    """

    causal: bool = False
    window_left: int | None = None
    window_right: int | None = None

    def __post_init__(self) -> None:
        windows = {"window_left": self.window_left, "window_right": self.window_right}
        require_instance(self.causal, bool, "causal", "True or False")
        for name, window in windows.items():
            require_instance(
                window, (Integral, type(None)), name, "an integer of at least 0, or None"
            )
            if window is not None and window < 0:
                raise ValueError(f"{name}: got {window}, want an integer of at least 0")
        if not self.causal and list(windows.values()) == [None, None]:
            raise ValueError(
                "mask: got none of causal, window_left and window_right, want at least one"
            )

    @classmethod
    def of(cls, message: tensor_pb2.Mask) -> Mask | None:
        """Returns the mask that a message describes; None if the message hides nothing."""
        windows = {
            name: getattr(message, name)
            for name in ("window_left", "window_right")
            if message.HasField(name)
        }
        return cls(causal=message.causal, **windows) if message.causal or windows else None

    def visible(self, relative_position: Any) -> Any:
        """Reports whether a key at a relative position is visible; accepts any library's arrays."""
        return self.meets(relative_position, relative_position)

    def meets(self, least: Any, greatest: Any) -> Any:
        """Reports whether some relative position in [least, greatest] is visible."""
        last = 0 if self.causal else self.window_right
        if self.window_left is None:
            return least <= last
        seen = greatest >= -self.window_left
        return seen if last is None else seen & (least <= last)
