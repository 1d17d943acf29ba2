# SPDX-License-Identifier: Apache-2.0
"""Numbers made of weights, which count for as long as the weights stay what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from attnbias._models.changes import Changes

_NUMBERS: Final = "attnbias_numbers"
_MADE_OF: Final = "attnbias_made_of"  # the weights, and how often each had changed


class _Origin(list[tuple[torch.Tensor, int]]):
    """Empty in a copy of the module: it counts the changes of its own weights from 0."""

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[()]]:
        return type(self), ()


def hold(changes: Changes, module: Any, numbers: torch.Tensor) -> None:
    """Adds numbers that were made of a module's parameters, to go where the module goes.

    Refuses parameters whose changes cannot be seen.
    """
    if any(weight.is_inference() for weight in module.parameters()):
        raise ValueError(
            "model: got weights made under torch.inference_mode(), whose changes are not counted; "
            "want them made outside"
        )
    changes.add_buffer(module, _NUMBERS, numbers, numbers)
    made_of = ((weight, weight._version) for weight in module.parameters())
    changes.set(module, _MADE_OF, _Origin(made_of))


def forward(module: Any, *arguments: Any) -> torch.Tensor:
    """Returns the held numbers if they are valid, else those of the module's own forward."""
    numbers = held(module)
    made: torch.Tensor = type(module).forward(module, *arguments) if numbers is None else numbers
    return made


def held(module: Any) -> torch.Tensor | None:
    """The numbers; None if a parameter is no longer what they were made of, or about to learn.

    Also None under torch.compile: a program does not see that a weight has changed.
    """
    if torch.compiler.is_compiling():
        return None
    origin, weights = getattr(module, _MADE_OF), list(module.parameters())
    if len(origin) != len(weights):
        return None
    for weight, (made_of, version) in zip(weights, origin, strict=True):
        learns = weight.requires_grad and torch.is_grad_enabled()
        if learns or weight is not made_of or weight._version != version:
            return None
    numbers: torch.Tensor = getattr(module, _NUMBERS)
    return numbers
