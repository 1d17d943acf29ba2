# SPDX-License-Identifier: Apache-2.0
"""Converts arrays to torch and back, including bfloat16, and registers structures as JAX pytrees.

Imports torch only when it is used, and never imports JAX.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

BFLOAT16: Final[np.dtype[Any]] = np.dtype(ml_dtypes.bfloat16)


class Convertible(Protocol):
    """A structure, such as ``attnbias.Toeplitz``."""

    def to_torch(self, device: str | torch.device | None = None) -> torch.Tensor:
        """Returns the dense tensor, expanded on the device."""
        ...


def is_torch_tensor(value: object) -> bool:
    """Reports whether value is a torch tensor, without importing torch."""
    module = sys.modules.get("torch")
    return module is not None and isinstance(value, module.Tensor)


def to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Returns a CPU tensor's memory as an array with the same shape; copies nothing."""
    import torch  # noqa: PLC0415

    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:  # numpy() rejects it, but accepts 16-bit integers
        bits: npt.NDArray[Any] = tensor.view(torch.int16).numpy()
        return bits.view(BFLOAT16)
    array: npt.NDArray[Any] = tensor.numpy()
    return array


def to_torch(
    array: npt.NDArray[Any] | Convertible, device: str | torch.device | None = None
) -> torch.Tensor:
    """Converts a result of ``Client.get`` to a torch tensor, including bfloat16.

    Copies an array only if the device changes, or if the array is read-only or has strides that
    torch does not support. A structure becomes its dense tensor, expanded on the device.

    Args:
        array: an array, or a structure such as ``attnbias.Toeplitz``.
        device: the tensor's device; None means the CPU.

    Raises:
        TypeError: array is neither of these, or has an element type that torch lacks.
    """
    import torch  # noqa: PLC0415

    if not isinstance(array, np.ndarray):
        if not hasattr(array, "to_torch"):
            got = type(array).__name__
            raise TypeError(f"array: got {got}, want a NumPy array or an attnbias structure")
        return array.to_torch(device)
    if array.dtype == BFLOAT16:
        tensor = _from_numpy(torch, array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = _from_numpy(torch, array)
    return tensor if device is None else tensor.to(device)


def _from_numpy(module: Any, array: npt.NDArray[Any]) -> torch.Tensor:
    # torch warns about read-only memory and would let the caller write to it. torch has no negative
    # strides.
    fits = array.flags.writeable and min(array.strides, default=0) >= 0
    owned = array if fits else array.copy()
    tensor: torch.Tensor = module.from_numpy(owned)
    return tensor


_registered: Final[set[type]] = set()
OF_DEVICES: Final = {"_whole", "_begin"}
"""Attributes related to copies on torch devices."""
# Attributes that pytree transformations drop: device copies, and the identity of the bytes.
_FORGOTTEN: Final = {"fingerprint", "resolved_spec", *OF_DEVICES}


def register_with_jax(kind: type[Any]) -> None:
    """Registers a class as a pytree, once, and only if JAX is imported."""
    tree_util = getattr(sys.modules.get("jax"), "tree_util", None)  # None while JAX is imported
    if tree_util is None or kind in _registered:
        return
    _registered.add(kind)
    keys = [tree_util.GetAttrKey(name) for name in kind._leaves]

    def flatten(structure: Any) -> tuple[list[Any], tuple[tuple[str, Any], ...]]:
        rest = set(vars(structure)).difference(kind._leaves, _FORGOTTEN)
        leaves = [getattr(structure, name) for name in kind._leaves]
        return leaves, tuple((name, getattr(structure, name)) for name in sorted(rest))

    def flatten_with_keys(structure: Any) -> tuple[list[tuple[Any, Any]], Any]:
        leaves, rest = flatten(structure)
        return list(zip(keys, leaves, strict=True)), rest

    def unflatten(rest: tuple[tuple[str, Any], ...], leaves: tuple[Any, ...]) -> Any:
        # Checks nothing, since leaves of JAX pytrees need not be arrays.
        structure = object.__new__(kind)
        vars(structure).update(rest, **dict(zip(kind._leaves, leaves, strict=True)))
        return structure

    tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)
