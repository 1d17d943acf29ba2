# SPDX-License-Identifier: Apache-2.0
"""What ``attach`` gives back: a report, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from attnbias._fields import Encoding
    from attnbias.transformers._changes import Changes


@dataclass(frozen=True)
class Replacement:
    """A computation that was replaced, or a learned table that was left.

    Before anything was replaced, the model's numbers were compared with the server's.

    Attributes:
        path: of the module, as ``model.named_modules()`` has it, and the method or parameter.
        encoding: what was fetched for it; None where the model adds zeros, which are left out.
        fetched_bytes: bytes of the answer; 0 where another replacement fetched it.
        spared_bytes: of tensors that are no longer made, at max_length and a batch of one.
        left: whether it is as it was.
        reason: why it was left, or else why its numbers could not be compared with the server's;
            empty if they were.
    """

    path: str
    encoding: Encoding | None
    fetched_bytes: int
    spared_bytes: int
    left: bool = False
    reason: str = ""

    def __str__(self) -> str:
        if self.left:
            return f"{self.path}: left as it is; {self.reason}"
        by = "nothing" if self.encoding is None else str(self.encoding)
        sizes = f"{self.fetched_bytes} bytes fetched, {self.spared_bytes} no longer made"
        compared = f"; not compared with what the model has: {self.reason}" if self.reason else ""
        return f"{self.path}: {by}; {sizes}{compared}"


class Attached:
    """A model that takes its positions from a server; ``with`` detaches it at the end."""

    def __init__(self, changes: Changes, replacements: tuple[Replacement, ...]) -> None:
        self._changes = changes
        self._replacements = replacements

    def __repr__(self) -> str:
        left = sum(each.left for each in self._replacements)
        return f"Attached({len(self._replacements) - left} replaced, {left} left as they are)"

    def report(self) -> tuple[Replacement, ...]:
        """What was replaced, in the order of the model's modules."""
        return self._replacements

    def detach(self) -> None:
        """Makes the model what it was before; a second call does nothing."""
        self._changes.undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()
