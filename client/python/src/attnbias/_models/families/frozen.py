# SPDX-License-Identifier: Apache-2.0
"""Numbers computed from weights, valid until the weights change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from attnbias._models.changes import Changes

_NUMBERS: Final = "attnbias_numbers"
_MADE_OF: Final = "attnbias_made_of"  # the weights, and how often each had changed


class _Origin(list[tuple[torch.Tensor, int]]):
    """Empty in a copy of the module, which counts the changes of its own weights from 0."""

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[()]]:
        return type(self), ()


def hold(changes: Changes, module: Any, numbers: torch.Tensor) -> None:
    """Adds numbers computed from a module's parameters, which move with the module.

    Refuses parameters whose changes cannot be detected.
    """
    if any(weight.is_inference() for weight in module.parameters()):
        raise ValueError(
            "model: got weights created under torch.inference_mode(), which does not track their "
            "changes; want them created outside it"
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
    """Returns the numbers; None if a parameter has changed or is being trained.

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
