# SPDX-License-Identifier: Apache-2.0
"""Numbers made of weights, which count for as long as the weights stay what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from attnbias.transformers._changes import Changes

_NUMBERS: Final = "attnbias_numbers"
_MADE_OF: Final = "attnbias_made_of"  # the weights, and how often each had changed


def hold(changes: Changes, module: Any, numbers: torch.Tensor) -> None:
    """Adds numbers that were made of a module's parameters, to go where the module goes."""
    changes.add_buffer(module, _NUMBERS, numbers)
    made_of = [(weight, weight._version) for weight in module.parameters()]
    changes.set(module, _MADE_OF, made_of)


def held(module: Any) -> torch.Tensor | None:
    """The numbers; None if a parameter is no longer what they were made of, or about to learn."""
    for weight, (made_of, version) in zip(
        module.parameters(), getattr(module, _MADE_OF), strict=True
    ):
        learns = weight.requires_grad and torch.is_grad_enabled()
        if learns or weight is not made_of or weight._version != version:
            return None
    numbers: torch.Tensor = getattr(module, _NUMBERS)
    return numbers
