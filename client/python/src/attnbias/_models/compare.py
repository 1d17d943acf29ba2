# SPDX-License-Identifier: Apache-2.0
"""Compares a module's values with the ones that will replace them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import torch
from torch import nn

ULP: Final = 2.0**-23  # of float32, relative to a power of two
_HALF_ULP: Final = ULP / 2
_ANGLE_ROUNDINGS: Final = 16  # in a frequency, its scaling, and its product with a position


class IncomparableError(Exception):
    """The module's values cannot be read; the message is the reason."""


@dataclass(frozen=True)
class Pair:
    """A module's values, and the server's values for the same indices.

    Attributes:
        quantity: name of the values.
        own: the module's values, on any device.
        served: the server's values, with the same shape.
        axes: the indices along each axis, keyed by a name that states what they mean.
        bound: maximum difference, broadcast to the shape; 0 if the values must be equal.
        cause: probable cause of a difference, for the error.
    """

    quantity: str
    own: torch.Tensor
    served: torch.Tensor
    axes: Mapping[str, Sequence[int]]
    bound: torch.Tensor | float = 0.0
    cause: str = ""


def require_same(path: str, pair: Pair) -> None:
    """Rejects a module whose values differ from the server's; states the largest difference."""
    own, served = (each.detach().cpu().double() for each in (pair.own, pair.served))
    if own.shape != served.shape:
        _refuse(
            f"{path} with {pair.quantity} of shape {list(own.shape)}, "
            f"want {list(served.shape)}, as the configuration specifies",
            pair.cause,
        )
    off = (own - served).abs()
    off = torch.where((own == served) | (own.isnan() & served.isnan()), 0.0, off)
    bound = torch.as_tensor(pair.bound, dtype=torch.float64).expand(off.shape)
    beyond = ~(off <= bound)  # true for a NaN too
    if not beyond.any():
        return
    worst = torch.where(beyond, off.nan_to_num(math.inf, math.inf), -1.0).argmax()
    place = [int(index) for index in torch.unravel_index(worst, off.shape)]
    at = ", ".join(
        f"{name} {values[index]}"
        for (name, values), index in zip(pair.axes.items(), place, strict=True)
    )
    got, want, difference, most = (
        float(each.flatten()[worst]) for each in (own, served, off, bound)
    )
    _refuse(
        f"{path} with {pair.quantity} {got:.9g} at {at}, want the server's {want:.9g}; the "
        f"largest difference is {difference:.3g}, above the bound of {most:.3g}",
        pair.cause,
    )


def _refuse(what: str, cause: str) -> NoReturn:
    cause = cause or "The model or its configuration was changed after the model was created"
    raise ValueError(
        f"model: got {what}. {cause}: "
        "load the model again, with the configuration and the dtype that it should have, and "
        "attach it before anything in it is changed; or leave it unattached"
    )


def unreadable(*tensors: torch.Tensor) -> str:
    """Returns why a tensor's values cannot be read; "" if all can be."""
    for tensor in tensors:
        if tensor.is_meta:
            return "its numbers are on the meta device"
        if hasattr(tensor, "full_tensor"):  # reading a DTensor involves all processes
            return f"its numbers are sharded ({type(tensor).__name__})"
    return ""


def require_readable(*tensors: torch.Tensor) -> None:
    """Raises IncomparableError if a tensor's values cannot be read."""
    reason = unreadable(*tensors)
    if reason:
        raise IncomparableError(reason)


@contextlib.contextmanager
def probing(module: nn.Module, **attributes: Any) -> Iterator[None]:
    """Sets attributes of a module; on exit undoes these and all other changes to the module."""
    before = dict(vars(module))
    inner = {name: dict(value) for name, value in before.items() if type(value) is dict}
    contents = [
        (buffer, buffer.clone()) for buffer in module.buffers(recurse=False) if not buffer.is_meta
    ]
    try:
        for name, value in attributes.items():
            setattr(module, name, value)
        with torch.no_grad():
            yield
    finally:
        for name, value in inner.items():
            before[name].clear()
            before[name].update(value)
        vars(module).clear()
        vars(module).update(before)
        with torch.no_grad():
            for buffer, numbers in contents:
                if not torch.equal(buffer, numbers):
                    buffer.copy_(numbers)


def probes(length: int) -> list[int]:
    """Returns some positions below a length: first, last, and those near powers of two."""
    powers = (1 << exponent for exponent in range(length.bit_length()))
    near = {place for power in powers for place in (power - 1, power, power * 3 // 2)}
    return sorted({0, length - 1} | {place for place in near if place < length})


def angle_bound(
    positions: Sequence[int], frequencies: torch.Tensor, rope_theta: float
) -> torch.Tensor:
    """Returns a bound on the error in float32 angles, ``[positions, pairs]``.

    A frequency is a power of rope_theta with a rounded exponent. Its scaling and its product with
    the position are rounded too. ``frequencies`` are the frequencies before any reduction.
    """
    relative = (_ANGLE_ROUNDINGS + math.log(max(rope_theta, 1.0))) * _HALF_ULP
    return torch.tensor(positions).double()[:, None] * frequencies.double() * relative


def held_in(numbers: torch.Tensor) -> torch.dtype:
    """Returns the narrowest type that holds all values, which may have been cast to a wider one."""
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(numbers.to(dtype).to(numbers.dtype), numbers):
            return dtype
    return numbers.dtype


def require_class_method(path: str, module: nn.Module, name: str) -> None:
    """Rejects a module that has its own version of a method, which attach would override."""
    if name in vars(module):
        raise ValueError(
            f"model: got {path} with its own {name}, which attach would ignore, want that of "
            f"{type(module).__name__}"
        )
