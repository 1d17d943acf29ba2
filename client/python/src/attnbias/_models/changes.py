# SPDX-License-Identifier: Apache-2.0
"""Changes to a model, and their reversal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import Tensor, nn

_ABSENT: Final = object()
_BELOW_HOOK: Final = "_old_forward"  # accelerate's name for the forward that its wrapper calls


class Changes:
    """Changes to one model, undone in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute of an instance, which may hide an attribute of the class."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        if before is _ABSENT:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, before))

    def set_method(self, module: nn.Module, name: str, function: Callable[..., Any]) -> None:
        """Sets a method of an instance; a copy of the module gets its own method.

        The method is not a MethodType, which pickle would look up by the function's name in the
        module. A forward is installed below accelerate's wrapper, which moves weights and inputs.
        """
        is_hooked = name == "forward" and _BELOW_HOOK in vars(module)
        self.set(module, _BELOW_HOOK if is_hooked else name, functools.partial(function, module))

    def set_names(self, module: nn.Module, **functions: Callable[..., Any]) -> None:
        """Makes a module's forward call these functions instead of the ones with the same names."""
        self.set_method(module, "forward", _with_names(type(module).forward, functions))

    def add_buffer(self, module: nn.Module, name: str, tensor: Tensor, near: Tensor) -> None:
        """Adds a tensor that moves with the module and is not in its checkpoints.

        The tensor is put on the device of ``near``, a tensor of the module. If ``near`` is on the
        meta device, as with weights that are loaded later, the added tensor keeps its values and
        its device, and is moved by the code that reads it.
        """
        if near.is_meta:
            self.set(module, name, tensor)
            return
        module.register_buffer(name, tensor.to(near.device), persistent=False)
        self._undo.append(lambda: delattr(module, name))

    def set_numbers(self, parameter: nn.Parameter, numbers: Tensor) -> None:
        """Moves a parameter's values to other memory and frees its former memory.

        On undo, the parameter gets new memory with its trained values.
        """

        def release() -> None:
            parameter.data = parameter.data.clone()

        parameter.data = numbers
        self._undo.append(release)

    def add_pre_hook(self, module: nn.Module, hook: Callable[..., Any]) -> None:
        """Adds ``hook(module, args, kwargs)``, which runs before forward."""
        self._undo.append(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


def _with_names(function: FunctionType, functions: dict[str, Callable[..., Any]]) -> FunctionType:
    """Copies a function without its decorators, replacing globals with these names."""
    inner = getattr(function, "__wrapped__", None)
    names, cells = function.__globals__, function.__closure__
    if inner is None:
        names = names | functions
    else:
        remade = _with_names(inner, functions)
        cells = tuple(CellType(remade) if c.cell_contents is inner else c for c in cells or ())
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    if inner is not None:
        functools.update_wrapper(copy, remade)
    return copy
